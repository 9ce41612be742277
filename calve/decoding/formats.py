"""The kinds of registered schemas: the columns of each, and how its values are read as those of a table."""

from __future__ import annotations

from dataclasses import dataclass

from calve.schema import avro, documents, json_schema
from calve.schema.avro_reader import reading
from calve.schema.change_events import AVRO_LOGICAL, DOCUMENT, JSON_TYPES, read_as, row_of
from calve.schema.columns import Json, field, struct
from calve.schema.evolution import Rule, SchemaProblem
from calve.schema.inference import EMPTY, INFERRED
from calve.schema.json_scalars import CONNECT_TYPES, PAYLOAD, as_json_schema, is_connect_schema
from calve.schema.protobuf.columns import columns_of, plan
from calve.schema.protobuf.files import has_message, load, message_of, messages
from calve.schema.protobuf.model import File
from calve.schema.wire import NO_ID, Schema, Wire, varint_of, zigzag
from calve.schema.writers import AvroWriter, JsonWriter, PlainWriter, ProtobufWriter, Writer


@dataclass(frozen=True, slots=True)
class Top:
    """The treatment of the top level of a schema.

    column: the whole value is this one column, as for a key; None: its fields are the columns.
    rest: an additional column for fields that a JSON schema does not declare.
    taken, event: names that no field may have: those of the columns of keys and of CloudEvents' attributes.
    message: the message of a Protobuf file, with or without package; None: the first.
    changes: it is a change event; the columns are the fields of its row, with Debezium's types.
    `order`: fields of its `source` that are also read. `document`: the schema of MongoDB's documents in it, which `rest` is then
    for; None: its rows are no documents.
    """

    column: str | None = None
    rest: str | None = None
    taken: str | None = None
    message: str | None = None
    changes: bool = False
    order: tuple[str, ...] = ()
    document: Schema | None = None
    event: str | None = None

    @property
    def of_document(self) -> Top:
        """The treatment of documents: a text is one column."""
        if self.document is not None and self.document.type == "STRING":
            return Top(documents.COLUMN)
        return Top(rest=self.rest)


FIELDS = Top()
VALUE = "value"
REGISTERED = ("AVRO", "JSON", "PROTOBUF")
"""The schema types of a registry."""
FORMATS = (*REGISTERED, INFERRED, "STRING", "BYTES")
"""All schema types; the others occur only in calve.yaml."""
OF_CHANGES = ("AVRO", "JSON")
"""The schema types of Debezium's events."""


def columns(schema: Schema, top: Top = FIELDS) -> Json:
    """The table columns of a schema, for comparison by `calve.schema.evolution`.

    Raises `SchemaProblem` if no table can hold it.
    """
    if schema.type not in FORMATS:
        raise SchemaProblem("", f"{schema.type} is not supported")
    if top.message and schema.type != "PROTOBUF":
        raise SchemaProblem("", f'calve.yaml names the message "{top.message}", and this is {schema.type}')
    if top.changes and schema.type not in OF_CHANGES:
        raise SchemaProblem("", f"change events are {' or '.join(OF_CHANGES)}, and this is {schema.type}")
    try:
        found = own_columns(schema, top)
        if top.changes:
            found = row_of(found, top.document and own_columns(top.document, top.of_document))
    except (ValueError, LookupError, TypeError, AttributeError):
        raise SchemaProblem("", f"this is no {schema.type} schema") from None
    for word, column, fix in (
        ("key", top.taken, "key: {column: NAME}"),
        ("rest", top.rest, "rest: NAME"),
        ("cloudevents", top.event, "cloudevents: NAME"),
    ):
        names = [each["name"] for each in found["fields"]]
        clashing = [name for name in names if column and name.lower() == column.lower()]
        if len(clashing) > (word == "rest"):
            why = f"calve.yaml gives this name to the column of {word}; name that otherwise: `{fix}`"
            raise SchemaProblem(clashing[0], why, Rule.FIELD_NAME_RESERVED)
    return found


def own_columns(schema: Schema, top: Top) -> Json:
    """As `columns` without its checks; for a change event, the columns of the event."""
    match schema.type:
        case "AVRO":
            return avro.columns_of(_avro_schema(schema, top))
        case "JSON" | "INFERRED":
            found = json_schema.columns_of(_json_shape(schema, top))
            if not top.rest or top.document:
                return found
            rest = field(top.rest, "string", doc="what the schema does not declare, as JSON")
            return struct(*found["fields"], rest)
        case "PROTOBUF":
            found = columns_of(message_of(load(schema), top.message)[1])
            return struct(field(top.column, found)) if top.column else found
        case kind:
            return struct(field(top.column or VALUE, "string" if kind == "STRING" else "binary"))


