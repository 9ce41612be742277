"""Which schema ids a round can decode, and into which columns: decided on the driver before a record is read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as default
from functools import lru_cache

from calve import avro, json_schema
from calve.avro_reader import framed, resolution, unframed
from calve.avro_references import with_definitions
from calve.columns import Json, field, struct
from calve.comments import comments
from calve.errors import Suspended
from calve.evolution import Change, Rule, SchemaProblem, plain
from calve.lineage import Fit, Proposal, fit, propose, settle
from calve.protobuf.columns import columns_of
from calve.protobuf.linking import load, message_of, messages
from calve.protobuf.numbers import with_former_names
from calve.protobuf.reading import Struct, plan
from calve.protobuf.wire import message_indexes
from calve.registry import Schema
from calve.wire import CONFLUENT, Wire


@dataclass(frozen=True, slots=True)
class AvroWriter:
    """A schema id, the schema its framed values were written with, and the one to read them with (Avro JSON text).

    `prefix`: what its values begin with. `shape`: what is left to do with the value (`calve.avro_reader.Resolution`).
    """

    id: int
    prefix: bytes
    schema: str
    reader: str
    shape: Json | None = None


@dataclass(frozen=True, slots=True)
class JsonWriter:
    """A schema id, what its values begin with and hold (a shape of `calve.json_schema`), and the columns to read them as.

    rest: the column of what the schema does not declare. scalar: a value is no object, but what this one field of the shape is.
    """

    id: int
    prefix: bytes
    shape: Json
    table: Json
    rest: str | None = None
    scalar: str | None = None


@dataclass(frozen=True, slots=True)
class ProtobufWriter:
    """A schema id, what the values of one of its messages begin with, and how they are read.

    `prefix`: the frame and the message's indexes. `others`: those of the schema's other messages, which are no rows of the table.
    """

    id: int
    prefix: bytes
    plan: Struct
    others: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class PlainWriter:
    """Bytes that are kept as they are, in one column; `text`: they must be UTF-8."""

    id: int
    prefix: bytes
    column: str
    text: bool


@dataclass(frozen=True, slots=True)
class WholeWriter:
    """A writer whose value is one column, not several."""

    inner: Writer
    column: str

    @property
    def id(self) -> int:
        return self.inner.id

    @property
    def prefix(self) -> bytes:
        return self.inner.prefix


Writer = AvroWriter | JsonWriter | ProtobufWriter | PlainWriter | WholeWriter


@dataclass(frozen=True, slots=True)
class Top:
    """What becomes of the top of a schema.

    column: it is this one column, as that of a key; None: its fields are the columns. rest: a further column, of what a JSON
    schema does not declare. taken: a name that no field may have, as it is that of the key's column.
    """

    column: str | None = None
    rest: str | None = None
    taken: str | None = None


FIELDS = Top()
VALUE = "value"
PLAIN = {"STRING": "string", "BYTES": "binary"}
"""Types of schemas that say nothing: the column of bytes that are kept as they are."""


@dataclass(frozen=True, slots=True)
class Format:
    """One kind of registered schema.

    columns: the table columns of a schema, as `calve.evolution` compares them.
    writer: how values of a schema are read as the columns of a table, each with the name by which the schema writes it
        (`calve.lineage.Fit`); they begin with the frame that is given. Both raise `SchemaProblem`.
    """

    columns: Callable[[Schema], Json]
    writer: Callable[[Schema, Json, bytes], Writer]


@dataclass(frozen=True, slots=True)
class Decoding:
    """The schema ids of a round, pinned: both reads of a round use the same ones.

    Ids in none of the tuples are unknown to the registry, as far as was known when the round began. Where the wire format has no
    frame, there is one writer, for all values. `key`: how keys are read; None: they are not.
    others: what values begin with that belong to other tables of the topic. They are neither rows nor rejects.
    numbers: what `_kafka.schema_id` holds for the table's own schemas, where that is not the id.
    """

    writers: tuple[Writer, ...]
    incompatible: tuple[int, ...] = ()
    wire: Wire = CONFLUENT
    key: Decoding | None = None
    others: tuple[bytes, ...] = ()
    numbers: Mapping[int, int] = default(default_factory=dict)

    @property
    def ids(self) -> frozenset[int]:
        own = {writer.id for writer in self.writers}
        return frozenset(self.incompatible) | own | frozenset(self.other_ids)

    @property
    def other_ids(self) -> tuple[int, ...]:
        """The schema ids of `others`, each once, in order."""
        return tuple(dict.fromkeys(self.wire.schema_id(prefix) for prefix in self.others))


def first_columns(versions: Sequence[Schema], title: str, top: Top = FIELDS) -> Json:
    """The columns of a table that does not exist yet: the first version's, changed as later versions ask.

    `title`: what the versions are of, in words.

    Raises:
        Suspended: no table can hold the subject's first version (`schema_unsupported`).
    """
    first = versions[0]
    if first.type not in FORMATS and first.type not in PLAIN:
        raise Suspended(
            "schema_unsupported",
            f"{title} is {first.type}; only {' and '.join(FORMATS)} is supported yet",
        )
    found = _columns_or_problem(first, top)
    if isinstance(found, SchemaProblem):
        number = f", schema id {first.id}" if first.id else ""
        raise Suspended("schema_unsupported", f"{title}{number}: {found.message}")
    return settle(plain(found), _columns_of_all(versions, top))[0]


def columns(schema: Schema, top: Top = FIELDS) -> Json:
    """The table columns of a schema.

    Raises:
        SchemaProblem: no table can hold it.
    """
    if schema.type in PLAIN:
        return struct(field(top.column or VALUE, PLAIN[schema.type]))
    if schema.type not in FORMATS:
        raise SchemaProblem("", f"{schema.type} is not supported")
    try:
        found = _columns_of_whole(schema, top.column) if top.column else FORMATS[schema.type].columns(schema)
    except (ValueError, LookupError, TypeError, AttributeError):
        raise SchemaProblem("", f"this is no {schema.type} schema") from None
    if top.rest:
        found = struct(
            *found["fields"], field(top.rest, "string", doc="what the schema does not declare, as JSON")
        )
    _refuse_clashes([each["name"] for each in found["fields"]], top)
    return found


def evolution(
    table: Json, versions: Sequence[Schema], top: Top = FIELDS
) -> list[tuple[Schema, list[Change]]]:
    """The changes that each version asks of a table's data columns, oldest first; versions that do not fit are left out.

    Comments are last, and alone: the newest version that fits has them.
    """
    fits = list(_fits(table, versions, top))
    found = [(version, list(each.changes)) for version, each in fits if each.changes]
    if found:
        return found
    named = [(version, each.named) for version, each in fits if each.named is not None]
    wanted = comments(table, [each for _, each in named])
    return [(named[-1][0], wanted)] if wanted else []


def decoding(
    table: Json,
    versions: Sequence[Schema],
    foreign: Sequence[Schema] = (),
    *,
    wire: Wire = CONFLUENT,
    top: Top = FIELDS,
    shared: bool = False,
) -> Decoding:
    """How to read every version of the subject as the table's columns; without a frame, the newest.

    `foreign`: schemas that the registry knows, but not under this subject; their records are rejected, or belong to other
    tables where the topic is `shared`.
    """
    known = {version.id for version in versions}
    strange = [schema.id for schema in foreign if schema.id not in known]
    others = tuple(frame for each in strange for frame in wire.frames(each)) if shared else ()
    writers: list[Writer] = []
    incompatible = [] if shared else strange
    for version, each in _fits(table, versions, top):
        if not wire.size and version is not versions[-1]:
            continue
        if each.columns is None:
            incompatible.append(version.id)
            continue
        try:
            writers.append(_writer(version, each.columns, wire.frame(version.id), top))
        except SchemaProblem:
            incompatible.append(version.id)
    numbers = {version.id: version.number for version in versions if version.number != version.id}
    return Decoding(tuple(writers), tuple(incompatible), wire, others=others, numbers=numbers)


def misfit(
    table: Json, versions: Sequence[Schema], schema_id: int, top: Top = FIELDS
) -> SchemaProblem | None:
    """Why no value of a version can be a row of the table; None where that is not the schema's fault."""
    fits = _fits(table, versions, top)
    return next((each.problem for version, each in fits if version.id == schema_id), None)


