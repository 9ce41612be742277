"""A topic that gets the rows which a table gets."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from calve.settings import fields
from calve.settings.section import Section


class EmitSection(Section):
    """A topic that gets every row which the table gets, once it is in the table: at least once, with headers that say which
    record it is of; see docs/emit.md. The topic is made where there is none, and never altered.
    """

    topic: fields.Topic
    """Topic to write. Its schemas are registered under its name and `-value`, or `-key`"""
    format: Literal["avro", "json"] = "avro"
    """`avro`, or `json`: JSON Schema. Default: `avro`"""
    key: Annotated[list[fields.ColumnName], Field(min_length=1)] | None = None
    """Columns of the table that make the record key, in the same format. Default: the key of the record that the row is of, as
    the table has it; with `aggregate` the columns of the group"""
    partitions: int = Field(default=6, ge=1)
    """Partitions, where the topic is made. Default: `6`"""
    retention: fields.Duration | None = None
    """How long the topic keeps records, where it is made: `7d`. Default: the broker's"""
    cleanup_policy: Literal["delete", "compact"] | None = None
    """The topic's `cleanup.policy`, where it is made. Default: `delete`; with `aggregate` `compact`"""
