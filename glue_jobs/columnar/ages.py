"""The ages of records in bounded memory: ranks of their timestamps, chunk by chunk, and percentiles of all of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

RANKS = 400
"""Of so many values a chunk is remembered, and likewise a task: a percentile is that of a rank at most a two-hundredth away."""


@dataclass(frozen=True, slots=True)
class Ages:
    """Timestamps (ms), in order, each standing for as many records as its weight says."""

    timestamps: NDArray[np.int64]
    weights: NDArray[np.float64]

    @classmethod
    def of(cls, timestamps: NDArray[np.int64]) -> Ages:
        return cls(np.sort(timestamps), np.ones(len(timestamps))).thinned()

    @classmethod
    def together(cls, parts: Iterable[Ages]) -> Ages:
        found = list(parts)
        if not found:
            return cls(np.empty(0, np.int64), np.empty(0))
        timestamps = np.concatenate([each.timestamps for each in found])
        order = np.argsort(timestamps, kind="stable")
        return cls(timestamps[order], np.concatenate([each.weights for each in found])[order])

    def thinned(self) -> Ages:
        """At most `RANKS` values for the same records: the middle one of each of as many equal parts."""
        if len(self.timestamps) <= RANKS:
            return self
        ends = np.cumsum(self.weights)
        part = ends[-1] / RANKS
        middle = np.searchsorted(ends, part * (np.arange(RANKS) + 0.5))
        return Ages(self.timestamps[middle], np.full(RANKS, part))

    def percentile(self, share: float) -> int | None:
        """The least timestamp that is not younger than this share of the records; None where there are none."""
        if not len(self.timestamps):
            return None
        ends = np.cumsum(self.weights)
        place = int(np.searchsorted(ends, share * ends[-1] * (1 - 1e-12)))
        return int(self.timestamps[place])