def proposal(
    table: Json | None, versions: Sequence[Schema], candidate: Schema, top: Top = FIELDS
) -> Proposal:
    """What registering one more version would do to a table (None: there is none yet)."""
    *known, new = _columns_of_all([*versions, candidate], top)
    return propose(struct() if table is None else table, known, new)


def _fits(table: Json, versions: Sequence[Schema], top: Top) -> Iterator[tuple[Schema, Fit]]:
    return zip(versions, fit(table, _columns_of_all(versions, top)), strict=True)


def _columns_of_all(versions: Sequence[Schema], top: Top) -> list[Json | SchemaProblem]:
    return with_former_names([_columns_or_problem(each, top) for each in versions])


@lru_cache(maxsize=4096)
def _columns_or_problem(version: Schema, top: Top) -> Json | SchemaProblem:
    """`columns`, kept: versions are looked at again and again, and never change."""
    try:
        return columns(version, top)
    except SchemaProblem as problem:
        return problem.with_traceback(None)


def _refuse_clashes(names: Sequence[str], top: Top) -> None:
    for word, column, fix in (("key", top.taken, "key: {column: NAME}"), ("rest", top.rest, "rest: NAME")):
        clashing = [name for name in names if column and name.lower() == column.lower()]
        if len(clashing) > (word == "rest"):
            why = f"calve.yaml gives this name to the column of {word}; name that otherwise: `{fix}`"
            raise SchemaProblem(clashing[0], why, Rule.FIELD_NAME_RESERVED)


