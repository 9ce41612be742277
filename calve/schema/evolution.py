"""The evolution rules: which changes a table needs so that rows of a schema fit. Independent of the schema's language.

Columns are compared by name; `calve.schema.lineage` finds earlier names. A column that a schema lacks stays and is null. Every
column is optional, so that no later schema needs a rewrite. `docs/types.md` describes the rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from calve.errors import CalveError
from calve.names import FIELD_NAME, SYSTEM_COLUMN, nearest
from calve.schema.columns import Json, decimal_digits, join, places, struct
from calve.schema.columns import field as column

WIDENINGS = (("int", "long"), ("float", "double"))


class Rule(StrEnum):
    """Why a schema, or a part of it, does not fit a table: stable words for people and programs."""

    CYCLIC_TYPE = "CYCLIC_TYPE"
    EMPTY_STRUCT = "EMPTY_STRUCT"
    FIELD_NAME_CASE_COLLISION = "FIELD_NAME_CASE_COLLISION"
    FIELD_NAME_INVALID = "FIELD_NAME_INVALID"
    FIELD_NAME_RESERVED = "FIELD_NAME_RESERVED"
    MAP_KEY_TYPE_MISMATCH = "MAP_KEY_TYPE_MISMATCH"
    NESTED_TOO_DEEP = "NESTED_TOO_DEEP"
    NO_RECORD = "NO_RECORD"
    PRECISION_OUT_OF_RANGE = "PRECISION_OUT_OF_RANGE"
    RENAME_AMBIGUOUS = "RENAME_AMBIGUOUS"
    SCALE_OUT_OF_RANGE = "SCALE_OUT_OF_RANGE"
    TOO_MANY_FIELDS = "TOO_MANY_FIELDS"
    TYPE_MISMATCH = "TYPE_MISMATCH"
    UNION_NAME_COLLISION = "UNION_NAME_COLLISION"
    UNREADABLE_SCHEMA = "UNREADABLE_SCHEMA"
    UNREPRESENTABLE_TYPE = "UNREPRESENTABLE_TYPE"
    UNRESOLVED_TYPE_REF = "UNRESOLVED_TYPE_REF"
    UNSUPPORTED_TYPE_CHANGE = "UNSUPPORTED_TYPE_CHANGE"


class SchemaProblem(CalveError):
    """A schema, or a part of it, that does not fit this table.

    `path`: the field: `a.b`; elements of a list are `a[]`, values of a map `a{}`.
    """

    def __init__(self, path: str, why: str, rule: Rule = Rule.UNREPRESENTABLE_TYPE) -> None:
        super().__init__(f"{path or 'the schema'}: {why} ({rule})")
        self.path = path
        self.why = why
        self.rule = rule


@dataclass(frozen=True, slots=True)
class Change:
    """One change of a table before rows of a schema fit.

    `add` a column, `widen` its type, `rename` it to `to`, `comment` it with `doc`. `parent` and `name`: as in the table before
    any change. `path`: Iceberg's (`a.element.b`); `where`: as in a `SchemaProblem`, with new names.
    """

    kind: Literal["add", "widen", "rename", "comment"]
    parent: tuple[str, ...]
    name: str
    type: Json
    doc: str | None = None
    to: str | None = None
    where: str = field(default="", compare=False)
    declared: bool = field(default=True, compare=False)
    """False: the schema writes an earlier name; it is another version that declares the rename."""

    @property
    def path(self) -> str:
        return ".".join((*self.parent, self.name))

    def __str__(self) -> str:
        return f"{self.kind} {self.path}" + (f" to {self.to}" if self.to else "")


def changes(table: Json, schema: Json, path: tuple[str, ...] = (), where: str = "") -> list[Change]:
    """The changes of a table (Iceberg struct) that rows of `schema` (columns) need; may be empty.

    A field of `schema` may have `former`, its earlier names: a column of such a name is renamed. `path`, `where`: of a struct in
    the table. Raises `SchemaProblem` if a column would need more than an addition, a widening or a rename.
    """
    present = {each["name"]: each for each in table["fields"]}
    folded = {name.lower(): name for name in present}
    wanted = {each["name"] for each in schema["fields"]}
    found: list[Change] = []
    for each in schema["fields"]:
        name, here = each["name"], join(where, each["name"])
        source = name if name in present else _former(each, present, wanted, here)
        if source != name and (clash := folded.get(name.lower())) not in (None, source):
            why = f'the table has "{clash}", which differs only by case'
            raise SchemaProblem(here, why, Rule.FIELD_NAME_CASE_COLLISION)
        if source is None:
            found.append(Change("add", path, name, plain(each["type"]), each.get("doc"), where=here))
            continue
        if source != name:
            declared = each.get("written", name) == name
            kept = present[source]["type"]
            found.append(Change("rename", path, source, kept, to=name, where=here, declared=declared))
        found += _type_changes(present[source]["type"], each["type"], (*path, source), here)
    sources = [each.name for each in found if each.kind == "rename" and each.parent == path]
    if twice := next((name for name in sources if sources.count(name) > 1), None):
        raise SchemaProblem(join(where, twice), "two fields claim to be this column", Rule.RENAME_AMBIGUOUS)
    return found


def _former(field: Json, present: dict[str, Json], wanted: set[str], here: str) -> str | None:
    """The column of a field under an earlier name; a name that the schema still uses does not count."""
    found = [name for name in field.get("former", ()) if name in present and name not in wanted]
    if len(found) > 1:
        names = " and ".join(f'"{name}"' for name in found)
        raise SchemaProblem(here, f"the table has {names}; which of them is it?", Rule.RENAME_AMBIGUOUS)
    return found[0] if found else None


def _type_changes(old: Json, new: Json, path: tuple[str, ...], where: str) -> list[Change]:
    if isinstance(old, dict) and isinstance(new, dict) and old["type"] == new["type"]:
        match old["type"]:
            case "struct":
                return changes(old, new, path, where)
            case "list":
                return _type_changes(old["element"], new["element"], (*path, "element"), f"{where}[]")
        if old["key"] != new["key"]:
            raise _differs(old["key"], new["key"], where, Rule.MAP_KEY_TYPE_MISMATCH)
        return _type_changes(old["value"], new["value"], (*path, "value"), f"{where}{{}}")
    if old == new or widens(new, old):
        return []
    if widens(old, new):
        return [Change("widen", path[:-1], path[-1], new, where=where)]
    nested = isinstance(old, dict) or isinstance(new, dict)
    raise _differs(old, new, where, Rule.TYPE_MISMATCH if nested else Rule.UNSUPPORTED_TYPE_CHANGE)


def _differs(old: Json, new: Json, where: str, rule: Rule) -> SchemaProblem:
    keys = "keys of " if rule is Rule.MAP_KEY_TYPE_MISMATCH else ""
    return SchemaProblem(where, f"the table holds {keys}{show(old)}, the schema wants {show(new)}", rule)


def widens(narrow: Json, wide: Json) -> bool:
    """True if every value of one type is also a value of the other, and Iceberg can widen it in place."""
    if (narrow, wide) in WIDENINGS:
        return True
    one, other = decimal_digits(narrow), decimal_digits(wide)
    return one is not None and other is not None and one[1] == other[1] and one[0] < other[0]


def apply(kind: Json, wanted: Sequence[Change], path: tuple[str, ...] = ()) -> Json:
    """The table's struct after the changes. `path`: of a type in it."""
    if not isinstance(kind, dict):
        return next((c.type for c in wanted if c.kind == "widen" and (*c.parent, c.name) == path), kind)
    match kind["type"]:
        case "list":
            return kind | {"element": apply(kind["element"], wanted, (*path, "element"))}
        case "map":
            return kind | {"value": apply(kind["value"], wanted, (*path, "value"))}
    here = [each for each in wanted if each.parent == path]
    names = {each.name: each.to for each in here if each.kind == "rename"}
    docs = {each.name: {"doc": each.doc} for each in here if each.kind == "comment"}
    fields = []
    for each in kind["fields"]:
        name = each["name"]
        changed = {"name": names.get(name, name), "type": apply(each["type"], wanted, (*path, name))}
        fields.append(each | changed | docs.get(name, {}))
    fields += [column(each.name, each.type, doc=each.doc) for each in here if each.kind == "add"]
    return kind | {"fields": fields}


