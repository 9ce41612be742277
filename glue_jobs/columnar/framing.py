"""Whose values records hold: told by what they begin with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from glue_jobs.compiled import BYTES, LONGS, PLACES, PLACES_OUT, kernel
from glue_jobs.texts import Bytes

NULL, NOBODY = -2, -1


@kernel(types.void(BYTES, PLACES, PLACES, LONGS, BYTES, PLACES, PLACES_OUT))
def _find(data: Any, places: Any, sizes: Any, records: Any, prefixes: Any, ends: Any, found: Any) -> Any:
    """The first prefix that each value begins with; that of the value before is most often that of the next, too."""
    last = 0
    for number in range(records.size):
        at, size = places[records[number]], sizes[records[number]]
        found[number] = NOBODY if size >= 0 else NULL
        for turn in range(-1, ends.size):
            prefix = last if turn < 0 else turn
            if size < 0 or prefix >= ends.size:
                break
            begin = 0 if prefix == 0 else ends[prefix - 1]
            length = ends[prefix] - begin
            same = size >= length
            for place in range(length):
                same = same and data[at + place] == prefixes[begin + place]
                if not same:
                    break
            if same:
                found[number] = last = prefix
                break


class Prefixes:
    """What values begin with, none of which begins with another."""

    def __init__(self, prefixes: Sequence[bytes]) -> None:
        self._bytes = np.frombuffer(b"".join(prefixes), np.uint8)
        self._ends = np.cumsum([len(each) for each in prefixes], dtype=np.int32)

    def find(
        self, data: Bytes, places: NDArray[np.int32], sizes: NDArray[np.int32], records: NDArray[np.int64]
    ) -> NDArray[np.int32]:
        """The number of the prefix of each record's value, `NOBODY` or `NULL`."""
        found = np.empty(records.size, np.int32)
        _find(data, places, sizes, records, self._bytes, self._ends, found)
        return found
