"""The modes of a table besides append."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from calve.modes.aggregate import WINDOW_START, column_of
from calve.modes.measures import MeasureProblem, columns_in, parse
from calve.settings import fields, notation
from calve.settings.fields import Section
from calve.settings.problems import Invalid, KeyPath, Problem


def _first(keep: str) -> str:
    if keep == "last":
        raise Invalid(
            "is `first`: a table of the last record of each key is one of upserts", "use `upsert` instead"
        )
    if keep != "first":
        raise Invalid(f'"{keep}" cannot be used', "use `first`")
    return keep


def _measure(text: Any) -> str:
    """`sum(price * quantity)`, as `calve.modes.measures` writes it."""
    if not isinstance(text, str):
        raise Invalid("must be text", "write count(*), or sum, min or max of an expression")
    try:
        term = parse(text)
    except MeasureProblem as problem:
        raise Invalid(f'"{text}" is not a measure: {problem.message}') from None
    for path in columns_in(term.of) if term.of else ():
        notation.column(path)
    return str(term)


def _span(size: float) -> float:
    if size < 1:
        raise Invalid("is less than a second", 'write it as "1h"')
    return size


def _window(raw: Any) -> float | None:
    return None if raw == "unbounded" else notation.seconds(raw)


class UpsertSection(Section):
    """The table holds the newest record of each key; see docs/modes.md. Absent: every record is a row."""

    key: Annotated[fields.Columns, Field(min_length=1)] | None = None
    order_by: fields.Column | None = None


class ChangeDataSection(Section):
    """The table holds the rows of a database's table, by Debezium's events of its changes."""

    key: Annotated[fields.Columns, Field(min_length=1)] | None = None
    order_by: Annotated[list[fields.ColumnName], Field(min_length=1)] | None = None
    deletes: Literal["remove", "keep"] = "remove"

    def problems(self) -> Iterator[Problem]:
        if self.order_by and self.deletes != "keep":
            reason = "needs `deletes: keep`: a late change would restore a deleted row"
            yield Problem(("order_by",), reason, "add `deletes: keep`, or remove it")


class DeduplicateSection(Section):
    """The table holds the first record of each key; see docs/modes.md. Absent: every record is a row."""

    key: Annotated[fields.Columns, Field(min_length=1)] | None = None
    keep: Annotated[str, AfterValidator(_first)] = "first"
    window: Annotated[float | None, BeforeValidator(_window)] = None


class WindowSection(Section):
    """Totals of spans of time: a group has a row for each in which it has records. Absent: one row."""

    column: fields.Column
    size: Annotated[fields.Duration, AfterValidator(_span)]


class AggregateSection(Section):
    """The table holds totals of groups of records; see docs/modes.md. Absent: every record is a row."""

    by: Annotated[fields.Columns, Field(min_length=1)]
    measures: Annotated[
        dict[fields.ColumnName, Annotated[str, BeforeValidator(_measure)]], Field(min_length=1)
    ]
    window: WindowSection | None = None

    def problems(self) -> Iterator[Problem]:
        named: list[tuple[KeyPath, str]] = [(("by",), column_of(each)) for each in self.by]
        named += [(("window",), WINDOW_START)] if self.window else []
        named += [(("measures", name), name) for name in self.measures]
        for place, (path, name) in enumerate(named):
            if name.lower() in (earlier.lower() for _, earlier in named[:place]):
                reason = f'"{name}" is the name of two columns of the table'
                yield Problem(path, reason, "give the measure another name")
