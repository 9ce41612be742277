"""How each column is encoded, by a sample of its first rows.

What lies in a struct, a list or a map may be delta-encoded: readers take such columns row by row, and know every encoding. Other
columns have a dictionary or are plain, unless the table asks for Parquet's second version of pages: Iceberg's vectorised readers
know no delta encodings before 1.11, and refuse to read them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise, starmap, takewhile

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from glue_jobs.columnar.fields import Leaf

SAMPLE = 4_096
NEIGHBOURS = 64
WHOLE = frozenset({"int", "long", "date", "timestamp", "timestamptz"})
TEXTS = frozenset({"string", "binary"})


@dataclass(frozen=True, slots=True)
class Encodings:
    """Paths of the columns with dictionaries, and the encodings of others that are not plain."""

    dictionaries: list[str]
    others: dict[str, str]


def encodings_of(rows: pa.Table, leaves: Iterable[Leaf], *, delta: bool, dictionary_bytes: int) -> Encodings:
    """delta: also of columns that are no part of a struct."""
    found = Encodings([], {})
    for leaf in leaves:
        free = delta or len(leaf.way) > 1
        if free and leaf.kind in WHOLE and len(leaf.way) > 1:
            found.others[leaf.path] = "DELTA_BINARY_PACKED"
            continue
        values = pa.chunked_array(leaf.values(rows))
        if pa.types.is_dictionary(values.type) or _repeats(values, dictionary_bytes):
            found.dictionaries.append(leaf.path)
        elif free and leaf.kind in WHOLE:
            found.others[leaf.path] = "DELTA_BINARY_PACKED"
        elif free and leaf.kind in TEXTS and _alike(values):
            found.others[leaf.path] = "DELTA_BYTE_ARRAY"
    return found


def _repeats(values: pa.ChunkedArray, dictionary_bytes: int) -> bool:
    """Whether there are far fewer different values than values, and few enough for a dictionary.

    The sample lies over all rows: values that come one after another are alike more often than others.
    """
    held = _sample(values).drop_null()
    count = len(held)
    different = pc.count_distinct(held).as_py()
    if different * 2 <= count:
        return True
    twice = count - different
    likely = count * count / (2 * twice) if twice else len(values)
    return bool(likely * 2 <= len(values) and likely * held.nbytes / count <= dictionary_bytes)


def _sample(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Chunk by chunk: Arrow puts all chunks together where it takes of them all."""
    step = 1 + len(values) // SAMPLE
    taken = [each.take(pa.array(np.arange(0, len(each), step))) for each in values.chunks]
    return pa.chunked_array(taken, values.type)


def _alike(values: pa.ChunkedArray) -> bool:
    """Whether most of a text is how the one before it begins."""
    first = values.slice(0, NEIGHBOURS).drop_null().cast(pa.binary())
    texts = pc.binary_slice(first, 0, NEIGHBOURS).to_pylist()
    return sum(starmap(_shared, pairwise(texts))) * 2 > sum(map(len, texts))


def _shared(one: bytes, other: bytes) -> int:
    """How many bytes at the beginning are the same."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