def column_at(table: Json, path: str) -> Json | None:
    """The column of a table, or the field of nested structs (`a.b`); None if there is none."""
    found, kind = None, table
    for name in path.split("."):
        fields = kind["fields"] if isinstance(kind, dict) and kind["type"] == "struct" else ()
        found = next((each for each in fields if each["name"] == name), None)
        if found is None:
            return None
        kind = found["type"]
    return found


def no_column(table: Json, path: str) -> str:
    """The message for a missing column: `the schemas of its records make no column prize; did you mean price?`"""
    outside_lists_and_maps = (each.name for each in places(table) if each.name == ".".join(each.path))
    near = nearest(path, outside_lists_and_maps)
    return f"the schemas of its records make no column {path}" + (f"; did you mean {near}?" if near else "")


def column_name(name: str, where: str) -> str:
    """The name of a field. Raises `SchemaProblem` if no column may have it (`FIELD_NAME_INVALID`)."""
    if not FIELD_NAME.fullmatch(name):
        why = "a column name must be letters, digits and _ and start with a letter or _"
        raise SchemaProblem(where, why, Rule.FIELD_NAME_INVALID)
    return name


def struct_of(columns: Sequence[dict[str, Json]], path: str) -> Json:
    """A struct of columns. Raises `SchemaProblem` if two names differ only by case."""
    names: dict[str, str] = {}
    for each in columns:
        if (other := names.setdefault(each["name"].lower(), each["name"])) is not each["name"]:
            why = f'differs from "{other}" only by case'
            raise SchemaProblem(join(path, each["name"]), why, Rule.FIELD_NAME_CASE_COLLISION)
    return struct(*columns)


