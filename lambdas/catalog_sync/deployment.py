"""Opens the catalog that the deployment names, and applies what a deploy adds or removes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from calve.config.publishing import IcebergRest
from calve.errors import Retryable
from calve.http_client import Tokens
from calve.secrets import read_secret, value_of
from lambdas.catalog_sync.catalog import Catalog, Notifications, Register, Server
from lambdas.catalog_sync.sync import LEASE_MS, TARGET, Published, Report, Sync, now_ms, withdraw
from lambdas.publish_states import PublishState, PublishStates, State

SETTINGS = "publish.iceberg_rest.secret, token_url and scope"


def open_sync(
    settings: IcebergRest, *, deployment: str, states_table: str, client: Callable[[str], Any]
) -> Sync:
    """The synchronization with the configured catalog; `client` makes AWS clients.

    Raises:
        ConfigError, Retryable: as `read_secret`.
    """
    tokens = tokens_of(settings, settings.secret, settings.scope) if settings.secret else None
    catalog = Catalog(Server(settings.uri, tokens), settings.warehouse)
    return Sync(
        glue=client("glue"),
        s3=client("s3"),
        catalog=catalog,
        writer=Register(catalog) if settings.update == "register" else Notifications(catalog),
        states=PublishStates(states_table, client("dynamodb")),
        deployment=deployment,
        namespace=settings.namespace,
    )


def tokens_of(settings: IcebergRest, secret: str, scope: str | None) -> Tokens:
    """OAuth tokens for the client in a secret.

    Raises:
        ConfigError, Retryable: as `read_secret`.
    """
    client = read_secret(secret)
    return Tokens(
        settings.token_url or f"{settings.uri}/v1/oauth/tokens",
        value_of(client, "client_id", secret),
        value_of(client, "client_secret", secret),
        scope=scope,
        settings=SETTINGS,
    )


Client = Callable[[str], Any]


@dataclass(frozen=True, slots=True)
class Wanted:
    """The properties of the custom resource."""

    catalog: IcebergRest
    published: Published
    states_table: str

    @classmethod
    def parse(cls, properties: Mapping[str, Any]) -> Self:
        return cls(
            IcebergRest.from_json(properties["Catalog"]),
            Published.from_json(properties["Published"]),
            properties["StatesTable"],
        )

    def open(self, client: Client) -> Sync:
        opened = open_sync(
            self.catalog,
            deployment=self.published.deployment,
            states_table=self.states_table,
            client=client,
        )
        # A crashed function holds its table's lease that long: a slow delete is better than a failed one.
        return replace(opened, patience_s=LEASE_MS / 1000 + 10)

    def nothing(self) -> Published:
        return replace(self.published, tables=frozenset(), patterns=())

    @property
    def place(self) -> tuple[str, str | None, str | None]:
        """The location of the tables."""
        return (self.catalog.uri, self.catalog.warehouse, self.catalog.namespace)


def apply(wanted: Wanted, before: Wanted | None, client: Client) -> None:
    """Set new published tables to pending, and drop those that are no longer published.

    Raises:
        Retryable: a table could not be dropped.
    """
    if before and before.place != wanted.place:
        old = replace(before.open(client), moving_away=True)
        _complete(withdraw(old, before.nothing()))
    sync = wanted.open(client)
    for table in sorted(wanted.published.tables):
        if sync.states.find(TARGET, table) is None:
            sync.states.put(PublishState(TARGET, table, State.PENDING, now_ms()))
    _complete(withdraw(sync, wanted.published))


def remove(wanted: Wanted, client: Client) -> None:
    """Drop all tables that this deployment published.

    Raises:
        Retryable: a table could not be dropped.
    """
    _complete(withdraw(wanted.open(client), wanted.nothing()))


def _complete(report: Report) -> None:
    if report.failures:
        reasons = "; ".join(f"{each.table}: {each.reason}" for each in report.failures[:3])
        raise Retryable(f"{len(report.failures)} tables could not be dropped: {reasons}")
