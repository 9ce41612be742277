"""Which schema ids a round can decode, and into which columns: decided on the driver before a record is read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from calve.avro import Change, SchemaProblem, changes, columns_of, expand
from calve.avro_reader import framed, reader_for, unframed
from calve.columns import Json
from calve.errors import Suspended
from calve.names import SYSTEM_COLUMN
from calve.registry import Schema


@dataclass(frozen=True, slots=True)
class Writer:
    """A schema id, the schema its framed values were written with, and the one to read them with (Avro JSON text)."""

    id: int
    schema: str
    reader: str


@dataclass(frozen=True, slots=True)
class Decoding:
    """The schema ids of a round, pinned: both reads of a round use the same ones.

    Ids in neither tuple are unknown to the registry, as far as was known when the round began.
    """

    writers: tuple[Writer, ...]
    incompatible: tuple[int, ...] = ()

    @property
    def ids(self) -> frozenset[int]:
        return frozenset(self.incompatible) | {writer.id for writer in self.writers}


def first_columns(versions: Sequence[Schema], subject: str) -> Json:
    """The columns of a table that does not exist yet: the first version's, and what later versions add.

    Raises:
        Suspended: the subject is no Avro record that a table can hold (`schema_unsupported`).
    """
    if versions[0].type != "AVRO":
        raise Suspended(
            "schema_unsupported", f"subject {subject} is {versions[0].type}; only AVRO is supported yet"
        )
    try:
        return columns_of(expand(versions[0].text))
    except SchemaProblem as problem:
        raise Suspended(
            "schema_unsupported", f"subject {subject}, schema id {versions[0].id}: {problem.message}"
        ) from None


def evolution(table: Json, versions: Sequence[Schema]) -> list[tuple[Schema, list[Change]]]:
    """The changes that each version asks of a table's data columns, oldest first; versions that do not fit are left out."""
    found = []
    for version in (each for each in versions if each.type == "AVRO"):
        try:
            wanted = changes(table, columns_of(expand(version.text)))
        except (SchemaProblem, ValueError):
            continue
        if wanted:
            found.append((version, wanted))
    return found


def decoding(table: Json, versions: Sequence[Schema], foreign: Sequence[Schema] = ()) -> Decoding:
    """How to read every version of the subject as the table's columns.

    `foreign`: schemas that the registry knows, but not under this subject; their records are rejected.
    """
    writers, incompatible = [], [schema.id for schema in foreign]
    for version in versions:
        try:
            if version.type != "AVRO":
                raise SchemaProblem("", f"the schema is {version.type}, not AVRO")
            expanded = expand(version.text)
            changed = changes(table, columns_of(expanded))
            if changed:
                raise SchemaProblem(changed[0].path, "the table lacks this column")
            reader = reader_for(expanded, table)
        except (SchemaProblem, ValueError):
            incompatible.append(version.id)
            continue
        schema = json.dumps(framed(json.loads(version.text)))
        writers.append(Writer(version.id, schema, json.dumps(unframed(reader))))
    return Decoding(tuple(writers), tuple(incompatible))


def data_columns(table: Json) -> Json:
    """A table's struct without the system column and without field ids, as `changes` and `reader_for` want it."""
    return _plain(table | {"fields": [each for each in table["fields"] if each["name"] != SYSTEM_COLUMN]})


def _plain(kind: Json) -> Json:
    if not isinstance(kind, dict):
        return kind
    match kind["type"]:
        case "struct":
            fields = [
                {"name": f["name"], "required": f["required"], "type": _plain(f["type"])}
                | ({"doc": f["doc"]} if "doc" in f else {})
                for f in kind["fields"]
            ]
            return {"type": "struct", "fields": fields}
        case "list":
            return {
                "type": "list",
                "element-required": kind["element-required"],
                "element": _plain(kind["element"]),
            }
        case _:
            return {
                "type": "map",
                "key": kind["key"],
                "value-required": kind["value-required"],
                "value": _plain(kind["value"]),
            }
