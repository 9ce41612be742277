"""Where a value names its schema, read by its own rules: Confluent's header, and that of the AWS Glue Schema Registry."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from uuid import UUID

from cli.verify.formats.fields import Unreadable

LONGEST_PAYLOAD = 67_108_864


@dataclass(frozen=True, slots=True)
class Framing:
    """`starts` are the bytes that a header may begin with; the second are those of a compressed payload."""

    starts: tuple[bytes, ...]
    size: int

    def frame(self, value: bytes) -> bytes:
        """The header, as it is without compression.

        Raises:
            Unreadable: there is none.
        """
        if len(value) < self.size:
            raise Unreadable("truncated")
        if not value.startswith(self.starts):
            raise Unreadable("bad_magic")
        return self.plain_frame(value)

    def plain_frame(self, value: bytes) -> bytes:
        """The first bytes of a value, as they are without compression."""
        if len(self.starts) > 1 and value.startswith(self.starts[1]):
            return self.starts[0] + value[len(self.starts[0]) : self.size]
        return value[: self.size]

    def plain(self, value: bytes) -> bytes:
        """The value as it is without compression.

        Raises:
            Unreadable: its payload is no zlib stream, or too long.
        """
        if len(self.starts) == 1 or not value.startswith(self.starts[1]):
            return value
        stream = zlib.decompressobj()
        try:
            payload = stream.decompress(value[self.size :], LONGEST_PAYLOAD)
        except zlib.error:
            raise Unreadable("malformed") from None
        if not stream.eof or stream.unused_data or stream.unconsumed_tail:
            raise Unreadable("malformed")
        return self.plain_frame(value) + payload

    def number(self, frame: bytes) -> int:
        return int.from_bytes(frame[len(self.starts[0]) :], "big")

    def name(self, frame: bytes) -> str:
        """The schema's id as ledgers write it."""
        number = frame[len(self.starts[0]) :]
        if len(number) == 16:
            return str(UUID(bytes=number))
        return str(int.from_bytes(number, "big", signed=True))

    def named(self, name: str) -> bytes:
        """The header of a schema that a ledger names."""
        start = self.starts[0]
        if self.size - len(start) == 16:
            return start + UUID(name).bytes
        return start + int(name).to_bytes(4, "big", signed=int(name) < 0)


CONFLUENT = Framing((b"\x00",), 5)
GLUE = Framing((b"\x03\x00", b"\x03\x05"), 18)
