"""Avro values as Avro's Java reads them, which is stricter than other readers in some ways, and more lenient in others."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any

from calve.spark_conf import ITEMS_LIMIT, STRING_LIMIT

LEAST = -(2**63)


class Bytes:
    """A value that is read from a place on. What it lacks raises IndexError or ValueError.

    Numbers have at most 5 or 10 bytes; bits beyond 32 or 64 are dropped.
    """

    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at, self.items = data, at, 0

    def number(self, bits: int = 64) -> int:
        if (byte := self.data[self.at]) < 0x80:
            self.at += 1
            return (byte >> 1) ^ -(byte & 1)
        number = shift = 0
        while shift < bits:
            byte = self.data[self.at]
            self.at += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                number &= (1 << bits) - 1
                return (number >> 1) ^ -(number & 1)
            shift += 7
        raise ValueError

    def of(self, items: list[Any]) -> Any:
        """The item whose place is a number."""
        return items[_not_negative(self.number(32))]

    def sized(self) -> bytes:
        """As many bytes as a number says."""
        size = _not_negative(self.number())
        if size > STRING_LIMIT:
            raise ValueError
        return self.taken(size)

    def taken(self, size: int) -> bytes:
        self.at += size
        if self.at > len(self.data):
            raise ValueError
        return self.data[self.at - size : self.at]

    def blocks(self) -> Iterator[None]:
        """Once for each item of a list or map."""
        count = self._block()
        self.items = max(count, 0)
        while count > 0:
            if self.items > ITEMS_LIMIT:
                raise ValueError
            for _ in range(count):
                yield
            count = _not_negative(self._block())
            self.items += count

    def _block(self) -> int:
        count = self.number()
        if count < 0:
            self.number()  # how many bytes it has
        return -count if LEAST < count < 0 else count


Read = Callable[[Bytes], Any]
PLAIN: dict[str, Read] = {
    "null": lambda _: None,
    "boolean": lambda found: found.taken(1) == b"\x01",
    "int": lambda found: found.number(32),
    "long": lambda found: found.number(),
    "float": lambda found: struct.unpack("<f", found.taken(4))[0],
    "double": lambda found: struct.unpack("<d", found.taken(8))[0],
    "bytes": lambda found: found.sized(),
    "string": lambda found: found.sized().decode(errors="replace"),
}


def reader(node: Any) -> Read:
    """What reads values of a resolved schema: without regard to logical types, and a union of several types as its place and the
    value.
    """
    if isinstance(node, list):
        return _union(
            [reader(each) for each in node], several=sum(each["type"] != "null" for each in node) > 1
        )
    match node["type"]:
        case "record" | "error":
            fields = [(each["name"], reader(each["type"])) for each in node["fields"]]
            return lambda found: {name: read(found) for name, read in fields}
        case "enum":
            return lambda found: found.of(node["symbols"])
        case "fixed":
            return lambda found: found.taken(node["size"])
        case "array":
            items = reader(node["items"])
            return lambda found: [items(found) for _ in found.blocks()]
        case "map":
            key, values = PLAIN["string"], reader(node["values"])
            return lambda found: {key(found): values(found) for _ in found.blocks()}
    return PLAIN[node["type"]]


def _union(types: list[Read], *, several: bool) -> Read:
    if not several:
        return lambda found: found.of(types)(found)
    places = list(range(len(types)))
    nulls = [each is PLAIN["null"] for each in types]

    def read(found: Bytes) -> Any:
        place = found.of(places)
        return None if nulls[place] else (place, types[place](found))

    return read


def _not_negative(number: int) -> int:
    if number < 0:
        raise ValueError
    return number
