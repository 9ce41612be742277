"""Hand a job over at a deploy (`handle`), wait for it (`acknowledge`), keep it running (`watchdog`), start it (`start`).

`brokers` finds the bootstrap servers of an MSK cluster.
"""

from __future__ import annotations

import os
from dataclasses import asdict
from datetime import UTC, datetime
from functools import cache, partial
from typing import Any

import boto3
from aws_lambda_powertools import Logger, Tracer
from aws_lambda_powertools.utilities.data_classes import (
    CloudFormationCustomResourceEvent,
    EventBridgeEvent,
    event_source,
)
from aws_lambda_powertools.utilities.typing import LambdaContext
from botocore.config import Config

from calve.errors import ConfigError
from calve.outputs.metrics import WATCHDOG_EXHAUSTED
from lambdas.aws import Schedules
from lambdas.custom_resource import fitting, handler_of, stack_status
from lambdas.function import add_alone, from_properties, from_variables
from lambdas.job_control.acknowledgement import NOT_AWAITED, Acknowledgement
from lambdas.job_control.hand_over import HandOver, Wanted
from lambdas.job_control.jobs import Jobs
from lambdas.job_control.jobs import start as start_job
from lambdas.job_control.watchdog import Act, Ended, Environment, Watchdog

IAM = "BootstrapBrokerStringSaslIam"
SERVICE = "job_control"
logger = Logger(service=SERVICE)
tracer = Tracer(service=SERVICE)
# Short timeouts, so that CloudFormation is answered in time.
RETRIES = {"mode": "standard", "total_max_attempts": 4}
CONFIG = Config(connect_timeout=3, read_timeout=6, retries=RETRIES, tcp_keepalive=True)


@logger.inject_lambda_context(log_event=False)
@tracer.capture_lambda_handler(capture_response=False)
@event_source(data_class=EventBridgeEvent)
def watchdog(event: EventBridgeEvent, context: LambdaContext) -> None:
    environment = from_variables(Environment, os.environ)
    ended = Ended.parse(event.detail)
    group, role = environment.schedule_group, environment.scheduler_role_arn
    later = Schedules(_client("scheduler"), group, role, context.invoked_function_arn)
    judge = Watchdog(
        Jobs(_client("glue")), _client("s3"), later, environment.continuous_jobs, environment.restarts
    )
    verdict = judge.handle(ended, datetime.now(UTC))
    if verdict.act == Act.EXHAUSTED:
        add_alone(WATCHDOG_EXHAUSTED, service=SERVICE, job=ended.job)
    about = {"job": ended.job, "run": ended.run, "state": ended.state}
    logger.info("watchdog.judged", extra=about | asdict(verdict))


@logger.inject_lambda_context(log_event=False)
@tracer.capture_lambda_handler(capture_response=False)
def start(event: dict[str, Any], context: LambdaContext) -> dict[str, str]:
    """Start a run of `{"job": NAME}`; returns its id."""
    run = start_job(Jobs(_client("glue")), frozenset(os.environ["JOBS"].split(",")), event)
    logger.info("job.started", extra={"job": event["job"], "run": run})
    return {"run": run}


def _hand_over(request: CloudFormationCustomResourceEvent, time_left_s: float) -> None:
    wanted = from_properties(Wanted, request.resource_properties)
    work = HandOver(Jobs(_client("glue")), _client("s3"), time_left_s=time_left_s)
    if request.request_type == "Delete":
        work.end(wanted)
    else:
        before = request.old_resource_properties
        work.begin(wanted, from_properties(Wanted, before) if before else None)


def _acknowledge(request: CloudFormationCustomResourceEvent, time_left_s: float) -> dict[str, str]:
    """A rollback does not wait: what kept the new generation from its tables may keep the old one, too."""
    wanted = from_properties(Wanted, request.resource_properties)
    if request.request_type == "Delete":
        return {}
    if "ROLLBACK" in stack_status(request.stack_id, _client("cloudformation")):
        return {"Tables": NOT_AWAITED}
    work = Acknowledgement(Jobs(_client("glue")), _client("s3"), time_left_s)
    return {"Tables": fitting(work.wait(wanted))}


def _brokers(request: CloudFormationCustomResourceEvent, time_left_s: float) -> dict[str, str]:
    """A cluster's bootstrap servers, as the attribute `Servers`. It creates nothing."""
    if request.request_type == "Delete":
        return {}
    cluster = request.resource_properties["ClusterArn"]
    servers = _client("kafka").get_bootstrap_brokers(ClusterArn=cluster).get(IAM)
    if not servers:
        raise ConfigError(
            f"the cluster {cluster} has no IAM listener", fix="switch IAM access control on in MSK"
        )
    return {"Servers": str(servers)}


_of_job = partial(
    handler_of,
    identify=lambda properties: from_properties(Wanted, properties).job_name,
    logger=logger,
    tracer=tracer,
    about={"job": "JobName"},
)
handle = _of_job(_hand_over, failed="job.not_handed_over", done="job.handed_over")
acknowledge = _of_job(_acknowledge, failed="job.not_acknowledged", done="job.acknowledged")
brokers = handler_of(
    _brokers,
    identify=lambda properties: str(properties["ClusterArn"]),
    logger=logger,
    tracer=tracer,
    failed="brokers.not_found",
)


@cache
def _client(service: str) -> Any:
    return boto3.client(service, config=CONFIG)
