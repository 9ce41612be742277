"""Avro schemas as table columns.

Sources: Avro 1.12 specification (schema resolution, logical types), Iceberg's types, and Confluent's public converters. Two
choices are calve's own. Every column is optional, so that no later schema needs a rewrite. A row holds what its writer wrote: a
field that the writer lacks is null, never a default of another schema version.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as default
from types import MappingProxyType

from calve.schema.change_events import AVRO_UNITS, MILLIS, MOMENT
from calve.schema.columns import (
    TAGS,
    Json,
    field,
    join,
    list_of,
    listed,
    map_of,
    struct,
    with_tags,
    with_unit,
)
from calve.schema.evolution import (
    Rule,
    SchemaProblem,
    column_name,
    contains_itself,
    decimal_type,
    struct_of,
    top_of,
)

PRIMITIVES = {kind: kind for kind in ("boolean", "int", "long", "float", "double", "string")}
PRIMITIVES |= {"bytes": "binary", "enum": "string"}
LOGICAL = {
    ("int", "date"): "date",
    ("long", "timestamp-millis"): "timestamptz",
    ("long", "timestamp-micros"): "timestamptz",
    ("long", "local-timestamp-millis"): "timestamp",
    ("long", "local-timestamp-micros"): "timestamp",
    ("long", MILLIS): "timestamp",
    ("string", MOMENT): "timestamptz",
}
UNITS = {
    ("int", "time-millis"): "milliseconds after midnight",
    ("long", "time-micros"): "microseconds after midnight",
    ("long", "timestamp-nanos"): "nanoseconds since 1970-01-01 UTC",
    ("long", "local-timestamp-nanos"): "nanoseconds since 1970-01-01, local time",
    ("fixed", "duration"): "months, days and milliseconds: three unsigned little-endian integers of 4 bytes",
} | AVRO_UNITS
"""Logical types without an exact type in Spark and Iceberg: they stay numbers and bytes."""
KEY_TYPES = {"boolean", "int", "long", "bytes", "string", "enum", "fixed"}
"""Key types of a map that is written as a list of entries. Not floating point: 0.0 and -0.0 are one key."""
SYMBOL = re.compile(r"[^\W\d]\w*")
ALWAYS_NULL = "a field that is always null has no column type"
MAX_DEPTH = 32
MAX_FIELDS = 10_000


def expand(
    text: str,
    references: Mapping[str, str] = MappingProxyType({}),
    logical: Mapping[tuple[str, str], str] = MappingProxyType({}),
) -> Json:
    """A registered schema as JSON, with every reference to a named type replaced by its definition.

    `references`: the texts of the schemas that it refers to. `logical`: logical types by type and `connect.name`.
    Raises `ValueError` if a text is not JSON, and `SchemaProblem` for recursive types (a table cannot hold them), undefined
    references, or JSON that is not an Avro schema: some registries call every version AVRO.
    """
    expansion = _Expansion(logical)
    try:
        for each in references.values():
            expansion.know(json.loads(each))
        schema = expansion.of(json.loads(text), (), "", "")
        fields = _count(schema, {})
    except (LookupError, TypeError, AttributeError):
        raise SchemaProblem("", "this is no Avro schema", Rule.UNREADABLE_SCHEMA) from None
    except RecursionError:
        raise SchemaProblem("", "types are nested too deep", Rule.NESTED_TOO_DEEP) from None
    if fields > MAX_FIELDS:
        raise SchemaProblem("", f"{fields} fields are more than {MAX_FIELDS}", Rule.TOO_MANY_FIELDS)
    return schema


def _count(node: Json, known: dict[int, int]) -> int:
    """Fields at any depth. A record counts at each use but is visited once, as there may be many uses."""
    if isinstance(node, list):
        return sum(_count(each, known) for each in node)
    if isinstance(node, str):
        return 0
    if id(node) not in known:
        parts = [each["type"] for each in node.get("fields", ())]
        inside = [node[key] for key in ("items", "values") if key in node]
        known[id(node)] = len(parts) + sum(_count(each, known) for each in parts + inside)
    return known[id(node)]


@dataclass(slots=True)
class _Expansion:
    """names: the types defined so far, expanded. known: the types of referenced schemas, each with its namespace."""

    logical: Mapping[tuple[str, str], str]
    names: dict[str, Json] = default(default_factory=dict)
    known: dict[str, Json] = default(default_factory=dict)

    def know(self, schema: Json) -> None:
        for each in schema if isinstance(schema, list) else [schema]:
            if isinstance(each, dict) and isinstance(each.get("name"), str):
                full, space = _full_name(each, "")
                self.known[full] = each | {"namespace": space}

    def of(self, node: Json, inside: tuple[str, ...], namespace: str, path: str) -> Json:
        if isinstance(node, str):
            return self.by_name(node, inside, namespace, path)
        if isinstance(node, list):
            return [self.of(branch, inside, namespace, path) for branch in node]
        if not isinstance(node, dict) or "type" not in node:
            raise SchemaProblem(path, "this is no Avro schema", Rule.UNREADABLE_SCHEMA)
        kind = node["type"]
        if isinstance(kind, dict | list):
            return self.of(kind, inside, namespace, path)
        if kind in ("record", "error", "enum", "fixed"):
            return self.named(node, inside, namespace, path)
        if kind == "array":
            return node | {"items": self.of(node["items"], inside, namespace, f"{path}[]")}
        if kind == "map":
            return node | {"values": self.of(node["values"], inside, namespace, f"{path}{{}}")}
        if kind not in PRIMITIVES:
            return self.of(kind, inside, namespace, path)
        logical = self.logical.get((kind, str(node.get("connect.name"))))
        return node | {"logicalType": logical} if logical else node

    def by_name(self, name: str, inside: tuple[str, ...], namespace: str, path: str) -> Json:
        if name in PRIMITIVES or name == "null":
            return name
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        if full in inside:
            raise contains_itself(full, path)
        if full in self.names:
            return self.names[full]
        for each in (full, name):
            if each in self.known and each not in inside:
                return self.names.get(each) or self.named(self.known[each], inside, "", path)
        raise SchemaProblem(path, f'"{full}" is not defined in this schema', Rule.UNRESOLVED_TYPE_REF)

    def named(self, node: Json, inside: tuple[str, ...], namespace: str, path: str) -> Json:
        full, space = _full_name(node, namespace)
        if len(inside) >= MAX_DEPTH:
            raise SchemaProblem(path, f"records are nested deeper than {MAX_DEPTH}", Rule.NESTED_TOO_DEEP)
        made = {key: value for key, value in node.items() if key not in ("namespace", "aliases")}
        made["name"] = full
        if node["type"] == "enum" and not all(SYMBOL.fullmatch(each) for each in node["symbols"]):
            raise SchemaProblem(path, "a symbol is no name", Rule.UNREADABLE_SCHEMA)
        if node["type"] in ("record", "error"):
            within = (*inside, full)
            made["fields"] = [
                each | {"type": self.of(each["type"], within, space, join(path, each["name"]))}
                for each in node["fields"]
            ]
        self.names[full] = made
        return made


def _full_name(node: Json, space: str) -> tuple[str, str]:
    """The full name of a named type, and the namespace inside it."""
    name = node["name"]
    if "." in name:
        return name, name.rpartition(".")[0]
    own = node.get("namespace", space)
    return (f"{own}.{name}" if own else name), own


def columns_of(schema: Json) -> Json:
    """The table columns of an expanded schema, as an Iceberg struct in JSON form without field ids.

    Raises `SchemaProblem` if the schema is not a record, or a part of it has no column type.
    """
    if not isinstance(schema, dict) or schema["type"] not in ("record", "error"):
        why = "a table needs a record at the top, so that its fields can be columns"
        raise SchemaProblem("", why, Rule.NO_RECORD)
    return top_of(column_type(schema, ""))


def column_type(node: Json, path: str) -> Json:
    """The column type of an expanded type. The fields of its structs are optional and may have `aliases` and `tags`.

    Raises `SchemaProblem` if no column type holds its values.
    """
    if isinstance(node, list):
        return _union_type(node, path)
    if isinstance(node, str):
        node = {"type": node}
    kind, logical = node["type"], node.get("logicalType")
    match kind:
        case "record" | "error":
            return _record_type(node, path)
        case "array" if is_map(node):
            kinds = {each["name"]: each["type"] for each in node["items"]["fields"]}
            key = column_type(kinds["key"], f"{path}{{key}}")
            return map_of(column_type(kinds["value"], f"{path}{{}}"), key=key)
        case "array":
            return list_of(column_type(node["items"], f"{path}[]"))
        case "map":
            return map_of(column_type(node["values"], f"{path}{{}}"))
        case "fixed":
            return _fixed_type(node, path)
        case "bytes" if logical == "decimal":
            return decimal_type(node.get("precision", 10), node.get("scale", 0), path)
        case "null":
            raise SchemaProblem(path, ALWAYS_NULL)
    return LOGICAL.get((kind, str(logical)), PRIMITIVES[kind])


def _fixed_type(node: Json, path: str) -> str:
    if node["size"] == 0:
        raise SchemaProblem(path, "bytes of length 0 have no column type")
    if node.get("logicalType") == "decimal":
        most = min(38, len(str(2 ** (8 * node["size"] - 1) - 1)) - 1)
        return decimal_type(node.get("precision", 10), node.get("scale", 0), path, most)
    return f"fixed[{node['size']}]"


def is_map(array: Json) -> bool:
    """True for an array of map entries, as converters write maps whose keys are not strings.

    An entry is a record of `key` and `value`, named MapEntry if the array has no `logicalType` map. If a key may be null or is
    nested, the entries stay a list.
    """
    entry = array["items"]
    if not isinstance(entry, dict) or entry["type"] != "record":
        return False
    if array.get("logicalType") != "map" and short_name(entry) != "MapEntry":
        return False
    kinds = {each["name"]: each["type"] for each in entry["fields"]}
    if kinds.keys() != {"key", "value"} or isinstance(kinds["key"], list):
        return False
    key = kinds["key"]
    return (key if isinstance(key, str) else key["type"]) in KEY_TYPES


def branches(union: Sequence[Json]) -> list[Json]:
    """The types of a union without null."""
    return [each for each in union if each != "null"]


def branch_names(union: Sequence[Json], path: str) -> list[str]:
    """The field names of the struct that a union of several types becomes, one for each of its `branches`.

    The name is the type's name without namespace; if two are equal, with it, and dots become underscores.
    Raises `SchemaProblem` if two fields have the same name.
    """
    names = [short_name(each) for each in branches(union)]
    folded = [name.lower() for name in names]
    names = [
        name if folded.count(name.lower()) == 1 else full_name(each).replace(".", "_")
        for name, each in zip(names, branches(union), strict=True)
    ]
    if len({name.lower() for name in names}) < len(names):
        raise SchemaProblem(path, "two types of the union have one name", Rule.UNION_NAME_COLLISION)
    return names


def full_name(node: Json) -> str:
    """The name of an expanded type: a named type's full name, or the kind of type."""
    return str(node if isinstance(node, str) else node.get("name", node["type"]))


