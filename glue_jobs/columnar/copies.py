"""Fixed bytes that cells point to, and keys of maps that are there twice."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from glue_jobs.compiled import BYTES, BYTES_OUT, LONGS, LONGS_OUT, PLACES, kernel
from glue_jobs.texts import LENGTH

FEW = 16


@kernel(types.void(LONGS, BYTES, BYTES, types.int64, BYTES_OUT))
def copy_fixed(cells: Any, marks: Any, data: Any, size: Any, out: Any) -> Any:
    """So many bytes of each cell, zeros where there is no mark."""
    for row in range(cells.size):
        marked = marks.size == 0 or marks[row]
        place = cells[row] >> 32
        for at in range(size):
            out[row * size + at] = data[place + at] if marked else 0


@kernel(types.void(LONGS, BYTES, LONGS_OUT))
def digest(cells: Any, data: Any, out: Any) -> Any:
    """A number of the bytes of each cell; those of equal bytes are equal."""
    for row in range(cells.size):
        place = cells[row] >> 32
        found = np.int64(-3750763034362895579)
        for at in range(place, place + (cells[row] & LENGTH)):
            found = (found ^ np.int64(data[at])) * 1099511628211
        out[row] = found


@kernel(types.int64(LONGS, PLACES, BYTES_OUT))
def find_repeated(digests: Any, offsets: Any, found: Any) -> Any:
    """Mark the maps of which two entries have one digest; the number of such maps."""
    count = np.int64(0)
    for row in range(found.size):
        begin, end = offsets[row], offsets[row + 1]
        repeated = False
        if end - begin <= FEW:
            for one in range(begin, end):
                for other in range(one + 1, end):
                    repeated = repeated or digests[one] == digests[other]
        else:
            ordered = np.sort(digests[begin:end])
            for place in range(1, ordered.size):
                repeated = repeated or ordered[place - 1] == ordered[place]
        found[row] = repeated
        count += np.int64(repeated)
    return count
