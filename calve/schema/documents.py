"""MongoDB's documents in the events of its connector: a text of JSON, whose columns calve.yaml declares.

Debezium writes documents in the strict mode of MongoDB's Java driver: a value without a type of JSON is an object with one member
that begins with `$`. Sources: `JsonSerialization` in https://github.com/debezium/debezium, and
https://www.mongodb.com/docs/manual/reference/mongodb-extended-json-v1/. Both engines read documents after `plain` as any JSON.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from calve.schema.columns import Json
from calve.schema.json_scalars import CONNECT
from calve.schema.wire import NO_ID, Schema

COLUMN = "document"
"""The only column, if calve.yaml declares none."""
AS_TEXT = "text"
"""In the place of a schema: the documents stay texts."""
WHOLE = "-?(?:0|[1-9][0-9]*)"
REAL = rf"{WHOLE}(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
PLAIN: Sequence[tuple[str, str]] = (
    (r'\{\s*"\$oid"\s*:\s*("[0-9a-fA-F]{24}")\s*\}', r"\1"),
    (rf'\{{\s*"\$number(?:Long|Int)"\s*:\s*"({WHOLE})"\s*\}}', r"\1"),
    (rf'\{{\s*"\$numberDouble"\s*:\s*"({REAL})"\s*\}}', r"\1"),
    (r'\{\s*"\$numberDecimal"\s*:\s*("[-+.0-9A-Za-z]*")\s*\}', r"\1"),
    (rf'\{{\s*"\$date"\s*:\s*({WHOLE})\s*\}}', r"\1"),
    (r'\{\s*"\$binary"\s*:\s*("[A-Za-z0-9+/=]*")\s*,\s*"\$type"\s*:\s*"[0-9a-fA-F]{1,2}"\s*\}', r"\1"),
    (r'\{\s*"\$symbol"\s*:\s*("(?:[^"\\]|\\.)*")\s*\}', r"\1"),
)
"""Expressions (RE2) for values of MongoDB's types, and the values of JSON in their place, in this order.

None matches inside a text of JSON: there each quotation mark follows a backslash.
"""
INTEGER = {"type": "integer"}
TYPES: dict[str, Json] = {
    "array": {"type": "array"},
    "binData": {"type": "string", "connect.type": "bytes"},
    "bool": {"type": "boolean"},
    "date": INTEGER | {"connect.type": "int64", "title": f"{CONNECT}Timestamp"},
    "decimal": {"type": "string"},
    "double": {"type": "number", "connect.type": "float64"},
    "int": INTEGER | {"connect.type": "int32"},
    "long": INTEGER | {"connect.type": "int64"},
    "null": {"type": "null"},
    "number": {"type": "number"},
    "object": {"type": "object"},
    "objectId": {"type": "string"},
    "string": {"type": "string"},
    "symbol": {"type": "string"},
}
"""`bsonType` of a MongoDB schema -> JSON Schema. Values of other types stay JSON."""
HOLD_INTS = {"long", "double"}
"""Types that hold every `int` exactly: one of them beside `int` is the type of both."""


def declared(text: str) -> Schema:
    """The schema of documents that `value.document` of calve.yaml holds: of one column, or what a file of it says.

    Such a file is a JSON Schema, with MongoDB's types where it has `bsonType`, as a validator of a collection has:
    https://www.mongodb.com/docs/manual/reference/operator/query/jsonSchema/. Raises ValueError: it is not JSON.
    """
    if text == AS_TEXT:
        return Schema(NO_ID, AS_TEXT, "STRING")
    return Schema(NO_ID, json.dumps(_schema(json.loads(text))), "JSON")


def _schema(node: Json) -> Json:
    if isinstance(node, list):
        return [_schema(each) for each in node]
    if not isinstance(node, dict):
        return node
    found = {name: _schema(each) for name, each in node.items() if name != "bsonType"}
    given = node.get("bsonType")
    # A property may have this name, and then its schema is an object.
    if given is None or isinstance(given, dict):
        return node | found
    return {key: each for key, each in found.items() if key != "type"} | _typed(given)


def _typed(given: Json) -> Json:
    names = [str(each) for each in (given if isinstance(given, list) else [given])]
    if len(HOLD_INTS.intersection(names)) == 1:
        names = [each for each in names if each != "int"]
    kinds = [TYPES.get(each, {}) for each in names]
    return kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
