"""Why bytes are no value of an Avro schema. It takes and refuses what the engines do (`glue_jobs.columnar.machine`)."""

from __future__ import annotations

import json

from calve.columns import Json
from calve.spark_conf import ITEMS_LIMIT, STRING_LIMIT
from calve.writers import AvroWriter
from glue_jobs.explaining.json_values import is_database_moment
from glue_jobs.explaining.walk import LastOfEach, Walk, article

END = "the end of the value"
MOST_MILLIS = (2**63 - 1) // 1000
SHORT_DIGITS = 18
"""Of decimals with at most so many digits, Spark reads the lower 64 bits alone."""
SIZES = {"boolean": 1, "float": 4, "double": 8}


def explain(data: bytes, writer: AvroWriter, walk: Walk) -> None:
    """Raises `Misfit` where the value, with its frame, is none of the writer's."""
    bytes_ = AvroBytes(data, len(writer.prefix), walk)
    written, read = (
        next(each["type"] for each in json.loads(schema)["fields"] if each["name"] == "value")
        for schema in (writer.schema, writer.reader)
    )
    bytes_.value(written, read, writer.shape)
    walk.end()
    if bytes_.at < len(data):
        left = len(data) - bytes_.at
        raise walk.wrong("the end", f"{left:,} more byte{'s' if left > 1 else ''}")


class AvroBytes:
    """Reads one value; `at` is the place of the next byte."""

    def __init__(self, data: bytes, at: int, walk: Walk) -> None:
        self._data, self.at, self._walk = data, at, walk

    def value(self, node: Json, read: Json | None, shape: Json | None) -> None:
        """A value of the writer's type. `read`: the type to read it as, None: it is skipped. `shape`: as of `AvroWriter`."""
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
                self._integer(kind, read)
            case "bytes" | "string" | "fixed":
                self._sized(kind, node, read, shape)
            case "null":
                pass
            case _:
                self._take(SIZES[kind], kind)

    def _record(self, node: Json, read: Json | None, shape: Json | None) -> None:
        kinds = {} if read is None else {each["name"]: each["type"] for each in read["fields"]}
        shapes = {name: each for name, each, absent in (shape or {}).get("struct", ()) if not absent}
        for each in node["fields"]:
            name = each["name"]
            self._walk.path.append(name if name in kinds else "(a field without a column)")
            self.value(each["type"], kinds.get(name), shapes.get(name))
            self._walk.path.pop()

    def _union(self, node: list[Json], read: list[Json] | None, shape: Json | None) -> None:
        place = self._number("the type of a union", 5)
        if not 0 <= place < len(node):
            raise self._walk.wrong(f"one of the {len(node)} types of the union", "a number beyond them")
        if isinstance(shape, dict) and "union" in shape:
            member = f"member{sum(each != 'null' for each in node[:place])}"
            shape = next((each for _, name, each, _ in shape["union"] if name == member), None)
        self.value(node[place], None if read is None else read[place], shape)

    def _blocks(self, node: Json, read: Json | None, shape: Json | None) -> None:
        inside = "items" if node["type"] == "array" else "values"
        shapes = shape or {}
        entry = shapes.get("list", shapes.get("map"))
        if "entries" in shapes:
            entry = {"struct": [["key", shapes["entries"][0], None], ["value", shapes["entries"][1], None]]}
        last, total = LastOfEach(self._walk) if inside == "values" else None, 0
        while (count := self._count(node["type"], first=not total, skipped=read is None)) > 0:
            total += count
            if read is not None and total > ITEMS_LIMIT:
                raise self._walk.wrong(f"at most {ITEMS_LIMIT:,} items", "more")
            for number in range(total - count, total):
                self._item(node[inside], None if read is None else read[inside], entry, last, number)
        if last:
            last.end()

    def _item(
        self, node: Json, read: Json | None, shape: Json | None, last: LastOfEach | None, number: int
    ) -> None:
        key: object = number
        if last:
            last.begin()
            self._walk.path.append("[key]")
            key = self._sized("string", "string", None if read is None else "string", None)
        else:
            self._walk.path.append(f"[{number}]")
        self.value(node, read, shape)
        self._walk.path.pop()
        if last:
            last.add(key)

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

    def _integer(self, kind: str, read: Json | None) -> None:
        number = self._number(kind, 5 if kind == "int" else 10)
        logical = read.get("logicalType") if isinstance(read, dict) else None
        if str(logical).endswith("timestamp-millis") and not -MOST_MILLIS <= number <= MOST_MILLIS:
            self._walk.unfit.append(self._walk.wrong("a timestamp", "a number that is out of its range"))

    def _sized(self, kind: str, node: Json, read: Json | None, shape: Json | None) -> bytes:
        if kind == "fixed":
            found = self._take(node["size"], kind)
        else:
            size = self._number(kind, 10)
            if read is not None and size < 0:
                raise self._walk.wrong(article(kind), "a length that is negative")
            if read is not None and size > STRING_LIMIT:
                raise self._walk.wrong(
                    f"{article(kind)} of at most {STRING_LIMIT:,} bytes", "a greater length"
                )
            found = self._take(max(size, 0), kind)
        if isinstance(read, dict) and read.get("logicalType") == "decimal":
            self._decimal(found, read["precision"], read.get("scale", 0))
        if (
            isinstance(shape, dict)
            and "moment" in shape
            and not is_database_moment(found.decode(errors="replace"))
        ):
            self._walk.unfit.append(self._walk.wrong("a text of date, time and offset", "another text"))
        return found

    def _decimal(self, found: bytes, precision: int, scale: int) -> None:
        digits = found[-8:] if precision <= SHORT_DIGITS else found
        if not found or abs(int.from_bytes(digits, "big", signed=True)) >= 10**precision:
            what = "more digits" if found else "no digits"
            self._walk.unfit.append(self._walk.wrong(f"a decimal({precision}, {scale})", what))

    def _number(self, kind: str, most: int) -> int:
        number = 0
        for place in range(most):
            byte = self._take(1, kind)[0]
            number |= (byte & 0x7F) << 7 * place
            if byte < 0x80:
                number &= 2**32 - 1 if most == 5 else 2**64 - 1
                return (number >> 1) ^ -(number & 1)
        raise self._walk.wrong(_named(kind), f"a number of more than {most} bytes")

    def _take(self, size: int, kind: str) -> bytes:
        if size > len(self._data) - self.at:
            what = END if self.at >= len(self._data) or size < 16 else "a length beyond the end of the value"
            raise self._walk.wrong(_named(kind), what)
        self.at += size
        return self._data[self.at - size : self.at]


def _named(kind: str) -> str:
    return kind if kind.startswith("the ") else article(kind)
