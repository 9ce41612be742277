"""Avro values as Avro's Java reads them: by fastavro's reader over a decoder that is as strict, and as lenient, as Java's."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from fastavro._read_py import read_data
from fastavro.io.binary_decoder import BinaryDecoder

from calve.spark_conf import ITEMS_LIMIT, STRING_LIMIT

OPTIONS = {
    "return_record_name": True,
    "return_record_name_override": True,
    "handle_unicode_errors": "replace",
}
LEAST = -(2**63)


def read(value: bytes, at: int, schema: Any, names: dict[str, Any]) -> tuple[Any, int]:
    """The value that begins at a place, and the place after it. `names`: the named types of the schema.

    Raises:
        Exception: whatever fastavro says; the bytes are no value of the schema.
    """
    decoder = _Decoder(value, at)
    found = read_data(  # type: ignore[no-untyped-call]
        decoder, schema, {"writer": names, "reader": {}}, None, OPTIONS
    )
    return found, decoder.at


class _Decoder(BinaryDecoder):
    """Numbers have at most 5 or 10 bytes, of which bits beyond 32 or 64 are lost; a place is never negative."""

    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at = data, at
        self.items = 0

    def read_long(self, bits: int = 64) -> int:
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

    def read_int(self) -> int:
        return self.read_long(32)

    def read_enum(self) -> int:
        return _place(self.read_long(32))

    read_index = read_enum

    def read_boolean(self) -> bool:
        return self.read_fixed(1) == b"\x01"

    def read_float(self) -> float:
        return float(struct.unpack("<f", self.read_fixed(4))[0])

    def read_double(self) -> float:
        return float(struct.unpack("<d", self.read_fixed(8))[0])

    def read_fixed(self, size: int) -> bytes:
        self.at += size
        if self.at > len(self.data):
            raise EOFError
        return self.data[self.at - size : self.at]

    def read_bytes(self) -> bytes:
        size = _place(self.read_long())
        if size > STRING_LIMIT:
            raise ValueError
        return self.read_fixed(size)

    def read_array_start(self) -> None:
        """An array begins with its first block."""

    read_map_start = read_array_start

    def iter_array(self) -> Iterator[None]:
        count = self._block()
        self.items = max(count, 0)
        while count > 0:
            if self.items > ITEMS_LIMIT:
                raise ValueError
            for _ in range(count):
                yield
            count = _place(self._block())
            self.items += count

    iter_map = iter_array

    def _block(self) -> int:
        """The number of items in a block, without that of its bytes."""
        count = self.read_long()
        if count < 0:
            self.read_long()
        return -count if LEAST < count < 0 else count


def _place(number: int) -> int:
    if number < 0:
        raise ValueError
    return number
