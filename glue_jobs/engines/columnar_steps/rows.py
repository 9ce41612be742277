"""Rows on their way through the steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from calve.names import SYSTEM_COLUMN

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Rows:
    """columns: the data columns. kafka: `_kafka` of each row. record: which of the records that came in the row is of."""

    columns: Mapping[str, pa.Array]
    kafka: pa.StructArray
    record: NDArray[np.int64]

    @staticmethod
    def of(batch: pa.Table | pa.RecordBatch) -> Rows:
        arrays = {
            name: _whole(column) for name, column in zip(batch.column_names, batch.columns, strict=True)
        }
        kafka = arrays.pop(SYSTEM_COLUMN)
        return Rows(arrays, kafka, np.arange(len(kafka)))

    def __len__(self) -> int:
        return len(self.record)

    def with_columns(self, columns: Mapping[str, pa.Array]) -> Rows:
        return replace(self, columns=columns)

    def at(self, path: tuple[str, ...]) -> pa.Array:
        """What is at a path of structs: null where one of them is."""
        first, *names = path
        found = self.kafka if first == SYSTEM_COLUMN else self.columns[first]
        return pc.struct_field(found, names) if names else found

    def where(self, wanted: Mask) -> Rows:
        if wanted.all():
            return self
        kept = pa.array(wanted)
        columns = {name: each.filter(kept) for name, each in self.columns.items()}
        return Rows(columns, self.kafka.filter(kept), self.record[wanted])

    def take(self, places: NDArray[np.int64]) -> Rows:
        taken = pa.array(places)
        columns = {name: each.take(taken) for name, each in self.columns.items()}
        return Rows(columns, self.kafka.take(taken), self.record[places])


def _whole(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    if isinstance(column, pa.Array):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def as_mask(condition: pa.Array) -> Mask:
    """Where a condition is true; where it is null it is not."""
    found: Mask = condition.fill_null(False).to_numpy(zero_copy_only=False)  # noqa: FBT003 what null becomes
    return found
