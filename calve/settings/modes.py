"""What a table does with a record besides appending it."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from calve.settings import fields, notation
from calve.settings.problems import Invalid, InvalidParts, Problem
from calve.settings.section import Section


def _first(keep: str) -> str:
    if keep == "last":
        raise Invalid(
            "is `first`: a table of the last record of each key is one of upserts", "use `upsert` instead"
        )
    if keep != "first":
        raise Invalid(f'"{keep}" cannot be used', "use `first`")
    return keep


def _window(raw: Any) -> float | None:
    return None if raw == "unbounded" else notation.seconds(raw)


class UpsertSection(Section):
    """The table holds the newest record of each key; see docs/modes.md. Absent: every record is a row."""

    key: Annotated[fields.Columns, Field(min_length=1)] | None = None
    """Columns that tell rows apart; a struct stands for all its fields. Default: the record key: the column of `key`, or
    `_kafka.key` where none is declared. Only with the record key does a tombstone delete"""
    order_by: fields.Column | None = None
    """Column whose greatest value is the newest, such as `updated_at` or `_kafka.timestamp`. Default: the record that was read
    last is"""


class ChangeDataSection(Section):
    """The table holds the rows of a database's table: the topic has Debezium's events of its changes; see docs/modes.md.
    Absent: every record is a row.
    """

    key: Annotated[fields.Columns, Field(min_length=1)] | None = None
    """Columns that tell rows apart, such as those of the primary key. Default: the record key: the column of `key`, or
    `_kafka.key` where none is declared. Only with the record key does a tombstone delete"""
    order_by: Annotated[list[fields.ColumnName], Field(min_length=1)] | None = None
    """Fields of the event's `source` that say which of two changes is the newer one, such as `[lsn]`, or `[file, pos, row]`; for
    topics whose events are out of order. Needs `deletes: keep`. Default: the one that was read last is"""
    deletes: Literal["remove", "keep"] = "remove"
    """`remove`: a row that the database deletes is deleted; `keep`: it stays, with `_change.deleted`. Default: `remove`"""

    @model_validator(mode="after")
    def _deletes_are_remembered(self) -> Self:
        if self.order_by and self.deletes != "keep":
            reason = "needs `deletes: keep`: a change that comes late would bring a deleted row back"
            raise InvalidParts([Problem(("order_by",), reason, "add `deletes: keep`, or remove it")])
        return self


class DeduplicateSection(Section):
    """The table holds the first record of each key; see docs/modes.md. Absent: every record is a row."""

    key: Annotated[fields.Columns, Field(min_length=1)] | None = None
    """Columns that tell records apart; a struct stands for all its fields. Default: the record key: the column of `key`, or
    `_kafka.key` where none is declared"""
    keep: Annotated[str, AfterValidator(_first)] = "first"
    """`first`: a row stays. For the last record of each key use `upsert`. Default: `first`"""
    window: Annotated[float | None, BeforeValidator(_window)] = None
    """How far apart the timestamps of two records of a key are at least, if both are to be rows: `7d`, or `unbounded`.
    Default: `unbounded`"""
