"""How a writer's messages become the columns of a table: a plan of plain values, which is sent to the tasks of a job."""

from __future__ import annotations

from dataclasses import dataclass, field

from calve.schema.columns import Json, join
from calve.schema.evolution import mismatch, show, widens
from calve.schema.protobuf.columns import SCALAR_COLUMNS, own_column, value_column, value_kind
from calve.schema.protobuf.model import Enum, Field, Message, Presence


@dataclass(frozen=True, slots=True)
class Value:
    """One value.

    kind: a scalar type, `enum`, `message`, or the full name of a message that is one value.
    column: its column type. symbols: the names of an enum's numbers.
    """

    kind: str
    column: Json
    symbols: dict[int, str] = field(default_factory=dict)
    message: Struct | None = None


@dataclass(frozen=True, slots=True)
class Read:
    """One field: `key` makes it a map of `value`. `implicit`: its type's default if it is not written."""

    number: int
    value: Value
    repeated: bool = False
    key: Value | None = None
    implicit: bool = False
    required: bool = False


@dataclass(frozen=True, slots=True)
class Column:
    """One column: the index of its field in `fields` of the message, or the columns of a oneof; neither: always null."""

    name: str
    type: Json
    source: int | None = None
    oneof: tuple[Column, ...] = ()


@dataclass(frozen=True, slots=True)
class Struct:
    """One message: its fields, the columns in the table's order, and the fields of each oneof."""

    fields: tuple[Read, ...]
    columns: tuple[Column, ...]
    oneofs: tuple[tuple[int, ...], ...] = ()


def plan(message: Message, table: Json, path: str = "") -> Struct:
    """How to read a writer's message as the table's columns.

    A column may have `written`: the name by which this writer writes it, or None if it does not. Fields without a column are read
    too: one field of a oneof replaces another.

    Raises:
        SchemaProblem: its values cannot be read as these columns.
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
        found or _read(each, own_column(each, path), join(path, each.name))
        for each, found in zip(message.fields, fields, strict=True)
    )
    return Struct(tuple(read), tuple(columns), tuple(oneofs))


def _read(each: Field, column: Json, path: str) -> Read:
    if each.is_map:
        assert each.message is not None  # noqa: S101 it is a map
        if not isinstance(column, dict) or column["type"] != "map":
            raise mismatch(show(column), "map", path)
        key, value = each.message.fields
        if SCALAR_COLUMNS[key.kind] != column["key"]:
            raise mismatch(show(column["key"]), SCALAR_COLUMNS[key.kind], path)
        made = _value(value, column["value"], f"{path}{{}}")
        return Read(each.number, made, repeated=True, key=Value(key.kind, column["key"]))
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
