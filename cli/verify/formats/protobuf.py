"""Protobuf values, parsed by Google's library. Own rules, not the job's code, lay them out as columns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import date
from decimal import Context, Decimal
from functools import lru_cache
from typing import Any

import pyarrow as pa
from google.protobuf.descriptor import Descriptor, FieldDescriptor, OneofDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.unknown_fields import UnknownFieldSet

from calve.schema.wire import Schema
from cli.verify.columns import is_list
from cli.verify.formats.fields import (
    CONFLUENT,
    EPOCH,
    EXACT,
    GLUE,
    Convert,
    Framing,
    Renames,
    Spec,
    Unreadable,
    Writer,
    bounded,
    columns_of,
)
from cli.verify.formats.protobuf_schema import Compiled, compiled

GROUP = 3
WRAPPED = ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
WRAPPERS = frozenset(f"google.protobuf.{name}Value" for name in WRAPPED)
UNSIGNED = (FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_FIXED64)


class ProtobufWriter(Writer):
    """For values of one message. `whole`: the message is the one column."""

    def __init__(self, spec: Spec, *, whole: bool = False) -> None:
        super().__init__(spec)
        self._framing = GLUE if len(spec.frame) == GLUE.size else CONFLUENT
        found = compiled(spec.schema)
        self._messages, self._entries = found.messages, found.entries
        top = message_named(self._messages, spec.message)
        if top is None or top.full_name in self._entries:
            raise Unreadable("incompatible_schema")
        self._top = top
        self._class = GetMessageClass(top)
        self._whole = self.columns[0] if whole else None
        fields = list(self._whole.type) if self._whole else self.columns
        self._row = _Layout(found, spec.renames).struct(top, fields)

    def decode(self, value: bytes) -> Any:
        payload = value[len(self.frame) :]
        if self.frame:
            found, place = message_in(self._messages, payload, self._framing)
            if found is not self._top:
                raise Unreadable("incompatible_schema" if found else "malformed")
            payload = payload[place:]
        message = self._class()
        try:
            message.ParseFromString(payload)
            if not _is_strange(message, self._entries):
                row = self._row(message)
                return {self._whole.name: row} if self._whole else row
        except DecodeError:
            pass
        raise Unreadable("malformed")


def message_named(messages: list[Descriptor], name: str | None) -> Descriptor | None:
    """The first message of the file with this name, with or without its package."""
    if name is None:
        return messages[0] if messages else None
    for each in messages:
        package = each.file.package
        if each.full_name in (name, f"{package}.{name}"):
            return each
        inside = message_named(list(each.nested_types), name)
        if inside is not None:
            return inside
    return None


def message_in(
    messages: list[Descriptor], payload: bytes, framing: Framing = CONFLUENT
) -> tuple[Descriptor | None, int]:
    """The message that the payload's beginning names, and where it begins; None if it does not exist."""
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
    """By the index among all messages, sorted by name."""
    by_name = sorted(_with_nested(messages), key=lambda each: each.full_name)
    try:
        number, place = _varint(payload, 0)
        return by_name[number], place
    except IndexError:
        return None, 0


def _with_nested(messages: Iterable[Descriptor]) -> list[Descriptor]:
    found = list(messages)
    for each in found:
        found += each.nested_types
    return found


