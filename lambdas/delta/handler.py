"""Three functions: `feed` follows commits, `reconcile` looks at every table, `handle` applies a deploy or a delete."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import cache
from typing import Any

import boto3
from aws_lambda_powertools import Logger, Metrics, Tracer
from aws_lambda_powertools.utilities.data_classes import CloudFormationCustomResourceEvent
from botocore.config import Config

from calve.outputs.metrics import DELTA_FAILED, DELTA_FOLLOWED, DELTA_LAG
from lambdas.custom_resource import handler_of
from lambdas.delta.sync import LEASE_MS, TARGET, DeltaSync
from lambdas.followers import Published, Words, deploy, functions_of
from lambdas.function import NAMESPACE
from lambdas.publish_states import PublishStates

SERVICE = "delta"
CONFIG = Config(connect_timeout=3, read_timeout=30, retries={"mode": "standard", "total_max_attempts": 4})
logger = Logger(service=SERVICE)
tracer = Tracer(service=SERVICE)
metrics = Metrics(namespace=NAMESPACE, service=SERVICE)


def _act(request: CloudFormationCustomResourceEvent, time_left_s: float) -> None:
    """New tables become pending. The logs of tables that are no longer published are deleted."""
    # A crashed function holds its table's lease that long: a slow delete is better than a failed one.
    sync = replace(_sync(request.resource_properties["StatesTable"]), patience_s=LEASE_MS / 1000 + 10)
    deploy(sync, request, _client("s3"))


@cache
def _sync(states: str) -> DeltaSync:
    files = {"s3.region": os.environ["AWS_REGION"], "py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO"}
    if endpoint := os.environ.get("AWS_ENDPOINT_URL"):
        files["s3.endpoint"] = endpoint
    clients = _client("glue"), _client("s3"), PublishStates(states, _client("dynamodb"))
    return DeltaSync(*clients, file_io=files)


@cache
def _published() -> Published:
    return Published.read(_client("s3"), os.environ["PUBLISHED_FILE"])


@cache
def _client(service: str) -> Any:
    return boto3.client(service, config=CONFIG)


feed, reconcile = functions_of(
    Words("delta", "written", DELTA_FOLLOWED, DELTA_LAG, DELTA_FAILED),
    logger,
    tracer,
    metrics,
    follower=lambda: _sync(os.environ["STATES_TABLE"]),
    published=_published,
)
handle = handler_of(
    _act,
    identify=lambda properties: f"{properties['Deployment']}-{TARGET}",
    logger=logger,
    tracer=tracer,
    failed="delta.not_deployed",
    done="delta.deployed",
)
