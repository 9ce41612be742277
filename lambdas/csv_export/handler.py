"""EventBridge Scheduler, or `calve export run` -> `run`. Logs and metrics hold counts, no values of tables and no addresses."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import traceback
from copy import copy
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import boto3
from aws_lambda_powertools import Logger, Metrics, Tracer
from aws_lambda_powertools.utilities.idempotency import (
    DynamoDBPersistenceLayer,
    IdempotencyConfig,
    idempotent_function,
)
from aws_lambda_powertools.utilities.idempotency.exceptions import IdempotencyAlreadyInProgressError
from aws_lambda_powertools.utilities.typing import LambdaContext
from pyiceberg.catalog import Catalog, load_catalog

from calve.config.publishing import Export
from calve.errors import Fatal
from calve.outputs import metrics as listed
from calve.outputs.announcement import export_failed
from lambdas.aws import Schedules, databases_of
from lambdas.csv_export.delivery import Lake, Status
from lambdas.csv_export.export import Environment, Order, delivered, run
from lambdas.csv_export.window import ExportFailed
from lambdas.function import NAMESPACE, add, announce, from_variables

SERVICE = "csv_export"
ONCE_S = 24 * 3600
LONGEST = timedelta(minutes=15)
GIVEN_UP = timedelta(hours=1)
OUTCOMES: dict[Status, listed.Metric] = {
    "written": listed.EXPORT_WRITTEN,
    "unchanged": listed.EXPORT_UNCHANGED,
    "waiting": listed.EXPORT_WAITING,
    "redefined": listed.EXPORT_REDEFINED,
    "failed": listed.EXPORT_FAILED,
}
KILLED = "the function was stopped before it had ended, for want of time or memory"
logger = Logger(service=SERVICE)
tracer = Tracer(service=SERVICE)
metrics = Metrics(namespace=NAMESPACE, service=SERVICE)

Event = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Parts:
    """The clients and settings of the handler."""

    environment: Environment
    catalog: Catalog
    glue: Any
    s3: Any
    events: Any
    scheduler: Any
    store: DynamoDBPersistenceLayer
    config: IdempotencyConfig


@cache
def parts() -> Parts:
    environment = from_variables(Environment, os.environ)
    return Parts(
        environment=environment,
        catalog=load_catalog("lake", **environment.catalog_properties()),
        glue=boto3.client("glue"),
        s3=boto3.client("s3"),
        events=boto3.client("events"),
        scheduler=boto3.client("scheduler"),
        store=DynamoDBPersistenceLayer(table_name=environment.idempotency_table),
        config=IdempotencyConfig(expires_after_seconds=ONCE_S, hash_function="sha256"),
    )


@logger.inject_lambda_context(log_event=False, clear_state=True)
@tracer.capture_lambda_handler(capture_response=False)
@metrics.log_metrics
def handle(event: Event, context: LambdaContext) -> list[dict[str, Any]]:
    """Write the files that are due, and return the outcome of each window."""
    export = Export.from_json(json.dumps(event["export"]))
    logger.append_keys(export=export.name)
    metrics.add_dimension("export", export.name)
    # Exports of two deployments may have the same name.
    metrics.add_dimension("function", context.function_name)
    add(metrics, listed.EXPORT_RUNS)
    parts().config.register_lambda_context(context)
    try:
        order = _order(export, event)
    except ExportFailed as failure:
        logger.error("export.failed", extra={"failure": failure.kind})  # noqa: TRY400 the failure says it all
        add(metrics, listed.EXPORT_FAILED)
        _announce_failure(failure.message, export, None, event)
        return [{"status": "failed", "failure": failure.kind}]
    try:
        return _once(_run, key=_key(event), order=order, event=event, context=context)  # type: ignore[no-any-return]
    except IdempotencyAlreadyInProgressError as error:
        # A duplicate event, or a retry of a run that crashed: known when its timeout is over.
        now = datetime.now(UTC)
        if now < order.scheduled_at + timedelta(seconds=export.wait_s) + GIVEN_UP:
            _again(event, now + LONGEST)
            return [{"status": "running", "window": order.period.to_json()}]
        broken: Exception = error
    except Exception as error:  # noqa: BLE001 - raised again, without its text
        broken = error
    kind = type(broken).__name__
    where = [f"{frame.name}:{frame.lineno}" for frame in traceback.extract_tb(broken.__traceback__)]
    logger.error("export.broken", extra={"kind": kind, "where": where[-6:]})
    add(metrics, listed.EXPORT_FAILED)
    reason = f"an unexpected {kind}; the function's log says where"
    _announce_failure(reason, export, order.period.to_json(), event, final=False)
    raise Fatal(f"the export {export.name} ended by {reason}")  # a library's text may quote a value


def _again(event: Event, at: datetime) -> None:
    """Invoke the function with this event at `at`, once for all repetitions of a run."""
    environment = parts().environment
    group, role = environment.schedule_group, environment.scheduler_role_arn
    schedules = Schedules(parts().scheduler, group, role, environment.function_arn)
    text = json.dumps(event, sort_keys=True)
    digest = hashlib.sha256(f"{text}{at:%Y%m%d%H%M}".encode()).hexdigest()[:16]
    schedules.invoke(f"{event['export']['name'][:40]}-again-{digest}", at, event)


def _run(*, key: dict[str, Any], order: Order, event: Event, context: LambdaContext) -> list[dict[str, Any]]:
    environment = parts().environment
    name = secrets.token_hex(4)
    later = event | {"attempt": event.get("attempt", 0) + 1}
    lake = Lake(
        catalog=parts().catalog,
        databases=lambda: databases_of(parts().glue, environment.calve_name),
        s3=parts().s3,
        bucket=environment.lake_bucket,
        prefix=environment.exports_prefix,
        run=name,
        now=lambda: datetime.now(UTC),
        remaining_s=lambda: context.get_remaining_time_in_millis() / 1000,
    )
    if _once(_begin, key=key, run=name) != name and not delivered(order, lake):
        # It may be killed again, and then it could report nothing.
        _announce_failure(KILLED, order.export, order.period.to_json(), event, final=False)
    outcomes = []
    for outcome in run(order, lake, lambda at: _again(later, at)):
        logger.info(f"export.{outcome.status}", extra=outcome.to_json())
        add(metrics, OUTCOMES[outcome.status])
        if outcome.status == "written":
            add(metrics, listed.EXPORT_ROWS, outcome.rows)
            add(metrics, listed.EXPORT_BYTES, outcome.size_bytes)
            add(metrics, listed.EXPORT_INCOMPLETE, int(not outcome.complete))
            add(metrics, listed.EXPORT_CORRECTIONS, int(outcome.correction))
        if outcome.failure:
            _announce_failure(outcome.failure.message, order.export, outcome.period.to_json(), event)
        outcomes.append(outcome.to_json())
    return outcomes


def _begin(*, key: dict[str, Any], run: str) -> str:
    """The first run of an event. Any other run of the event follows one that failed or was killed."""
    del key
    return run


def _order(export: Export, event: Event) -> Order:
    try:
        scheduled_at = datetime.fromisoformat(event["scheduled_at"])
    except ValueError:
        scheduled_at = None
    if scheduled_at is None or scheduled_at.tzinfo is None:
        raise ExportFailed(
            "bad_event",
            "the schedule did not say for which time it started the export",
            fix="deploy the exports again; the schedule's input names <aws.scheduler.scheduled-time>",
        )
    return Order.of(export, scheduled_at, event.get("window"))


def _key(event: Event) -> dict[str, Any]:
    """What identifies a run: EventBridge and Lambda may both deliver an event twice."""
    named = {name: event.get(name) for name in ("scheduled_at", "window", "attempt")}
    return named | {"export": event["export"]["name"]}


def _once(function: Any, **arguments: Any) -> Any:
    # A store keeps the prefix of its last function, and ours are nested.
    decorated = idempotent_function(
        function,
        data_keyword_argument="key",
        persistence_store=copy(parts().store),
        config=parts().config,
        key_prefix=f"{SERVICE}.{function.__name__}",
    )
    return decorated(**arguments)


def _announce_failure(
    reason: str, export: Export, window: dict[str, str] | None, event: Event, *, final: bool = True
) -> None:
    """Report to recipients and operators that there is no file: once per window, however often the run is repeated.

    If not `final`, the error is raised too, and Lambda invokes the function again.
    """
    key = _key(event) | {"about": window, "attempt": None, "final": final}
    _once(_put_event, key=key, reason=reason, export=export)


def _put_event(*, key: dict[str, Any], reason: str, export: Export) -> None:
    deployment = parts().environment.calve_name
    failed = export_failed(deployment, export, key["about"], reason=reason, final=key["final"])
    announce(parts().events, failed)
