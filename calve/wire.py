"""Wire formats: how a value says which schema wrote it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Wire:
    """What stands before a payload: `magic`, then the schema's id, big-endian; `size` bytes in all, none where it is 0."""

    magic: bytes
    size: int

    def frame(self, schema_id: int) -> bytes:
        return self.magic + schema_id.to_bytes(self.size - len(self.magic), "big") if self.size else b""

    def schema_id(self, frame: bytes) -> int:
        return int.from_bytes(frame[len(self.magic) : self.size], "big")


CONFLUENT = Wire(b"\x00", 5)
"""https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html#wire-format"""
BARE = Wire(b"", 0)
"""No header: all values were written with one schema."""
