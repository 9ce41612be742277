"""What a deploy, and the end of a deployment, change in the catalog."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from calve.config.publishing import IcebergRest
from calve.errors import Retryable
from lambdas.catalog_sync.environment import open_sync
from lambdas.catalog_sync.many import Published, Report, withdraw
from lambdas.catalog_sync.sync import LEASE_MS, TARGET, Sync, now_ms
from lambdas.publish_states import PublishState, State

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
        # A function that died holds its table for as long: better a slow end of a stack than a failed one.
        return replace(opened, patience_s=LEASE_MS / 1000 + 10)

    def nothing(self) -> Published:
        return replace(self.published, tables=frozenset(), patterns=())

    @property
    def place(self) -> tuple[str, str | None, str | None]:
        """Where the tables are."""
        return (self.catalog.uri, self.catalog.warehouse, self.catalog.namespace)


def apply(wanted: Wanted, before: Wanted | None, client: Client) -> None:
    """Tables that are published are pending until the functions have looked at them; those that no longer are, are dropped.

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
    """Nothing is published any more: the catalog has what it had before.

    Raises:
        Retryable: a table could not be dropped.
    """
    _complete(withdraw(wanted.open(client), wanted.nothing()))


def _complete(report: Report) -> None:
    if report.failures:
        reasons = "; ".join(f"{each.table}: {each.reason}" for each in report.failures[:3])
        raise Retryable(f"{len(report.failures)} tables could not be dropped: {reasons}")
