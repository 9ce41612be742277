"""Columns as Iceberg types in JSON form: those that calve adds, and the tags that schemas give their fields, such as PII.

https://iceberg.apache.org/spec/#appendix-c-json-serialization, without field ids: `with_ids` numbers a new table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any, Literal

Json = Any

_DECIMAL = re.compile(r"decimal\((\d+), ?(\d+)\)")

REASONS = {
    "null_value": "the value is null, and the key alone identifies no row of the table",
    "truncation": "the event empties the database's table, and a history does not record which rows it had",
    "truncated": "the value is shorter than the header that every framed value starts with",
    "bad_magic": "the value does not start with the registry's magic bytes",
    "unknown_schema_id": "the registry knows no schema of this id",
    "incompatible_schema": "the schema of this id cannot be read as a row of this table",
    "bad_change": "the change event has an unknown operation, lacks its row, or has a document that does not match its file",
    "bad_event": "the record is no valid CloudEvent, or one of a format that calve does not read",
    "malformed": "the payload does not match its schema: truncated, an invalid length, a wrong type, or a number too long",
    "trailing_bytes": "bytes are left over after the payload was decoded",
    "null_key": "a key column of the table is null, so the record identifies no row",
    "no_route": "no table of the topic has a route for the record's value",
    "step_failed": "a step cannot compute a value of the record: an overflow, a bad cast, a division by zero or the like",
    "expectation_unmet": "the record does not meet an expectation of the table: `expect` in calve.yaml",
    "value_unavailable": "an update lacks a value that a step reads: the database's log omits what did not change",
    "lookup_missing": "the table of a lookup has no row with the record's key",
    "key_unknown_schema_id": "the registry knows no schema of the id in the key",
    "key_incompatible_schema": "the schema of the id in the key cannot be read as the key's column",
    "key_malformed": "the key does not match its schema, or has an invalid header",
    "bad_timestamp": "the record's timestamp is outside the range of a column: about 292,000 years before and after 1970",
    "record_too_large": "key, value and headers exceed 32 MiB: the value is in Kafka only",
    "batch_too_large": "the record lies behind the part of its batch that calve decompresses: it is in Kafka only",
    "corrupt_batch": "the record's batch is invalid from this record on, although its checksum is correct: nothing of it is kept",
}
"""Reject reasons: `reason` of the dead-letter table -> its `message`."""

UNDELIVERED = ("bad_timestamp", "record_too_large", "batch_too_large", "corrupt_batch")
"""Reasons found by the source before a value is decoded. These dead letters cannot be redriven.

bad_timestamp: more than (2**63 - 1) // 1000 milliseconds before or after 1970. The dead letter has the record without timestamp.
record_too_large: key, value and header bytes in their record batch exceed `LARGEST_RECORD`, whatever the timestamp. The dead
letter has no value, and no key or headers above `KEPT_OF_LARGE`.
The other two: offsets without a record. Their dead letters have no timestamp, key, value or headers.
"""
LARGEST_RECORD = 32 << 20
KEPT_OF_LARGE = 64 << 10
MOST_MILLIS = (2**63 - 1) // 1000
"""The largest timestamp before and after 1970 that fits a column of microseconds."""
FIRST_MICROS, LAST_MICROS = -62_135_596_800_000_000, 253_402_300_799_999_999
"""The first and the last timestamp that all table readers support: of the years 1 and 9999."""


def decimal_digits(kind: Json) -> tuple[int, int] | None:
    """Precision and scale of a decimal type; None for other types."""
    match = _DECIMAL.fullmatch(kind) if isinstance(kind, str) else None
    return (int(match[1]), int(match[2])) if match else None


def field(name: str, kind: Json, *, required: bool = False, doc: str | None = None) -> dict[str, Json]:
    spec = {"name": name, "required": required, "type": kind}
    return spec | {"doc": doc} if doc else spec


def with_unit(doc: str | None, unit: str | None) -> str | None:
    """A column's comment: the schema's doc, and the unit if the column's type does not have it."""
    return f"{doc} ({unit})" if doc and unit else doc or unit


def struct(*fields: dict[str, Json]) -> Json:
    return {"type": "struct", "fields": list(fields)}


def list_of(element: Json, *, element_required: bool = False) -> Json:
    return {"type": "list", "element-required": element_required, "element": element}


def map_of(value: Json, *, key: Json = "string", value_required: bool = False) -> Json:
    return {"type": "map", "key": key, "value-required": value_required, "value": value}


