"""What a batch may hold without more memory than a chunk and a record: bombs, records that are too large, wild timestamps."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator

import pytest

from calve.schema.columns import KEPT_OF_LARGE, LARGEST_RECORD, MOST_MILLIS, UNDELIVERED
from glue_jobs.kafka import inflating
from glue_jobs.kafka.batches import SPARE, Batches, Span
from glue_jobs.kafka.records import Records
from tests.record_batches import CODECS, HEADER, Codec, Record, large, sealed, told, written, zeros

CHUNK = 4_000_000
PACKED: list[Codec] = ["gzip", "xerial", "snappy", "lz4", "zstd"]
Fate = tuple[Record, str | None]


def chunks(data: bytes, start: int = 0, to: int = 1 << 40) -> Iterator[Records]:
    return Batches.of(Span("trades", 0, start, to), data, ()).records(CHUNK)


def fates(data: bytes, start: int = 0, to: int = 1 << 40) -> list[Fate]:
    whys = (None, *UNDELIVERED)
    return [
        (record, whys[why])
        for chunk in chunks(data, start, to)
        for record, why in zip(told(chunk), chunk.refused, strict=True)
    ]


def test_many_small_records_are_inflated_in_slices():
    data = zeros([1_000] * 100_000)
    assert len(data) < 2_000_000
    seen = 0
    for chunk in chunks(data):
        assert len(chunk.buffer) <= CHUNK
        assert (chunk.offset[0], chunk.offset[-1]) == (seen, seen + len(chunk) - 1)
        assert set(chunk.value_size.tolist()) == {1_000}
        assert not chunk.refused.any()
        seen += len(chunk)
    assert seen == 100_000
    assert [each.offset for each, _ in fates(data, 65_534, 65_537)] == [65_534, 65_535, 65_536]


def test_a_value_of_a_gigabyte_is_passed_over():
    data = zeros([10, 1_200_000_000, 20])
    assert len(data) < 200_000
    sizes = [len(chunk.buffer) for chunk in chunks(data)]
    assert max(sizes) < 100
    found = fates(data)
    assert [(each.offset, each.value and len(each.value), why) for each, why in found] == [
        (0, 10, None),
        (1, None, "record_too_large"),
        (2, 20, None),
    ]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("over", [0, 1, 40 << 20])
def test_a_record_has_a_limit(codec: Codec, over: int):
    """Key, value and headers together; the two bytes are sizes in the header."""
    key, headers = b"key", (("name", b"header"),)
    value = bytes(LARGEST_RECORD + over - len(key) - len("name") - len("header") - 2)
    first, sent, small = (
        Record(0, b"first", timestamp=5),
        Record(1, value, key, headers, 5),
        Record(2, b"", timestamp=5),
    )
    cut = (Record(1, None, key, headers, timestamp=5), "record_too_large")
    found = fates(large([first, sent, small], codec))
    assert found == [(first, None), cut if over > 0 else (sent, None), (small, None)]


@pytest.mark.parametrize("size", [LARGEST_RECORD, 40 << 20])
def test_of_a_large_record_only_small_parts_are_kept(size: int):
    fits, headers = bytes(KEPT_OF_LARGE), (("a", bytes(KEPT_OF_LARGE - 5)),)
    too_many = (("a", bytes(KEPT_OF_LARGE - 4)),)
    records = [
        Record(0, b"v", bytes(size)),
        Record(1, bytes(size), fits, headers),
        Record(2, bytes(size), fits + b"x", too_many),
        Record(3, None, b"k", (("a", bytes(size)),)),
        Record(4, b"good"),
    ]
    found = fates(large(records, "zstd"))
    assert [(each.offset, each.value, each.key, each.headers, why) for each, why in found] == [
        (0, None, None, (), "record_too_large"),
        (1, None, fits, headers, "record_too_large"),
        (2, None, None, (), "record_too_large"),
        (3, None, b"k", (), "record_too_large"),
        (4, b"good", None, (), None),
    ]


@pytest.mark.parametrize("codec", PACKED)
def test_a_batch_has_a_limit(codec: Codec, monkeypatch: pytest.MonkeyPatch):
    """The records before it are read; of the others each offset is there."""
    monkeypatch.setattr(inflating, "LARGEST_BATCH", 8 << 20)
    monkeypatch.setattr(inflating, "LARGEST_BLOCK", 8 << 20)
    records = [Record(n, bytes(1 << 20), timestamp=5) for n in range(20)]
    found = fates(large(records, codec))
    read = 0 if codec == "snappy" else len([why for _, why in found if why is None])
    assert codec == "snappy" or 3 < read < 8
    lost = (Record(n, None, timestamp=-(2**63)) for n in range(read, 20))
    assert found == [
        *((each, None) for each in records[:read]),
        *((each, "batch_too_large") for each in lost),
    ]
    assert [each.offset for each, _ in fates(large(records, codec), 15, 17)] == [15, 16]


@pytest.mark.parametrize("codec", PACKED)
def test_a_batch_that_ends_early_is_read_up_to_there(codec: Codec):
    """It has more than a chunk: its first records are handed out before its end is seen."""
    records = [Record(n, random.Random(n).randbytes(100_000), timestamp=5) for n in range(100)]
    raw = bytearray(large(records, codec))
    del raw[len(raw) * 3 // 4 :]
    struct.pack_into(">i", raw, 8, len(raw) - 12)
    found = fates(sealed(raw))
    read = len([why for _, why in found if why is None])
    assert (read == 0) if codec == "snappy" else (60 < read < 80)
    assert [each for each, why in found if why is None] == records[:read]
    assert [(each.offset, why) for each, why in found[read:]] == [
        (n, "corrupt_batch") for n in range(read, 100)
    ]


def test_snappy_that_says_to_be_larger_than_it_can_be_takes_no_memory():
    raw = bytearray(written([Record(0, b"x")]))[:HEADER] + b"\xff\xff\xff\xff\x0f" + b"\0" * 50
    struct.pack_into(">i", raw, 8, len(raw) - 12)
    struct.pack_into(">h", raw, 21, 2)
    assert [why for _, why in fates(sealed(raw))] == ["corrupt_batch"]


@pytest.mark.parametrize(
    ("timestamp", "why"),
    [
        (MOST_MILLIS, None),
        (MOST_MILLIS + 1, "bad_timestamp"),
        (-MOST_MILLIS, None),
        (-MOST_MILLIS - 1, "bad_timestamp"),
        (2**63 - 1, "bad_timestamp"),
        (-(2**63), "bad_timestamp"),
        (-1, None),
    ],
)
def test_a_timestamp_that_no_column_holds_is_refused(timestamp: int, why: str | None):
    record = Record(3, b"value", b"key", (("a", b"b"),), timestamp=timestamp)
    assert fates(written([record])) == [(record, why)]
    by_broker = written([Record(3, b"value")], append_time=timestamp)
    assert [each for _, each in fates(by_broker)] == [why]


def test_a_chunk_may_be_completed_by_a_batch_that_fits_no_chunk():
    small, sent = Record(0, b"first"), Record(1, bytes(CHUNK + SPARE))
    assert fates(written([small]) + written([sent])) == [(small, None), (sent, None)]