def _columns_of_whole(schema: Schema, column: str) -> Json:
    """One column of all that a schema describes."""
    match schema.type:
        case "AVRO":
            return avro.columns_of(_avro_whole(schema, column))
        case "JSON":
            return json_schema.columns_of(json_schema.whole(schema.text, schema.references, column))
    return struct(field(column, FORMATS[schema.type].columns(schema)))


def _writer(schema: Schema, table: Json, frame: bytes, top: Top) -> Writer:
    """How values of a schema are read as the columns of a table, as `Format.writer`."""
    if schema.type in PLAIN:
        return PlainWriter(schema.id, frame, top.column or VALUE, text=schema.type == "STRING")
    if top.column is None:
        made = FORMATS[schema.type].writer(schema, table, frame)
        return replace(made, rest=top.rest) if isinstance(made, JsonWriter) else made
    if schema.type == "AVRO":
        return _avro_reading(schema.id, _avro_whole(schema, top.column), table, frame)
    inside = table["fields"][0]["type"]
    if schema.type == "JSON":
        shape = json_schema.whole(schema.text, schema.references, top.column)
        [part] = shape["fields"]
        if isinstance(part["type"], str):
            return JsonWriter(schema.id, frame, shape, table, scalar=top.column)
        return WholeWriter(JsonWriter(schema.id, frame, part["type"], inside), top.column)
    return WholeWriter(FORMATS[schema.type].writer(schema, inside, frame), top.column)


def _avro_columns(schema: Schema) -> Json:
    return avro.columns_of(avro.expand(_avro_text(schema)))


def _avro_writer(schema: Schema, table: Json, frame: bytes) -> Writer:
    return _avro_reading(schema.id, avro.expand(_avro_text(schema)), table, frame)


def _avro_reading(schema_id: int, writer: Json, table: Json, frame: bytes) -> Writer:
    found = resolution(writer, table)
    written, read = json.dumps(framed(found.writer, len(frame))), json.dumps(unframed(found.reader))
    return AvroWriter(schema_id, frame, written, read, found.shape)


def _avro_whole(schema: Schema, column: str) -> Json:
    """A record of one field is written as the field is."""
    kind = avro.expand(_avro_text(schema))
    return {"type": "record", "name": "calve_whole", "fields": [{"name": column, "type": kind}]}


def _avro_text(schema: Schema) -> str:
    return with_definitions(schema.text, schema.references) if schema.references else schema.text


def _json_columns(schema: Schema) -> Json:
    return json_schema.columns_of(json_schema.shape(schema.text, schema.references))


def _json_writer(schema: Schema, table: Json, frame: bytes) -> Writer:
    return JsonWriter(schema.id, frame, json_schema.shape(schema.text, schema.references), table)


def _protobuf_columns(schema: Schema) -> Json:
    return columns_of(message_of(load(schema), None)[1])


def _protobuf_writer(schema: Schema, table: Json, frame: bytes) -> Writer:
    file = load(schema)
    path, message = message_of(file, None)
    found = plan(message, table)
    if not frame:
        return ProtobufWriter(schema.id, frame, found)
    others = [frame + message_indexes(each) for each, _ in messages(file.messages) if each != path]
    return ProtobufWriter(schema.id, frame + message_indexes(path), found, tuple(others))


FORMATS: Mapping[str, Format] = {
    "AVRO": Format(_avro_columns, _avro_writer),
    "JSON": Format(_json_columns, _json_writer),
    "PROTOBUF": Format(_protobuf_columns, _protobuf_writer),
}
"""By the registry's `schemaType`."""
