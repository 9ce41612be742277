"""Known personal values, and a search for them in whatever bytes are left behind."""

from __future__ import annotations

import base64
import gzip
import io
import random
import string
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any, TypeVar

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

T = TypeVar("T")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST_DAY = date(1900, 1, 1)
HEAD = 8
ZSTD = b"\x28\xb5\x2f\xfd"
GZIP = b"\x1f\x8b"
BOUND = 12
"""Of a text so many characters are looked for: bounds in manifests and indexes hold the first 16."""


@dataclass
class Planted:
    """Makes values that no two places share. patterns: bytes by which one is known, whatever its encoding -> its place."""

    chance: random.Random = field(default_factory=lambda: random.Random(7))
    patterns: dict[bytes, str] = field(default_factory=dict)
    days: set[date] = field(default_factory=set)

    @property
    def places(self) -> set[str]:
        return set(self.patterns.values())

    def text(self, place: str) -> str:
        made = "".join(self.chance.choices(string.ascii_lowercase, k=16))
        return self._known(made, made[:BOUND], place)

    def email(self, place: str) -> str:
        made = self.text(place)
        return f"{made}@example.com"

    def phone(self, place: str) -> str:
        made = f"+{self._digits(15)}"
        return self._known(made, made[:-4], place)

    def card(self, place: str) -> str:
        made = f"4{self._digits(15)}"
        return self._known(made, made, place)

    def blob(self, place: str) -> bytes:
        made = self.chance.randbytes(16)
        self.secret(made, place)
        return made

    def number(self, place: str) -> int:
        made = int(f"7{self._digits(15)}")
        self._number(made, place)
        return self._known(made, str(made), place)

    def moment(self, place: str) -> datetime:
        made = EPOCH + timedelta(microseconds=self.chance.randrange(-(10**15), 10**15))
        self._number((made - EPOCH) // timedelta(microseconds=1), place)
        for separator in "T ":
            self._known(made, made.isoformat(separator)[:19], place)
        return made

    def day(self, place: str) -> date:
        """One that is not the first of a month, as days and moments are when they are masked."""
        made = FIRST_DAY
        while made.day == 1 or made in self.days:
            made = FIRST_DAY + timedelta(days=self.chance.randrange(36_000))
        self.days.add(made)
        return self._known(made, made.isoformat(), place)

    def secret(self, data: bytes, place: str) -> None:
        """Bytes that must be nowhere."""
        for encoded in (data, data.hex().encode(), data.hex().upper().encode(), *_base64(data)):
            self.patterns[encoded] = place

    def _known(self, made: T, text: str, place: str) -> T:
        self.secret(text.encode(), place)
        for encoding in ("utf-16-le", "utf-16-be"):
            self.patterns[text.encode(encoding)] = place
        return made

    def _number(self, made: int, place: str) -> None:
        self.patterns[struct.pack("<q", made)] = place
        self.patterns[struct.pack(">q", made)] = place

    def _digits(self, count: int) -> str:
        return "".join(self.chance.choices(string.digits, k=count))


class Search:
    """Finds patterns by their first eight bytes, at every offset."""

    def __init__(self, planted: Planted) -> None:
        self._places = planted.patterns
        self._by_head: dict[int, list[bytes]] = {}
        for pattern in planted.patterns:
            self._by_head.setdefault(int.from_bytes(pattern[:HEAD], "little"), []).append(pattern)
        self._heads = np.array(sorted(self._by_head), np.uint64)

    def found(self, name: str, data: bytes) -> set[str]:
        """The places whose values are in an object, or in anything that is packed into it."""
        return {place for layer in layers(name, data) for place in self._in(layer)}

    def _in(self, data: bytes) -> Iterator[str]:
        for shift in range(min(HEAD, max(0, len(data) - HEAD + 1))):
            words = np.frombuffer(data, np.dtype("<u8"), (len(data) - shift) // HEAD, shift)
            nearest = self._heads[np.minimum(np.searchsorted(self._heads, words), len(self._heads) - 1)]
            for place in np.flatnonzero(nearest == words):
                start = shift + HEAD * int(place)
                for pattern in self._by_head[int(words[place])]:
                    if data.startswith(pattern, start):
                        yield self._places[pattern]


def layers(name: str, data: bytes) -> Iterator[bytes]:
    """The bytes of an object, and those that come out of it: decompressed, page by page, and decoded."""
    yield data
    if data.startswith(GZIP):
        yield gzip.decompress(data)
    elif name.endswith(".avro"):
        for block in fastavro.block_reader(io.BytesIO(data)):
            yield block.bytes_.getvalue()  # type: ignore[attr-defined]
    elif name.endswith(".parquet"):
        yield from _frames(data)
        yield from _decoded(pq.ParquetFile(pa.BufferReader(data)))


def _frames(data: bytes) -> Iterator[bytes]:
    start = data.find(ZSTD)
    while start >= 0:
        with suppress(zstandard.ZstdError):  # the four bytes may be there by chance
            yield zstandard.ZstdDecompressor().decompressobj().decompress(data[start:])
        start = data.find(ZSTD, start + 1)


def _decoded(file: pq.ParquetFile) -> Iterator[bytes]:
    for column in file.read().combine_chunks().columns:
        for chunk in column.chunks:
            yield from _leaves(chunk)
    for group in range(file.metadata.num_row_groups):
        for number in range(file.metadata.num_columns):
            statistics = file.metadata.row_group(group).column(number).statistics
            if statistics is not None and statistics.has_min_max:
                yield from (_plain(each) for each in (statistics.min, statistics.max))


def _leaves(values: Any) -> Iterator[bytes]:
    kind = values.type
    if pa.types.is_struct(kind):
        for each in values.flatten():
            yield from _leaves(each)
    elif pa.types.is_map(kind):
        yield from _leaves(values.keys)
        yield from _leaves(values.items)
    elif pa.types.is_list(kind):
        yield from _leaves(values.flatten())
    else:
        if pa.types.is_timestamp(kind):
            values = values.cast(pa.int64())
        yield b"\n".join(_plain(each) for each in values.drop_null().to_pylist())


def _plain(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def _base64(data: bytes) -> Iterator[bytes]:
    """What stands for the bytes alone, wherever they begin in what is encoded."""
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + data)
        yield encoded[-(-8 * before // 6) : 8 * (before + len(data)) // 6]
