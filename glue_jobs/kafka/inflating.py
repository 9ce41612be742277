"""The codecs of Kafka's record batches."""

from __future__ import annotations

from collections.abc import Callable

import cramjam

_XERIAL = b"\x82SNAPPY\x00"
"""Begins what Kafka's Java producer calls snappy: blocks, each with its length before it, after a header of 16 bytes."""


def inflate(codec: int, packed: memoryview, room: memoryview) -> int | None:
    """Inflate into `room` and say how much it was; None where there is not enough of it, or this is no such thing."""
    how = _CODECS.get(codec)
    try:
        return how(packed, room) if how else None
    except cramjam.DecompressionError:
        return None


def _plain(packed: memoryview, room: memoryview) -> int:
    if len(packed) > len(room):
        raise cramjam.DecompressionError("no room")
    room[: len(packed)] = packed
    return len(packed)


def _snappy(packed: memoryview, room: memoryview) -> int:
    if packed[:8] != _XERIAL:
        return cramjam.snappy.decompress_raw_into(packed, room)
    used, at = 0, 16
    while at < len(packed):
        end = at + 4 + int.from_bytes(packed[at : at + 4], "big")
        if end > len(packed):
            raise cramjam.DecompressionError("a block ends after its batch")
        used += cramjam.snappy.decompress_raw_into(packed[at + 4 : end], room[used:])
        at = end
    return used


_CODECS: dict[int, Callable[[memoryview, memoryview], int]] = {
    0: _plain,
    1: cramjam.gzip.decompress_into,
    2: _snappy,
    3: cramjam.lz4.decompress_into,
    4: cramjam.zstd.decompress_into,
}
"""By their numbers in a batch's attributes."""
