"""Which tables are published: those that have a row of state, and in certain databases those whose name matches."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from calve.names import DEAD_LETTERS_SUFFIX, TableName
from lambdas.lake_tables import databases_of
from lambdas.publish_states import Target

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from lambdas.publish_states import PublishStates


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
