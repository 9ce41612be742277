"""Rows with a column of every type that a table can have, as Arrow has them."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa

from calve.schema.columns import KAFKA, field, list_of, map_of, struct, with_ids
from glue_jobs.engines.columnar.layouts import schema

ALL = struct(
    field("boolean", "boolean"),
    field("int", "int"),
    field("long", "long"),
    field("float", "float"),
    field("double", "double"),
    field("date", "date"),
    field("timestamp", "timestamp"),
    field("timestamptz", "timestamptz"),
    field("small", "decimal(9, 2)"),
    field("middle", "decimal(18, 3)"),
    field("large", "decimal(38, 10)"),
    field("string", "string"),
    field("binary", "binary"),
    field("fixed", "fixed[4]"),
    field("listed", list_of(list_of("string"))),
    field("mapped", map_of(struct(field("inner", "long")))),
    KAFKA,
)
KAFKA_ROW = {
    "topic": "t",
    "partition": 1,
    "offset": 2**40,
    "timestamp": dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
    "timestamp_type": 0,
    "key": b"\x00",
    "headers": [{"key": "a", "value": None}, {"key": "b", "value": b"x"}],
    "schema_id": 7,
}
ROW: dict[str, Any] = {
    "boolean": True,
    "int": -(2**31),
    "long": 2**63 - 1,
    "float": 0.5,
    "double": -0.1,
    "date": dt.date(1, 1, 1),
    "timestamp": dt.datetime(1582, 10, 10, 1, 2, 3, 4),  # noqa: DTZ001 local time
    "timestamptz": dt.datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=dt.UTC),
    "small": Decimal("-9999999.99"),
    "middle": Decimal("999999999999999.999"),
    "large": Decimal("-9999999999999999999999999999.9999999999"),
    "string": "žąsis 🧊",
    "binary": bytes(range(256)),
    "fixed": b"\x00\xff\x00\xff",
    "listed": [[], ["x", None], None],
    "mapped": [("k", {"inner": -1}), ("n", None)],
    "_kafka": KAFKA_ROW,
}
EMPTY = dict.fromkeys(ROW)


def plain(columns: Any) -> pa.Schema:
    """The columns' types as a decoder makes them, without ids."""
    return schema(with_ids(columns)).remove_metadata()
