"""Compressed payloads in Arrow batches."""

from __future__ import annotations

import zlib

import pyarrow as pa
import pytest

from glue_jobs.decode import decode

HEADER = b"\x03\x05" + bytes(16)


def run(*batches: list[bytes | None]) -> list[list[bytes | None]]:
    found = decode.inflated(pa.array(batch, pa.binary()) for batch in batches)
    return [each.to_pylist() for each in found]


def test_each_value_has_its_place_and_what_cannot_be_inflated_is_null() -> None:
    good = HEADER + zlib.compress(b"payload")
    plain = b"\x03\x00" + bytes(16) + b"payload"
    assert run([None, good, HEADER + b"garbage"], [], [good]) == [[None, plain, None], [plain]]


def test_what_comes_out_in_one_piece_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "CHUNK_BYTES", 1000)
    found = run([HEADER + zlib.compress(bytes(400))] * 10 + [None])
    assert [len(each) for each in found] == [3, 3, 3, 2]
