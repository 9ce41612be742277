"""Three functions: `feed` follows commits, `reconcile` checks every table, `handle` applies a deploy or a delete."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from typing import Any

import boto3
from aws_lambda_powertools import Logger, Metrics, Tracer
from aws_lambda_powertools.utilities.data_classes import CloudFormationCustomResourceEvent
from aws_lambda_powertools.utilities.typing import LambdaContext
from botocore.config import Config

from calve.config.publishing import IcebergRest
from calve.errors import CalveError, Retryable
from calve.names import TableName
from calve.outputs.metrics import (
    CATALOG_FAILED,
    CATALOG_FOLLOWED,
    CATALOG_LAG,
    CATALOG_REPAIRS,
)
from lambdas.catalog_sync.deployment import Wanted, apply, open_sync, remove
from lambdas.catalog_sync.sync import TARGET, Published, Report, Sync, follow
from lambdas.catalog_sync.sync import reconcile as reconcile_all
from lambdas.custom_resource import serve
from lambdas.metering import NAMESPACE, add
from lambdas.publish_states import CommitBatch

SERVICE = "catalog_sync"
CONFIG = Config(connect_timeout=3, read_timeout=10, retries={"mode": "standard", "total_max_attempts": 4})
logger = Logger(service=SERVICE)
tracer = Tracer(service=SERVICE)
metrics = Metrics(namespace=NAMESPACE, service=SERVICE)


@logger.inject_lambda_context(log_event=False)
@tracer.capture_lambda_handler(capture_response=False)
@metrics.log_metrics
def feed(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Follow the commits in a batch of messages; returns the messages to deliver again."""
    metrics.add_dimension(
        "function", context.function_name
    )  # several deployments share the namespace of metrics
    batch = CommitBatch.of(event)
    sync, published = _sync(), _published()
    names = [name for name in batch.about if _is_published(sync, published, name)]
    report = follow(sync, names)
    add(metrics, CATALOG_FOLLOWED, len(names))
    _log_report(report)
    again = {each.table for each in report.failures if _may_pass(each.error)}
    return batch.answer([name for name in names if str(name) in again])


@logger.inject_lambda_context(log_event=False)
@tracer.capture_lambda_handler(capture_response=False)
@metrics.log_metrics
def reconcile(event: dict[str, Any], context: LambdaContext) -> None:
    """Find and repair every difference."""
    metrics.add_dimension("function", context.function_name)
    report = reconcile_all(_sync(), _published())
    _log_report(report)
    for each in report.repairs:
        acts = [act.value for act in each.acts]
        logger.warning("catalog.repaired", extra={"table": each.table, "acts": acts, "late_s": each.late_s})
    add(metrics, CATALOG_REPAIRS, len(report.repairs))
    add(metrics, CATALOG_FAILED, len(report.failures))
    logger.info(
        "catalog.reconciled",
        extra={"tables": len(report.outcomes) + len(report.failures), "failed": len(report.failures)},
    )


@logger.inject_lambda_context(log_event=False)
@tracer.capture_lambda_handler(capture_response=False)
def handle(event: dict[str, Any], context: LambdaContext) -> None:
    """Answer CloudFormation: new tables become pending, tables that are no longer published are dropped."""
    fields = {"request": event["RequestType"]}

    def act(request: CloudFormationCustomResourceEvent, *, time_left_s: float) -> None:
        wanted = Wanted.parse(request.resource_properties)
        if request.request_type == "Delete":
            remove(wanted, _client)
        else:
            before = request.old_resource_properties if request.request_type == "Update" else None
            apply(wanted, Wanted.parse(before) if before else None, _client)

    if reason := serve(event, context, act, identify=_identify):
        logger.error("catalog.not_deployed", extra=fields | {"reason": reason})
    else:
        logger.info("catalog.deployed", extra=fields)


def _identify(properties: Mapping[str, Any]) -> str:
    """The same id for every catalog: if the catalog changes, an update drops the tables."""
    return f"{Wanted.parse(properties).published.deployment}-{TARGET}"


def _log_report(report: Report) -> None:
    for each in report.outcomes:
        if each.acts:
            acts = [act.value for act in each.acts]
            logger.info("catalog.synced", extra={"table": each.table, "acts": acts, "lag_s": each.lag_s})
        if each.lag_s is not None:
            add(metrics, CATALOG_LAG, each.lag_s)
    if report.failures:
        _sync.cache_clear()  # read a changed secret again
    for failure in report.failures:
        logger.error("catalog.not_synced", extra={"table": failure.table, "reason": failure.reason})


def _may_pass(error: Exception) -> bool:
    """Whether a retry soon may succeed. After a refusal, the reconcile retries."""
    return isinstance(error, Retryable) or not isinstance(error, CalveError)


def _is_published(sync: Sync, published: Published, name: TableName) -> bool:
    return sync.states.find(TARGET, str(name)) is not None or published.matches(sync.glue, name)


@cache
def _sync() -> Sync:
    return open_sync(
        IcebergRest.from_json(os.environ["CATALOG"]),
        deployment=_published().deployment,
        states_table=os.environ["STATES_TABLE"],
        client=_client,
    )


@cache
def _published() -> Published:
    return Published.from_json(os.environ["PUBLISHED"])


@cache
def _client(service: str) -> Any:
    return boto3.client(service, config=CONFIG)
