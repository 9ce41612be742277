"""Three functions: `feed` follows commits, `reconcile` checks every table, `handle` applies a deploy or a delete."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Self

import boto3
from aws_lambda_powertools import Logger, Metrics, Tracer
from aws_lambda_powertools.utilities.data_classes import CloudFormationCustomResourceEvent
from aws_lambda_powertools.utilities.typing import LambdaContext
from botocore.config import Config

from calve.config.publishing import IcebergRest
from calve.outputs.metrics import CATALOG_FAILED, CATALOG_FOLLOWED, CATALOG_LAG, CATALOG_REPAIRS
from lambdas.aws import read_text
from lambdas.catalog_sync.catalog import Catalog, Server, tokens_of
from lambdas.catalog_sync.sync import LEASE_MS, TARGET, Sync, withdraw
from lambdas.custom_resource import handler_of
from lambdas.function import NAMESPACE, add
from lambdas.publish_states import (
    Outcome,
    Published,
    PublishStates,
    follow_batch,
    make_pending,
)
from lambdas.publish_states import reconcile as reconcile_all

Client = Callable[[str], Any]
SERVICE = "catalog_sync"
CONFIG = Config(connect_timeout=3, read_timeout=10, retries={"mode": "standard", "total_max_attempts": 4})
logger = Logger(service=SERVICE)
tracer = Tracer(service=SERVICE)
metrics = Metrics(namespace=NAMESPACE, service=SERVICE)


def open_sync(settings: IcebergRest, *, deployment: str, states_table: str, client: Client) -> Sync:
    """The synchronization with the configured catalog; `client` makes AWS clients.

    Raises:
        ConfigError, Retryable: as `read_secret`.
    """
    tokens = tokens_of(settings, settings.secret, settings.scope) if settings.secret else None
    notified = settings.update == "notifications"
    return Sync(
        glue=client("glue"),
        s3=client("s3"),
        catalog=Catalog(Server(settings.uri, tokens), settings.warehouse, notified=notified),
        states=PublishStates(states_table, client("dynamodb")),
        deployment=deployment,
        namespace=settings.namespace,
    )


@dataclass(frozen=True, slots=True)
class Wanted:
    """The properties of the custom resource. file: the S3 URI of the whole of `published`, which may list thousands of tables;
    None: an earlier release has listed them in the property.
    """

    catalog: IcebergRest
    published: Published
    states_table: str
    file: str | None = None

    @classmethod
    def parse(cls, properties: Mapping[str, Any]) -> Self:
        return cls(
            IcebergRest.from_json(properties["Catalog"]),
            Published.from_json(properties["Published"]),
            properties["StatesTable"],
            properties.get("PublishedFile"),
        )

    def open(self) -> Sync:
        opened = open_sync(
            self.catalog,
            deployment=self.published.deployment,
            states_table=self.states_table,
            client=_client,
        )
        # A crashed function holds its table's lease that long: a slow delete is better than a failed one.
        return replace(opened, patience_s=LEASE_MS / 1000 + 10)

    def withdraw_all(self, *, moving_away: bool = False) -> None:
        """Drop all tables that this deployment published. Raises Retryable: a table could not be dropped."""
        nothing = replace(self.published, tables=frozenset(), patterns=())
        withdraw(replace(self.open(), moving_away=moving_away), nothing)

    @property
    def place(self) -> tuple[str, str | None, str | None]:
        return (self.catalog.uri, self.catalog.warehouse, self.catalog.namespace)


@logger.inject_lambda_context(log_event=False)
@tracer.capture_lambda_handler(capture_response=False)
@metrics.log_metrics
def feed(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Follow the commits in a batch of messages; returns the messages to deliver again."""
    # Several deployments share the namespace of metrics.
    metrics.add_dimension("function", context.function_name)
    outcomes, answer = follow_batch(_sync(), _published(), event)
    add(metrics, CATALOG_FOLLOWED, len(outcomes))
    _log(outcomes)
    return answer


@logger.inject_lambda_context(log_event=False)
@tracer.capture_lambda_handler(capture_response=False)
@metrics.log_metrics
def reconcile(event: dict[str, Any], context: LambdaContext) -> None:
    """Find and repair every difference."""
    metrics.add_dimension("function", context.function_name)
    outcomes = reconcile_all(_sync(), _published())
    _log(outcomes)
    repairs = [each for each in outcomes if each.repaired]
    for each in repairs:
        logger.warning("catalog.repaired", extra={**_facts(each), "late_s": each.late_s})
    failed = sum(each.error is not None for each in outcomes)
    add(metrics, CATALOG_REPAIRS, len(repairs))
    add(metrics, CATALOG_FAILED, failed)
    logger.info("catalog.reconciled", extra={"tables": len(outcomes), "failed": failed})


def _act(request: CloudFormationCustomResourceEvent, time_left_s: float) -> None:
    """New tables become pending, tables that are no longer published are dropped."""
    wanted = Wanted.parse(request.resource_properties)
    if request.request_type == "Delete":
        wanted.withdraw_all()
        return
    if request.request_type == "Update":
        before = Wanted.parse(request.old_resource_properties)
        if before.place != wanted.place:
            before.withdraw_all(moving_away=True)
    sync, published = wanted.open(), wanted.published if wanted.file is None else _read(wanted.file)
    make_pending(sync.states, TARGET, sorted(published.tables))
    withdraw(sync, published)


handle = handler_of(
    _act,
    # The same id for every catalog: if the catalog changes, an update drops the tables.
    identify=lambda properties: f"{Wanted.parse(properties).published.deployment}-{TARGET}",
    logger=logger,
    tracer=tracer,
    failed="catalog.not_deployed",
    done="catalog.deployed",
)


def _log(outcomes: Iterable[Outcome]) -> None:
    for each in outcomes:
        if each.acts:
            logger.info("catalog.synced", extra={**_facts(each), "lag_s": each.lag_s})
        if each.lag_s is not None:
            add(metrics, CATALOG_LAG, each.lag_s)
        if each.error:
            _sync.cache_clear()  # read a changed secret again
            logger.error("catalog.not_synced", extra={"table": each.table, "reason": each.reason})


def _facts(outcome: Outcome) -> dict[str, Any]:
    return {"table": outcome.table, "acts": [*outcome.acts]}


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
    return _read(os.environ["PUBLISHED_FILE"])


def _read(file: str) -> Published:
    return Published.from_json(read_text(_client("s3"), file))


@cache
def _client(service: str) -> Any:
    return boto3.client(service, config=CONFIG)
