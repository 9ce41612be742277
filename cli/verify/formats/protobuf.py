"""Protobuf values, parsed by Google's library. Own rules, not the job's code, lay them out as columns."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from decimal import Context, Decimal
from functools import lru_cache, partial
from typing import Any

import pyarrow as pa
from google.protobuf.descriptor import Descriptor, FieldDescriptor, OneofDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.unknown_fields import UnknownFieldSet

from calve.schema.columns import Json, decimal_digits
from calve.schema.writers import ProtobufWriter as Plan
from cli.verify.formats.fields import EPOCH, EXACT, Convert, Unreadable, Writer, bounded, written_in
from cli.verify.formats.protobuf_schema import Compiled

GROUP = 3
UNSIGNED = (FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_FIXED64)


class ProtobufWriter(Writer):
    """For values of the plan's message. `read`: its columns; `whole`: the message is this one column."""

    def __init__(
        self, frame: bytes, columns: pa.Schema, schema: Compiled, read: Json, plan: Plan, whole: str | None
    ) -> None:
        super().__init__(frame, columns)
        self._schema, self._plan, self._whole = schema, plan, whole
        top = self._schema.messages[0].file.pool.FindMessageTypeByName(plan.message)
        self._class = GetMessageClass(top)
        self._row = _Layout(self._schema).struct(top, read["fields"][0]["type"] if whole else read)

    def decode(self, value: bytes) -> Any:
        if not self.frame:
            payload = value
        elif value.startswith(self._plan.prefix):
            payload = value[len(self._plan.prefix) :]
        elif value.startswith(tuple(self._plan.others)):
            raise Unreadable("incompatible_schema")
        else:
            raise ValueError
        message = self._class()
        try:
            message.ParseFromString(payload)
        except DecodeError:
            raise ValueError from None
        if _is_strange(message, self._schema.entries):
            raise ValueError
        row = self._row(message)
        return {self._whole: row} if self._whole else row


class _Layout:
    """Functions from messages of a schema, and from their fields, to values of columns."""

    def __init__(self, schema: Compiled) -> None:
        self._symbols, self._entries = schema.symbols, schema.entries

    def struct(self, message: Descriptor, columns: Json) -> Convert:
        parts = {
            name: self.oneof(message.oneofs_by_name[source], kind)
            if source in message.oneofs_by_name
            else self.field(message.fields_by_name[source], kind)
            for name, source, kind in written_in(columns)
        }
        return lambda found: {name: part(found) for name, part in parts.items()}

    def oneof(self, oneof: OneofDescriptor, column: Json) -> Convert:
        fields = {each.name: each for each in oneof.fields}
        parts = {
            source: (name, self.value(fields[source], kind)) for name, source, kind in written_in(column)
        }

        def convert(found: Any) -> dict[str, Any] | None:
            which = found.WhichOneof(oneof.name)
            if which is None:
                return None
            name, part = parts[which]
            return {name: part(getattr(found, which))}

        return convert

    def field(self, each: FieldDescriptor, column: Json) -> Convert:
        name, message = each.name, each.message_type
        if message is not None and message.full_name in self._entries:
            entry = message.fields_by_name
            key = self.value(entry["key"], column["key"])
            item = self.value(entry["value"], column["value"])
            return lambda found: [
                (key(known), item(one.value)) for known, one in _last(getattr(found, name)).items()
            ]
        if each.is_repeated:
            element = self.value(each, column["element"])
            return lambda found: [element(one) for one in getattr(found, name)]
        alone = self.value(each, column)
        if each.has_presence:
            return lambda found: alone(getattr(found, name)) if found.HasField(name) else None
        return lambda found: alone(getattr(found, name))

    def value(self, each: FieldDescriptor, column: Json) -> Convert:
        if each.message_type is not None:
            return self.message(each.message_type, column)
        symbols = self._symbols.get(each.full_name)
        if symbols is not None:
            return lambda number: symbols.get(number, str(number))
        if each.type in UNSIGNED:
            return Decimal
        if each.type == each.TYPE_STRING:
            return _text
        return lambda value: value

    def message(self, message: Descriptor, column: Json) -> Convert:
        if isinstance(column, dict):
            return self.struct(message, column)
        match message.full_name:
            case "google.protobuf.Timestamp":
                return _moment
            case "google.type.Date":
                return _day
            case "confluent.type.Decimal":
                return partial(_decimal, digits=decimal_digits(column) or (0, 0))
        inner = self.value(message.fields[0], column)
        return lambda wrapper: inner(wrapper.value)


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
        raise ValueError  # noqa: TRY004 its bytes are no UTF-8
    return value


def _moment(value: Any) -> int:
    micros = int(value.seconds * 10**6 + value.nanos // 1000)
    if not 0 <= value.nanos < 10**9 or value.nanos % 1000 or bounded(micros) != micros:
        raise ValueError
    return micros


def _day(value: Any) -> int:
    return (date(value.year, value.month, value.day) - EPOCH.date()).days


def _decimal(value: Any, digits: tuple[int, int]) -> Decimal:
    """digits: precision and scale."""
    precision, places = digits
    unscaled = int.from_bytes(value.value, "big", signed=True)
    scale = value.scale if unscaled else 0  # zero is zero wherever its point is
    if len(value.value) > 16 or not -1000 <= scale <= 1000:
        raise ValueError
    exact = Decimal(unscaled).scaleb(-scale, EXACT)
    fitted = exact.quantize(Decimal(1).scaleb(-places), context=Context(prec=2000))
    if fitted != exact or len(fitted.as_tuple().digits) > precision:
        raise ValueError
    return fitted
