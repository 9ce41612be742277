"""Schemas of Debezium's events (https://debezium.io/documentation/reference/stable/connectors/postgresql.html)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

Fields = Mapping[str, Any]
"""Names of columns and their Avro types."""
COLUMNS: Fields = {
    "id": "long",
    "name": ["null", "string"],
    "note": ["null", "string"],
    "tags": ["null", {"type": "array", "items": "string"}],
}
LARGE = ("note", "tags")
"""Columns that PostgreSQL keeps aside, and leaves out of the log where an update does not change them."""
KEY = json.dumps(
    {
        "type": "record",
        "name": "Key",
        "namespace": "shop.public.t",
        "fields": [{"name": "id", "type": "long"}],
    }
)


def envelope(columns: Fields) -> str:
    """The schema of the events of a table, as the connector for PostgreSQL registers it."""
    fields = [_optional(name, kind) for name, kind in columns.items()]
    return json.dumps(around({"type": "record", "name": "Value", "fields": fields}))


def around(row: Any) -> Any:
    """The schema of events whose rows are these records."""
    source = {
        "type": "record",
        "name": "Source",
        "namespace": "io.debezium.connector.postgresql",
        "fields": [
            {"name": "connector", "type": "string"},
            {"name": "ts_ms", "type": "long"},
            {"name": "db", "type": "string"},
            _optional("lsn", ["null", "long"]),
            _optional("ts_us", ["null", "long"]),
        ],
    }
    fields = [
        {"name": "before", "type": ["null", row], "default": None},
        {"name": "after", "type": ["null", row["name"]], "default": None},
        {"name": "source", "type": source},
        {"name": "op", "type": "string"},
        _optional("ts_ms", ["null", "long"]),
    ]
    return {"type": "record", "name": "Envelope", "namespace": "shop.public.t", "fields": fields}


def json_schema(columns: Fields) -> str:
    """The same for JSON, as somebody would write it for messages without a schema."""
    kinds = {"long": "integer", "string": "string"}

    def of(kind: Any) -> Any:
        if isinstance(kind, list):
            return of(kind[1]) | {"type": [of(kind[1])["type"], "null"]}
        return (
            {"type": "array", "items": of(kind["items"])} if isinstance(kind, dict) else {"type": kinds[kind]}
        )

    row = {"type": "object", "properties": {name: of(kind) for name, kind in columns.items()}}
    return json.dumps(json_around(row))


def json_around(row: Any) -> Any:
    """As `around`."""
    numbers = {name: {"type": ["integer", "null"]} for name in ("lsn", "ts_ms", "ts_us")}
    parts = {
        "before": {"oneOf": [{"type": "null"}, row]},
        "after": {"oneOf": [{"type": "null"}, row]},
        "op": {"type": "string"},
        "source": {"type": "object", "properties": numbers},
    }
    return {"type": "object", "properties": parts}


def connect_schema(columns: Fields) -> str:
    """The schema that Connect's own converter writes into every message of such events."""
    kinds = {"long": "int64", "string": "string"}

    def of(kind: Any) -> Any:
        if isinstance(kind, list):
            return of(kind[1]) | {"optional": True}
        if isinstance(kind, dict):
            return {"type": "array", "items": of(kind["items"]), "optional": False}
        return {"type": kinds[kind], "optional": False}

    def struct(name: str, /, **fields: Any) -> Any:
        listed = [{"field": each} | of(kind) for each, kind in fields.items()]
        return {"type": "struct", "fields": listed, "optional": True, "name": name}

    row = struct("shop.public.t.Value", **columns)
    numbers = {name: ["null", "long"] for name in ("lsn", "ts_us")}
    source = struct(
        "io.debezium.connector.postgresql.Source", connector="string", ts_ms="long", db="string", **numbers
    )
    parts = {"before": row, "after": row, "source": source, "op": of("string"), "ts_ms": of(["null", "long"])}
    fields = [{"field": name} | kind for name, kind in parts.items()]
    return json.dumps(
        {"type": "struct", "fields": fields, "optional": False, "name": "shop.public.t.Envelope"}
    )


def _optional(name: str, kind: Any) -> Any:
    return {"name": name, "type": kind} | ({"default": None} if isinstance(kind, list) else {})


def event(op: str, *, before: Any = None, after: Any = None, **source: Any) -> dict[str, Any]:
    """An event of `envelope`."""
    known = {"connector": "postgresql", "db": "shop", "ts_ms": 1_700_000_000_123, "lsn": 17, "ts_us": None}
    return {"op": op, "before": before, "after": after, "source": known | source, "ts_ms": None}


DOCUMENT_KEY = json.dumps(
    {
        "type": "record",
        "name": "Key",
        "namespace": "shop.db.people",
        "fields": [{"name": "id", "type": "string"}],
    }
)
DOCUMENTS = json.dumps(
    {
        "type": "record",
        "name": "Envelope",
        "namespace": "shop.db.people",
        "fields": [
            _optional("before", ["null", "string"]),
            _optional("after", ["null", "string"]),
            _optional(
                "updateDescription",
                [
                    "null",
                    {
                        "type": "record",
                        "name": "updatedescription",
                        "namespace": "io.debezium.connector.mongodb.changestream",
                        "fields": [
                            _optional("removedFields", ["null", {"type": "array", "items": "string"}]),
                            _optional("updatedFields", ["null", "string"]),
                        ],
                    },
                ],
            ),
            {
                "name": "source",
                "type": {
                    "type": "record",
                    "name": "Source",
                    "namespace": "io.debezium.connector.mongo",
                    "fields": [
                        {"name": "connector", "type": "string"},
                        {"name": "ts_ms", "type": "long"},
                        {"name": "db", "type": "string"},
                        {"name": "collection", "type": "string"},
                        {"name": "ord", "type": "int"},
                        _optional("ts_us", ["null", "long"]),
                        _optional("wallTime", ["null", "long"]),
                    ],
                },
            },
            _optional("op", ["null", "string"]),
            _optional("ts_ms", ["null", "long"]),
        ],
    }
)
"""The schema of events of the connector for MongoDB: https://debezium.io/documentation/reference/stable/connectors/mongodb.html."""
OF_DRIVER = (
    '{"_id": {"$oid": "596e275826f08b2730779e1f"},'
    '"name": "O\'\\"Neil\\" {\\"$oid\\" : \\"596e275826f08b2730779e1f\\"} \u00e9\\n",'
    '"age": 41,"visits": {"$numberLong": "9007199254740993"},"score": 2.5,"whole": 3.0,"tiny": 1.0E-300,'
    '"price": {"$numberDecimal": "12.340"},"nan": {"$numberDecimal": "NaN"},"joined": {"$date": 1700000000123},'
    '"born": {"$date": -86400000},"active": true,"nothing": null,"photo": {"$binary": "AQID","$type": "00"},'
    '"address": {"city": "Bern","zip": 3000},"tags": ["a","b"],"stamp": {"$timestamp": {"t": 5,"i": 6}},'
    '"re": {"$regex": "^a","$options": "i"},"sym": {"$symbol": "x"},"min": {"$minKey": 1},"empty": {},"none": []}'
)
"""A document as `org.bson` 5.5.1 writes it with the settings of Debezium's `JsonSerialization`, run once."""
