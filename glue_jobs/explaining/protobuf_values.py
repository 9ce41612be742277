"""Why bytes are no message of a plan (`calve.protobuf.reading`). It takes and refuses what `glue_jobs.protobuf` does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from calve.columns import decimal_digits
from calve.protobuf.known import DATE, DECIMAL, TIMESTAMP, WRAPPERS
from calve.protobuf.reading import Column, Read, Struct, Value
from calve.writers import ProtobufWriter
from glue_jobs.explaining.walk import LastOfEach, Walk, article
from glue_jobs.protobuf.leaves import WIRES, is_sized
from glue_jobs.protobuf.scan import (
    FIXED32,
    FIXED64,
    GREATEST_LENGTH,
    GREATEST_TAG,
    LENGTH,
    SHORT_VARINT_BYTES,
    VARINT,
    VARINT_BYTES,
)
from glue_jobs.protobuf.values import DAYS, FIRST_SECOND, LAST_SECOND, LIMBS, members

WIRE_NAMES = {
    VARINT: "a varint",
    FIXED64: "a field of 8 bytes",
    LENGTH: "a field with a length",
    FIXED32: "a field of 4 bytes",
}

MEMBER_NAMES = {
    TIMESTAMP: ("seconds", "nanos"),
    DATE: ("year", "month", "day"),
    DECIMAL: ("value", "precision", "scale"),
}


def explain(data: bytes, writer: ProtobufWriter, walk: Walk) -> None:
    """Raises `Misfit` where the value, with its frame, is none of the writer's."""
    walk.step(len(data) // 100)
    Messages(walk).read(writer.plan, [data[len(writer.prefix) :]])
    walk.end()


@dataclass(frozen=True, slots=True)
class Written:
    """A field as it was written: which in its message, and a number or the bytes of its content."""

    order: int
    wire: int
    content: int | bytes


class Messages:
    """Reads messages; every value is looked at, as a message that is broken anywhere is broken."""

    def __init__(self, walk: Walk) -> None:
        self._walk = walk

    def read(self, plan: Struct, pieces: Sequence[bytes], *, entry: bool = False) -> list[list[Written]]:
        """One message, which may come in several pieces. `entry`: of a map, where an absent message is an empty one."""
        found: list[list[Written]] = [[] for _ in plan.fields]
        numbers = {each.number: place for place, each in enumerate(plan.fields)}
        order, names = 0, _names(plan)
        known = {each.number: (names[n], _named(each.value)) for n, each in enumerate(plan.fields)}
        for piece in pieces:
            for number, wire, content in self._fields(piece, known):
                order += 1
                if number in numbers:
                    found[numbers[number]].append(Written(order, wire, content))
        for place, each in enumerate(plan.fields):
            self._walk.path.append(names[place])
            found[place] = list(self._of_its_type(each, found[place]))
            self._walk.path.pop()
        for oneof in plan.oneofs:
            self._choose(plan, oneof, found, names)
        for place, each in enumerate(plan.fields):
            self._walk.path.append(names[place])
            self._field(each, found[place], entry=entry)
            self._walk.path.pop()
        return found

    def _of_its_type(self, field: Read, written: Sequence[Written]) -> Iterator[Written]:
        own = LENGTH if field.key else WIRES.get(field.value.kind, LENGTH)
        for each in written:
            if each.wire == own or (field.repeated and each.wire == LENGTH):
                yield each
            else:
                self._unfit(_named(field.value), WIRE_NAMES[each.wire])

    def _choose(
        self, plan: Struct, oneof: Sequence[int], found: list[list[Written]], names: Sequence[str]
    ) -> None:
        """Keep what was written last; what it replaced must be whole, too."""
        written = [(each.order, place) for place in oneof for each in found[place]]
        if len(written) < 2:
            return
        last = max(written)[1]
        replaced = max((order for order, place in written if place != last), default=0)
        for place in oneof:
            kept = [each for each in found[place] if place == last and each.order > replaced]
            self._walk.path.append(names[place])
            unfit = list(self._walk.unfit)
            for each in found[place]:
                if each not in kept:
                    self._value(plan.fields[place].value, [each])
            self._walk.unfit = unfit
            self._walk.path.pop()
            found[place] = kept

    def _field(self, field: Read, written: list[Written], *, entry: bool) -> None:
        if field.key is not None:
            self._map(field, field.key, written)
        elif field.repeated:
            for number, each in enumerate(written):
                self._walk.path.append(f"[{number}]")
                if each.wire == LENGTH and not is_sized(field.value.kind):
                    self._packed(field.value, each.content)
                else:
                    self._value(field.value, [each])
                self._walk.path.pop()
        elif written:
            self._value(field.value, written)
        elif field.required:
            self._unfit(_named(field.value), "nothing")
        elif entry and is_sized(field.value.kind) and field.value.kind not in ("string", "bytes"):
            self._value(field.value, [Written(0, LENGTH, b"")])

    def _map(self, field: Read, key: Value, written: Sequence[Written]) -> None:
        plan = Struct(
            (Read(1, key, implicit=True), Read(2, field.value, implicit=True)),
            (Column("[key]", key.column, 0), Column("[value]", field.value.column, 1)),
        )
        last = LastOfEach(self._walk)
        for each in written:
            last.begin()
            keys, _ = self.read(plan, [_bytes(each)], entry=True)
            last.add(_key(key, keys[-1].content) if keys else None)
        last.end()

    def _value(self, value: Value, written: Sequence[Written]) -> None:
        """One value that was written in several pieces or several times."""
        self._walk.step()
        if value.kind == "string":
            for each in written:
                if not _is_utf8(_bytes(each)):
                    raise self._walk.wrong("a string in UTF-8", "other bytes")
        elif is_sized(value.kind) and value.kind != "bytes":
            plan = value.message or _with_names(value.kind, members(value))
            found = self.read(plan, [_bytes(each) for each in written])
            if value.message is None and value.kind not in WRAPPERS:
                parts = [each[-1].content if each else 0 for each in found]
                if problem := _problem(value, parts):
                    self._unfit(*problem)

    def _packed(self, value: Value, content: int | bytes) -> None:
        """The numbers of a field that holds several."""
        data, wire = content if isinstance(content, bytes) else b"", WIRES[value.kind]
        self._walk.step(len(data) // 100)
        if wire == VARINT:
            place = 0
            while place < len(data):
                _, place = self._varint(data, place, VARINT_BYTES, _named(value))
        elif len(data) % (8 if wire == FIXED64 else 4):
            raise self._walk.wrong("whole numbers of the field's size", "bytes left over")

    def _fields(
        self, data: bytes, known: Mapping[int, tuple[str, str]]
    ) -> Iterator[tuple[int, int, int | bytes]]:
        """Number, type on the wire and content of each field; name and type of those in `known`."""
        place = 0
        while place < len(data):
            self._walk.step()
            tag, place = self._varint(data, place, SHORT_VARINT_BYTES, "a field")
            wire = tag & 7
            if not 8 <= tag <= GREATEST_TAG or wire not in WIRE_NAMES:
                raise self._walk.wrong("a field", "a number that begins none")
            name, kind = known.get(tag >> 3, (f"(field {tag >> 3})", "a field"))
            self._walk.path.append(name)
            value, after = 0, place + (8 if wire == FIXED64 else 4)
            if wire == VARINT:
                value, after = self._varint(data, place, VARINT_BYTES, kind)
            elif wire == LENGTH:
                size, place = self._varint(data, place, SHORT_VARINT_BYTES, kind)
                after = place + size
            if after > len(data) or after - place > GREATEST_LENGTH:
                raise self._walk.wrong(kind, "the end of the message")
            self._walk.path.pop()
            yield tag >> 3, wire, value if wire == VARINT else data[place:after]
            place = after

    def _varint(self, data: bytes, place: int, most: int, expected: str) -> tuple[int, int]:
        value = 0
        for shift in range(most):
            if place >= len(data):
                raise self._walk.wrong(expected, "the end of the message")
            byte = data[place]
            value |= (byte & 0x7F) << 7 * shift
            place += 1
            if byte < 0x80:
                return value & 2**64 - 1, place
        raise self._walk.wrong(expected, f"a number of more than {most} bytes")

    def _unfit(self, expected: str, found: str) -> None:
        self._walk.unfit.append(self._walk.wrong(expected, found))


def _names(plan: Struct) -> list[str]:
    """What each field is called: as the column that it fills, else by its number."""
    found = [f"(field {each.number})" for each in plan.fields]
    for column in plan.columns:
        members = [(f"{column.name}.{each.name}", each.source) for each in column.oneof]
        for name, source in ((column.name, column.source), *members):
            if source is not None:
                found[source] = name
    return found


def _with_names(kind: str, plan: Struct) -> Struct:
    """The plan of a message that is one value, with what its fields are called."""
    names = MEMBER_NAMES.get(kind, ("value",))
    return replace(
        plan, columns=tuple(replace(each, name=n) for each, n in zip(plan.columns, names, strict=True))
    )


def _named(value: Value) -> str:
    return article("message" if value.message else value.kind.removeprefix("."))


def _bytes(each: Written) -> bytes:
    return each.content if isinstance(each.content, bytes) else b""


def _key(key: Value, content: int | bytes) -> object:
    """What tells a key from others: numbers without the bits that their type does not have."""
    bits = {"int32": 32, "uint32": 32, "sint32": 32}
    if isinstance(content, int) and key.kind == "bool":
        return content != 0
    return content % 2 ** bits.get(key.kind, 64) if isinstance(content, int) else content


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _signed(value: int | bytes, bits: int) -> int:
    number = value % 2**bits if isinstance(value, int) else 0
    return number - 2**bits if number >> bits - 1 else number


def _problem(value: Value, parts: Sequence[int | bytes]) -> tuple[str, str] | None:
    """What is expected and what was found, where the parts of a message are not the value that it stands for."""
    if value.kind == TIMESTAMP:
        seconds, nanos = _signed(parts[0], 64), _signed(parts[1], 32)
        if not FIRST_SECOND <= seconds <= LAST_SECOND:
            return "a Timestamp of the years 1 to 9999", "seconds out of this range"
        if not 0 <= nanos <= 999_999_999 or nanos % 1000:
            return "a Timestamp with whole microseconds", "other nanos"
    elif value.kind == DATE:
        year, month, day = (_signed(each, 32) for each in parts)
        leap = month == 2 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
        if not (1 <= year <= 9999 and 1 <= month <= 12 and 1 <= day <= DAYS[month - 1] + leap):
            return "a Date of the years 1 to 9999", "year, month and day that are no date"
    elif value.kind == DECIMAL:
        digits = decimal_digits(value.column)
        unscaled = parts[0] if isinstance(parts[0], bytes) else b""
        if digits and not _fits(unscaled, _signed(parts[2], 32), *digits):
            return f"a decimal({digits[0]}, {digits[1]})", "more digits"
    return None


def _fits(unscaled: bytes, scale: int, precision: int, wanted: int) -> bool:
    number = int.from_bytes(unscaled, "big", signed=True)
    if len(unscaled) > LIMBS or (abs(scale) > 1000 and number):
        return False
    exact = Decimal(number).scaleb(-scale) if number else Decimal(0)
    moved = exact.scaleb(wanted)
    return moved == moved.to_integral_value() and abs(moved) < Decimal(10) ** precision
