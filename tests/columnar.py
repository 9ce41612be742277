"""Records as the columnar engine has them, and Arrow's arrays as plain values of Python."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from glue_jobs.kafka.records import Records
from tests.random_avro import zigzag

Headers = Sequence[tuple[bytes, bytes | None]]


def records_of(
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None = None,
    headers: Sequence[Headers] | None = None,
) -> Records:
    """Records of partition 3, one for each value, from offset 10 and millisecond 1000 on."""
    size, buffer = len(values), bytearray(b"\xff")
    value_at, value_size = _laid(values, buffer)
    key_at, key_size = _laid(keys or [None] * size, buffer)
    listed = headers or [()] * size
    headers_at, _ = _laid([b"".join(_header(*each) for each in found) for found in listed], buffer)
    return Records(
        3,
        np.frombuffer(bytes(buffer), np.uint8),
        np.arange(10, 10 + size),
        np.arange(1000, 1000 + size),
        (np.arange(size) % 2).astype(np.int8),
        np.zeros(size, np.int8),
        key_at,
        key_size,
        value_at,
        value_size,
        headers_at,
        np.array([len(each) for each in listed], np.int32),
    )


def _laid(parts: Iterable[bytes | None], buffer: bytearray) -> tuple[Any, Any]:
    places, sizes = [], []
    for each in parts:
        places.append(0 if each is None else len(buffer))
        sizes.append(-1 if each is None else len(each))
        buffer += each or b""
    return np.array(places, np.int32), np.array(sizes, np.int32)


def _header(name: bytes, value: bytes | None) -> bytes:
    content = zigzag(-1) if value is None else zigzag(len(value)) + value
    return zigzag(len(name)) + name + content


def plain(array: Any) -> list[Any]:
    """Texts as bytes, days and moments as numbers, maps as pairs in the order of keys: Python has whatever they hold."""
    found = (
        pa.concat_arrays(array.chunks) if isinstance(array, pa.ChunkedArray) and array.num_chunks else array
    )
    if isinstance(found, pa.ChunkedArray):
        return []
    kind = found.type
    if pa.types.is_struct(kind):
        names, columns = [each.name for each in kind], [plain(found.field(n)) for n in range(kind.num_fields)]
        rows: list[Any] = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    elif pa.types.is_map(kind):
        keys, values = plain(found.keys), plain(found.items)
        rows = [
            sorted(zip(keys[a:b], values[a:b], strict=True), key=lambda each: repr(each[0]))
            for a, b in _ranges(found)
        ]
    elif pa.types.is_list(kind):
        items = plain(found.values)
        rows = [items[a:b] for a, b in _ranges(found)]
    else:
        return [_exact(each) for each in _leaf(found).to_pylist()]
    return [row if there else None for row, there in zip(rows, found.is_valid().to_pylist(), strict=True)]


def _ranges(array: Any) -> list[tuple[int, int]]:
    offsets = array.offsets.to_pylist()
    return list(pairwise(offsets))


def _leaf(array: Any) -> Any:
    if pa.types.is_string(array.type):
        return array.view(pa.binary())
    if pa.types.is_timestamp(array.type):
        return array.view(pa.int64())
    return array.view(pa.int32()) if pa.types.is_date32(array.type) else array


def _exact(value: Any) -> Any:
    """Told apart from what only equals it, and NaN equal to itself."""
    return repr(value) if isinstance(value, bool | float) else value
