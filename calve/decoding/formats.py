"""The kinds of registered schemas: the columns of each, and how its values are read as those of a table."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from calve.registry.registry import NO_ID
from calve.schema import avro, json_schema
from calve.schema.avro_reader import framed, resolution, unframed
from calve.schema.change_events import AVRO_LOGICAL, JSON_TYPES, read_as, row_of
from calve.schema.columns import Json, field, struct
from calve.schema.evolution import Rule, SchemaProblem
from calve.schema.json_scalars import CONNECT_TYPES, PAYLOAD, as_json_schema, is_connect_schema
from calve.schema.protobuf.columns import columns_of, plan
from calve.schema.protobuf.descriptor import message_indexes, message_places
from calve.schema.protobuf.files import has_message, load, message_of, messages
from calve.schema.protobuf.model import File
from calve.schema.wire import Schema, Wire
from calve.schema.writers import (
    AvroWriter,
    JsonWriter,
    PlainWriter,
    ProtobufWriter,
    WholeWriter,
    Writer,
)


@dataclass(frozen=True, slots=True)
class Top:
    """The treatment of the top level of a schema.

    column: the whole value is this one column, as for a key; None: its fields are the columns.
    rest: an additional column for fields that a JSON schema does not declare.
    taken: a name that no field may have, because the key's column has it.
    message: the message of a Protobuf file, with or without package; None: the first.
    changes: it is a change event; the columns are the fields of its row, with Debezium's types.
    `order`: fields of its `source` that are also read.
    """

    column: str | None = None
    rest: str | None = None
    taken: str | None = None
    message: str | None = None
    changes: bool = False
    order: tuple[str, ...] = ()


FIELDS = Top()
VALUE = "value"
REGISTERED = ("AVRO", "JSON", "PROTOBUF")
"""The schema types of a registry."""
OF_CHANGES = ("AVRO", "JSON")
"""The schema types of Debezium's events."""


@dataclass(frozen=True, slots=True)
class Format:
    """One kind of registered schema.

    columns: the table columns of a schema, for comparison by `calve.schema.evolution`.
    writer: how values of a schema are read as the columns of a table, in a wire format. Each column has the name
        by which the schema writes it (`calve.schema.lineage.Fit`). Both raise `SchemaProblem`.
    """

    columns: Callable[[Schema, Top], Json]
    writer: Callable[[Schema, Json, Wire, Top], Writer]


def columns(schema: Schema, top: Top = FIELDS) -> Json:
    """The table columns of a schema.

    Raises:
        SchemaProblem: no table can hold it.
    """
    if schema.type not in FORMATS:
        raise SchemaProblem("", f"{schema.type} is not supported")
    if top.message and schema.type != "PROTOBUF":
        raise SchemaProblem("", f'calve.yaml names the message "{top.message}", and this is {schema.type}')
    if top.changes and schema.type not in OF_CHANGES:
        raise SchemaProblem("", f"change events are {' or '.join(OF_CHANGES)}, and this is {schema.type}")
    try:
        found = FORMATS[schema.type].columns(schema, top)
        found = row_of(found) if top.changes else found
    except (ValueError, LookupError, TypeError, AttributeError):
        raise SchemaProblem("", f"this is no {schema.type} schema") from None
    _refuse_clashes([each["name"] for each in found["fields"]], top)
    return found


def writer(schema: Schema, table: Json, wire: Wire, top: Top) -> Writer:
    """As `Format.writer`; `change_events.read_as` defines how change events are read. `table`: the columns of the row."""
    kind = FORMATS[schema.type]
    read = read_as(kind.columns(schema, top), table, top.order) if top.changes else table
    return kind.writer(schema, read, wire, top)


def concerns(schema: Schema, top: Top) -> bool:
    """False for a readable Protobuf file without this message: none of its records is a row of the table."""
    if not top.message or schema.type != "PROTOBUF":
        return True
    try:
        file = load(schema)
    except SchemaProblem:
        return True
    return has_message(file, top.message)


def _refuse_clashes(names: Sequence[str], top: Top) -> None:
    for word, column, fix in (("key", top.taken, "key: {column: NAME}"), ("rest", top.rest, "rest: NAME")):
        clashing = [name for name in names if column and name.lower() == column.lower()]
        if len(clashing) > (word == "rest"):
            why = f"calve.yaml gives this name to the column of {word}; name that otherwise: `{fix}`"
            raise SchemaProblem(clashing[0], why, Rule.FIELD_NAME_RESERVED)


