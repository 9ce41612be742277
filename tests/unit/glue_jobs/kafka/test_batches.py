"""Record batches, as kafka-python writes them, are read record for record; what no broker would send is refused."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.legacy_records import LegacyRecordBatchBuilder

from calve.errors import CalveError, Retryable, Suspended
from calve.schema.columns import UNDELIVERED
from glue_jobs.kafka import batches
from glue_jobs.kafka.batches import Batches, Span
from glue_jobs.kafka.records import CORRUPT_BATCH
from tests.record_batches import CODECS, HEADER, Record, marker, sealed, told, written

END = 1 << 40
BYTES = st.none() | st.binary(max_size=200)
HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3).map(tuple)
BODY = st.tuples(BYTES, BYTES, HEADERS, st.integers(0, 2**45))


def read(
    data: bytes,
    start: int = 0,
    to: int = END,
    aborted: Sequence[tuple[int, int]] = (),
    chunk_bytes: int = 1 << 20,
) -> list[Record]:
    found = Batches.of(Span("trades", 0, start, to), data, aborted)
    return [record for chunk in found.records(chunk_bytes) for record in told(chunk)]


def fates(
    data: bytes, start: int = 0, to: int = END, chunk_bytes: int = 1 << 20
) -> list[tuple[int, str | None]]:
    """Each offset, and why it is refused."""
    chunks = Batches.of(Span("trades", 0, start, to), data, ()).records(chunk_bytes)
    whys = (None, *UNDELIVERED)
    return [(n, whys[why]) for one in chunks for n, why in zip(one.offset.tolist(), one.refused, strict=True)]


def numbered(first: int, count: int, size: int = 20) -> list[Record]:
    return [Record(n, n.to_bytes(4, "big") * (size // 4)) for n in range(first, first + count)]


@st.composite
def logs(draw: Any) -> tuple[bytes, list[Record]]:
    """Batches with gaps between them and within them, and their records."""
    at, data, records = draw(st.integers(0, 2**40)), b"", []
    for _ in range(draw(st.integers(1, 4))):
        held = []
        for value, key, headers, timestamp in draw(st.lists(BODY, min_size=1, max_size=20)):
            held.append(Record(at, value, key, headers, timestamp))
            at += draw(st.integers(1, 300))
        data += written(held, codec=draw(st.sampled_from(sorted(CODECS))), last=at)
        records += held
        at += draw(st.integers(1, 300))
    return data, records


@given(logs(), st.integers(5, 500))
def test_any_records_are_read_as_they_were_written(log, chunk_bytes):
    data, records = log
    assert read(data, to=1 << 50, chunk_bytes=chunk_bytes) == records


@given(logs(), st.integers(5, 500), st.data())
def test_a_batch_may_be_read_slice_by_slice(log, chunk_bytes, draw):
    """As all batches are here that have more bytes than a chunk."""
    data, records = log
    places = st.integers(records[0].offset - 2, records[-1].offset + 2)
    start, to = sorted((draw.draw(places), draw.draw(places)))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(batches, "SPARE", 0)
        assert read(data, to=1 << 50, chunk_bytes=chunk_bytes) == records
        within = [each for each in records if start <= each.offset < to]
        assert read(data, start, to, chunk_bytes=chunk_bytes) == within


@given(logs(), st.data())
def test_a_range_may_begin_and_end_anywhere(log, draw):
    data, records = log
    places = st.integers(records[0].offset - 2, records[-1].offset + 2)
    start, to = sorted((draw.draw(places), draw.draw(places)))
    assert read(data, start, to) == [each for each in records if start <= each.offset < to]


@pytest.mark.parametrize("codec", CODECS)
def test_chunks_hold_about_as_many_bytes_as_they_should(codec):
    data = b"".join(written(numbered(n, 50, 200), codec=codec) for n in range(0, 2000, 50))
    chunks = list(Batches.of(Span("trades", 0, 0, END), data, ()).records(50_000))
    assert [each.offset for chunk in chunks for each in told(chunk)] == list(range(2000))
    sizes = [int(chunk.value_size.sum()) for chunk in chunks]
    assert all(45_000 < size < 65_000 for size in sizes[:-1])
    assert not any(chunk.buffer.flags.writeable for chunk in chunks)


def test_a_chunk_holds_no_more_records_than_it_should(monkeypatch):
    monkeypatch.setattr(batches, "MOST_RECORDS", 100)
    for codec in ("none", "zstd"):
        data = b"".join(written(numbered(n, 30), codec=codec) for n in range(0, 300, 30))
        chunks = list(Batches.of(Span("trades", 0, 0, END), data, ()).records(1 << 20))
        assert sum(map(len, chunks)) == 300
        assert max(map(len, chunks)) <= 120


def test_the_time_is_the_broker_s_where_it_says_so():
    data = written(numbered(0, 3), append_time=77)
    (chunk,) = Batches.of(Span("trades", 0, 0, END), data, ()).records(100)
    assert chunk.timestamp.tolist() == [77, 77, 77]
    assert chunk.timestamp_type.tolist() == [1, 1, 1]


def test_a_response_that_ends_within_a_batch_is_read_up_to_it():
    whole, cut = written(numbered(0, 5)), written(numbered(5, 5))
    for size in (0, 1, 17, 60, 61, len(cut) - 1):
        found = Batches.of(Span("trades", 0, 0, END), whole + cut[:size], ())
        assert found.next_offset == 5
        assert [each.offset for chunk in found.records(100) for each in told(chunk)] == list(range(5))


def test_reading_goes_on_after_what_holds_nothing():
    """Compaction leaves batches without records, and transactions their markers."""
    raw = bytearray(written(numbered(4, 1), last=9))
    del raw[HEADER:]
    struct.pack_into(">i", raw, 8, len(raw) - 12)
    struct.pack_into(">i", raw, 57, 0)
    found = Batches.of(Span("trades", 0, 4, END), sealed(raw) + marker(10, 3, commit=True), ())
    assert (found.next_offset, list(found.records(100))) == (11, [])


def test_records_of_aborted_transactions_are_left_out():
    def of(producer: int, first: int) -> bytes:
        return written(numbered(first, 2), producer=producer, transactional=True)

    data = b"".join(
        (
            of(1, 0),  # aborted: it has begun before the response
            of(2, 2),
            marker(4, 1, commit=False),
            of(1, 5),  # the producer's next one holds
            marker(7, 1, commit=True),
            written(numbered(8, 2), producer=2),  # not in the transaction that is open
            marker(10, 2, commit=False),
            of(2, 11),
            marker(13, 2, commit=False),
        )
    )
    found = read(data, aborted=[(2, 11), (2, 2), (1, 0)])
    assert [each.offset for each in found] == [5, 6, 8, 9]
    assert [each.offset for each in read(data)] == [0, 1, 2, 3, 5, 6, 8, 9, 11, 12]
    assert [each.offset for each in read(data, 3, aborted=[(1, 0), (2, 2), (2, 11)])] == [5, 6, 8, 9]
    assert [each.offset for each in read(data, 6, 9, aborted=[(2, 2)])] == [
        6,
        8,
    ]  # what ends before is not said


def test_a_wrong_checksum_is_read_again():
    data = bytearray(written(numbered(0, 3)))
    data[-2] ^= 1
    with pytest.raises(Retryable, match=r"partition 0, offset 0: .* checksum"):
        read(bytes(data))


@pytest.mark.parametrize("magic", [0, 1])
def test_an_old_message_format_is_refused(magic):
    builder = LegacyRecordBatchBuilder(magic=magic, compression_type=0, batch_size=1000)
    builder.append(0, timestamp=1, key=None, value=b"old")
    old = struct.pack(">q", 3) + bytes(builder.build())[8:]
    with pytest.raises(Suspended, match=r"from offset 3 on: .* message format before 2") as refused:
        read(written(numbered(0, 3)) + old)
    assert refused.value.code == "message_format"
    assert "engine" not in str(refused.value.fix)
    assert len(read(written(numbered(0, 3)) + old, to=3)) == 3


def lying(change: Any) -> bytes:
    raw = bytearray(written(numbered(10, 3)))
    change(raw)
    return sealed(raw)


@pytest.mark.parametrize(
    "change",
    [
        lambda raw: struct.pack_into(">i", raw, 57, -1),  # so many records
        lambda raw: struct.pack_into(">i", raw, 23, -1),  # the last offset is before the first
        lambda raw: raw.__setitem__(16, 3),  # a message format to come
    ],
)
def test_a_header_that_names_no_offsets_is_refused(change):
    with pytest.raises(Suspended, match="topic trades, partition 0, from offset 1") as refused:
        read(lying(change), 10)
    assert refused.value.code == "corrupt_batch"


@pytest.mark.parametrize(
    ("change", "read_so_far"),
    [
        (lambda raw: struct.pack_into(">i", raw, 57, 2), 2),  # fewer records than there are
        (lambda raw: struct.pack_into(">i", raw, 57, 4), 3),
        (lambda raw: struct.pack_into(">i", raw, 57, 2**31 - 1), 3),
        (lambda raw: struct.pack_into(">i", raw, 23, 1), 2),  # a last offset below that of its records
        (lambda raw: struct.pack_into(">h", raw, 21, 5), 0),  # a codec that there is not
        (lambda raw: struct.pack_into(">h", raw, 21, 4), 0),  # no zstd
        (lambda raw: raw.__setitem__(HEADER + 27, 0x55), 1),  # a length within the second record
    ],
)
@pytest.mark.parametrize("alone", [True, False])
def test_a_batch_that_contradicts_itself_is_read_up_to_there(change, read_so_far, alone):
    """Each offset that its header names is there once, and the batches around it are as they were."""
    before, after = (b"", b"") if alone else (written(numbered(5, 5)), written(numbered(13, 2)))
    found = fates(before + lying(change) + after)
    (last,) = struct.unpack_from(">i", lying(change), 23)
    assert [(offset, why) for offset, why in found if 10 <= offset < 13] == [
        (10 + n, None if n < read_so_far else "corrupt_batch") for n in range(last + 1)
    ]
    assert [each for each in found if not 10 <= each[0] < 13] == [
        (n, None) for n in ([] if alone else [*range(5, 10), 13, 14])
    ]


def test_offsets_that_go_back_are_refused():
    with pytest.raises(Suspended, match="contradicts itself"):
        read(written(numbered(0, 5)) + written(numbered(4, 5)))


def test_changed_bytes_are_refused_or_lie_within_their_batch():
    """With NUMBA_BOUNDSCHECK=1 and a NUMBA_CACHE_DIR of its own it fails where a kernel reads outside."""
    chance = random.Random(10)
    records = [
        Record(n, b"value" * (n % 7), None if n % 3 else b"key", (("a", b"b"), ("c", None))[: n % 3])
        for n in range(40)
    ]
    whole = written(records[:20]) + marker(20, 3, commit=False) + written(records[21:], codec="zstd")
    refused = lost = 0
    for _ in range(3_000):
        data = bytearray(whole)
        for _ in range(chance.randint(1, 3)):
            data[chance.randrange(len(data))] = chance.choice((0, 1, 127, 128, 255, chance.randrange(256)))
        try:
            lost += read_within(resealed(data), chance.choice((1 << 20, 50)))
        except CalveError:
            refused += 1
    assert 100 < refused < 1_000
    assert 1_000 < lost < 100_000


def resealed(data: bytearray) -> bytes:
    """With the right checksum in each batch that there still is, so that the change is what is read."""
    at, out = 0, b""
    while at + HEADER <= len(data):
        (length,) = struct.unpack_from(">i", data, at + 8)
        if length < HEADER - 12 or at + 12 + length > len(data):
            break
        out += sealed(data[at : at + 12 + length])
        at += 12 + length
    return out + bytes(data[at:])


def read_within(data: bytes, chunk_bytes: int) -> int:
    """How many offsets have no record."""
    lost = 0
    for chunk in islice(Batches.of(Span("trades", 0, 0, END), data, [(3, 0)]).records(chunk_bytes), 100):
        size = len(chunk.buffer)
        for at, length in ((chunk.key_at, chunk.key_size), (chunk.value_at, chunk.value_size)):
            assert np.all((length >= -1) & (at >= 0) & (at + np.maximum(length, 0) <= size))
        assert np.all(np.diff(chunk.offset) > 0)
        told(chunk)
        lost += int((chunk.refused == CORRUPT_BATCH).sum() > 0)
    return lost
