"""Rows of a table as records of an output topic: their schemas, and the commit up to which rows are emitted (ADR 23)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from calve.errors import Suspended
from calve.schema.columns import Json, decimal_digits
from calve.table.position import Offsets, Position, TopicKey, decode_offsets, encode_offsets
from calve.table.protocol import Commit
from calve.table.summary import EMITTED, REDRIVE, ends_of, is_round, round_of

HEADERS = {
    "calve-source-topic": "topic",
    "calve-source-partition": "partition",
    "calve-source-offset": "offset",
}
"""Headers of an emitted record -> fields of `_kafka`. Records with equal headers and value are the same record."""

AVRO = {
    "boolean": "boolean",
    "int": "int",
    "long": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "binary": "bytes",
    "date": {"type": "int", "logicalType": "date"},
    "timestamptz": {"type": "long", "logicalType": "timestamp-micros"},
    "timestamp": {"type": "long", "logicalType": "local-timestamp-micros"},
}
JSON = {
    "boolean": {"type": "boolean"},
    "int": {"type": "integer", "connect.type": "int32"},
    "long": {"type": "integer", "connect.type": "int64"},
    "float": {"type": "number", "connect.type": "float32"},
    "double": {"type": "number", "connect.type": "float64"},
    "string": {"type": "string"},
    "binary": {"type": "string", "contentEncoding": "base64"},
    "date": {"type": "string", "format": "date"},
    "timestamptz": {"type": "string", "format": "date-time"},
    "timestamp": {"type": "string"},
}


def avro_schema(name: str, columns: Json) -> str:
    """The Avro schema of records with these columns; each may be null. Raises Suspended: `emit_unusable`: Avro lacks a type."""
    return json.dumps(_avro(columns, _words(name), ""))


def _avro(kind: Json, name: str, path: str) -> Json:
    if isinstance(kind, str):
        digits = decimal_digits(kind)
        if digits is None:
            return AVRO.get(kind, "bytes")
        return {"type": "bytes", "logicalType": "decimal", "precision": digits[0], "scale": digits[1]}
    match kind["type"]:
        case "struct":
            fields: list[Json] = []
            for each in kind["fields"]:
                inner = _avro(each["type"], f"{name}_{each['name']}", f"{path}{each['name']}.")
                field = {"name": each["name"], "type": ["null", inner], "default": None}
                fields.append(field | ({"doc": each["doc"]} if each.get("doc") else {}))
            return {"type": "record", "name": name, "fields": fields}
        case "list":
            return {"type": "array", "items": ["null", _avro(kind["element"], f"{name}_item", f"{path}[]")]}
    _require_texts(kind, path)
    return {"type": "map", "values": ["null", _avro(kind["value"], f"{name}_value", f"{path}{{}}")]}


def json_schema(name: str, columns: Json) -> str:
    """The JSON Schema of objects with these columns, as `avro_schema`, also what it raises."""
    return json.dumps({"title": _words(name), **_json(columns, "")})


def _json(kind: Json, path: str) -> Json:
    if isinstance(kind, str):
        return {"type": "number"} if decimal_digits(kind) else JSON.get(kind, JSON["binary"])
    match kind["type"]:
        case "struct":
            properties = {
                each["name"]: _or_null(_json(each["type"], f"{path}{each['name']}."))
                for each in kind["fields"]
            }
            return {"type": "object", "properties": properties}
        case "list":
            return {"type": "array", "items": _or_null(_json(kind["element"], f"{path}[]"))}
    _require_texts(kind, path)
    return {"type": "object", "additionalProperties": _or_null(_json(kind["value"], f"{path}{{}}"))}


def _or_null(schema: Json) -> Json:
    return {"oneOf": [{"type": "null"}, schema]}


def _require_texts(kind: Json, path: str) -> None:
    if kind["key"] != "string":
        raise Suspended(
            "emit_unusable",
            f"{path.rstrip('.')} is a map whose keys are not texts, and no record of an output topic can hold it",
            fix="leave it out by an `sql` step of the table, or remove `emit`",
        )


def _words(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]", "_", name) if re.match("[A-Za-z_]", name) else f"t_{_words('_' + name)}"


@dataclass(frozen=True, slots=True)
class Emitted:
    """The last emitted commit, and its offsets, which show what is older if that commit is no longer an ancestor."""

    round: str
    offsets: Mapping[TopicKey, Offsets]

    @classmethod
    def at(cls, position: Position) -> Emitted:
        return cls(position.round, position.offsets)

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> Emitted | None:
        raw = properties.get(EMITTED)
        if raw is None:
            return None
        found = json.loads(raw)
        return cls(found["round"], decode_offsets(found["to"]))

    def to_json(self) -> str:
        return json.dumps({"round": self.round, "to": encode_offsets(self.offsets)})


def left(ancestors: Iterable[Commit], emitted: Emitted) -> list[Commit]:
    """The data commits that have not been emitted, oldest first; by offsets, if the last emitted one is no longer an ancestor."""
    found: list[Commit] = []
    for commit in ancestors:
        if round_of(commit.summary) == emitted.round:
            return found[::-1]
        if is_round(commit.summary):
            found.append(commit)
    return [
        commit
        for commit in found[::-1]
        if REDRIVE not in commit.summary
        and any(
            offset > emitted.offsets.get(topic, {}).get(partition, 0)
            for topic, offsets in ends_of(commit.summary).items()
            for partition, offset in offsets.items()
        )
    ]
