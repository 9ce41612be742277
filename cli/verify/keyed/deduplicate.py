"""Duplicates, found without the job's code: a record makes no row if the table has a row of its key that was read earlier.

No two rows of a key lie within the window. Both rules leave one correct table: in reading order, each record is kept that has no
kept one near it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cli.verify.claim import Claim, numbers_of, numbers_of_redrives
from cli.verify.columns import numbers
from cli.verify.counts import Key
from cli.verify.keyed.store import Store
from cli.verify.rows import ByFile, Rows

EVER = np.iinfo(np.int64).max
UNKNOWN = -1.0
"""The number of an expired commit: it came before all that are left."""
OTHER_TOPIC = -2.0
FORGOTTEN = ""
"""The file of forgotten rows."""
PLACED = pa.schema(
    [
        *(("key", pa.uint64()), ("at", pa.int64()), ("partition", pa.int64())),
        *(("offset", pa.int64()), ("number", pa.float64())),
    ]
)
NEAR = """
create table if not exists near as select *, unnest({buckets}) as bucket from held;
create table if not exists judged as
with asked as (
  select *, rowid as n, {bucket} as bucket,
    greatest(max("at") over (partition by key, "partition", number order by "offset" rows unbounded preceding), 0) as come_to
  from records
), met as (
  select r.n,
    bool_or(t.number = r.number and t."partition" = r."partition" and t."offset" = r."offset") as itself,
    bool_or(case
      when t.number <> r.number then t.number < r.number
      when t."partition" = r."partition" then t."offset" < r."offset"
      when {unprovable} then true
      else (t."at", t."partition") < (r.come_to, r."partition") end) as later
  from asked r join near t on t.key = r.key and t.bucket = r.bucket where abs(t."at" - r."at") < {window} group by r.n
)
select "partition", "offset", hash, coalesce(itself, false) or not coalesce(later, false) as is_row
from asked left join met using (n)
"""
"""Whether each record is a row: the table has it, or no earlier row near it.

Partitions that one round reads are merged by the latest timestamp that each has reached, among records of the key. Cases that
cannot be proved count as correct. Rows within a window are in the same bucket of its size, or in the next.
"""
DUPLICATES = """
select count(*) as found from (select distinct "partition", "offset" from judged where not is_row)
anti join redriven using ("partition", "offset")
"""
DOUBLED = """
with there as (select {distinct} * from held where file <> '{forgotten}')
select file, "partition", "offset" from there window keys as (partition by key order by "at", "offset")
qualify "at" - lag("at") over keys < {window} or lead("at") over keys - "at" < {window}
"""


class Firsts(Store):
    """The rows of a table by key. Add all of them before `rows`.

    `redriven`: the redrive's round by the place of a record. `several`: a record may have made several rows.
    """

    ambiguous = 0

    def __init__(
        self, window_us: int | None, claim: Claim, redriven: Mapping[Key, str], *, several: bool = False
    ) -> None:
        super().__init__()
        self.insert("held", PLACED.append(pa.field("file", pa.string())).empty_table())
        self.insert("records", PLACED.append(pa.field("hash", pa.uint64())).empty_table())
        self._several = several
        self._windowed = window_us is not None
        self._window = EVER if window_us is None else window_us
        self._rounds = [each for each in reversed(claim.rounds) if each.topic == claim.topic]
        known = numbers_of_redrives(claim, self._rounds)
        partitions, offsets = (pa.array([place[n] for place in redriven], pa.int64()) for n in (0, 1))
        self._redriven = pa.table({"partition": partitions, "offset": offsets})
        self._numbers = np.array([*(known.get(name, UNKNOWN) for name in redriven.values()), UNKNOWN])

    def hold(self, held: Rows, *, own: bool) -> None:
        """Add rows of the table; `own`: of the incarnation that is proved."""
        file = pa.repeat(held.file, len(held.offsets))
        self._keep("held", held, None if own else OTHER_TOPIC, file=file)

    def remember(self, forgotten: Iterable[Rows]) -> None:
        """Add rows that the table had: their duplicates make no rows, either."""
        for rows in (each for each in forgotten if each.keys is not None):
            self._keep("held", rows, file=pa.repeat(FORGOTTEN, len(rows.offsets)))

    def add(self, found: Iterable[Rows]) -> None:
        for rows in found:
            self._keep("records", rows, hash=rows.hashes)

    def figures(self) -> Mapping[str, int]:
        [row] = self.query("select count(distinct key) as keys from held where file <> ''").to_pylist()
        return dict(row)

    def doubled(self) -> ByFile:
        """Offsets of rows with another row of their key too near, by file and partition."""
        distinct = 'distinct on (key, "partition", "offset", number)' if self._several else ""
        return self.by_file(DOUBLED.format(distinct=distinct, forgotten=FORGOTTEN, window=self._window))

    def rows(self) -> Iterator[pa.RecordBatch]:
        self._judge()
        yield from self.read('select "partition", "offset", hash from judged where is_row')

    def duplicates(self) -> int:
        """The number of records that make no row because of an earlier one, without redriven ones."""
        self._judge()
        [row] = self.query(DUPLICATES, redriven=self._redriven).to_pylist()
        return int(row["found"])

    def _judge(self) -> None:
        bucket = f'"at" // {self._window}' if self._windowed else "0"
        self.execute(
            NEAR.format(
                bucket=bucket,
                buckets=f"[{bucket} - 1, {bucket}, {bucket} + 1]" if self._windowed else "[0]",
                window=self._window,
                unprovable="true" if self._windowed else f"r.number = {UNKNOWN}",
            )
        )

    def _keep(self, table: str, rows: Rows, number: float | None = None, **more: Any) -> None:
        """Add rows; `number`: of the commit that read them, if not by their places."""
        places = rows.partitions.fill_null(-1).cast(pa.int64()), rows.offsets.fill_null(-1)
        read_by = numbers_of(self._rounds, *(each.to_numpy() for each in places)).astype(np.float64)
        back = pc.index_in(numbers(*places), numbers(*self._redriven.columns)).fill_null(-1).to_numpy()
        found = np.where(back < 0, read_by, self._numbers[back])
        columns = {
            "key": rows.keys,
            "at": rows.timestamps.cast(pa.int64()),
            "partition": rows.partitions,
            "offset": rows.offsets,
            "number": pa.array(found if number is None else np.full(len(found), number)),
        }
        self.insert(table, pa.table(columns | more))
