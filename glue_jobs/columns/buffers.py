"""The values that a machine decodes, and its buffers: columns of cells and marks, with as many rows as their levels need."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from calve.config.job import PartName
from calve.decoding.decode_plan import DecodePlan
from glue_jobs.columns.texts import Bytes, Longs

ROOM = 4_194_304
"""The cells of one batch with several records: 9 bytes each, and about the same again in Arrow arrays."""
SPARE = 1.25


@dataclass(frozen=True, slots=True)
class Spans:
    """Values in a buffer (as in `Records`): the record, start and size of each."""

    data: Bytes
    places: NDArray[np.int32]
    sizes: NDArray[np.int32]
    records: Longs


def spans_of(values: pa.Array) -> Spans:
    """All values of an array of texts or bytes; the size of a null is -1."""
    size, (_, ends, content) = len(values), values.buffers()
    offsets = np.frombuffer(ends, np.int32, size + 1, values.offset * 4) if size else np.zeros(1, np.int32)
    data = np.frombuffer(content if content is not None and content.size else bytes(1), np.uint8)
    sizes = np.diff(offsets)
    if values.null_count:
        sizes[values.is_null().to_numpy(zero_copy_only=False)] = -1
    return Spans(data, offsets[:-1], sizes, np.arange(size))


PartOf = Callable[[PartName, DecodePlan], tuple[pa.Array, NDArray[np.int32], pa.Array | None]]
"""The values or keys of some records, in the plan's wire format; their sizes as received; of CloudEvents, their headers."""


class Buffers:
    """Reused for each batch. A batch needs `ROOM` cells, or those of one record.

    cell_level, mark_level: the level of each column. widths: of each level, the columns that count for `ROOM`.
    """

    def __init__(self, cells: Sequence[int], marks: Sequence[int], widths: NDArray[Any]) -> None:
        self.cell_level, self.mark_level = np.array(cells, np.int64), np.array(marks, np.int64)
        self.cells, self.marks = np.empty(0, np.int64), np.empty(0, np.uint8)
        self._widths, self._per_record = widths, np.ones(widths.size)

    def space(self, records: int) -> Longs:
        """Rows per level for up to `records` records, estimated from earlier records."""
        most = int(ROOM / max(1.0, (self._per_record * self._widths).sum()))
        return (min(records, max(1, most)) * self._per_record * SPARE + 16).astype(np.int64)

    def learn(self, rows: Longs, records: int) -> None:
        """rows: of each level, in a batch of so many records."""
        self._per_record = np.maximum(1.0, rows / records)

    def laid_out(self, space: Longs) -> tuple[Longs, Longs]:
        """Where each column of cells begins, and each of marks. All marks are 0; cells have any values."""
        cell_base, size = _bases(self.cell_level, space)
        mark_base, marked = _bases(self.mark_level, space)
        if not size <= self.cells.size <= max(size, 2 * ROOM):
            self.cells = np.empty(size, np.int64)
        if not marked <= self.marks.size <= max(marked, 2 * ROOM):
            self.marks = np.empty(marked, np.uint8)
        self.marks[:marked] = 0
        return cell_base, mark_base


def _bases(levels: Longs, space: Longs) -> tuple[Longs, int]:
    """Where each column begins, and where the last one ends. A column is one row longer than its level's space."""
    ends = np.cumsum(space[levels] + 1)
    return ends - space[levels] - 1, int(ends[-1]) if ends.size else 0
