"""The fold of a topic, without the job's code: every version of each row, and from when to when it is valid.

The records of a key in a partition follow one another by offset: none is valid from before the one that it replaces. If a column
orders them, it decides alone. DuckDB keeps the records, on disk if need be.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from calve.schema.columns import HISTORY
from cli.verify.columns import arrow_columns, column_hashes, row_hashes
from cli.verify.counts import Key
from cli.verify.keyed.store import Store, places_of
from cli.verify.keyed.upsert import Blanks
from cli.verify.rows import Rows, Spots

HISTORY_TYPE = arrow_columns({"type": "struct", "fields": [HISTORY]}).field(0).type
BY_OFFSET = 'max("time") over (partition by key, "partition" order by "offset" rows unbounded preceding)'
VERSIONS = """
with timed as (select *, {begin} as "from" from states), lived as (
  select *, count(*) filter (deleted) over line as life,
    case when deleted then "from" else lead("from") over line end as "to"
  from timed window line as (partition by key order by "from", "partition", "offset" rows unbounded preceding)
)
from (
  select "partition", "offset", "from", "to", deleted, known, {columns} from lived
  window so_far as (partition by key, life order by "from", "partition", "offset" rows unbounded preceding)
) where known
"""
FILLED = """coalesce(case when {column} = {blank} and known then
  last_value(case when not deleted and {column} <> {blank} then {column} end ignore nulls) over so_far end, {column})"""


class Versions(Store):
    """Add all records of a topic, then the table's rows without a record; then it has the rows.

    by_column: a column orders the records. blanks: values that updates may lack. forgotten: places whose records are deleted.
    """

    ambiguous = 0

    def __init__(
        self, *, by_column: bool, blanks: Blanks | None = None, forgotten: Spots | None = None
    ) -> None:
        super().__init__()
        self.forgotten = forgotten or Spots()
        self._by_column, self._blanks, self._width = by_column, blanks or {}, 0
        self._counts = {"versions": 0, "deleted": 0}

    def add(self, found: Iterable[Rows]) -> None:
        for rows in found:
            if rows.idle is None:
                self._insert(rows, known=True)

    def hold(self, rows: Rows) -> None:
        """Add rows of the table whose records Kafka has deleted: versions beside them begin or end there."""
        self._insert(rows, known=False)

    def rows(self) -> Iterator[pa.RecordBatch]:
        self._counts = dict.fromkeys(self._counts, 0)
        for partitions, offsets, columns, deleted in self._versions():
            self._counts["versions"] += len(deleted)
            self._counts["deleted"] += pc.sum(deleted).as_py() or 0
            yield pa.record_batch([partitions, offsets, row_hashes(columns)], ["partition", "offset", "hash"])

    def columns(self, among: Collection[Key]) -> dict[Key, tuple[int, ...]]:
        """The hashes of the columns of the rows at these places."""
        found: dict[Key, tuple[int, ...]] = {}
        for partitions, offsets, columns, _ in self._versions():
            values = zip(*(each.to_pylist() for each in columns), strict=True)
            places = zip(partitions.to_pylist(), offsets.to_pylist(), strict=True)
            found |= {key: each for key, each in zip(places, values, strict=True) if key in among}
        return found

    def figures(self) -> Mapping[str, int]:
        return self._counts

    def _insert(self, rows: Rows, *, known: bool) -> None:
        if not len(rows.offsets):
            return
        self._width = self._width or len(rows.columns)
        columns = places_of(rows) | {
            "time": rows.orders.cast(pa.int64()),
            "deleted": rows.deleted,
            "known": pa.repeat(pa.scalar(known), len(rows.offsets)),
        }
        hashes = rows.columns[: self._width]
        self.insert("states", pa.table(columns | {f"c{n}": each for n, each in enumerate(hashes)}))

    def _versions(self) -> Iterator[tuple[Any, Any, list[Any], Any]]:
        """Partitions, offsets, the hashes of each column, and which of them delete."""
        if not self.has("states"):
            return
        names = [f"c{n}" for n in range(self._width)]
        values = [
            f"{FILLED.format(column=name, blank=self._blanks[n])} as {name}" if n in self._blanks else name
            for n, name in enumerate(names)
        ]
        begin = '"time"' if self._by_column else BY_OFFSET
        for found in self.read(VERSIONS.format(begin=begin, columns=", ".join(values))):
            batch = found
            if self.forgotten.count:
                gone = self.forgotten.masks(batch["partition"].to_numpy(), batch["offset"].to_numpy())
                batch = batch.filter(pa.array(~gone))
            deleted = batch["deleted"]
            begins, ends = (batch[name].cast(pa.timestamp("us")) for name in ("from", "to"))
            parts = [begins, ends, ends.is_null(), deleted]
            history = pa.StructArray.from_arrays(
                [part.cast(each.type) for part, each in zip(parts, HISTORY_TYPE, strict=True)],
                fields=list(HISTORY_TYPE),
            )
            columns = [*(batch[name] for name in names), *column_hashes([history])]
            yield batch["partition"], batch["offset"], columns, deleted
