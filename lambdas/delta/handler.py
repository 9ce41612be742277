"""Three functions: `feed` follows commits, `reconcile` looks at every table, `handle` applies a deploy or a delete."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from typing import Any

import boto3
from aws_lambda_powertools import Logger, Metrics, Tracer
from aws_lambda_powertools.utilities.data_classes import CloudFormationCustomResourceEvent
from aws_lambda_powertools.utilities.typing import LambdaContext
from botocore.config import Config

from calve.outputs.metrics import DELTA_FAILED, DELTA_FOLLOWED, DELTA_LAG
from lambdas.aws import read_text
from lambdas.custom_resource import handler_of
from lambdas.delta.sync import LEASE_MS, TARGET, DeltaSync
from lambdas.function import NAMESPACE, add
from lambdas.publish_states import (
    Outcome,
    Published,
    PublishStates,
    follow_batch,
    publish,
)
from lambdas.publish_states import reconcile as reconcile_all

SERVICE = "delta"
CONFIG = Config(connect_timeout=3, read_timeout=30, retries={"mode": "standard", "total_max_attempts": 4})
logger = Logger(service=SERVICE)
tracer = Tracer(service=SERVICE)
metrics = Metrics(namespace=NAMESPACE, service=SERVICE)


@logger.inject_lambda_context(log_event=False)
@tracer.capture_lambda_handler(capture_response=False)
@metrics.log_metrics
def feed(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Follow the commits in a batch of messages; returns the messages to deliver again."""
    metrics.add_dimension("function", context.function_name)
    sync, published = _sync(os.environ["STATES_TABLE"]), _published(os.environ["PUBLISHED_FILE"])
    outcomes, answer = follow_batch(sync, published, event)
    add(metrics, DELTA_FOLLOWED, len(outcomes))
    _log(outcomes)
    return answer


@logger.inject_lambda_context(log_event=False)
@tracer.capture_lambda_handler(capture_response=False)
@metrics.log_metrics
def reconcile(event: dict[str, Any], context: LambdaContext) -> None:
    """Write what is missing of every table."""
    metrics.add_dimension("function", context.function_name)
    outcomes = reconcile_all(_sync(os.environ["STATES_TABLE"]), _published(os.environ["PUBLISHED_FILE"]))
    _log(outcomes)
    failed = sum(each.error is not None for each in outcomes)
    add(metrics, DELTA_FAILED, failed)
    logger.info("delta.reconciled", extra={"tables": len(outcomes), "failed": failed})


def _act(request: CloudFormationCustomResourceEvent, time_left_s: float) -> None:
    """New tables become pending. The logs of tables that are no longer published are deleted."""
    properties = request.resource_properties
    # A crashed function holds its table's lease that long: a slow delete is better than a failed one.
    sync = replace(_sync(properties["StatesTable"]), patience_s=LEASE_MS / 1000 + 10)
    if request.request_type == "Delete":
        publish(sync, Published(properties["Deployment"]))
    else:
        publish(sync, Published.from_json(read_text(_client("s3"), properties["PublishedFile"])))


handle = handler_of(
    _act,
    identify=lambda properties: f"{properties['Deployment']}-{TARGET}",
    logger=logger,
    tracer=tracer,
    failed="delta.not_deployed",
    done="delta.deployed",
)


def _log(outcomes: Iterable[Outcome]) -> None:
    for each in outcomes:
        if each.acts:
            logger.info(
                "delta.written", extra={"table": each.table, "acts": [*each.acts], "lag_s": each.lag_s}
            )
        if each.lag_s is not None:
            add(metrics, DELTA_LAG, each.lag_s)
        if each.error:
            logger.error("delta.not_written", extra={"table": each.table, "reason": each.reason})


@cache
def _sync(states: str) -> DeltaSync:
    files = {"s3.region": os.environ["AWS_REGION"], "py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO"}
    if endpoint := os.environ.get("AWS_ENDPOINT_URL"):
        files["s3.endpoint"] = endpoint
    clients = _client("glue"), _client("s3"), PublishStates(states, _client("dynamodb"))
    return DeltaSync(*clients, file_io=files)


@cache
def _published(file: str) -> Published:
    return Published.from_json(read_text(_client("s3"), file))


@cache
def _client(service: str) -> Any:
    return boto3.client(service, config=CONFIG)