def top_of(columns: Json) -> Json:
    """The columns. Raises `SchemaProblem` if one has the name of the system column."""
    if any(each["name"].lower() == SYSTEM_COLUMN for each in columns["fields"]):
        why = "calve uses this name for the record's metadata"
        raise SchemaProblem(SYSTEM_COLUMN, why, Rule.FIELD_NAME_RESERVED)
    return columns


def decimal_type(precision: Json, scale: Json, path: str, most: int = 38) -> str:
    """Raises `SchemaProblem` if the precision is not in 1 to `most`, or the scale not in 0 to the precision."""
    if type(precision) is not int or not 1 <= precision <= most:
        why = f"the precision {precision} is not between 1 and {most}"
        raise SchemaProblem(path, why, Rule.PRECISION_OUT_OF_RANGE)
    if type(scale) is not int or not 0 <= scale <= precision:
        why = f"the scale {scale} is not between 0 and the precision {precision}"
        raise SchemaProblem(path, why, Rule.SCALE_OUT_OF_RANGE)
    return f"decimal({precision}, {scale})"


def contains_itself(name: str, path: str) -> SchemaProblem:
    why = f'"{name}" contains itself; a recursive type has no table form'
    return SchemaProblem(path, why, Rule.CYCLIC_TYPE)


def mismatch(table: str, writer: str, path: str) -> SchemaProblem:
    return SchemaProblem(path, f"the table holds {table}, the writer wrote {writer}", Rule.TYPE_MISMATCH)


def show(kind: Json) -> str:
    return kind if isinstance(kind, str) else str(kind["type"])


def data_columns(table: Json) -> Json:
    """A table's struct without the system column and field ids, as `changes` and the writers of a format need it."""
    return plain(table | {"fields": [each for each in table["fields"] if each["name"] != SYSTEM_COLUMN]})


def required(table: Json) -> list[str]:
    """The paths of required columns and fields, as Iceberg writes them."""
    found = [".".join(each.path) for each in places(table) if each.field["required"]]
    for each in places(table):
        path, kind = [*each.path], each.field["type"]
        while isinstance(kind, dict) and kind["type"] in ("list", "map"):
            part = "element" if kind["type"] == "list" else "value"
            path.append(part)
            found += [".".join(path)] if kind[f"{part}-required"] else []
            kind = kind[part]
    return found


PLAIN = {
    "type", "fields", "name", "required", "doc", "element-required", "element", "key", "value-required", "value"
}  # fmt: skip


def plain(kind: Json) -> Json:
    """The type with only what makes columns."""
    if isinstance(kind, list):
        return [plain(each) for each in kind]
    if not isinstance(kind, dict):
        return kind
    return {key: plain(each) for key, each in kind.items() if key in PLAIN}
