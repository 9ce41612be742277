"""Record batches as producers and brokers write them, by kafka-python's writer."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import cramjam
import google_crc32c
from kafka.record.default_records import DefaultRecordBatchBuilder

from glue_jobs.kafka.records import Records

Codec = Literal["none", "gzip", "snappy", "xerial", "lz4", "zstd"]
CODECS: dict[Codec, int] = {"none": 0, "gzip": 1, "snappy": 2, "xerial": 2, "lz4": 3, "zstd": 4}
HEADER = 61


@dataclass(frozen=True)
class Record:
    offset: int
    value: bytes | None = b""
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: int = 1_763_877_600_000


def written(
    records: Sequence[Record],
    *,
    codec: Codec = "none",
    base: int | None = None,
    last: int | None = None,
    producer: int = -1,
    transactional: bool = False,
    append_time: int | None = None,
) -> bytes:
    """One batch; compaction keeps the first and the last offset (`base`, `last`) of one from which it has taken records."""
    base = records[0].offset if base is None else base
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=transactional,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=0,
        batch_size=1 << 30,
    )
    for each in records:
        builder.append(each.offset - base, each.timestamp, each.key, each.value, list(each.headers))
    raw = bytearray(builder.build())
    packed = compressed(bytes(raw[HEADER:]), codec)
    raw[HEADER:] = packed
    struct.pack_into(">qi", raw, 0, base, len(raw) - 12)
    (attributes,) = struct.unpack_from(">h", raw, 21)
    attributes |= CODECS[codec] | (8 if append_time is not None else 0)
    struct.pack_into(">h", raw, 21, attributes)
    if append_time is not None:
        struct.pack_into(">q", raw, 35, append_time)
    if last is not None:
        struct.pack_into(">i", raw, 23, last - base)
    return sealed(raw)


def marker(offset: int, producer: int, *, commit: bool) -> bytes:
    """The control batch that ends a transaction."""
    raw = bytearray(
        written(
            [Record(offset, struct.pack(">hi", 0, 0), struct.pack(">hh", 0, commit))],
            producer=producer,
            transactional=True,
        )
    )
    struct.pack_into(">h", raw, 21, 16 | 32)
    return sealed(raw)


def sealed(raw: bytearray) -> bytes:
    """With the checksum of what it now holds."""
    struct.pack_into(">I", raw, 17, google_crc32c.value(bytes(raw[21:])))
    return bytes(raw)


def compressed(data: bytes, codec: Codec) -> bytes:
    match codec:
        case "none":
            return data
        case "snappy":
            return bytes(cramjam.snappy.compress_raw(data))
        case "xerial":
            size = max(100, len(data) // 1_000)
            blocks = [data[at : at + size] for at in range(0, len(data), size)]
            packed = [bytes(cramjam.snappy.compress_raw(each)) for each in blocks]
            header = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
            return header + b"".join(struct.pack(">i", len(each)) + each for each in packed)
    return bytes(getattr(cramjam, codec).compress(data))


def enveloped(packed: bytes, count: int, codec: Codec = "zstd", first_time: int = 0) -> bytes:
    """A batch of so many records, compressed already. kafka-python's writer takes a second for a megabyte."""
    raw = bytearray(written([Record(0, b"")]))[:HEADER] + packed
    struct.pack_into(">qi", raw, 0, 0, len(raw) - 12)
    struct.pack_into(">h", raw, 21, CODECS[codec])
    struct.pack_into(">i", raw, 23, count - 1)
    struct.pack_into(">q", raw, 27, first_time)
    struct.pack_into(">i", raw, 57, count)
    return sealed(raw)


def large(records: list[Record], codec: Codec) -> bytes:
    return enveloped(compressed(b"".join(map(encoded, records)), codec), len(records), codec, 5)


def encoded(record: Record) -> bytes:
    """As it lies in a batch, its time that of the batch."""
    headers = b"".join(sized(name.encode()) + sized(value) for name, value in record.headers)
    body = b"\0\0" + varint(record.offset) + sized(record.key) + sized(record.value)
    body += varint(len(record.headers)) + headers
    return varint(len(body)) + body


def sized(content: bytes | None) -> bytes:
    return b"\x01" if content is None else varint(len(content)) + content


def varint(number: int) -> bytes:
    number, found = number << 1, bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def zeros(sizes: list[int]) -> bytes:
    """Records with values of so many zeros, which take next to no room."""
    packer = cramjam.zstd.Compressor()
    for number, size in enumerate(sizes):
        body = b"\0\0" + varint(number) + b"\x01" + varint(size)
        packer.compress(varint(len(body) + size + 1) + body)
        for _ in range(size >> 20):
            packer.compress(bytes(1 << 20))
        packer.compress(bytes(size & 0xFFFFF) + b"\0")
    return enveloped(bytes(packer.finish()), len(sizes))


def told(records: Records) -> list[Record]:
    """What places say, one record at a time."""
    data = records.buffer.tobytes()

    def part(at: int, size: int) -> bytes | None:
        return data[at : at + size] if size >= 0 else None

    return [
        Record(
            int(records.offset[n]),
            part(records.value_at[n], records.value_size[n]),
            part(records.key_at[n], records.key_size[n]),
            _headers(data, int(records.headers_at[n]), int(records.headers_count[n])),
            int(records.timestamp[n]),
        )
        for n in range(len(records))
    ]


def _headers(data: bytes, at: int, count: int) -> tuple[tuple[str, bytes | None], ...]:
    found: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        size, at = _varint(data, at)
        name, at = data[at : at + size].decode(errors="replace"), at + size
        size, at = _varint(data, at)
        found.append((name, data[at : at + size] if size >= 0 else None))
        at += max(size, 0)
    return tuple(found)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value, shift, at = value | (byte & 0x7F) << shift, shift + 7, at + 1
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
