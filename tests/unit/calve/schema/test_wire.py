"""Headers: what a value begins with, and what a ledger calls its schema."""

from __future__ import annotations

import zlib
from uuid import UUID

import pytest

from calve.schema.wire import CONFLUENT, GLUE, inflate

VERSION = UUID("b7b4a7f0-9c96-4e4a-a687-fb5de9ef0c63")


@pytest.mark.parametrize(
    ("wire", "schema_id", "frames", "name"),
    [
        (CONFLUENT, 7, [b"\x00\x00\x00\x00\x07"], "7"),
        (CONFLUENT, 2**32 - 1, [b"\x00\xff\xff\xff\xff"], "-1"),
        (GLUE, VERSION.int, [b"\x03\x00" + VERSION.bytes, b"\x03\x05" + VERSION.bytes], str(VERSION)),
    ],
)
def test_a_schemas_id_has_its_headers_and_its_name(
    wire: object, schema_id: int, frames: list[bytes], name: str
) -> None:
    assert wire in (CONFLUENT, GLUE)
    found = CONFLUENT if wire is CONFLUENT else GLUE
    assert list(found.frames(schema_id)) == frames
    assert found.frame(schema_id) == frames[0]
    assert [found.schema_id(each + b"payload") for each in frames] == [schema_id] * len(frames)
    assert (found.name(schema_id), found.named(name)) == (name, schema_id)


def test_a_compressed_value_becomes_what_it_would_be_without_compression() -> None:
    plain, deflated = GLUE.frames(VERSION.int)
    assert GLUE.plain(deflated + zlib.compress(b"payload")) == plain + b"payload"


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"no zlib stream",
        zlib.compress(b"payload")[:-1],
        zlib.compress(b"payload") + b"x",
        zlib.compress(b"payload" * 1000)[:40],
    ],
    ids=["empty", "garbage", "cut short", "more after it", "cut in the middle"],
)
def test_what_is_no_single_stream_is_refused(payload: bytes) -> None:
    assert inflate(payload) is None


def test_a_payload_that_grows_beyond_the_limit_is_refused() -> None:
    assert inflate(zlib.compress(b"\0" * 1000), limit=1000) == b"\0" * 1000
    assert inflate(zlib.compress(b"\0" * 1001), limit=1000) is None
