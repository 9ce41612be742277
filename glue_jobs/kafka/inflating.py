"""The codecs of Kafka's record batches: a whole batch at once if there is room, else piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import cramjam
import pyarrow as pa

from glue_jobs.kafka.records import BATCH_TOO_LARGE, CORRUPT_BATCH

LARGEST_BATCH = 8 << 30
"""The most bytes that a batch is inflated to. A larger one can only be an attack."""
LARGEST_BLOCK = 512 << 20
"""The most bytes of a snappy block, which must be in memory as a whole. librdkafka's batches are one block."""
SNAPPY_RATIO = 22
"""The greatest inflation of a snappy block: a copy of 64 bytes takes 3."""
PIECE = 1 << 20

_XERIAL = b"\x82SNAPPY\x00"
"""The start of Java's snappy format: a header of 16 bytes, then blocks, each after its length."""
_BROKEN = (cramjam.DecompressionError, OSError, ValueError)
"""The errors of codecs for invalid bytes."""


def inflate(codec: int, packed: memoryview, room: memoryview) -> int | None:
    """Inflate into `room`; returns the size, or None if the room is too small or the bytes are invalid."""
    how = _CODECS.get(codec)
    try:
        return how(packed, room) if how else None
    except cramjam.DecompressionError:
        return None


class Inflating:
    """A batch that is inflated on demand. ended: why the bytes end early, as in `Records.refused`; 0 if they do not."""

    def __init__(self, codec: int, packed: memoryview) -> None:
        self._pieces = _pieces(codec, packed)
        self._piece = memoryview(b"")
        self._held: list[memoryview] = []
        self._total = 0
        self.ended = 0

    def into(self, room: memoryview) -> int:
        """Fill the room; returns the number of bytes, which is smaller only at the end."""
        used = 0
        while used < len(room) and self._more():
            taken = min(len(room) - used, len(self._piece))
            room[used : used + taken] = self._piece[:taken]
            self._piece, used = self._piece[taken:], used + taken
        return used

    def take(self, size: int) -> bytes:
        room = bytearray(size)
        return bytes(room[: self.into(memoryview(room))])

    def skip(self, size: int) -> None:
        while size and self._more():
            taken = min(size, len(self._piece))
            self._piece, size = self._piece[taken:], size - taken

    def back(self, content: bytes | memoryview) -> None:
        self._held.append(self._piece)
        self._piece = memoryview(content)

    def _more(self) -> bool:
        while not self._piece and self._held:
            self._piece = self._held.pop()
        if not self._piece and not self.ended:
            try:
                self._piece = memoryview(next(self._pieces, b""))
            except _TooLarge:
                self.ended = BATCH_TOO_LARGE
            except _BROKEN:
                self.ended = CORRUPT_BATCH
            self._total += len(self._piece)
            if self._total > LARGEST_BATCH:
                self._piece, self.ended = memoryview(b""), BATCH_TOO_LARGE
        return bool(self._piece)


class _TooLarge(Exception):
    """A block is larger than `LARGEST_BLOCK`."""


def _pieces(codec: int, packed: memoryview) -> Iterator[bytes | memoryview]:
    if codec == 0:
        yield packed
    elif codec in _STREAMS:
        with pa.CompressedInputStream(pa.BufferReader(packed), _STREAMS[codec]) as stream:
            while piece := stream.read(PIECE):
                yield piece
    elif codec == 2:
        yield from map(_block, _blocks(packed))
    else:
        raise ValueError("no such codec")


def _blocks(packed: memoryview) -> Iterator[memoryview]:
    if packed[:8] != _XERIAL:
        yield packed
        return
    at = 16
    while at < len(packed):
        end = at + 4 + int.from_bytes(packed[at : at + 4], "big")
        if end > len(packed):
            raise cramjam.DecompressionError("a block ends after its batch")
        yield packed[at + 4 : end]
        at = end


def _block(packed: memoryview) -> memoryview:
    size = cramjam.snappy.decompress_raw_len(packed)
    if size > SNAPPY_RATIO * len(packed):
        raise cramjam.DecompressionError("a block says that it has more than it can have")
    if size > LARGEST_BLOCK:
        raise _TooLarge
    room = bytearray(size)
    cramjam.snappy.decompress_raw_into(packed, room)
    return memoryview(room)


def _plain(packed: memoryview, room: memoryview) -> int:
    if len(packed) > len(room):
        raise cramjam.DecompressionError("no room")
    room[: len(packed)] = packed
    return len(packed)


def _snappy(packed: memoryview, room: memoryview) -> int:
    used = 0
    for each in _blocks(packed):
        used += cramjam.snappy.decompress_raw_into(each, room[used:])
    return used


_CODECS: dict[int, Callable[[memoryview, memoryview], int]] = {
    0: _plain,
    1: cramjam.gzip.decompress_into,
    2: _snappy,
    3: cramjam.lz4.decompress_into,
    4: cramjam.zstd.decompress_into,
}
"""By their numbers in a batch's attributes."""
_STREAMS = {1: "gzip", 3: "lz4", 4: "zstd"}