HEADERS = list_of(struct(field("key", "string"), field("value", "binary")))

KAFKA = field(
    "_kafka",
    struct(
        field("topic", "string", doc="topic that the record was read from"),
        field("partition", "int"),
        field("offset", "long"),
        field("timestamp", "timestamptz", doc="the record's timestamp in Kafka"),
        field("timestamp_type", "int", doc="0: set by the producer, 1: set by the broker on append"),
        field("key", "binary", doc="the record's key as received"),
        field("headers", HEADERS),
        field("schema_id", "int", doc="registry id of the schema that the value was written with"),
    ),
    doc="where the row comes from",
)

CHANGE = field(
    "_change",
    struct(
        field("op", "string", doc="c: inserted, r: read by a snapshot, u: updated, d: deleted"),
        field("at", "timestamptz", doc="when the database made the change"),
        field(
            "position",
            "string",
            doc="where its log has the change, as text that sorts; null without order_by",
        ),
        field("deleted", "boolean", doc="true: the database has the row no more"),
    ),
    doc="the newest change of the row",
)
"""The column of tables whose topic holds a database's changes."""

HISTORY = field(
    "_history",
    struct(
        field("valid_from", "timestamptz", doc="when the row got these values"),
        field(
            "valid_to", "timestamptz", doc="when the next version of the row replaced them; null: none did"
        ),
        field("is_current", "boolean", doc="whether the row has these values now"),
        field("deleted", "boolean", doc="true: the row was deleted at `valid_from`; it is valid at no time"),
    ),
    doc="when the row was so",
)
"""The column of tables that hold every version of a row."""

REDRIVEN = "redriven"
"""Column of the dead-letter table: whether the dead letter was redriven."""

SEALED = "sealed"
"""Column of the dead-letter table: the key with which the bytes are encrypted, if they are."""

REJECTED_AT = "rejected_at"
"""Column of the dead-letter table from which a dead letter's age counts."""

DEAD_LETTERS = struct(
    field("cluster_id", "string"),
    field("topic_id", "string", doc="id of the topic's incarnation (KIP-516)"),
    field("topic", "string"),
    field("partition", "int"),
    field("offset", "long"),
    field("timestamp", "timestamptz"),
    field("timestamp_type", "int"),
    field("key", "binary", doc="as received, or sealed"),
    field("value", "binary", doc="as received, or sealed"),
    field("headers", HEADERS, doc="as received; of sealed ones the values are sealed"),
    field("schema_id", "int"),
    field("stage", "string", doc="stage of the round that refused the record"),
    field("reason", "string", doc="stable word for the cause"),
    field("message", "string", doc="the cause in a sentence; never holds the record's bytes"),
    field("attempt", "int", doc="1: refused by the round that read it"),
    field("round", "string", doc="round of the table that refused the record"),
    field(REJECTED_AT, "timestamptz"),
    field(
        REDRIVEN, "string", doc="round in which a redrive brought the record into the table; null: it did not"
    ),
    field(
        SEALED,
        "string",
        doc="id of the masking key that key, value and headers are sealed by; null: they are not",
    ),
)
LATER = (REDRIVEN, SEALED)
"""Columns of the dead-letter table that earlier releases lack; null in their rows."""


def leaf_names(kind: Json, name: str = "", path: str = "") -> Iterator[tuple[str, str]]:
    """The leaves of a type: Iceberg's name of each, and its path, which is empty for leaves in lists and maps."""
    if not isinstance(kind, dict):
        yield name, path
        return
    for each in kind.get("fields", ()):
        yield from leaf_names(each["type"], join(name, each["name"]), join(path, each["name"]))
    for part in ("element", "key", "value"):
        if part in kind:
            yield from leaf_names(kind[part], f"{name}.{part}", path)


def with_ids(kind: Json, ids: Iterator[int] | None = None) -> Json:
    """The same type with new field ids in every struct, list and map, as Iceberg's JSON form requires."""
    ids = ids or count(1)
    if not isinstance(kind, dict):
        return kind
    match kind["type"]:
        case "struct":
            numbered = [each | {"id": next(ids)} for each in kind["fields"]]
            return kind | {"fields": [each | {"type": with_ids(each["type"], ids)} for each in numbered]}
        case "list":
            element_id = next(ids)
            return kind | {"element-id": element_id, "element": with_ids(kind["element"], ids)}
        case _:
            key_id, value_id = next(ids), next(ids)
            return kind | {"key-id": key_id, "value-id": value_id, "value": with_ids(kind["value"], ids)}


