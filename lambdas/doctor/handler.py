"""`calve doctor --remote`: the checks from the jobs' network, with the deployed settings.

The caller cannot choose what is checked, so the function sends no secret to another server.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import boto3
from aws_lambda_powertools import Logger, Tracer
from aws_lambda_powertools.utilities.typing import LambdaContext
from botocore.config import Config

from calve.config.job import Job, Registry
from lambdas.doctor import lake
from lambdas.doctor.checks import LIMIT_S, lake_probes, probes
from lambdas.doctor.finding import Probe, examine
from lambdas.function import from_variables

SERVICE = "doctor"
CONFIG = Config(connect_timeout=5, read_timeout=10, retries={"total_max_attempts": 2})
logger = Logger(service=SERVICE)
tracer = Tracer(service=SERVICE)


@dataclass(frozen=True, slots=True)
class Environment:
    """files: keys in the bucket of the jobs' settings and of the files they name. servers: of a made cluster."""

    files_bucket: str
    files: tuple[str, ...]
    warehouse: str
    aws_region: str
    database: str | None = None
    servers: str | None = None


@logger.inject_lambda_context(log_event=False)
@tracer.capture_lambda_handler(capture_response=False)
def handle(event: dict[str, Any], context: LambdaContext) -> list[dict[str, str]]:
    """The findings, without secrets."""
    environment = from_variables(Environment, os.environ)
    with tempfile.TemporaryDirectory() as folder:
        jobs = list(_jobs(environment, Path(folder)))
        checks: dict[str, Probe] = {
            "clock": partial(lake.clock, partial(lake.listed, _client, environment.warehouse)),
            **lake_probes(jobs, _client, environment.warehouse, environment.database),
            **probes(jobs, _client),
        }
        found = examine(checks, limit_s=LIMIT_S)
    logger.info("doctor.examined", extra={"faults": sum(each.state == "fail" for each in found)})
    return [asdict(replace(each, seen_from="AWS")) for each in found]


def _client(service: str) -> Any:
    return boto3.client(service, config=CONFIG)


def _jobs(environment: Environment, folder: Path) -> Iterator[Job]:
    """The jobs with their files and with values that only a deploy knows."""
    s3 = _client("s3")
    for key in environment.files:
        found = s3.get_object(Bucket=environment.files_bucket, Key=key)["Body"].read()
        (folder / Path(key).name).write_bytes(found)
    for file in sorted(folder.glob("*.json")):
        job = Job.from_json(file.read_text())
        here = replace(job.lake, region=environment.aws_region)
        servers = environment.servers or job.kafka.bootstrap_servers
        kafka = replace(job.kafka, bootstrap_servers=servers, ca_file=_laid(job.kafka.ca_file, folder))
        registry = job.registry
        if isinstance(registry, Registry):
            registry = replace(registry, ca_file=_laid(registry.ca_file, folder))
        yield replace(job, lake=here, kafka=kafka, registry=registry)


def _laid(file: str | None, folder: Path) -> str | None:
    return str(folder / file) if file else None
