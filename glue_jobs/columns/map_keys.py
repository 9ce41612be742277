"""Keys of maps: which maps have a key twice, and the last entry of each key."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numba import types
from numpy.typing import NDArray

from glue_jobs.columns.kernels import BYTES, BYTES_OUT, LONGS, LONGS_OUT, PLACES, kernel
from glue_jobs.columns.texts import LENGTH, Longs

PLAINER = {
    pa.string(): pa.binary(), pa.date32(): pa.int32(), pa.timestamp("us"): pa.int64(), pa.timestamp("us", "UTC"): pa.int64()
}  # fmt: skip
"""Types with the same content whose values all fit Python objects."""


def last_of_each(keys: Any, offsets: NDArray[np.int32], repeated: Longs) -> tuple[Longs, Longs, Any]:
    """Places of the entries to keep, and their offsets: the first place of each key, with the key's last value."""
    first, last = list[Longs](), list[Longs]()
    counts = np.diff(offsets)
    comparable = keys.view(PLAINER[keys.type]) if keys.type in PLAINER else keys
    done = 0
    for row in repeated.tolist():
        begin, end = int(offsets[row]), int(offsets[row + 1])
        lasts: dict[Any, tuple[int, int]] = {}
        for place, key in enumerate(comparable.slice(begin, end - begin).to_pylist(), begin):
            lasts[key] = (lasts.get(key, (place, 0))[0], place)
        first += [np.arange(done, begin), np.array([one for one, _ in lasts.values()])]
        last += [np.arange(done, begin), np.array([other for _, other in lasts.values()])]
        counts[row], done = len(lasts), end
    rest = np.arange(done, len(keys))
    kept = np.zeros(offsets.size, np.int32)
    np.cumsum(counts, out=kept[1:])
    return np.concatenate([*first, rest]), np.concatenate([*last, rest]), kept


FEW = 16


@kernel(types.void(LONGS, BYTES, LONGS_OUT))
def digest(cells: Any, data: Any, out: Any) -> Any:
    """A hash of each cell's bytes. Equal bytes have equal hashes."""
    for row in range(cells.size):
        place = cells[row] >> 32
        found = np.int64(-3750763034362895579)
        for at in range(place, place + (cells[row] & LENGTH)):
            found = (found ^ np.int64(data[at])) * 1099511628211
        out[row] = found


@kernel(types.int64(LONGS, PLACES, BYTES_OUT))
def find_repeated(digests: Any, offsets: Any, found: Any) -> Any:
    """Mark maps in which two entries have the same hash; returns their number."""
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
