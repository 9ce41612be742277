"""What a table does with a record besides appending it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from calve.settings import fields, notation
from calve.settings.problems import Invalid
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
