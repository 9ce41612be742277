"""Debezium's change events: the parts of an envelope that are read, those that are the row, and their types.

Source: https://debezium.io/documentation/reference/stable/connectors/postgresql.html#postgresql-events; the other relational
connectors write the same envelope: `before`, `after`, `op`, `source`.
Source of the types: the classes of `io.debezium.time` and `io.debezium.data`. Confluent's converters write a type's name as
`connect.name` in Avro and as `title` in JSON Schema, beside a version, which is ignored. Types not listed here are read without
their names.
"""

from __future__ import annotations

from collections.abc import Sequence

from calve.names import SYSTEM_COLUMN
from calve.schema.columns import CHANGE, Json, field, struct
from calve.schema.evolution import Rule, SchemaProblem
from calve.schema.json_scalars import CONNECT, CONNECT_DECIMAL, CONNECT_NUMBERS, CONNECT_TYPES, DECIMAL, Named

UPDATES, DELETES, TRUNCATES, SAYS = "u", "d", "t", "m"
WRITES = ("c", "r", UPDATES)
"""Values of `op`: of events that write a row, delete one, empty the table, or are about no row."""
UNAVAILABLE = "__debezium_unavailable_value"
"""Replaces a value that an update did not change and that the database's log omits."""
TIMES = {"ts_us": "long", "ts_ms": "long"}
"""Fields of `source` with the time of a change, the finest first."""
NUMBERS = ("int", "long")
NO_EVENT = "it is no change event of Debezium, which has `before`, `after`, `op` and `source`"
UNDECLARED = (
    "`after` is a text: so the connector for MongoDB writes a document. Declare its columns, with `value: {document: FILE}`, or"
    " keep the text, with `value: {document: text}`"
)
NO_DOCUMENT = "`after` has columns: only events of MongoDB hold documents. Remove `value.document`"


def row_of(envelope: Json, document: Json | None = None) -> Json:
    """The columns of the rows in events; `envelope`: the columns of the whole event, document: those of MongoDB's documents.

    Raises `SchemaProblem` if it is no change event, or a field has a name that calve uses.
    """
    after = _fields(envelope).get("after")
    if _fields(envelope).get("op") != "string" or not (after == "string" or _is_struct(after)):
        raise SchemaProblem("", NO_EVENT, Rule.NO_RECORD)
    if _is_struct(after) != (document is None):
        raise SchemaProblem("", UNDECLARED if document is None else NO_DOCUMENT, Rule.NO_RECORD)
    row: Json = after if document is None else document
    for each in row["fields"]:
        if each["name"].lower() in (SYSTEM_COLUMN, CHANGE["name"]):
            why = "calve uses this name for a column of its own"
            raise SchemaProblem(each["name"], why, Rule.FIELD_NAME_RESERVED)
    return row


def read_as(envelope: Json, row: Json, order: Sequence[str]) -> Json:
    """The part of an event that is read, the same for all schemas of a table: `op`, `before`, `after`, and `slots` of `source`.

    `row`: the table's columns, as in `calve.schema.lineage.Fit`, or `DOCUMENT`. `order`: fields of `source`.
    Raises `SchemaProblem` if a field of `order` is missing, or is neither an integer nor a text.
    """
    parts = _fields(envelope)
    source = _fields(parts["source"]) if _is_struct(parts.get("source")) else {}
    for name in order:
        if source.get(name) not in (*NUMBERS, "string"):
            why = "changes are ordered by it, but it is neither an integer nor a string"
            raise SchemaProblem(f"source.{name}", why)
    read = []
    for slot, (name, kind) in slots(order).items():
        holds = source.get(name) in (NUMBERS if kind == "long" else (kind,))
        read.append(field(slot, kind) | {"written": name if holds else None})
    op, before, after, _ = of_event(row, order)["fields"]
    had = parts.get("before")
    is_row = had == DOCUMENT if row == DOCUMENT else _is_struct(had)
    return struct(
        op,
        before | {"written": "before" if is_row else None},
        after,
        field("source", struct(*read)) | {"written": "source" if source else None},
    )


DOCUMENT = "string"
"""Instead of the columns of a row: MongoDB's document, which is read after the event."""


def of_event(row: Json, order: Sequence[str]) -> Json:
    """The columns that events are read to; `row`: those of their rows, or `DOCUMENT`."""
    source = struct(*(field(slot, kind) for slot, (_, kind) in slots(order).items()))
    return struct(field("op", "string"), field("before", row), field("after", row), field("source", source))


def slots(order: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Column -> field of `source` and its type. Numbers and texts have separate columns, as versions may differ."""
    wanted = [*TIMES.items(), *((name, kind) for name in order for kind in ("long", "string"))]
    return {f"{name}_{kind}": (name, kind) for name, kind in wanted}


def _fields(kind: Json) -> dict[str, Json]:
    return {each["name"]: each["type"] for each in kind["fields"]}


def _is_struct(kind: Json | None) -> bool:
    return isinstance(kind, dict) and kind["type"] == "struct"


TIME = "io.debezium.time."
MOMENT = f"{TIME}ZonedTimestamp"
"""A text with an offset from UTC."""
MILLIS = f"{TIME}Timestamp"
"""Milliseconds since 1970, local time; infinity exceeds 64 bits of microseconds."""
UNITS = {
    ("int32", f"{TIME}Time"): "milliseconds after midnight",
    ("int64", f"{TIME}MicroTime"): "microseconds after midnight",
    ("int64", f"{TIME}NanoTime"): "nanoseconds after midnight",
    ("int64", f"{TIME}NanoTimestamp"): "nanoseconds since 1970-01-01, local time",
    ("int64", f"{TIME}MicroDuration"): "microseconds",
    ("int64", f"{TIME}NanoDuration"): "nanoseconds",
    ("int32", f"{TIME}Year"): "calendar year",
}
"""Numbers without an exact type in Spark and Iceberg."""

AVRO = {"int32": "int", "int64": "long"}
AVRO_UNITS = {(AVRO[kind], name): unit for (kind, name), unit in UNITS.items()}
AVRO_LOGICAL = {
    ("int", f"{TIME}Date"): "date",
    ("long", MILLIS): MILLIS,
    ("long", f"{TIME}MicroTimestamp"): "local-timestamp-micros",
    ("string", MOMENT): MOMENT,
} | {(kind, name): name for kind, name in AVRO_UNITS}
"""Avro type and `connect.name` -> logical type."""
JSON_TYPES = Named(
    {
        **CONNECT_TYPES.leaves,
        CONNECT_DECIMAL: DECIMAL,
        ("int32", f"{TIME}Date"): "days",
        ("int64", MILLIS): "local_millis",
        ("int64", f"{TIME}MicroTimestamp"): "local_micros",
        ("string", MOMENT): "instant",
    },
    UNITS | {("int32", f"{CONNECT}Time"): "milliseconds after midnight"},
    {**CONNECT_NUMBERS, "float32": "database_float", "float64": "database_double"},
)
"""Decimals may be Base64 text; Confluent's converter then registers them so."""