def short_name(node: Json) -> str:
    return full_name(node).rpartition(".")[2]


def _union_type(union: list[Json], path: str) -> Json:
    found = branches(union)
    if not found:
        raise SchemaProblem(path, ALWAYS_NULL)
    if len(found) == 1:
        return column_type(found[0], path)
    fields = []
    for name, each in zip(branch_names(union, path), found, strict=True):
        where = join(path, name)
        fields.append(field(column_name(name, where), column_type(each, where), doc=_doc(None, each)))
    return struct(*fields)


def _record_type(node: Json, path: str) -> Json:
    fields = []
    for each in node["fields"]:
        where = join(path, each["name"])
        name = column_name(each["name"], where)
        made = field(name, column_type(each["type"], where), doc=_doc(each.get("doc"), each["type"]))
        made |= {"aliases": each["aliases"]} if each.get("aliases") else {}
        fields.append(with_tags(made, _tags(each)))
    if not fields:
        raise SchemaProblem(path, "a record without fields has no columns", Rule.EMPTY_STRUCT)
    return struct_of(fields, path)


def _tags(each: Json) -> list[str]:
    """The tags of a field; a map that is written as a list of entries has those of its keys and values."""
    found = listed(each.get(TAGS))
    for kind in each["type"] if isinstance(each["type"], list) else [each["type"]]:
        if isinstance(kind, dict) and kind["type"] == "array" and is_map(kind):
            found += [tag for part in kind["items"]["fields"] for tag in listed(part.get(TAGS))]
    return found


def _doc(doc: str | None, kind: Json) -> str | None:
    """A column's comment: the field's own, and the unit if the column's type does not have it."""
    if isinstance(kind, list):
        kind = found[0] if len(found := branches(kind)) == 1 else "null"
    unit = UNITS.get((kind["type"], str(kind.get("logicalType")))) if isinstance(kind, dict) else None
    return with_unit(doc, unit)
