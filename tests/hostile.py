"""Records that nobody means to send: values, headers, timestamps and whole batches, byte by byte."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any, Literal

import cramjam
from fastavro import parse_schema, schemaless_writer

from calve.config.job import Source
from tests.debezium import around, event, json_around
from tests.record_batches import CODECS, HEADER, Codec, Record, sealed, written

Format = Literal["avro", "json", "protobuf"]
Mode = Literal["append", "upsert", "deduplicate", "aggregate", "change_data"]
MARK = "@@MARK@@"
"""Stands in a good row where a case puts something else."""
FAR = 2**63 - 1
ZEROS = bytes(1 << 20)
BOMB_BYTES = 1_200 << 20
LZ4_FRAME = bytes.fromhex("04224d18604082")
"""Begins a frame of blocks of at most 64 KiB that stand alone."""


def varint(number: int) -> bytes:
    """As Protobuf writes it, of 64 bits."""
    number, out = number % 2**64, bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def zigzag(number: int) -> bytes:
    """As Avro and record batches write it."""
    return varint(number << 1 ^ number >> 63)


AVRO = {
    "type": "record",
    "name": "Value",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"], "default": None},
        {"name": "tags", "type": ["null", {"type": "array", "items": "string"}], "default": None},
        {"name": "props", "type": ["null", {"type": "map", "values": "string"}], "default": None},
        {
            "name": "at",
            "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}],
            "default": None,
        },
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}], "default": None},
    ],
}
JSON = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "name": {"type": ["string", "null"]},
        "tags": {"type": ["array", "null"], "items": {"type": "string"}},
        "props": {"type": ["object", "null"], "additionalProperties": {"type": "string"}},
        "at": {"type": ["string", "null"], "format": "date-time"},
        "day": {"type": ["string", "null"], "format": "date"},
    },
}
PROTOBUF = """
syntax = "proto3"; import "google/protobuf/timestamp.proto";
message Value {
  int64 id = 1; string name = 2; repeated string tags = 3; map<string, string> props = 4; google.protobuf.Timestamp at = 5;
}
"""


@dataclass(frozen=True)
class Shape:
    """How the good rows of a topic are written: plain, or as a database's changes."""

    format: Format
    changes: bool

    @property
    def schema(self) -> str:
        if self.format == "protobuf":
            return PROTOBUF
        plain, wrapped = (AVRO, around) if self.format == "avro" else (JSON, json_around)
        return json.dumps(wrapped(plain) if self.changes else plain)

    @property
    def source(self) -> Source:
        return Source(format=self.format, prefix="none", schema=self.schema)

    def row(self, number: int, **values: Any) -> bytes:
        """A value; `MARK` may stand in it."""
        row = {
            "id": number,
            "name": f"n{number}",
            "tags": None,
            "props": None,
            "at": None,
            "day": None,
        } | values
        if self.format == "protobuf":
            return _protobuf(row)
        made: Any = event("c", after=row) if self.changes else row
        if self.format == "json":
            return json.dumps(made).encode()
        out = BytesIO()
        plain = json.loads(self.schema.replace("logicalType", "was"))
        schemaless_writer(out, parse_schema(plain), made)
        return out.getvalue()


def _protobuf(row: dict[str, Any]) -> bytes:
    texts = [(2, row["name"]), *((3, each) for each in row["tags"] or ())]
    made = b"\x08" + varint(row["id"])
    return made + b"".join(varint(n << 3 | 2) + varint(len(t.encode())) + t.encode() for n, t in texts)


@dataclass(frozen=True)
class Case:
    """Records in one topic, between good ones.

    batches: what is sent, from the first number that no row has. letters: the reasons of those that are no rows, in order; the
    rest are rows. config: of the topic. short: in the short version, too.
    """

    name: str
    batches: Callable[[Shape, int], Iterator[bytes]]
    letters: Sequence[str] = ()
    format: Format = "avro"
    config: dict[str, str] = field(default_factory=dict)
    short: bool = False


def record(number: int, value: bytes | None, **facts: Any) -> Record:
    return Record(0, value, f"k{number}".encode(), **facts)


def good(shape: Shape, first: int, count: int) -> bytes:
    rows = [record(first + n, shape.row(first + n)) for n in range(count)]
    return batch(rows)


def batch(records: Sequence[Record], codec: Codec = "none") -> bytes:
    """One batch, its offsets from 0; the broker gives it its place."""
    numbered = [
        Record(n, each.value, each.key, each.headers, each.timestamp) for n, each in enumerate(records)
    ]
    return written(numbered, codec=codec)


def values(
    *made: Callable[[Shape, int], bytes | None], **facts: Any
) -> Callable[[Shape, int], Iterator[bytes]]:
    """A batch for each value."""

    def batches(shape: Shape, first: int) -> Iterator[bytes]:
        for n, value in enumerate(made):
            yield batch([record(first + n, value(shape, first + n), **facts)])

    return batches


def row(**columns: Any) -> Callable[[Shape, int], bytes]:
    """A good row with these values."""
    return lambda shape, number: shape.row(number, **columns)