def writer(schema: Schema, table: Json, wire: Wire, top: Top) -> Writer:
    """How values of a schema are read as the columns of a table, in a wire format.

    `table`: the columns, or those of the row of a change event (`change_events.read_as`), each with the name by which the schema
    writes it (`calve.schema.lineage.Fit`). Raises `SchemaProblem` if they cannot be read so.
    """
    read = table
    if top.changes:
        read = read_as(own_columns(schema, top), DOCUMENT if top.document else table, top.order)
    match schema.type:
        case "AVRO":
            return AvroWriter(schema.id, wire.frame(schema.id), reading(_avro_schema(schema, top), read))
        case "JSON" | "INFERRED":
            return _json_writer(schema, read, wire, top)
        case "PROTOBUF":
            return _protobuf_writer(schema, read, wire, top)
        case kind:
            return PlainWriter(schema.id, wire.frame(schema.id), top.column or VALUE, text=kind == "STRING")


def concerns(schema: Schema, top: Top) -> bool:
    """False for a readable Protobuf file without this message: none of its records is a row of the table."""
    if not top.message or schema.type != "PROTOBUF":
        return True
    try:
        return has_message(load(schema), top.message)
    except SchemaProblem:
        return True


def _avro_schema(schema: Schema, top: Top) -> Json:
    """For a single whole column, a record with that one field: it is written as the field is."""
    kind = avro.expand(schema.text, schema.references, AVRO_LOGICAL if top.changes else {})
    if top.column is None:
        return kind
    return {"type": "record", "name": "calve_whole", "fields": [{"name": top.column, "type": kind}]}


def _json_writer(schema: Schema, table: Json, wire: Wire, top: Top) -> Writer:
    frame, shape = wire.frame(schema.id), _json_shape(schema, top)
    member = PAYLOAD if _is_embedded(schema) else None
    if top.column is None:
        rest = None if top.document else top.rest
        lenient = schema.type == INFERRED
        return JsonWriter(schema.id, frame, shape, table, rest, member=member, lenient=lenient)
    [part] = shape["fields"]
    if isinstance(part["type"], str):
        return JsonWriter(schema.id, frame, shape, table, scalar=top.column, member=member)
    kind = table["fields"][0]["type"]
    return JsonWriter(schema.id, frame, part["type"], kind, member=member, whole=top.column)


def _json_shape(schema: Schema, top: Top) -> Json:
    text = as_json_schema(schema.text) if _is_embedded(schema) else schema.text
    named = JSON_TYPES if top.changes else CONNECT_TYPES
    if schema.type == INFERRED and schema.text == EMPTY:
        return struct()
    return json_schema.shape(text, schema.references, named, top.column)


def _is_embedded(schema: Schema) -> bool:
    """Whether each value contains its schema and payload: true for a schema file in Kafka Connect's format."""
    return schema.id == NO_ID and is_connect_schema(schema.text)


def _protobuf_writer(schema: Schema, table: Json, wire: Wire, top: Top) -> Writer:
    file = load(schema)
    path, message = message_of(file, top.message)
    found = plan(message, table["fields"][0]["type"] if top.column else table)
    prefixes = {each: wire.frame(schema.id) + words for each, words in message_prefixes(file, wire).items()}
    prefix = prefixes.pop(path)
    names = dict(messages(file.messages))
    others = {words: names[each].name for each, words in prefixes.items()} if prefix else {}
    return ProtobufWriter(schema.id, prefix, found, message.name, others, top.column)


def message_prefixes(file: File, wire: Wire) -> dict[tuple[int, ...], bytes]:
    """The bytes between the frame and a message, by the message's path.

    Confluent's serializers write the path as zigzag varints after their count, that of the first message as a single zero.
    AWS's write the place among all messages of the file, sorted by their full names:
    https://github.com/awslabs/aws-glue-schema-registry (`MessageIndexFinder`, `ProtobufWireFormatEncoder`)
    """
    every = dict(messages(file.messages))
    if not wire.size:
        return dict.fromkeys(every, b"")
    if wire.names_are_numbers:
        return {path: b"".join(map(zigzag, (len(path), *path))) for path in every} | {(0,): b"\x00"}
    by_name = sorted(every, key=lambda path: every[path].name)
    return {path: varint_of(place) for place, path in enumerate(by_name)}
