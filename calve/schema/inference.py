"""Columns of JSON without a schema, learnt from its records.

The state is a JSON Schema, which only grows. Each record has the columns that it and the records before it made: so the records
of a partition make the same rows in any batches. These rules keep that true (ADR 75):

- The first value of a field that is not null decides its type, for all time.
- A value that does not fit goes to the rest column, with its whole top-level field.
- A null says nothing: the rest column has none at its top level.
- An array is JSON text, as is an object at the greatest depth, or one that has no column in it.
- A field beyond the budget never becomes a column.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from calve.names import FIELD_NAME, SYSTEM_COLUMN
from calve.schema.columns import Json
from calve.schema.evolution import Rule, SchemaProblem

INFER, REST = "infer", "rest"
"""calve.yaml's word in the place of a schema, and the name of the rest column if it does not say another."""
INFERRED = "INFERRED"
"""The schema type of such a schema, beside those of `calve.decoding.formats`."""
TYPES: dict[str, dict[str, Json]] = {
    "boolean": {"type": "boolean"},
    "long": {"type": "integer"},
    "double": {"type": "number"},
    "string": {"type": "string"},
    "date": {"type": "string", "format": "date"},
    "timestamptz": {"type": "string", "format": "date-time"},
    "json": {"description": "JSON text"},
}
"""A column type -> its node in the schema, besides `NUMBER`. Records decide all but dates and timestamps."""
NUMBER = "x-number"
"""The columns of a schema are numbered in the order of their making, so that `first` can leave out the later ones."""
EMPTY = '{"type": "object", "properties": {}}'
MOST_COLUMNS, MOST_DEPTH = 1_000, 10
DEEPEST = 998
"""The most levels of a record; a deeper one is malformed."""
LONG = 2**63
SHAPE = ((r"\\.", "_"), ('("[^"]*+":)|"[^"]*+"', "$1S"), ('("[^"]*+")|[-0-9.E]++', "$1#"))
"""Replacements (regular expressions of Java) after which JSON texts that are alike have the same names, and nulls in the same
places: the first one of them teaches all that the others could."""


@dataclass(frozen=True, slots=True)
class Infer:
    """The budget of inferred columns.

    columns: the most columns and fields without nested fields. depth: 1 makes no nested fields. types: by path, what
    calve.yaml says (`TYPES`).
    """

    columns: int = 200
    depth: int = 3
    types: Mapping[str, str] = field(default_factory=dict)

    def declared(self, schema: str = EMPTY) -> str:
        """The schema with the types of calve.yaml. Raises `SchemaProblem` if a field has another type already."""
        found = json.loads(schema)
        for path, kind in self.types.items():
            node, wanted = found, TYPES[kind] | {NUMBER: _size(found) + 1}
            *around, name = path.split(".")
            for each in around:
                node = _own(node, each, json.loads(EMPTY), path)
            if _kind(_own(node, name, wanted, path)) != TYPES[kind]:
                raise SchemaProblem(path, f"it is no {kind} already", Rule.UNSUPPORTED_TYPE_CHANGE)
        return json.dumps(found)

    def is_used(self, schema: str) -> bool:
        """Whether no column can be added any more."""
        return size(schema) >= self.columns

    def learnt(self, schema: str, records: Iterable[str], taken: Iterable[str] = ()) -> str:
        """The schema with the columns of these records, in order. taken: names of columns that calve.yaml gives."""
        found = json.loads(schema)
        names = frozenset(each.lower() for each in (*taken, SYSTEM_COLUMN))
        learning = _Learning(self, _size(found), names)
        for each in records:
            if learning.is_full:
                break
            if each.count("{") + each.count("[") > DEEPEST // 4:  # the parser recurses once per level
                sys.setrecursionlimit(max(sys.getrecursionlimit(), 4 * DEEPEST))
            learning.learn(found, json.loads(each), 1)
        return json.dumps(found)


def first(schema: str, count: int) -> str:
    """The schema when it had so many columns."""
    return json.dumps(_first(json.loads(schema), count))


def size(schema: str) -> int:
    """How many columns and fields without nested fields it has."""
    return _size(json.loads(schema))


@dataclass(slots=True)
class _Learning:
    """count: of the columns so far."""

    infer: Infer
    count: int
    taken: frozenset[str]

    @property
    def is_full(self) -> bool:
        return self.count >= self.infer.columns

    def learn(self, node: dict[str, Json], value: dict[str, Any], depth: int) -> None:
        """Add the fields of an object to its node."""
        known = node["properties"]
        lower = {each.lower(): each for each in known}
        for name, each in value.items():
            if name in known:
                if "properties" in known[name] and isinstance(each, dict):
                    self.learn(known[name], each, depth + 1)
                continue
            is_free = name.lower() not in lower and not (depth == 1 and name.lower() in self.taken)
            if is_free and FIELD_NAME.fullmatch(name) and (made := self._node(each, depth)) is not None:
                known[name] = made
                lower[name.lower()] = name

    def _node(self, value: Any, depth: int) -> dict[str, Json] | None:
        """The node of a new field; None if it says nothing, or there is no room."""
        if value is None or self.is_full:
            return None
        if isinstance(value, dict) and depth < self.infer.depth:
            made: dict[str, Json] = json.loads(EMPTY)
            self.learn(made, value, depth + 1)
            if made["properties"]:
                return made
        self.count += 1
        return TYPES[_type(value)] | {NUMBER: self.count}


def _type(value: Any) -> str:
    match value:
        case bool():
            return "boolean"
        case int() if -LONG <= value < LONG:
            return "long"
        case float():
            return "double"
        case str():
            return "string"
    return "json"


def _own(node: dict[str, Json], name: str, made: dict[str, Json], path: str) -> dict[str, Json]:
    """The property of a node, which is added if there is none. Raises `SchemaProblem` if the node can have none."""
    known = node.get("properties")
    if known is None or any(name != each and name.lower() == each.lower() for each in known):
        why = (
            "it is a field of another type"
            if known is None
            else "another column differs from it only by case"
        )
        raise SchemaProblem(path, why, Rule.UNSUPPORTED_TYPE_CHANGE)
    found: dict[str, Json] = known.setdefault(name, made)
    return found


def _kind(node: dict[str, Json]) -> dict[str, Json]:
    return {key: each for key, each in node.items() if key != NUMBER}


def _first(node: dict[str, Json], count: int) -> dict[str, Json]:
    properties = {
        name: _first(each, count) if "properties" in each else each
        for name, each in node["properties"].items()
    }
    kept = {
        name: each
        for name, each in properties.items()
        if each.get("properties") or each.get(NUMBER, count + 1) <= count
    }
    return node | {"properties": kept}


def _size(node: dict[str, Json]) -> int:
    return sum(_size(each) if "properties" in each else 1 for each in node["properties"].values())
