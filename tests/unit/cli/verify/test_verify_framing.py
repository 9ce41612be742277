"""Headers as `calve verify` reads them, by its own rules."""

from __future__ import annotations

import zlib
from uuid import UUID

import pytest

from calve.schema.wire import INFLATED_LIMIT
from cli.verify.formats.fields import CONFLUENT, GLUE, Framing, Unreadable

VERSION = UUID("b7b4a7f0-9c96-4e4a-a687-fb5de9ef0c63")
PLAIN, COMPRESSED = (start + VERSION.bytes for start in GLUE.magics)


def test_a_compressed_value_has_the_frame_of_a_plain_one() -> None:
    assert GLUE.header(COMPRESSED + zlib.compress(b"x")) == GLUE.header(PLAIN + b"x") == PLAIN
    assert GLUE.inflated(COMPRESSED + zlib.compress(b"x")) == GLUE.inflated(PLAIN + b"x") == PLAIN + b"x"
    assert CONFLUENT.inflated(b"\x00\x00\x00\x00\x07x") == b"\x00\x00\x00\x00\x07x"


@pytest.mark.parametrize(
    ("framing", "name", "frame"),
    [
        (CONFLUENT, "7", b"\x00\x00\x00\x00\x07"),
        (CONFLUENT, "-1", b"\x00\xff\xff\xff\xff"),
        (GLUE, str(VERSION), PLAIN),
    ],
)
def test_a_schema_has_the_name_that_ledgers_give_it(framing: Framing, name: str, frame: bytes) -> None:
    assert framing.name(framing.schema_id(frame)) == name
    assert framing.frame(framing.named(name)) == frame


@pytest.mark.parametrize(
    ("framing", "value", "reason"),
    [
        (CONFLUENT, b"\x00\x00\x00\x00", "truncated"),
        (CONFLUENT, b"\x01\x00\x00\x00\x07", "bad_magic"),
        (GLUE, PLAIN[:-1], "truncated"),
        (GLUE, b"\x03\x01" + VERSION.bytes, "bad_magic"),
        (GLUE, b"\x00\x00" + VERSION.bytes, "bad_magic"),
    ],
)
def test_what_has_no_header_says_why(framing: Framing, value: bytes, reason: str) -> None:
    with pytest.raises(Unreadable) as caught:
        framing.header(value)
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"garbage",
        zlib.compress(b"payload")[:-1],
        zlib.compress(b"payload") + b"x",
        zlib.compress(b"\0" * (INFLATED_LIMIT + 1)),
    ],
    ids=["empty", "garbage", "cut short", "more after it", "too long"],
)
def test_a_payload_that_is_no_single_stream_is_malformed(payload: bytes) -> None:
    with pytest.raises(Unreadable) as caught:
        GLUE.inflated(COMPRESSED + payload)
    assert caught.value.reason == "malformed"


def test_the_longest_payload_is_read() -> None:
    assert len(GLUE.inflated(COMPRESSED + zlib.compress(b"\0" * INFLATED_LIMIT))) == 18 + INFLATED_LIMIT