def instead(bytes_: bytes, **columns: Any) -> Callable[[Shape, int], bytes]:
    """A row that has these bytes in the place of a text, and of its length where the format has lengths."""
    columns = columns or {"name": MARK}

    def made(shape: Shape, number: int) -> bytes:
        mark = MARK.encode()
        written_as = {
            "avro": zigzag(len(mark)) + mark,
            "json": json.dumps(MARK).encode(),
            "protobuf": varint(len(mark)) + mark,
        }[shape.format]
        value = shape.row(number, **columns)
        assert value.count(written_as) == 1
        return value.replace(written_as, bytes_)

    return made


def cut_list(count: int) -> Callable[[Shape, int], bytes]:
    """An Avro list that says it has so many items, and has one."""

    def made(shape: Shape, number: int) -> bytes:
        mark = zigzag(1) + zigzag(len(MARK)) + MARK.encode()
        value = shape.row(number, tags=[MARK])
        assert value.count(mark) == 1
        return value.replace(mark, zigzag(count) + mark[1:])

    return made


def stamped(*moments: int) -> Callable[[Shape, int], Iterator[bytes]]:
    """Good rows with these timestamps, each in a batch of its own: deltas have 64 bits."""

    def batches(shape: Shape, first: int) -> Iterator[bytes]:
        for n, moment in enumerate(moments):
            yield batch([record(first + n, shape.row(first + n), timestamp=moment)])

    return batches


def headed(*headers: tuple[bytes, bytes | None]) -> Callable[[Shape, int], Iterator[bytes]]:
    """A good row with these headers; names need be no text."""

    def batches(shape: Shape, first: int) -> Iterator[bytes]:
        key, value = f"k{first}".encode(), shape.row(first)
        body = b"\0" + zigzag(0) + zigzag(0) + zigzag(len(key)) + key + zigzag(len(value)) + value
        body += zigzag(len(headers))
        for name, held in headers:
            body += zigzag(len(name)) + name + (zigzag(-1) if held is None else zigzag(len(held)) + held)
        yield enveloped(zigzag(len(body)) + body, 1, "none")

    return batches


def bomb(codec: Codec) -> Callable[[Shape, int], Iterator[bytes]]:
    """A batch of one record, whose value is more than a gigabyte of zeros."""

    def batches(_: Shape, first: int) -> Iterator[bytes]:
        key = f"k{first}".encode()
        body = b"\0" + zigzag(0) + zigzag(0) + zigzag(len(key)) + key + zigzag(BOMB_BYTES)
        head = zigzag(len(body) + BOMB_BYTES + 1) + body
        yield enveloped(packed(head, BOMB_BYTES, b"\0", codec), 1, codec)

    return batches


def crowd(count: int) -> Callable[[Shape, int], Iterator[bytes]]:
    """One small batch of many good rows, which have much more room inflated."""

    def batches(shape: Shape, first: int) -> Iterator[bytes]:
        yield batch([record(first + n, shape.row(first + n, name="x" * 1_000)) for n in range(count)], "zstd")

    return batches


def packed(head: bytes, zeros: int, tail: bytes, codec: Codec) -> bytes:
    """Compressed piece by piece: it is never whole in memory."""
    if codec == "xerial":
        block = bytes(cramjam.snappy.compress_raw(bytes(1 << 15)))
        pieces = [bytes(cramjam.snappy.compress_raw(head)), *[block] * (zeros >> 15)]
        pieces.append(bytes(cramjam.snappy.compress_raw(tail)))
        framed = b"".join(struct.pack(">i", len(each)) + each for each in pieces)
        return b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + framed
    if codec == "lz4":  # Kafka takes only blocks that stand alone
        block = bytes(cramjam.lz4.compress_block(bytes(1 << 16), store_size=False))
        ends = [bytes(cramjam.lz4.compress_block(each, store_size=False)) for each in (head, tail)]
        pieces = [ends[0], *[block] * (zeros >> 16), ends[1]]
        blocks = b"".join(struct.pack("<i", len(each)) + each for each in pieces)
        return LZ4_FRAME + blocks + bytes(4)
    compressor = getattr(cramjam, codec).Compressor()
    compressor.compress(head)
    for _ in range(zeros >> 20):
        compressor.compress(ZEROS)
    compressor.compress(tail)
    return bytes(compressor.finish())


def enveloped(records: bytes, count: int, codec: Codec) -> bytes:
    """A batch around what is taken for its records."""
    raw = bytearray(written([Record(0, b"")]))[:HEADER] + records
    struct.pack_into(">qi", raw, 0, 0, len(raw) - 12)
    struct.pack_into(">h", raw, 21, CODECS[codec])
    struct.pack_into(">i", raw, 23, count - 1)
    struct.pack_into(">i", raw, 57, count)
    return sealed(raw)


ANY_TIME = {"message.timestamp.before.max.ms": str(FAR), "message.timestamp.after.max.ms": str(FAR)}
LARGE = {"max.message.bytes": str(100 << 20)}
MALFORMED = "malformed"
NEST = 100_000
EDGE = FAR // 1000
"""Milliseconds of the last moment that a column holds."""

