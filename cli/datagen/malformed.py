"""One record of every malformed kind, made out of a well-formed one."""

from __future__ import annotations

from dataclasses import dataclass

from cli.datagen.plan import Kind
from cli.datagen.records import FRAME_BYTES

UNKNOWN_ID = 2_000_000_000
"""A schema id that no registry reaches: ids are given in turn from 1."""

ABSURD_LENGTH = b"\x80\xcc\xfd\x93\x0e"
"""Avro's length of a string of 1,900,000,000 bytes, of which none follow."""


@dataclass(frozen=True, slots=True)
class Breaker:
    """Breaks values of one topic. `before_string` is what stands before the schema's first string field."""

    frame: bytes
    before_string: bytes
    other: bytes

    def broken(self, kind: Kind, value: bytes) -> bytes | None:
        """`value` broken in the given way; None is a record without a value."""
        match kind:
            case "null_value" | "tombstone":
                return None
            case "bad_magic":
                return b"\x7b" + value[1:]
            case "truncated":
                return value[: FRAME_BYTES - 2]
            case "truncated_payload":
                return value[:-1]
            case "trailing_bytes":
                return value + b"left over"
            case "unknown_schema_id":
                return b"\x00" + UNKNOWN_ID.to_bytes(4, "big") + value[FRAME_BYTES:]
            case "absurd_length":
                return self.frame + self.before_string + ABSURD_LENGTH
            case "incompatible_schema":
                return self.other
        raise ValueError(kind)
