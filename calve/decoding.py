"""Which schema ids a round can decode, and into which columns: decided on the driver before a record is read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from calve import avro, json_schema
from calve.avro_reader import framed, resolution, unframed
from calve.avro_references import with_definitions
from calve.columns import Json, struct
from calve.comments import comments
from calve.errors import Suspended
from calve.evolution import Change, SchemaProblem, plain
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
    """A schema id, what its values begin with and hold (a shape of `calve.json_schema`), and the columns to read them as."""

    id: int
    prefix: bytes
    shape: Json
    table: Json


@dataclass(frozen=True, slots=True)
class ProtobufWriter:
    """A schema id, what the values of one of its messages begin with, and how they are read.

    `prefix`: the frame and the message's indexes. `others`: those of the schema's other messages, which are no rows of the table.
    """

    id: int
    prefix: bytes
    plan: Struct
    others: tuple[bytes, ...] = ()


Writer = AvroWriter | JsonWriter | ProtobufWriter


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

    Ids in neither tuple are unknown to the registry, as far as was known when the round began.
    """

    writers: tuple[Writer, ...]
    incompatible: tuple[int, ...] = ()
    wire: Wire = CONFLUENT

    @property
    def ids(self) -> frozenset[int]:
        return frozenset(self.incompatible) | {writer.id for writer in self.writers}


def first_columns(versions: Sequence[Schema], subject: str) -> Json:
    """The columns of a table that does not exist yet: the first version's, changed as later versions ask.

    Raises:
        Suspended: no table can hold the subject's first version (`schema_unsupported`).
    """
    first = versions[0]
    if first.type not in FORMATS:
        raise Suspended(
            "schema_unsupported",
            f"subject {subject} is {first.type}; only {' and '.join(FORMATS)} is supported yet",
        )
    found = _columns_or_problem(first)
    if isinstance(found, SchemaProblem):
        raise Suspended("schema_unsupported", f"subject {subject}, schema id {first.id}: {found.message}")
    return settle(plain(found), _columns_of_all(versions))[0]


def columns(schema: Schema) -> Json:
    """The table columns of a registered schema.

    Raises:
        SchemaProblem: no table can hold it.
    """
    if schema.type not in FORMATS:
        raise SchemaProblem("", f"{schema.type} is not supported")
    try:
        return FORMATS[schema.type].columns(schema)
    except (ValueError, LookupError, TypeError, AttributeError):
        raise SchemaProblem("", f"this is no {schema.type} schema") from None


def evolution(table: Json, versions: Sequence[Schema]) -> list[tuple[Schema, list[Change]]]:
    """The changes that each version asks of a table's data columns, oldest first; versions that do not fit are left out.

    Comments are last, and alone: the newest version that fits has them.
    """
    fits = list(_fits(table, versions))
    found = [(version, list(each.changes)) for version, each in fits if each.changes]
    if found:
        return found
    named = [(version, each.named) for version, each in fits if each.named is not None]
    wanted = comments(table, [each for _, each in named])
    return [(named[-1][0], wanted)] if wanted else []


def decoding(
    table: Json, versions: Sequence[Schema], foreign: Sequence[Schema] = (), *, wire: Wire = CONFLUENT
) -> Decoding:
    """How to read every version of the subject as the table's columns.

    `foreign`: schemas that the registry knows, but not under this subject; their records are rejected.
    """
    writers, incompatible = [], [schema.id for schema in foreign]
    for version, each in _fits(table, versions):
        if each.columns is None:
            incompatible.append(version.id)
            continue
        try:
            writers.append(FORMATS[version.type].writer(version, each.columns, wire.frame(version.id)))
        except SchemaProblem:
            incompatible.append(version.id)
    return Decoding(tuple(writers), tuple(incompatible), wire)


def misfit(table: Json, versions: Sequence[Schema], schema_id: int) -> SchemaProblem | None:
    """Why no value of a version can be a row of the table; None where that is not the schema's fault."""
    return next((each.problem for version, each in _fits(table, versions) if version.id == schema_id), None)


def proposal(table: Json | None, versions: Sequence[Schema], candidate: Schema) -> Proposal:
    """What registering one more version would do to a table (None: there is none yet)."""
    *known, new = _columns_of_all([*versions, candidate])
    return propose(struct() if table is None else table, known, new)


def _fits(table: Json, versions: Sequence[Schema]) -> Iterator[tuple[Schema, Fit]]:
    return zip(versions, fit(table, _columns_of_all(versions)), strict=True)


def _columns_of_all(versions: Sequence[Schema]) -> list[Json | SchemaProblem]:
    return with_former_names([_columns_or_problem(each) for each in versions])


@lru_cache(maxsize=4096)
def _columns_or_problem(version: Schema) -> Json | SchemaProblem:
    """`columns`, kept: versions are looked at again and again, and never change."""
    try:
        return columns(version)
    except SchemaProblem as problem:
        return problem.with_traceback(None)


def _avro_columns(schema: Schema) -> Json:
    return avro.columns_of(avro.expand(_avro_text(schema)))


def _avro_writer(schema: Schema, table: Json, frame: bytes) -> Writer:
    found = resolution(avro.expand(_avro_text(schema)), table)
    written, read = json.dumps(framed(found.writer, len(frame))), json.dumps(unframed(found.reader))
    return AvroWriter(schema.id, frame, written, read, found.shape)


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
