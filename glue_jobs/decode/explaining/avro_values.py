"""Explain why bytes do not match an Avro schema. Accepts and rejects as `glue_jobs.decode.machines.avro_machine`."""

from __future__ import annotations

from calve.decoding.avro_operations import ITEMS_LIMIT, STRING_LIMIT
from calve.schema.avro_reader import Value
from calve.schema.columns import MOST_MILLIS
from calve.schema.writers import AvroWriter
from glue_jobs.decode.explaining.json_values import is_database_moment
from glue_jobs.decode.explaining.walk import Misfit, Walk, article

END = "the end of the value"
SHORT_DIGITS = 18
"""For decimals of at most this many digits, Spark reads only the lower 64 bits."""
SIZES = {"boolean": 1, "float": 4, "double": 8}


def explain(data: bytes, writer: AvroWriter, walk: Walk) -> None:
    """Raises `Misfit` if the framed value does not match the writer's schema."""
    bytes_ = AvroBytes(data, len(writer.prefix), walk)
    bytes_.value(writer.value)
    walk.end()
    if bytes_.at < len(data):
        left = len(data) - bytes_.at
        raise walk.wrong("the end", f"{left:,} more byte{'s' if left > 1 else ''}")


class AvroBytes:
    """Reads one value; `at` is the place of the next byte."""

    def __init__(self, data: bytes, at: int, walk: Walk) -> None:
        self._data, self.at, self._walk = data, at, walk

    def value(self, of: Value) -> None:
        """Read a value of the writer."""
        self._walk.step()
        match of.kind:
            case "union":
                self._union(of)
            case "record":
                for name, part in of.parts:
                    with self._walk.at(name or "(a field without a column)"):
                        self.value(part)
            case "array" | "map" | "entries":
                self._blocks(of)
            case "enum":
                self._enum(of)
            case "int" | "long":
                number = self._number(of.kind, 5 if of.kind == "int" else 10)
                if of.conversion == "millis" and abs(number) > MOST_MILLIS:
                    self._walk.unfitting("a timestamp", "a number that is out of its range")
            case "bytes" | "string" | "fixed":
                self._sized(of)
            case "null":
                pass
            case _:
                self._take(SIZES[of.kind], of.kind)

    def _union(self, of: Value) -> None:
        place = self._number("the type of a union", 5)
        if not 0 <= place < len(of.parts):
            raise self._walk.wrong(f"one of the {len(of.parts)} types of the union", "a number beyond them")
        self.value(of.parts[place][1])

    def _enum(self, of: Value) -> None:
        number = self._number("enum", 5)
        if not of.skipped and not 0 <= number < len(of.symbols):
            raise self._walk.wrong("a symbol of the enum", "a number beyond its symbols")

    def _blocks(self, of: Value) -> None:
        named = of.kind == "map"
        kind = "map" if named else "array"
        name = Value("string", skipped=of.skipped)
        by_key: dict[object, list[Misfit]] = {}
        total = 0
        while (count := self._count(kind, first=not total, skipped=of.skipped)) > 0:
            total += count
            if not of.skipped and total > ITEMS_LIMIT:
                raise self._walk.wrong(f"at most {ITEMS_LIMIT:,} items", "more")
            for number in range(total - count, total):
                with self._walk.apart() as unfit, self._walk.at("[key]" if named else f"[{number}]"):
                    key = self._sized(name) if named else number
                    self.value(of.inner)
                by_key[key] = unfit
        # Of several map entries with one key, the last wins.
        self._walk.unfit += [each for found in by_key.values() for each in found]

    def _count(self, kind: str, *, first: bool, skipped: bool) -> int:
        count = self._number(kind, 10)
        if skipped:
            while count < 0:
                self._take(max(0, self._number(kind, 10)), kind)
                count = self._number(kind, 10)
            return count
        if count < 0:
            self._number(kind, 10)
            count = count if count == -(2**63) else -count
        if count < 0 and not first:
            raise self._walk.wrong(article(kind), "a length that is negative")
        return count

    def _sized(self, of: Value) -> bytes:
        if of.kind == "fixed":
            found = self._take(of.size, of.kind)
        else:
            size = self._number(of.kind, 10)
            if not of.skipped and size < 0:
                raise self._walk.wrong(article(of.kind), "a length that is negative")
            if not of.skipped and size > STRING_LIMIT:
                expected = f"{article(of.kind)} of at most {STRING_LIMIT:,} bytes"
                raise self._walk.wrong(expected, "a greater length")
            found = self._take(max(size, 0), of.kind)
        if of.conversion == "decimal":
            precision, scale = of.digits
            digits = found[-8:] if precision <= SHORT_DIGITS else found
            if not found or abs(int.from_bytes(digits, "big", signed=True)) >= 10**precision:
                what = "more digits" if found else "no digits"
                self._walk.unfitting(f"a decimal({precision}, {scale})", what)
        if of.conversion == "moment" and not is_database_moment(found.decode(errors="replace")):
            self._walk.unfitting("a text of date, time and offset", "another text")
        return found

    def _number(self, kind: str, most: int) -> int:
        number, self.at = self._walk.varint(self._data, self.at, most, article(kind), END)
        number &= 2**32 - 1 if most == 5 else 2**64 - 1
        return (number >> 1) ^ -(number & 1)

    def _take(self, size: int, kind: str) -> bytes:
        if size > len(self._data) - self.at:
            what = END if self.at >= len(self._data) or size < 16 else "a length beyond the end of the value"
            raise self._walk.wrong(article(kind), what)
        self.at += size
        return self._data[self.at - size : self.at]
