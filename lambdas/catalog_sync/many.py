"""Which tables are published, and many of them at once: one that fails keeps no other from its turn.

Those are published that have a row of state, and in certain databases those whose name matches.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Self

from calve.errors import CalveError
from calve.names import DEAD_LETTERS_SUFFIX, TableName
from lambdas.catalog_sync.sync import Act, Outcome, Sync
from lambdas.lake_tables import databases_of
from lambdas.publish_states import PublishStates, Target


@dataclass(frozen=True, slots=True)
class Published:
    """What a deployment publishes.

    tables: by name, `database.table`. patterns: expressions for names of tables that nobody knows before they are there.
    database: where those are; None: in the databases that the deployment made, one for each cluster.
    """

    deployment: str
    tables: frozenset[str] = frozenset()
    patterns: tuple[str, ...] = ()
    database: str | None = None

    @classmethod
    def from_json(cls, text: str) -> Self:
        raw = json.loads(text)
        return cls(raw["deployment"], frozenset(raw["tables"]), tuple(raw["patterns"]), raw["database"])

    def matches(self, glue: Any, name: TableName) -> bool:
        """Whether it is published, whoever knows of it already."""
        return str(name) in self.tables or (self._named(name.table) and self._ours(glue, name.database))

    def unknown(self, glue: Any, known: Collection[str]) -> Iterator[TableName]:
        """The tables of Glue that match, of which nothing is known yet."""
        if not self.patterns:
            return
        for database in self._databases(glue):
            pages = glue.get_paginator("get_tables").paginate(DatabaseName=database)
            for table in (each["Name"] for page in pages for each in page["TableList"]):
                name = TableName(database, table)
                if self._named(table) and str(name) not in known:
                    yield name

    def _named(self, table: str) -> bool:
        return not table.endswith(DEAD_LETTERS_SUFFIX) and any(
            re.fullmatch(pattern, table) for pattern in self.patterns
        )

    def _ours(self, glue: Any, database: str) -> bool:
        return database in self._databases(glue)

    def _databases(self, glue: Any) -> list[str]:
        return databases_of(glue, self.deployment) if self.database is None else [self.database]


def parsed(table: str) -> TableName:
    """The name that a row has."""
    database, _, name = table.rpartition(".")
    return TableName(database, name)


def known(states: PublishStates) -> list[str]:
    """The tables of which there is a row."""
    return sorted(each.table for each in states.all(Target.ICEBERG_REST))


AT_ONCE = 8
LATE_S = 60.0
"""What is missing for longer was lost on the way, and not just on its way."""


@dataclass(frozen=True, slots=True)
class Failure:
    """`reason` is for logs; `error` is of which kind."""

    table: str
    error: Exception
    reason: str


@dataclass(frozen=True, slots=True)
class Report:
    """What became of tables."""

    outcomes: tuple[Outcome, ...] = ()
    failures: tuple[Failure, ...] = ()

    @property
    def repairs(self) -> list[Outcome]:
        """What no commit of this moment explains."""
        return [
            each for each in self.outcomes if Act.DROP in each.acts or (each.acts and each.late_s > LATE_S)
        ]


def follow(sync: Sync, names: Iterable[TableName], *, published: bool = True) -> Report:
    """Make these tables equal; those that are not published, gone."""

    def one(name: TableName) -> Outcome | Failure:
        try:
            return sync.table(name, published=published)
        except CalveError as error:
            return Failure(str(name), error, " ".join(str(error).split()))
        except Exception as error:  # noqa: BLE001 an AWS client's: the other tables have their turn
            return Failure(str(name), error, f"{type(error).__name__}: {error}")

    with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
        found = list(pool.map(one, dict.fromkeys(names)))
    return Report(
        tuple(each for each in found if not isinstance(each, Failure)),
        tuple(each for each in found if isinstance(each, Failure)),
    )


def reconcile(sync: Sync, published: Published) -> Report:
    """Make all tables equal: those that have a row, and those that have appeared."""
    there = known(sync.states)
    names = [*map(parsed, there), *published.unknown(sync.glue, there)]
    return follow(sync, names)


def withdraw(sync: Sync, published: Published) -> Report:
    """Drop the tables that have a row and are not published, and the namespaces that nothing is left in."""
    gone = [name for name in map(parsed, known(sync.states)) if not published.matches(sync.glue, name)]
    report = follow(sync, gone, published=False)
    sync.drop_namespaces({sync.namespace_of(name) for name in gone})
    return report
