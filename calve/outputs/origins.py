"""Where the columns of a table come from: fields of the topic's records, by way of the steps and the mode.

The job notes it in a property of the table; a function makes OpenLineage events of it (`lambdas.lineage`). It holds names and
types, and no value.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from calve.stored import Stored

How = Literal["same", "computed", "masked", "aggregated", "joined"]


@dataclass(frozen=True, slots=True)
class Origin:
    """A field that a column comes from.

    field: a path, of the record or of `table`, the `database.table` of a lookup. how: `masked`: the rest hides the value;
    `joined`: it only chooses the row of a lookup.
    """

    field: str
    how: How = "same"
    table: str | None = None

    def through(self, how: How) -> Origin:
        """The same field, after a step has done more with the value. A masked value stays so, unless it only chooses a row."""
        if how == "same" or self.how == "joined" or (self.how == "masked" and how != "joined"):
            return self
        return replace(self, how=how)


@dataclass(frozen=True, slots=True)
class Origins(Stored):
    """The origins of a table's columns.

    broker: the first bootstrap server, `host:port`. fields: name -> type of the record's fields. rows: the fields that decide
    which records become rows.
    """

    topic: str
    broker: str
    fields: dict[str, str]
    columns: dict[str, tuple[Origin, ...]]
    rows: tuple[Origin, ...] = ()


@dataclass(frozen=True, slots=True)
class Trace:
    """The origins of a row's columns between two steps.

    columns: by path. A field of a struct has a path of its own only if its origin differs from that of the struct.
    """

    columns: dict[str, tuple[Origin, ...]]
    rows: tuple[Origin, ...] = ()

    @classmethod
    def of_records(cls, names: Iterable[str]) -> Trace:
        return cls({name: (Origin(name),) for name in names})

    def under(self, path: str, name: str) -> dict[str, tuple[Origin, ...]]:
        """A column or field, and those of its fields with other origins, as a column `name`."""
        found = {
            name + each[len(path) :]: origins
            for each, origins in self.columns.items()
            if each.startswith(f"{path}.")
        }
        for way in _ways(path):
            if way in self.columns:
                rest = path[len(way) :]
                own = (
                    replace(each, field=each.field + rest) if each.how == "same" else each
                    for each in self.columns[way]
                )
                return {name: tuple(own)} | found
        return found

    def at(self, path: str) -> tuple[Origin, ...]:
        """The origins of a column or field. Kafka's own data of a record (`_kafka`) has none."""
        return tuple(dict.fromkeys(each for found in self.under(path, path).values() for each in found))

    def all(self, paths: Iterable[str], how: How = "same") -> tuple[Origin, ...]:
        """The origins of several paths together."""
        return tuple(dict.fromkeys(each.through(how) for path in sorted(paths) for each in self.at(path)))

    def filtered(self, paths: Iterable[str]) -> Trace:
        """The same columns, after a condition on these paths has chosen the records."""
        return replace(self, rows=tuple(dict.fromkeys((*self.rows, *self.all(paths)))))


def _ways(path: str) -> list[str]:
    """The path itself, and the paths above it, the longest first."""
    names = path.split(".")
    return [".".join(names[:length]) for length in range(len(names), 0, -1)]
