"""What a table does with a record besides appending it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from calve.settings import fields
from calve.settings.section import Section


class UpsertSection(Section):
    """The table holds the newest record of each key; see docs/modes.md. Absent: every record is a row."""

    key: Annotated[fields.Columns, Field(min_length=1)] | None = None
    """Columns that tell rows apart; a struct stands for all its fields. Default: the record key: the column of `key`, or
    `_kafka.key` where none is declared. Only with the record key does a tombstone delete"""
    order_by: fields.Column | None = None
    """Column whose greatest value is the newest, such as `updated_at` or `_kafka.timestamp`. Default: the record that was read
    last is"""
