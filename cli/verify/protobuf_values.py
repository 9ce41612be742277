"""Protobuf values as verification sees them: parsed by Google's own library, laid out by rules of its own, not the engine's."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import date
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.unknown_fields import UnknownFieldSet

from calve import registry
from cli.verify.conversion import Unreadable
from cli.verify.framing import CONFLUENT, GLUE, Framing
from cli.verify.protobuf_schema import Compiled, compiled
from cli.verify.renames import Renames, sources

Convert = Callable[[Any], Any]
EPOCH = date(1970, 1, 1).toordinal()
EXACT = Context(prec=100)
GROUP = 3
WRAPPED = ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
WRAPPERS = frozenset(f"google.protobuf.{name}Value" for name in WRAPPED)
UNSIGNED = (FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_FIXED64)


class Values:
    """Values of one registered schema as rows of a table: those of one message; `name` None: of the first.

    `framing` says how a payload names its message.
    """

    def __init__(
        self,
        schema: registry.Schema,
        columns: Iterable[Any],
        renames: Renames,
        name: str | None = None,
        framing: Framing = CONFLUENT,
    ) -> None:
        self._framing = framing
        self._messages = compiled(schema).messages
        top = message_named(self._messages, name)
        if top is None:
            raise Unreadable("incompatible_schema")
        self._top = top
        self._class = GetMessageClass(top)
        checked = message_named(compiled(schema).checked, name)
        self._checked = GetMessageClass(checked) if checked else self._class
        self._row = _Layout(compiled(schema), renames).struct(top, list(columns))

    def read(self, payload: bytes) -> dict[str, Any]:
        """The row of a payload that begins by naming its message.

        Raises:
            Unreadable: it is none.
        """
        found, place = message_in(self._messages, payload, self._framing)
        if found is not self._top:
            raise Unreadable("incompatible_schema" if found else "malformed")
        return self.read_bare(payload[place:])

    def read_bare(self, payload: bytes) -> dict[str, Any]:
        """As `read`, of a payload that is the message alone."""
        message = self._class()
        try:
            message.ParseFromString(payload)
            if self._checked is not self._class:
                self._checked().ParseFromString(payload)
            if message.IsInitialized() and not _is_strange(message):
                return dict(self._row(message))
        except (DecodeError, UnicodeDecodeError):  # the latter of keys of maps, in proto2
            pass
        raise Unreadable("malformed")


def message_named(messages: list[Descriptor], name: str | None) -> Descriptor | None:
    """A message by its name, with or without the package: the first, by the order of the file, that is called so."""
    if name is None:
        return messages[0] if messages else None
    for each in messages:
        package = each.file.package
        if each.full_name in (name, f"{package}.{name}") and not each.GetOptions().map_entry:
            return each
        inside = message_named(list(each.nested_types), name)
        if inside is not None:
            return inside
    return None


def message_in(
    messages: list[Descriptor], payload: bytes, framing: Framing = CONFLUENT
) -> tuple[Descriptor | None, int]:
    """The message that the beginning of a payload names, and where it begins; None where there is no such message."""
    if framing is GLUE:
        return _message_at(messages, payload)
    if payload[:1] == b"\x00":
        return (messages[0] if messages else None), 1
    try:
        count, place = _zigzag(payload, 0)
        if not 0 < count <= len(payload):
            return None, 0
        found, inside, path = None, messages, list[int]()
        for _ in range(count):
            index, place = _zigzag(payload, place)
            if index < 0:
                return None, 0
            found, path = inside[index], [*path, index]
            inside = list(found.nested_types)
    except IndexError:
        return None, 0
    return (found if path != [0] else None), place


def _message_at(messages: list[Descriptor], payload: bytes) -> tuple[Descriptor | None, int]:
    """By the place among all messages, sorted by name."""
    every = list(messages)
    for each in every:
        every += each.nested_types
    every.sort(key=lambda each: each.full_name)
    try:
        number, place = _varint(payload, 0)
        return every[number], place
    except IndexError:
        return None, 0


class _Layout:
    def __init__(self, schema: Compiled, renames: Renames) -> None:
        self._symbols = schema.symbols
        self._renames = renames

    def struct(self, message: Descriptor, columns: list[Any]) -> Convert:
        """A function from a message to a value for each of these Arrow fields."""
        oneofs = {
            each.name: each for each in message.oneofs if any(_is_member(member) for member in each.fields)
        }
        alone = {each.name: each for each in message.fields if not _is_member(each)}
        names = sources([each.name for each in columns], [*alone, *oneofs], self._renames)
        parts: dict[str, Convert] = {}
        for column in columns:
            source = names.get(column.name)
            if source in oneofs:
                parts[column.name] = self.oneof(oneofs[source], column.type)
            elif source is not None:
                parts[column.name] = self.field(alone[source], column.type)

        def convert(found: Any) -> dict[str, Any]:
            return {name: part(found) for name, part in parts.items()}

        return convert

    def oneof(self, oneof: Any, kind: Any) -> Convert:
        if not pa.types.is_struct(kind):
            raise Unreadable("incompatible_schema")
        members = {each.name: each for each in oneof.fields}
        names = sources([each.name for each in kind], members, self._renames)
        parts = {
            names[each.name]: (each.name, self.value(members[names[each.name]], each.type))
            for each in kind
            if each.name in names
        }

        def convert(found: Any) -> dict[str, Any] | None:
            which = found.WhichOneof(oneof.name)
            if which is None:
                return None
            name, part = parts[which]
            return {name: part(getattr(found, which))}

        return convert

    def field(self, each: FieldDescriptor, kind: Any) -> Convert:
        name = each.name
        if _is_map(each):
            if not pa.types.is_map(kind):
                raise Unreadable("incompatible_schema")
            assert each.message_type is not None  # noqa: S101 it is a map
            entry = each.message_type.fields_by_name
            key, item = self.value(entry["key"], kind.key_type), self.value(entry["value"], kind.item_type)

            def convert_map(found: Any) -> list[tuple[Any, Any]]:
                entries = getattr(found, name)
                return [(key(one), item(entries[one])) for one in entries]

            return convert_map
        if each.is_repeated:
            if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
                raise Unreadable("incompatible_schema")
            element = self.value(each, kind.value_type)
            return lambda found: [element(one) for one in getattr(found, name)]
        alone = self.value(each, kind)
        if each.has_presence:
            return lambda found: alone(getattr(found, name)) if found.HasField(name) else None
        return lambda found: alone(getattr(found, name))

    def value(self, each: FieldDescriptor, kind: Any) -> Convert:
        message = each.message_type
        if message is not None:
            return self.message(each, message, kind)
        symbols = self._symbols.get(each.full_name)
        if symbols is not None:
            return lambda number: symbols.get(number, str(number))
        if each.type in UNSIGNED:
            return Decimal
        if each.type == each.TYPE_STRING:
            return _text
        return lambda value: value

    def message(self, each: FieldDescriptor, message: Descriptor, kind: Any) -> Convert:
        if pa.types.is_struct(kind):
            return self.struct(message, list(kind))
        match message.full_name:
            case "google.protobuf.Timestamp":
                return _moment
            case "google.type.Date":
                return _day
            case "confluent.type.Decimal":
                return lambda value: _decimal(value, kind)
            case name if name in WRAPPERS:
                inner = self.value(message.fields[0], kind)
                return lambda wrapper: inner(wrapper.value)
        raise Unreadable("incompatible_schema")


def _is_member(each: FieldDescriptor) -> bool:
    """True for a field of a oneof that was written as one: `optional` makes one of its own."""
    oneof = each.containing_oneof
    return oneof is not None and not (len(oneof.fields) == 1 and oneof.name == f"_{each.name}")


def _is_map(each: FieldDescriptor) -> bool:
    return each.message_type is not None and each.message_type.GetOptions().map_entry


def _is_strange(message: Message) -> bool:
    """True where something was written that the schema knows and does not allow there; the library sets it aside."""
    known = message.DESCRIPTOR.fields_by_number
    if any(each.field_number in known or each.wire_type == GROUP for each in UnknownFieldSet(message)):  # type: ignore[attr-defined]
        return True
    for each, value in message.ListFields():
        if each.message_type is None:
            continue
        if _is_map(each):
            is_message = each.message_type.fields_by_name["value"].message_type is not None
            if is_message and any(_is_strange(one) for one in value.values()):
                return True
        elif any(_is_strange(one) for one in (value if each.is_repeated else [value])):
            return True
    return False


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise Unreadable("malformed")
    return value


def _moment(value: Any) -> int:
    if not (-62_135_596_800 <= value.seconds < 253_402_300_800 and 0 <= value.nanos < 10**9):
        raise Unreadable("malformed")
    if value.nanos % 1000:
        raise Unreadable("malformed")
    return int(value.seconds * 10**6 + value.nanos // 1000)


def _day(value: Any) -> int:
    try:
        return date(value.year, value.month, value.day).toordinal() - EPOCH
    except (ValueError, OverflowError):
        raise Unreadable("malformed") from None


def _decimal(value: Any, kind: Any) -> Decimal:
    unscaled = int.from_bytes(value.value, "big", signed=True)
    scale = value.scale if unscaled else 0  # zero is zero wherever its point is
    if len(value.value) > 16 or not -1000 <= scale <= 1000:
        raise Unreadable("malformed")
    exact = Decimal(unscaled).scaleb(-scale, EXACT)
    fitted = exact.quantize(Decimal(1).scaleb(-kind.scale), context=Context(prec=2000))
    if fitted != exact or len(fitted.as_tuple().digits) > kind.precision:
        raise Unreadable("malformed")
    return fitted


def _zigzag(data: bytes, place: int) -> tuple[int, int]:
    value, place = _varint(data, place)
    return (value >> 1) ^ -(value & 1), place


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """A number and where it ends. Raises IndexError where there is none, or one in more bytes than it needs."""
    value = shift = 0
    while True:
        byte = data[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80 or shift > 63:
            if byte == 0 and shift > 7:
                raise IndexError
            return value, place


def renames_of_protobuf(schemas: Iterable[registry.Schema]) -> Renames:
    """The earlier names of each field, and oneof, that has one: those of its number in its message in earlier versions."""
    names: dict[tuple[str, int], list[str]] = {}
    for schema in schemas:
        try:
            waiting = list(compiled(schema).messages)
        except Unreadable:
            continue
        while waiting:
            message = waiting.pop()
            waiting += message.nested_types
            for each in message.fields:
                _learn(names, (message.full_name, each.number), each.name)
                if _is_member(each) and each.containing_oneof is not None:
                    _learn(names, (message.full_name, -each.number), each.containing_oneof.name)
    found: dict[str, frozenset[str]] = {}
    for known in names.values():
        for name in known:
            others = frozenset(known) - {name}
            if others:
                found[name] = found.get(name, frozenset()) | others
    return found


def _learn(names: dict[tuple[str, int], list[str]], key: tuple[str, int], name: str) -> None:
    known = names.setdefault(key, [])
    if name not in known:
        known.append(name)