def join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


TAGS = "confluent:tags"
"""Attribute of a field in Avro and of a property in JSON Schema. Protobuf has `confluent.field_meta`."""


def listed(raw: Json) -> list[str]:
    """The tags of an attribute; a single text is one tag. Other values are ignored."""
    return [each for each in (raw if isinstance(raw, list) else [raw]) if isinstance(each, str)]


def with_tags(column: dict[str, Json], tags: list[str]) -> dict[str, Json]:
    return column | {"tags": list(dict.fromkeys(tags))} if tags else column


def innermost(kind: Json) -> Json:
    """The type, without lists and maps around it; of a map, that of its values."""
    while isinstance(kind, dict) and kind["type"] != "struct":
        kind = kind["element" if kind["type"] == "list" else "value"]
    return kind


def inner_struct(kind: Json, where: str = "") -> tuple[Json | None, str]:
    """The struct in a type, or in its lists and maps, and its path as in a `SchemaProblem`."""
    while isinstance(kind, dict) and kind["type"] != "struct":
        inside, mark = ("element", "[]") if kind["type"] == "list" else ("value", "{}")
        kind, where = kind[inside], where + mark
    return kind if isinstance(kind, dict) else None, where


def with_inner_struct(kind: Json, change: Callable[[Json], Json]) -> Json:
    """The type with another struct in place of `inner_struct`."""
    if not isinstance(kind, dict):
        return kind
    if kind["type"] == "struct":
        return change(kind)
    inside = "element" if kind["type"] == "list" else "value"
    return kind | {inside: with_inner_struct(kind[inside], change)}


@dataclass(frozen=True, slots=True)
class Place:
    """A field at any depth. path: Iceberg's; where: as in a `SchemaProblem`; name: as in `calve.config.steps`."""

    path: tuple[str, ...]
    where: str
    name: str
    field: Json


def places(struct: Json, above: Place | None = None) -> Iterator[Place]:
    """All fields of a struct, also in lists and maps, each before its own fields."""
    path, where, name = (above.path, above.where, above.name) if above else ((), "", "")
    for each in struct["fields"]:
        here = Place((*path, each["name"]), join(where, each["name"]), join(name, each["name"]), each)
        yield here
        kind, inside = each["type"], here
        while isinstance(kind, dict) and kind["type"] != "struct":
            part, mark = ("element", "[]") if kind["type"] == "list" else ("value", "{}")
            inside = Place((*inside.path, part), inside.where + mark, inside.name, each)
            kind = kind[part]
        if isinstance(kind, dict):
            yield from places(kind, inside)


def tags_of(*versions: Json) -> dict[str, tuple[str, ...]]:
    """The tags of each tagged field, by path; paths go through lists and maps as in `calve.config.steps`.

    versions: columns under the same names. A tag of any version counts.
    """
    found: dict[str, list[str]] = {}
    for columns in versions:
        for each in places(columns):
            if tags := each.field.get("tags"):
                found.setdefault(each.name, []).extend(tags)
    return {path: tuple(dict.fromkeys(tags)) for path, tags in found.items()}


def joined(one: Json, other: Json) -> Json | None:
    """A type with the tags of both; None if the types differ in more than tags."""
    if isinstance(one, dict) and isinstance(other, dict):
        both = {key: joined(one.get(key), other.get(key)) for key in one | other if key != "tags"}
        tags = [*one.get("tags", ()), *other.get("tags", ())]
        return None if None in both.values() else with_tags(both, tags)
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        parts = [joined(*pair) for pair in zip(one, other, strict=True)]
        return None if None in parts else parts
    return one if one == other else None


@dataclass(frozen=True, slots=True)
class Transform:
    """One Iceberg partition field or sort field: `name`: a transform, `argument`: the N of bucket and truncate."""

    column: str
    name: Literal["identity", "year", "month", "day", "hour", "bucket", "truncate"] = "identity"
    argument: int | None = None
    descending: bool = False

    def __str__(self) -> str:
        """As in calve.yaml: `price desc`, `bucket(16, user_id)`."""
        arguments = ", ".join(str(each) for each in (self.argument, self.column) if each is not None)
        plain = self.column if self.name == "identity" else f"{self.name}({arguments})"
        return f"{plain} desc" if self.descending else plain