def _plain_columns(schema: Schema, top: Top) -> Json:
    kind = "string" if schema.type == "STRING" else "binary"
    return struct(field(top.column or VALUE, kind))


def _plain_writer(schema: Schema, _table: Json, wire: Wire, top: Top) -> Writer:
    return PlainWriter(schema.id, wire.frame(schema.id), top.column or VALUE, text=schema.type == "STRING")


def _avro_columns(schema: Schema, top: Top) -> Json:
    return avro.columns_of(_avro_schema(schema, top))


def _avro_writer(schema: Schema, table: Json, wire: Wire, top: Top) -> Writer:
    frame, found = wire.frame(schema.id), resolution(_avro_schema(schema, top), table)
    written, read = json.dumps(framed(found.writer, len(frame))), json.dumps(unframed(found.reader))
    return AvroWriter(schema.id, frame, written, read, found.shape)


def _avro_schema(schema: Schema, top: Top) -> Json:
    """For a single whole column, a record with that one field: it is written as the field is."""
    kind = avro.expand(schema.text, schema.references, AVRO_LOGICAL if top.changes else {})
    if top.column is None:
        return kind
    return {"type": "record", "name": "calve_whole", "fields": [{"name": top.column, "type": kind}]}


def _json_columns(schema: Schema, top: Top) -> Json:
    found = json_schema.columns_of(_json_shape(schema, top))
    if not top.rest:
        return found
    return struct(
        *found["fields"], field(top.rest, "string", doc="what the schema does not declare, as JSON")
    )


def _json_writer(schema: Schema, table: Json, wire: Wire, top: Top) -> Writer:
    frame, shape = wire.frame(schema.id), _json_shape(schema, top)
    member = PAYLOAD if _is_embedded(schema) else None
    if top.column is None:
        return JsonWriter(schema.id, frame, shape, table, top.rest, member=member)
    [part] = shape["fields"]
    if isinstance(part["type"], str):
        return JsonWriter(schema.id, frame, shape, table, scalar=top.column, member=member)
    kind = table["fields"][0]["type"]
    return WholeWriter(JsonWriter(schema.id, frame, part["type"], kind, member=member), top.column)


def _json_shape(schema: Schema, top: Top) -> Json:
    text = as_json_schema(schema.text) if _is_embedded(schema) else schema.text
    named = JSON_TYPES if top.changes else CONNECT_TYPES
    if top.column is None:
        return json_schema.shape(text, schema.references, named)
    return json_schema.whole(text, schema.references, top.column, named)


def _is_embedded(schema: Schema) -> bool:
    """Whether each value contains its schema and payload: true for a schema file in Kafka Connect's format."""
    return schema.id == NO_ID and is_connect_schema(schema.text)


def _protobuf_columns(schema: Schema, top: Top) -> Json:
    found = columns_of(message_of(load(schema), top.message)[1])
    return struct(field(top.column, found)) if top.column else found


def _protobuf_writer(schema: Schema, table: Json, wire: Wire, top: Top) -> Writer:
    file = load(schema)
    path, message = message_of(file, top.message)
    found = plan(message, table["fields"][0]["type"] if top.column else table)
    prefixes = {each: wire.frame(schema.id) + words for each, words in message_prefixes(file, wire).items()}
    prefix = prefixes.pop(path)
    names = dict(messages(file.messages))
    others = {words: names[each].name for each, words in prefixes.items()} if prefix else {}
    made = ProtobufWriter(schema.id, prefix, found, message.name, others)
    return WholeWriter(made, top.column) if top.column else made


def message_prefixes(file: File, wire: Wire) -> dict[tuple[int, ...], bytes]:
    """The bytes between the frame and a message, by the message's path."""
    every = dict(messages(file.messages))
    if not wire.size:
        return dict.fromkeys(every, b"")
    if wire.names_are_numbers:
        return {path: message_indexes(path) for path in every}
    places = message_places(each.name for each in every.values())
    return {path: places[each.name] for path, each in every.items()}


FORMATS: Mapping[str, Format] = {
    "AVRO": Format(_avro_columns, _avro_writer),
    "JSON": Format(_json_columns, _json_writer),
    "PROTOBUF": Format(_protobuf_columns, _protobuf_writer),
    "STRING": Format(_plain_columns, _plain_writer),
    "BYTES": Format(_plain_columns, _plain_writer),
}
"""By the registry's `schemaType`. STRING and BYTES occur only in calve.yaml."""
