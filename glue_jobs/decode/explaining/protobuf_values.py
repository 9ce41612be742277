"""Explain why bytes do not match a message plan (`calve.schema.protobuf.columns`).

Accepts and rejects as `glue_jobs.decode.protobuf` does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from calve.schema.columns import decimal_digits
from calve.schema.protobuf.columns import Read, Struct, Value
from calve.schema.protobuf.model import DATE, DECIMAL, TIMESTAMP, WRAPPERS
from calve.schema.writers import ProtobufWriter
from glue_jobs.decode.explaining.walk import Misfit, Walk, article
from glue_jobs.decode.protobuf import values

WIRE_NAMES = {
    values.VARINT: "a varint",
    values.FIXED64: "a field of 8 bytes",
    values.LENGTH: "a field with a length",
    values.FIXED32: "a field of 4 bytes",
}

SIZES = {values.FIXED64: 8, values.FIXED32: 4}
END = "the end of the message"


def explain(data: bytes, writer: ProtobufWriter, walk: Walk) -> None:
    """Raises `Misfit` if the framed value does not match the writer's plan."""
    walk.step(len(data) // 100)
    Messages(walk).read(writer.plan, [data[len(writer.prefix) :]])
    walk.end()


@dataclass(frozen=True, slots=True)
class Written:
    """A field as it was written: its number or, if it has a length, its bytes."""

    wire: int
    number: int = 0
    data: bytes = b""


class Messages:
    """Reads messages. It checks every value that has a column: a message is broken if any part of it is broken."""

    def __init__(self, walk: Walk) -> None:
        self._walk = walk

    def read(self, plan: Struct, pieces: Sequence[bytes], *, of_map: bool = False) -> list[list[Written]]:
        """One message, perhaps in several pieces. `of_map`: an entry of a map, where an absent message is an empty one."""
        found: list[list[Written]] = [[] for _ in plan.fields]
        replaced: list[tuple[int, Written]] = []
        oneofs = {place: number for number, oneof in enumerate(plan.oneofs) for place in oneof}
        holders: dict[int, int] = {}
        names = _names(plan)
        known = {each.number: (n, names[n], _named(each.value)) for n, each in enumerate(plan.fields)}
        for piece in pieces:
            for place, written in self._fields(piece, plan, known):
                if (oneof := oneofs.get(place)) is not None:
                    other = holders.setdefault(oneof, place)
                    if other != place:
                        replaced += [(other, each) for each in found[other]]
                        found[other], holders[oneof] = [], place
                found[place].append(written)
        shown = plan.shown
        for place, written in replaced:
            if place not in shown:
                continue
            with self._walk.apart(), self._walk.at(names[place]):
                self._value(plan.fields[place].value, [written])
        for place in sorted(shown):
            with self._walk.at(names[place]):
                self._field(plan.fields[place], found[place], of_map=of_map)
        return found

    def _field(self, field: Read, written: list[Written], *, of_map: bool) -> None:
        if field.key is not None:
            self._map(field, field.key, written)
        elif field.repeated:
            for number, each in enumerate(written):
                with self._walk.at(f"[{number}]"):
                    if each.wire == values.LENGTH and not values.is_sized(field.value.kind):
                        self._packed(field.value, each.data)
                    else:
                        self._value(field.value, [each])
        elif written:
            self._value(field.value, written)
        elif field.required:
            self._walk.unfitting(_named(field.value), "nothing")
        elif of_map and values.is_sized(field.value.kind) and field.value.kind not in ("string", "bytes"):
            self._value(field.value, [Written(values.LENGTH)])

    def _map(self, field: Read, key: Value, written: Sequence[Written]) -> None:
        plan = values.entry(key, field.value)
        by_key: dict[object, list[Misfit]] = {}
        for each in written:
            with self._walk.apart() as unfit:
                keys, _ = self.read(plan, [each.data], of_map=True)
            last = keys[-1] if keys else Written(values.VARINT)
            bits = 2**32 - 1 if key.kind.endswith("32") else 2**64 - 1
            number = int(last.number != 0) if key.kind == "bool" else last.number & bits
            by_key[number, last.data] = unfit
        # Of several entries with one key, the last wins.
        self._walk.unfit += [each for found in by_key.values() for each in found]

    def _value(self, value: Value, written: Sequence[Written]) -> None:
        """One value, written in several pieces or several times."""
        self._walk.step()
        if value.kind == "string":
            for each in written:
                try:
                    each.data.decode()
                except UnicodeDecodeError:
                    raise self._walk.wrong("a string in UTF-8", "other bytes") from None
        elif values.is_sized(value.kind) and value.kind != "bytes":
            found = self.read(value.message or values.members(value), [each.data for each in written])
            if value.message is None and value.kind not in WRAPPERS:
                parts = [each[-1] if each else Written(values.VARINT) for each in found]
                if problem := _problem(value, parts):
                    self._walk.unfitting(*problem)

    def _packed(self, value: Value, data: bytes) -> None:
        """The numbers of a packed field."""
        wire, place = values.WIRES[value.kind], 0
        self._walk.step(len(data) // 100)
        if wire == values.VARINT:
            while place < len(data):
                _, place = self._varint(data, place, values.VARINT_BYTES, _named(value))
        elif len(data) % SIZES[wire]:
            raise self._walk.wrong("whole numbers of the field's size", "bytes left over")

    def _fields(
        self, data: bytes, plan: Struct, known: Mapping[int, tuple[int, str, str]]
    ) -> Iterator[tuple[int, Written]]:
        """The fields of the plan, each with its place in it. `known`: place, name and type by number."""
        place = 0
        while place < len(data):
            self._walk.step()
            tag, place = self._varint(data, place, values.SHORT_VARINT_BYTES, "a field")
            wire = tag & 7
            if not 8 <= tag <= values.GREATEST_TAG or wire not in WIRE_NAMES:
                raise self._walk.wrong("a field", "a number that begins none")
            nth, name, kind = known.get(tag >> 3, (None, f"(field {tag >> 3})", "a field"))
            with self._walk.at(name):
                written, place = self._content(data, place, wire, kind)
                if nth is None:
                    continue
                field = plan.fields[nth]
                own = values.LENGTH if field.key else values.WIRES.get(field.value.kind, values.LENGTH)
                if wire != own and not (field.repeated and wire == values.LENGTH):
                    self._walk.unfitting(_named(field.value), WIRE_NAMES[wire])
                    continue
            yield nth, written

    def _content(self, data: bytes, place: int, wire: int, kind: str) -> tuple[Written, int]:
        if wire == values.VARINT:
            number, after = self._varint(data, place, values.VARINT_BYTES, kind)
            return Written(wire, number % 2**64), after
        size = SIZES.get(wire)
        if size is None:
            size, place = self._varint(data, place, values.SHORT_VARINT_BYTES, kind)
        content = data[place : place + size]
        if len(content) < size or size > values.GREATEST_LENGTH:
            raise self._walk.wrong(kind, END)
        if wire == values.LENGTH:
            return Written(wire, data=content), place + size
        return Written(wire, int.from_bytes(content, "little")), place + size

    def _varint(self, data: bytes, place: int, most: int, expected: str) -> tuple[int, int]:
        return self._walk.varint(data, place, most, expected, END)


def _names(plan: Struct) -> list[str]:
    """The name of each field: its column, else its number."""
    found = [f"(field {each.number})" for each in plan.fields]
    for column in plan.columns:
        members = [(f"{column.name}.{each.name}", each.source) for each in column.oneof]
        for name, source in ((column.name, column.source), *members):
            if source is not None:
                found[source] = name
    return found


def _named(value: Value) -> str:
    return article("message" if value.message else value.kind.removeprefix("."))


def _signed(written: Written, bits: int) -> int:
    number = written.number & (1 << bits) - 1
    return number - (number >> bits - 1 << bits)


def _problem(value: Value, parts: Sequence[Written]) -> tuple[str, str] | None:
    """What is expected and what was found, if the parts of a message do not form its value; else None."""
    if value.kind == TIMESTAMP:
        seconds, nanos = _signed(parts[0], 64), _signed(parts[1], 32)
        if not values.FIRST_SECOND <= seconds <= values.LAST_SECOND:
            return "a Timestamp of the years 1 to 9999", "seconds out of this range"
        if not 0 <= nanos <= 999_999_999 or nanos % 1000:
            return "a Timestamp with whole microseconds", "other nanos"
    elif value.kind == DATE:
        try:
            date(*(_signed(each, 32) for each in parts))
        except ValueError:
            return "a Date of the years 1 to 9999", "year, month and day that are no date"
    elif value.kind == DECIMAL:
        precision, scale = decimal_digits(value.column) or (0, 0)
        unscaled = int.from_bytes(parts[0].data, "big", signed=True)
        moved = values.rescaled(unscaled, scale - _signed(parts[2], 32))
        if len(parts[0].data) > values.LIMBS or moved is None or abs(moved) >= 10**precision:
            return f"a decimal({precision}, {scale})", "more digits"
    return None
