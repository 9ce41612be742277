"""Explain why bytes do not match an Avro schema. Accepts and rejects as `glue_jobs.decode.machines.avro_machine`."""

from __future__ import annotations

from calve.config.spark_conf import ITEMS_LIMIT, STRING_LIMIT
from calve.schema.columns import MOST_MILLIS, Json
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
    bytes_.value(*writer.types, writer.shape)
    walk.end()
    if bytes_.at < len(data):
        left = len(data) - bytes_.at
        raise walk.wrong("the end", f"{left:,} more byte{'s' if left > 1 else ''}")


class AvroBytes:
    """Reads one value; `at` is the place of the next byte."""

    def __init__(self, data: bytes, at: int, walk: Walk) -> None:
        self._data, self.at, self._walk = data, at, walk

    def value(self, node: Json, read: Json | None, shape: Json | None) -> None:
        """Read a value of the writer's type. `read`: the type to read it as; None to skip it. `shape`: as in `AvroWriter`."""
        self._walk.step()
        if isinstance(node, list):
            self._union(node, read, shape)
            return
        kind = node if isinstance(node, str) else node["type"]
        match kind:
            case "record":
                self._record(node, read, shape)
            case "array" | "map":
                self._blocks(node, read, shape)
            case "enum":
                number = self._number("enum", 5)
                if read is not None and not 0 <= number < len(node["symbols"]):
                    raise self._walk.wrong("a symbol of the enum", "a number beyond its symbols")
            case "int" | "long":
                number = self._number(kind, 5 if kind == "int" else 10)
                logical = read.get("logicalType") if isinstance(read, dict) else None
                if str(logical).endswith("timestamp-millis") and abs(number) > MOST_MILLIS:
                    self._walk.unfitting("a timestamp", "a number that is out of its range")
            case "bytes" | "string" | "fixed":
                self._sized(kind, node, read, shape)
            case "null":
                pass
            case _:
                self._take(SIZES[kind], kind)

    def _union(self, node: list[Json], read: list[Json] | None, shape: Json | None) -> None:
        place = self._number("the type of a union", 5)
        if not 0 <= place < len(node):
            raise self._walk.wrong(f"one of the {len(node)} types of the union", "a number beyond them")
        if shape and len(node) - node.count("null") > 1:
            member = f"member{place - node[:place].count('null')}"
            shape = next((inner for _, source, inner, _ in shape["struct"] if source == member), None)
        self.value(node[place], None if read is None else read[place], shape)

    def _record(self, node: Json, read: Json | None, shape: Json | None) -> None:
        kinds = {} if read is None else {each["name"]: each["type"] for each in read["fields"]}
        shapes = {source: inner for _, source, inner, _ in shape["struct"]} if shape else {}
        for each in node["fields"]:
            name = each["name"]
            with self._walk.at(name if name in kinds else "(a field without a column)"):
                self.value(each["type"], kinds.get(name), shapes.get(name))

    def _blocks(self, node: Json, read: Json | None, shape: Json | None) -> None:
        named = node["type"] == "map"
        inside = "values" if named else "items"
        name_type, item_type = (None, None) if read is None else ("string", read[inside])
        [item_shape] = shape.values() if shape else [None]
        by_key: dict[object, list[Misfit]] = {}
        total = 0
        while (count := self._count(node["type"], first=not total, skipped=read is None)) > 0:
            total += count
            if read is not None and total > ITEMS_LIMIT:
                raise self._walk.wrong(f"at most {ITEMS_LIMIT:,} items", "more")
            for number in range(total - count, total):
                with self._walk.apart() as unfit, self._walk.at("[key]" if named else f"[{number}]"):
                    key = self._sized("string", "string", name_type, None) if named else number
                    self.value(node[inside], item_type, item_shape)
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

    def _sized(self, kind: str, node: Json, read: Json | None, shape: Json | None) -> bytes:
        if kind == "fixed":
            found = self._take(node["size"], kind)
        else:
            size = self._number(kind, 10)
            if read is not None and size < 0:
                raise self._walk.wrong(article(kind), "a length that is negative")
            if read is not None and size > STRING_LIMIT:
                expected = f"{article(kind)} of at most {STRING_LIMIT:,} bytes"
                raise self._walk.wrong(expected, "a greater length")
            found = self._take(max(size, 0), kind)
        if isinstance(read, dict) and read.get("logicalType") == "decimal":
            precision = read["precision"]
            digits = found[-8:] if precision <= SHORT_DIGITS else found
            if not found or abs(int.from_bytes(digits, "big", signed=True)) >= 10**precision:
                what = "more digits" if found else "no digits"
                self._walk.unfitting(f"a decimal({precision}, {read.get('scale', 0)})", what)
        if shape and "moment" in shape and not is_database_moment(found.decode(errors="replace")):
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