class _Layout:
    def __init__(self, schema: Compiled, renames: Renames) -> None:
        self._symbols, self._entries = schema.symbols, schema.entries
        self._renames = renames

    def struct(self, message: Descriptor, columns: Iterable[pa.Field]) -> Convert:
        """A function from a message to a value for each of these Arrow fields."""
        written: dict[str, Any] = {each.name: each for each in message.fields if not _is_member(each)}
        written |= {each.name: each for each in message.oneofs if any(map(_is_member, each.fields))}
        parts = columns_of(columns, written, self._renames, self.part)
        return lambda found: {name: part(found) for name, (_, part) in parts.items()}

    def part(self, each: FieldDescriptor | OneofDescriptor, kind: Any) -> Convert:
        return self.oneof(each, kind) if isinstance(each, OneofDescriptor) else self.field(each, kind)

    def oneof(self, oneof: OneofDescriptor, kind: Any) -> Convert:
        if not pa.types.is_struct(kind):
            raise Unreadable("incompatible_schema")
        found = columns_of(kind, {each.name: each for each in oneof.fields}, self._renames, self.value)
        parts = {source: (name, part) for name, (source, part) in found.items()}

        def convert(found: Any) -> dict[str, Any] | None:
            which = found.WhichOneof(oneof.name)
            if which is None:
                return None
            name, part = parts[which]
            return {name: part(getattr(found, which))}

        return convert

    def field(self, each: FieldDescriptor, kind: Any) -> Convert:
        name, message = each.name, each.message_type
        if message is not None and message.full_name in self._entries:
            if not pa.types.is_map(kind):
                raise Unreadable("incompatible_schema")
            entry = message.fields_by_name
            key, item = self.value(entry["key"], kind.key_type), self.value(entry["value"], kind.item_type)
            return lambda found: [
                (key(known), item(one.value)) for known, one in _last(getattr(found, name)).items()
            ]
        if each.is_repeated:
            if not is_list(kind):
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
            return self.struct(message, kind)
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
    """Whether a field is of a oneof in the text: `optional` makes one of its own."""
    oneof = each.containing_oneof
    return oneof is not None and not (len(oneof.fields) == 1 and oneof.name == f"_{each.name}")


def _last(entries: Iterable[Any]) -> dict[Any, Any]:
    """The last entry of each key, by key."""
    return {each.key: each for each in entries}


def _is_strange(message: Message, entries: set[str]) -> bool:
    """Whether the library set a known field aside as invalid, or a required value is missing; map entries that a later one
    replaces do not count.
    """
    kind = message.DESCRIPTOR
    for unknown in UnknownFieldSet(message):  # type: ignore[attr-defined]
        if unknown.field_number in kind.fields_by_number or unknown.wire_type == GROUP:
            return True
    for each in _judged(kind):
        value = getattr(message, each.name)
        if each.is_repeated:
            is_map = each.message_type is not None and each.message_type.full_name in entries
            if any(_is_strange(one, entries) for one in (_last(value).values() if is_map else value)):
                return True
        elif not message.HasField(each.name) and kind.full_name not in entries:
            if each.is_required:
                return True
        elif each.message_type is not None and _is_strange(value, entries):
            return True
    return False


@lru_cache(maxsize=1024)
def _judged(kind: Descriptor) -> list[FieldDescriptor]:
    """The fields that hold messages, or are required."""
    return [each for each in kind.fields if each.message_type is not None or each.is_required]


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise Unreadable("malformed")
    return value


def _moment(value: Any) -> int:
    micros = int(value.seconds * 10**6 + value.nanos // 1000)
    if not 0 <= value.nanos < 10**9 or value.nanos % 1000 or bounded(micros) != micros:
        raise Unreadable("malformed")
    return micros


def _day(value: Any) -> int:
    try:
        return (date(value.year, value.month, value.day) - EPOCH.date()).days
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
    """A number and its end. Raises IndexError if there is none, or one in more bytes than it needs."""
    value = shift = 0
    while True:
        byte = data[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80 or shift > 63:
            if byte == 0 and shift > 7:
                raise IndexError
            return value, place


def renames_of_protobuf(schemas: Iterable[Schema]) -> Renames:
    """The earlier names of each field and oneof: those of its number in its message in earlier versions."""
    names: defaultdict[tuple[str, int], set[str]] = defaultdict(set)
    for schema in schemas:
        try:
            messages = _with_nested(compiled(schema).messages)
        except Unreadable:
            continue
        for message in messages:
            for each in message.fields:
                names[message.full_name, each.number].add(each.name)
                if _is_member(each) and each.containing_oneof is not None:
                    names[message.full_name, -each.number].add(each.containing_oneof.name)
    found: dict[str, frozenset[str]] = {}
    for known in names.values():
        for name in known if len(known) > 1 else ():
            found[name] = found.get(name, frozenset()) | known - {name}
    return found
