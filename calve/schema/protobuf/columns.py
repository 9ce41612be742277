"""Protobuf messages as table columns; and a plan of plain values to read them, which is sent to the tasks of a job.

Sources: the Protobuf specification, Iceberg's types, and Confluent's public converters. Unlike these, unsigned 64-bit numbers are
decimals. A field without presence has proto3's default where nothing was written. `docs/types.md` has the table. A field number
that is used again under another name is the same column.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import partial

from calve.schema.columns import (
    Json,
    field,
    inner_struct,
    join,
    list_of,
    map_of,
    with_inner_struct,
    with_tags,
)
from calve.schema.evolution import (
    Rule,
    SchemaProblem,
    column_name,
    contains_itself,
    decimal_type,
    mismatch,
    show,
    struct_of,
    top_of,
    widens,
)
from calve.schema.protobuf.model import (
    DATE,
    DECIMAL,
    MEMBERS,
    TIMESTAMP,
    WRAPPERS,
    Enum,
    Field,
    Message,
    Presence,
)

SCALAR_COLUMNS = {
    "int32": "int", "sint32": "int", "sfixed32": "int", "uint32": "long", "fixed32": "long", "int64": "long",
    "sint64": "long", "sfixed64": "long", "uint64": "decimal(20, 0)", "fixed64": "decimal(20, 0)", "float": "float",
    "double": "double", "bool": "boolean", "string": "string", "bytes": "binary", "enum": "string",
}  # fmt: skip
MAX_DEPTH = 32
MAX_FIELDS = 10_000


def columns_of(message: Message) -> Json:
    """The table columns of a message, as an Iceberg struct in JSON form without field ids.

    Each has the `number` of its field, by which renamed ones are found; a oneof has its name and no number.
    Raises `SchemaProblem` if a part of it has no column type.
    """
    return top_of(_Columns().struct(message, (), ""))


def value_kind(message: Message | None) -> str | None:
    """The name of a message that is one value, not a struct; None for structs and other types."""
    if message is None or message.name not in MEMBERS:
        return None
    members = [(each.number, each.kind) for each in message.fields]
    return message.name if members == list(enumerate(MEMBERS[message.name].values(), 1)) else None


def value_column(each: Field, path: str) -> str | None:
    """The column type of one value, even if it is repeated; None for a struct.

    Raises `SchemaProblem` if the digits in the field's options are invalid for a decimal.
    """
    match value_kind(each.message):
        case None:
            return None if each.message else SCALAR_COLUMNS[each.kind]
        case name if name in WRAPPERS:
            return SCALAR_COLUMNS[WRAPPERS[name]]
        case name if name == DECIMAL:
            digits = (each.params.get("precision", "10"), each.params.get("scale", "0"))
            precision, scale = (int(text) if text.isdecimal() else text for text in digits)
            return decimal_type(precision, scale, path)
        case name:
            return {TIMESTAMP: "timestamptz", DATE: "date"}[name]


class _Columns:
    def __init__(self) -> None:
        self.fields = 0

    def struct(self, message: Message, inside: tuple[str, ...], path: str) -> Json:
        if message.name in inside:
            raise contains_itself(message.name, path)
        if len(inside) >= MAX_DEPTH:
            raise SchemaProblem(path, f"messages are nested deeper than {MAX_DEPTH}", Rule.NESTED_TOO_DEEP)
        self.fields += len(message.fields)
        if self.fields > MAX_FIELDS:
            raise SchemaProblem("", f"there are more than {MAX_FIELDS} fields", Rule.TOO_MANY_FIELDS)
        within = (*inside, message.name)
        made = [self.column(each, within, path) for each in message.fields if each.oneof is None]
        for oneof in message.oneofs:
            here = join(path, oneof)
            members = [each for each in message.fields if each.oneof == oneof]
            if members:
                branches = [self.column(each, within, here) for each in members]
                made.append(field(column_name(oneof, here), struct_of(branches, here)))
        if not made:
            raise SchemaProblem(path, "a message without fields has no columns", Rule.EMPTY_STRUCT)
        return struct_of(made, path)

    def column(self, each: Field, inside: tuple[str, ...], path: str) -> dict[str, Json]:
        here = join(path, each.name)
        if each.entry:
            key, value = each.entry
            kind = map_of(self.type(value, inside, f"{here}{{}}"), key=SCALAR_COLUMNS[key.kind])
        elif each.repeated:
            kind = list_of(self.type(each, inside, f"{here}[]"))
        else:
            kind = self.type(each, inside, here)
        made = field(column_name(each.name, here), kind, doc=each.doc) | {"number": each.number}
        return with_tags(made, each.tags)

    def type(self, each: Field, inside: tuple[str, ...], path: str) -> Json:
        if each.kind == "group":
            raise SchemaProblem(path, "groups and fields with the encoding of groups are not supported")
        found = value_column(each, path)
        if found is None:
            assert each.message is not None  # noqa: S101 anything else is a value
            return self.struct(each.message, inside, path)
        return found


def with_former_names(versions: Sequence[Json | SchemaProblem]) -> list[Json | SchemaProblem]:
    """The versions (columns, oldest first), each field with the earlier names of its number as `aliases`.

    Columns without numbers (other formats) are unchanged. It is a problem (`RENAME_AMBIGUOUS`) if a number takes the name of
    another number: its bytes and its name then mean different columns.
    """
    top = _Known()
    found: list[Json | SchemaProblem] = []
    for version in versions:
        if isinstance(version, SchemaProblem) or not any(map(_keys, version["fields"])):
            found.append(version)
            continue
        try:
            found.append(top.named(version, ""))
        except SchemaProblem as problem:
            found.append(problem)
        else:
            top.learn(version)
    return found


@dataclasses.dataclass(slots=True)
class _Known:
    """The fields of a message in the versions so far: names by number, newest last, and their inner fields."""

    names: dict[int, list[str]] = dataclasses.field(default_factory=dict)
    inside: dict[int, _Known] = dataclasses.field(default_factory=dict)

    def named(self, struct: Json, path: str) -> Json:
        fields = []
        for each in struct["fields"]:
            here, keys = join(path, each["name"]), _keys(each)
            former = list(dict.fromkeys(name for key in keys for name in self.names.get(key, ())))
            others = {name for key, names in self.names.items() if key not in keys for name in names}
            if former and each["name"] not in former and each["name"] in others:
                raise SchemaProblem(here, "the name belonged to another field number", Rule.RENAME_AMBIGUOUS)
            aliases = [name for name in former if name != each["name"]]
            inner = next((self.inside[key] for key in keys if key in self.inside), _Known())
            _, inside = inner_struct(each["type"], here)
            made = each | {"type": with_inner_struct(each["type"], partial(inner.named, path=inside))}
            fields.append(made | ({"aliases": aliases} if aliases else {}))
        return struct | {"fields": fields}

    def learn(self, struct: Json) -> None:
        for each in struct["fields"]:
            inner, _ = inner_struct(each["type"])
            for key in _keys(each):
                for other in self.names.values():
                    if each["name"] in other:
                        other.remove(each["name"])
                self.names.setdefault(key, []).append(each["name"])
                if inner is not None:
                    self.inside.setdefault(key, _Known()).learn(inner)


def _keys(each: Json) -> list[int]:
    """How a column is identified: by its number or, for a oneof, by those of its members (as negative numbers)."""
    if "number" in each:
        return [each["number"]]
    if not isinstance(each["type"], dict) or each["type"]["type"] != "struct":
        return []
    return [-member["number"] for member in each["type"]["fields"] if "number" in member]


@dataclasses.dataclass(frozen=True, slots=True)
class Value:
    """One value.

    kind: a scalar type, `enum`, `message`, or the full name of a message that is one value.
    column: its column type. symbols: the names of an enum's numbers.
    """

    kind: str
    column: Json
    symbols: dict[int, str] = dataclasses.field(default_factory=dict)
    message: Struct | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Read:
    """One field: `key` makes it a map of `value`. `implicit`: its type's default if it is not written."""

    number: int
    value: Value
    repeated: bool = False
    key: Value | None = None
    implicit: bool = False
    required: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Column:
    """One column: the index of its field in `fields` of the message, or the columns of a oneof; neither: always null."""

    name: str
    type: Json
    source: int | None = None
    oneof: tuple[Column, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Struct:
    """One message: its fields, the columns in the table's order, and the fields of each oneof."""

    fields: tuple[Read, ...]
    columns: tuple[Column, ...]
    oneofs: tuple[tuple[int, ...], ...] = ()

    @property
    def shown(self) -> frozenset[int]:
        """The indexes of the fields that have a column."""
        every = (inner.source for each in self.columns for inner in (each, *each.oneof))
        return frozenset(each for each in every if each is not None)


def plan(message: Message, table: Json, path: str = "") -> Struct:
    """How to read a writer's message as the table's columns.

    A column may have `written`: the name by which this writer writes it, or None if it does not. Fields without a column are
    found too: one field of a oneof replaces another.
    Raises `SchemaProblem` if its values cannot be read as these columns.
    """
    by_name = {each.name: place for place, each in enumerate(message.fields)}
    fields: list[Read | None] = [None] * len(message.fields)

    def column(each: Json, where: str) -> Column:
        place = by_name.get(each.get("written", each["name"]))
        if place is None:
            return Column(each["name"], each["type"])
        fields[place] = _read(message.fields[place], each["type"], join(where, each["name"]))
        return Column(each["name"], each["type"], place)

    columns, oneofs = [], []
    for each in table["fields"]:
        name = each.get("written", each["name"])
        if name not in message.oneofs:
            columns.append(column(each, path))
            continue
        here = join(path, each["name"])
        if not isinstance(each["type"], dict) or each["type"]["type"] != "struct":
            raise mismatch(show(each["type"]), "struct", here)
        inside = tuple(column(member, here) for member in each["type"]["fields"])
        columns.append(Column(each["name"], each["type"], oneof=inside))
        oneofs.append(tuple(p for p, member in enumerate(message.fields) if member.oneof == name))
    read = (
        found or _read(each, _Columns().column(each, (), path)["type"], join(path, each.name))
        for each, found in zip(message.fields, fields, strict=True)
    )
    return Struct(tuple(read), tuple(columns), tuple(oneofs))


def _read(each: Field, column: Json, path: str) -> Read:
    if each.entry:
        key, value = each.entry
        if not isinstance(column, dict) or column["type"] != "map":
            raise mismatch(show(column), "map", path)
        if SCALAR_COLUMNS[key.kind] != column["key"]:
            raise mismatch(show(column["key"]), SCALAR_COLUMNS[key.kind], path)
        item = _value(value, column["value"], f"{path}{{}}")
        return Read(each.number, item, repeated=True, key=Value(key.kind, column["key"]))
    if each.repeated:
        if not isinstance(column, dict) or column["type"] != "list":
            raise mismatch(show(column), "list", path)
        return Read(each.number, _value(each, column["element"], f"{path}[]"), repeated=True)
    made = _value(each, column, path)
    implicit = each.presence is Presence.IMPLICIT and each.message is None
    return Read(each.number, made, implicit=implicit, required=each.presence is Presence.REQUIRED)


def _value(each: Field, column: Json, path: str) -> Value:
    own = value_column(each, path)
    if own is None:
        assert each.message is not None  # noqa: S101 anything else is a value
        if not isinstance(column, dict) or column["type"] != "struct" or each.kind == "group":
            raise mismatch(show(column), each.kind, path)
        return Value("message", column, message=plan(each.message, column, path))
    if own != column and not widens(own, column):
        raise mismatch(show(column), own, path)
    symbols = each.type.symbols if isinstance(each.type, Enum) else {}
    return Value(value_kind(each.message) or each.kind, column, symbols)