CASES = (
    Case("bomb of zstd", bomb("zstd"), ["record_too_large"], config=LARGE, short=True),
    Case("bomb of gzip", bomb("gzip"), ["record_too_large"], config=LARGE),
    Case("bomb of lz4", bomb("lz4"), ["record_too_large"], config=LARGE),
    Case("bomb of snappy", bomb("xerial"), ["record_too_large"], config=LARGE),
    Case("crowd", crowd(200_000), config=LARGE),
    Case(
        "timestamps beyond a column",
        stamped(FAR, -FAR - 1, EDGE + 1, -EDGE - 1, -9_300_000_000_000_000),
        ["bad_timestamp"] * 5,
        config=ANY_TIME,
        short=True,
    ),
    Case(
        "timestamps of other ages",
        stamped(EDGE, -EDGE, -1, 0, -62_135_596_800_000, -12_300_000_000_000, 253_402_300_800_000),
        config=ANY_TIME,
        short=True,
    ),
    Case(
        "header names",
        headed(
            (b"\xff\xfe", b"1"),
            (b"", None),
            (b"a\nb\r\0c", b"\xff"),
            ("\u20ac".encode(), b""),
            (b"\xed\xa0\x80", b"2"),
        ),
        short=True,
    ),
    Case("a thousand headers", headed(*((b"h%d" % n, b"v" * n) for n in range(1_000)))),
    Case("no bytes", values(lambda _, __: b"", lambda _, __: b"\0"), [MALFORMED] * 2, short=True),
    Case("a megabyte", values(row(name="m" * 1_000_000)), config=LARGE),
    Case("ten megabytes", values(row(name="m" * 10_000_000)), config=LARGE),
    Case(
        "ten megabytes of nothing", values(lambda _, __: bytes(10_000_000)), ["trailing_bytes"], config=LARGE
    ),
    Case(
        "lengths of Avro",
        values(
            instead(zigzag(2 << 30)),
            instead(zigzag(FAR)),
            instead(zigzag(-5)),
            instead(zigzag(-FAR - 1)),
            cut_list(2 << 30),
            cut_list(FAR),
            cut_list(-2),
            cut_list(-FAR - 1),
        ),
        [MALFORMED] * 8,
        short=True,
    ),
    Case("names of Avro", values(row(props={"a\nb": "c\0\r", "": "", "\u2028": "x"}))),
    Case(
        "years of Avro",
        values(
            row(at=FAR),
            row(at=-FAR - 1),
            row(day=2**31 - 1),
            row(day=-(2**31)),
            row(at=-12_300_000_000_000_000),
        ),
    ),
    Case(
        "nesting of JSON",
        values(
            instead(b"[" * NEST),
            instead(b"[" * NEST + b"]" * NEST),
            instead(b'{"a":' * NEST + b"1" + b"}" * NEST),
            instead(b'null,"else":' + b"[" * NEST + b"]" * NEST),
        ),
        [MALFORMED] * 4,
        "json",
    ),
    Case(
        "numbers of JSON",
        values(
            lambda shape, _: shape.row(7).replace(b'"id": 7', b'"id": 1e999999999'),
            lambda shape, _: shape.row(7).replace(b'"id": 7', b'"id": ' + b"9" * 1_000_000),
            lambda shape, _: shape.row(7).replace(b'"id": 7', b'"id": -1E-999999999'),
        ),
        [MALFORMED] * 3,
        "json",
        LARGE,
    ),
    Case(
        "years of JSON",
        values(row(at="99999-01-01T00:00:00Z"), row(at="-0001-01-01T00:00:00Z"), row(day="12026-01-01")),
        [MALFORMED] * 3,
        "json",
    ),
    Case(
        "names of JSON",
        values(row(props={"a\nb": "c\0\r", "": "", "\u2028": "x"}), instead(b'"n", "a\\nb": {"\\u0000": 1}')),
        (),
        "json",
        short=True,
    ),
    Case(
        "lengths of Protobuf",
        values(
            instead(varint(2 << 30)),
            instead(varint(FAR)),
            instead(varint(-1)),
            instead(varint(2**31 - 1) + b"x"),
        ),
        [MALFORMED] * 4,
        "protobuf",
        short=True,
    ),
    Case(
        "nesting of Protobuf",
        values(
            lambda shape, n: shape.row(n) + b"\x7b" * NEST,
            lambda shape, n: shape.row(n) + b"\x00\x01",
        ),
        [MALFORMED] * 2,
        "protobuf",
    ),
    Case(
        "years of Protobuf",
        values(
            lambda shape, n: shape.row(n) + b"\x2a" + _sized(b"\x08" + varint(2**62)),
            lambda shape, n: shape.row(n) + b"\x2a" + _sized(b"\x08" + varint(-(2**62))),
        ),
        [MALFORMED] * 2,
        "protobuf",
    ),
)


def _sized(data: bytes) -> bytes:
    return varint(len(data)) + data
