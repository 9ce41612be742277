"""Three functions: `feed` follows commits, `reconcile` checks every table, `handle` applies a deploy or a delete."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Self

import boto3
from aws_lambda_powertools import Logger, Metrics, Tracer
from aws_lambda_powertools.utilities.data_classes import CloudFormationCustomResourceEvent
from botocore.config import Config

from calve.config.publishing import IcebergRest
from calve.outputs.metrics import CATALOG_FAILED, CATALOG_FOLLOWED, CATALOG_LAG, CATALOG_REPAIRS
from lambdas.catalog_sync.catalog import Catalog, Server, tokens_of
from lambdas.catalog_sync.sync import LEASE_MS, TARGET, Sync, withdraw
from lambdas.custom_resource import handler_of
from lambdas.followers import Published, Words, functions_of
from lambdas.function import NAMESPACE
from lambdas.publish_states import PublishStates, make_pending

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
    sync, published = wanted.open(), wanted.published
    if wanted.file is not None:
        published = Published.read(_client("s3"), wanted.file)
    make_pending(sync.states, TARGET, sorted(published.tables))
    withdraw(sync, published)


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
    return Published.read(_client("s3"), os.environ["PUBLISHED_FILE"])


@cache
def _client(service: str) -> Any:
    return boto3.client(service, config=CONFIG)


feed, reconcile = functions_of(
    Words("catalog", "synced", CATALOG_FOLLOWED, CATALOG_LAG, CATALOG_FAILED, CATALOG_REPAIRS),
    logger,
    tracer,
    metrics,
    follower=_sync,
    published=_published,
    forget=_sync.cache_clear,
)
handle = handler_of(
    _act,
    # The same id for every catalog: if the catalog changes, an update drops the tables.
    identify=lambda properties: f"{Wanted.parse(properties).published.deployment}-{TARGET}",
    logger=logger,
    tracer=tracer,
    failed="catalog.not_deployed",
    done="catalog.deployed",
)
