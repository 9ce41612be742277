"""Avro schemas as table columns: the mapping, and the additions that evolve a table.

Sources: Avro 1.12 specification (schema resolution, logical types), Iceberg's type list, and the mapping that Confluent's
public converters apply. Two choices are calve's own: every column is optional, so that no later schema needs a rewrite, and
a row holds what its writer wrote: a field the writer does not have is null, never a default from another schema version.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from calve.columns import Json, field, list_of, map_of, struct
from calve.errors import CalveError
from calve.names import FIELD_NAME, SYSTEM_COLUMN

PRIMITIVES = {
    "boolean": "boolean",
    "int": "int",
    "long": "long",
    "float": "float",
    "double": "double",
    "bytes": "binary",
    "string": "string",
    "enum": "string",
}
LOGICAL = {
    ("int", "date"): "date",
    ("long", "timestamp-millis"): "timestamptz",
    ("long", "timestamp-micros"): "timestamptz",
    ("long", "local-timestamp-millis"): "timestamp",
    ("long", "local-timestamp-micros"): "timestamp",
}
NANOSECONDS = "timestamps in nanoseconds need a table of format version 3, which is not supported yet"
UNSUPPORTED = {"timestamp-nanos": NANOSECONDS, "local-timestamp-nanos": NANOSECONDS}
WIDENINGS = (("int", "long"), ("float", "double"))
MAX_DEPTH = 32


class SchemaProblem(CalveError):
    """A schema, or a part of it, that cannot be kept in this table; `path` is the field."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path or 'the schema'}: {why}")
        self.path = path


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that must be done to a table before rows of a schema fit: `add` a column or `widen` its type."""

    kind: str
    parent: tuple[str, ...]
    name: str
    type: Json
    doc: str | None = None

    @property
    def path(self) -> str:
        return ".".join((*self.parent, self.name))


def expand(text: str) -> Json:
    """A registered schema as JSON with every reference to a named type replaced by its definition.

    Raises:
        SchemaProblem: recursive types, which have no table form, references to types that are not defined, and JSON that
            is no Avro schema: some registries call every version of a subject AVRO, whatever it is.
    """
    return _expand(json.loads(text), {}, (), "", "")


def _expand(node: Json, names: dict[str, Json], inside: tuple[str, ...], namespace: str, path: str) -> Json:
    if isinstance(node, str):
        return _expand_name(node, names, inside, namespace, path)
    if isinstance(node, list):
        return [_expand(branch, names, inside, namespace, path) for branch in node]
    if not isinstance(node, dict) or "type" not in node:
        raise SchemaProblem(path, "this is no Avro schema")
    kind = node["type"]
    if isinstance(kind, dict | list):
        return _expand(kind, names, inside, namespace, path)
    if kind in ("record", "error", "enum", "fixed"):
        return _expand_named(node, names, inside, namespace, path)
    if kind == "array":
        return node | {"items": _expand(node["items"], names, inside, namespace, f"{path}[]")}
    if kind == "map":
        return node | {"values": _expand(node["values"], names, inside, namespace, f"{path}{{}}")}
    return node if kind in PRIMITIVES or kind == "null" else _expand(kind, names, inside, namespace, path)


def _expand_name(
    name: str, names: dict[str, Json], inside: tuple[str, ...], namespace: str, path: str
) -> Json:
    plain = "." in name or name in PRIMITIVES or name == "null" or not namespace
    full = name if plain else f"{namespace}.{name}"
    if full in PRIMITIVES or full == "null":
        return full
    if full in inside:
        raise SchemaProblem(path, f'"{full}" contains itself; a recursive type has no table form')
    if full not in names:
        raise SchemaProblem(path, f'"{full}" is not defined in this schema')
    return names[full]


def _expand_named(
    node: Json, names: dict[str, Json], inside: tuple[str, ...], namespace: str, path: str
) -> Json:
    name = node["name"]
    space = name.rpartition(".")[0] if "." in name else node.get("namespace", namespace)
    full = name if "." in name or not space else f"{space}.{name}"
    if len(inside) >= MAX_DEPTH:
        raise SchemaProblem(path, f"records are nested deeper than {MAX_DEPTH}")
    result = {key: value for key, value in node.items() if key not in ("namespace", "aliases")} | {
        "name": full
    }
    if node["type"] in ("record", "error"):
        within = (*inside, full)
        result["fields"] = [
            each | {"type": _expand(each["type"], names, within, space, join(path, each["name"]))}
            for each in node["fields"]
        ]
    names[full] = result
    return result


def columns_of(schema: Json) -> Json:
    """The table columns of an expanded schema, as an Iceberg struct in JSON form without field ids.

    Raises:
        SchemaProblem: the schema is no record, or a part of it has no column type.
    """
    if not isinstance(schema, dict) or schema["type"] not in ("record", "error"):
        raise SchemaProblem("", "a table needs a record at the top, so that its fields can be columns")
    columns = column_type(schema, "")
    if any(each["name"].lower() == SYSTEM_COLUMN for each in columns["fields"]):
        raise SchemaProblem(SYSTEM_COLUMN, "this name is taken by the facts of the record")
    return columns


def column_type(node: Json, path: str) -> Json:
    if isinstance(node, list):
        branches = [branch for branch in node if branch != "null"]
        if len(branches) != 1:
            raise SchemaProblem(path, "a union of several types has no column type yet; only [null, T] has")
        return column_type(branches[0], path)
    if isinstance(node, str):
        node = {"type": node}
    kind, logical = node["type"], node.get("logicalType")
    match kind:
        case "record" | "error":
            return _record_type(node, path)
        case "array":
            return list_of(column_type(node["items"], f"{path}[]"))
        case "map":
            return map_of(column_type(node["values"], f"{path}{{}}"))
        case "bytes" | "fixed" if logical == "decimal":
            return _decimal_type(node, path)
        case "fixed":
            return f"fixed[{node['size']}]"
    if kind == "null" or logical in UNSUPPORTED:
        raise SchemaProblem(path, UNSUPPORTED.get(logical, "a field that is always null has no column type"))
    return LOGICAL.get((kind, str(logical)), PRIMITIVES[kind])


def _record_type(node: Json, path: str) -> Json:
    fields: dict[str, Json] = {}
    for each in node["fields"]:
        name, where = each["name"], join(path, each["name"])
        if not FIELD_NAME.fullmatch(name):
            raise SchemaProblem(
                where, "a column name must be letters, digits and _ and start with a letter or _"
            )
        if name.lower() in fields:
            raise SchemaProblem(where, f'differs from "{fields[name.lower()]["name"]}" only by case')
        fields[name.lower()] = field(name, column_type(each["type"], where), doc=each.get("doc"))
    if not fields:
        raise SchemaProblem(path, "a record without fields has no columns")
    return struct(*fields.values())


def _decimal_type(node: Json, path: str) -> str:
    precision, scale = node.get("precision", 10), node.get("scale", 0)
    if not (
        isinstance(precision, int)
        and isinstance(scale, int)
        and 1 <= precision <= 38
        and 0 <= scale <= precision
    ):
        raise SchemaProblem(path, f"decimal({precision}, {scale}) is outside decimal(1..38, 0..precision)")
    return f"decimal({precision}, {scale})"


def changes(table: Json, schema: Json) -> list[Change]:
    """What must change in a table (Iceberg struct) so that rows of `schema` (columns, `columns_of`) fit; may be empty.

    Columns are compared by name. A column that the schema lacks stays and is null.

    Raises:
        SchemaProblem: a column would need another type than an addition or a widening can give it.
    """
    return _struct_changes(table, schema, ())


def _struct_changes(table: Json, schema: Json, parent: tuple[str, ...]) -> list[Change]:
    present = {each["name"]: each for each in table["fields"]}
    folded = {name.lower() for name in present}
    found: list[Change] = []
    for each in schema["fields"]:
        name = each["name"]
        if name in present:
            found += _type_changes(present[name]["type"], each["type"], (*parent, name))
        elif name.lower() in folded:
            raise SchemaProblem(
                ".".join((*parent, name)), "the table has a column that differs from it only by case"
            )
        else:
            found.append(Change("add", parent, name, each["type"], each.get("doc")))
    return found


def _type_changes(old: Json, new: Json, path: tuple[str, ...]) -> list[Change]:
    if isinstance(old, dict) and isinstance(new, dict) and old["type"] == new["type"]:
        match old["type"]:
            case "struct":
                return _struct_changes(old, new, path)
            case "list":
                return _type_changes(old["element"], new["element"], (*path, "element"))
            case _:
                return _type_changes(old["value"], new["value"], (*path, "value"))
    if old == new or (new, old) in WIDENINGS:
        return []
    if (old, new) in WIDENINGS:
        return [Change("widen", path[:-1], path[-1], new)]
    raise SchemaProblem(".".join(path), f"the table holds {show(old)}, the schema wants {show(new)}")


def join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def show(kind: Json) -> str:
    return kind if isinstance(kind, str) else str(kind["type"])
