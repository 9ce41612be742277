"""The fold of a topic, without the job's code: which record of each key is the row of an upsert table.

Within a partition: a tombstone deletes all records before it; then the greatest order counts, then the greatest offset. Keys of
several partitions are folded in the order of the rounds that read them. DuckDB keeps the records, on disk if need be.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from calve.table.summary import kind_of
from cli.verify.claim import Round, numbers_of
from cli.verify.columns import row_hashes
from cli.verify.counts import Key
from cli.verify.keyed.store import Store, places_of
from cli.verify.rows import ByFile, Rows, Spots

TRUNCATES = "t"
Blanks = Mapping[int, int]
"""Index of a column that a database's updates may leave out -> the hash of its placeholder."""
TRUNCATIONS = """
create table if not exists truncations as select "partition", "offset", "timestamp", "order" from states limit 0
"""
NOTHING = pa.schema(
    [
        *((name, pa.uint64()) for name in ("key", "hash")),
        *((name, pa.int64()) for name in ("partition", "offset")),
        *((name, pa.bool_()) for name in ("dead", "reset", "unsure", "filled")),
    ]
).empty_table()
OLDER = 't."order" is null or s."order" is null or s."order" < t."order"'
"""Whether a truncation deletes a record, by their order."""
FOLD = """
with here as (
  select s.*, s.rowid as number from states s where not exists (from truncations t where case
    when t."partition" = s."partition" then s."offset" < t."offset" and ({older})
    when t."order" is null then s."timestamp" < t."timestamp" else {older} end)
), segments as (
  select *, count(*) filter (dead) over (partition by key, "partition" order by "offset", number rows unbounded preceding)
    as segment from here
), ranked as (
  select *, max("order") filter (not dead) over (partition by key, "partition", segment order by "offset", number
    rows between unbounded preceding and 1 preceding) as before from segments
), {fill} newest as (
  select *, bool_or(dead) over (partition by key, "partition") as reset from filled
  qualify row_number() over (partition by key, "partition"
    order by segment desc, dead, "order" desc nulls last, "offset" desc, number desc) = 1
)
select * exclude (number, segment, before) from newest
"""
FILL = """lasting as (select *, {lasting} as lasting from ranked), filled as (
  select * exclude (lasting) replace ({replaced}), {changed} as filled from lasting
  window so_far as (partition by key, "partition", segment, lasting order by "offset", number rows unbounded preceding)
),"""
LASTING = 'before is null or coalesce("order" >= before, false)'
"""Whether a record becomes the row: one with a lesser order changes nothing."""
ACROSS = """
select *, count(*) over keys > 1 and bool_or(reset) over keys as unsure from given window keys as (partition by key)
qualify row_number() over (partition by key
  order by "order" desc nulls last, read_by desc, "timestamp" desc, "partition" desc) = 1
"""
DOUBLED = "from held qualify count(*) over (partition by key) > 1 order by rowid"
KNOWN = """
select h.key, file, h."partition", h."offset", bool_or({ordered} and not n.reset and h."order" is not null
  and (n."order" is null or h."order" > n."order")) over (partition by h.key) as greater
from held h join newest n on h.key = n.key where not provable
"""
"""Rows without a record in Kafka whose keys it has; greater: a row of the key stands against all these records."""


class Fold(Store):
    """Add all records of a topic; then it has the rows.

    `ordered`: the key has a column that orders records. `blanks`: values that updates may lack. `forgotten`: places whose records
    are deleted.
    """

    def __init__(
        self,
        rounds: Sequence[Round],
        *,
        ordered: bool,
        blanks: Blanks | None = None,
        forgotten: Spots | None = None,
    ) -> None:
        super().__init__()
        self.ordered = ordered
        self.forgotten = forgotten or Spots()
        self._rounds, self._blanks = rounds, blanks or {}
        self._overtaken: Any = pa.array([], pa.uint64())

    def add(self, found: Iterable[Rows]) -> None:
        for rows in (each for each in found if len(each.offsets)):
            columns = places_of(rows) | {
                "timestamp": rows.timestamps.cast(pa.int64()),
                "hash": rows.hashes,
                "order": rows.orders,
                "dead": pa.repeat(pa.scalar(rows.tombstones), len(rows.offsets)),
            }
            if self._blanks:
                columns |= {f"c{n}": each for n, each in enumerate(rows.columns)}
            if rows.idle is None:
                self.insert("states", pa.table(columns))
            elif rows.idle == TRUNCATES:
                names = ["partition", "offset", "timestamp", "order"]
                self.insert("truncations", pa.table(columns).select(names))

    def newest(self) -> pa.Table:
        """The one record of each key that counts, or its tombstone, with `reset` if a tombstone lies at it or before it."""
        return self._newest.filter(pc.invert(pc.is_in(self._newest["key"], self._overtaken)))

    def hold(self, rows: Rows, provable: Any) -> None:
        """Add rows of the table; `provable`: Kafka still has their records."""
        file = pa.repeat(rows.file, len(rows.offsets)).dictionary_encode()
        columns = [rows.keys, rows.partitions, rows.offsets, rows.orders, file, provable]
        names = ["key", "partition", "offset", "order", "file", "provable"]
        self.insert("held", pa.table(columns, names=names))

    def judge(self) -> tuple[ByFile, ByFile]:
        """Rows whose key another row has, and rows that later records have changed: by file and partition.

        Keys whose row has a greater order, and whose record Kafka has deleted, are no longer of the fold.
        """
        if not self.has("held"):
            return {}, {}
        doubled = self.by_file(DOUBLED)
        if self._newest is NOTHING:
            return doubled, {}
        known = self.query(KNOWN.format(ordered=self.ordered), newest=self._newest)
        self._overtaken = known.filter(known["greater"])["key"]
        return doubled, self.by_file("from known where not greater", known=known)

    @property
    def ambiguous(self) -> int:
        """The number of keys of several partitions with tombstones, whose order cannot be known afterwards."""
        return (pc.sum(self._newest["unsure"]).as_py() or 0) if self.ordered else 0

    def rows(self) -> Iterator[pa.RecordBatch]:
        alive = self.newest()
        alive = alive.filter(pc.invert(alive["dead"]))
        if self.forgotten.count:
            places = alive["partition"].to_numpy(), alive["offset"].to_numpy()
            alive = alive.filter(pa.array(~self.forgotten.masks(*places)))
        yield from alive.select(["partition", "offset", "hash"]).to_batches()

    def filled(self) -> dict[Key, tuple[int, ...]]:
        """The places of rows with values from earlier rows, and the hashes of their columns."""
        newest = self.newest()
        if not self._blanks or not newest.num_rows:
            return {}
        found = newest.filter(newest["filled"])
        places = zip(found["partition"].to_pylist(), found["offset"].to_pylist(), strict=True)
        columns = zip(*(each.to_pylist() for each in _columns(found)), strict=True)
        return dict(zip(places, columns, strict=True))

    def figures(self) -> Mapping[str, int]:
        newest = self.newest()
        dead = pc.sum(newest["dead"]).as_py() or 0
        return {"keys": newest.num_rows - dead, "deleted": dead}

    @cached_property
    def _newest(self) -> pa.Table:
        if not self.has("states"):
            return NOTHING
        self.execute(TRUNCATIONS)
        fill = FILL.format(**self._filling()) if self._blanks else "filled as (from ranked),"
        found = self.query(FOLD.format(older=OLDER, fill=fill))
        if self._blanks and found.num_rows:
            hashes = row_hashes([each.combine_chunks() for each in _columns(found)])
            found = found.set_column(found.schema.get_field_index("hash"), "hash", hashes)
        # Rounds that appended, before the mode was upsert, count as one: they were folded together.
        appended = [kind_of(each.mode) == "append" for each in self._rounds]
        folded = [each for n, each in enumerate(self._rounds) if not (n and appended[n] and appended[n - 1])]
        read_by = numbers_of(folded[::-1], found["partition"].to_numpy(), found["offset"].to_numpy())
        if folded and folded[-1].mode is None:
            read_by = np.maximum(read_by, 0)
        return self.query(ACROSS, given=found.append_column("read_by", pa.array(read_by, pa.int64())))

    def _filling(self) -> dict[str, str]:
        """The parts of `FILL`: a blank becomes the last value of its column that became part of the row."""
        values = {
            f"c{n}": f"last_value(case when not dead and c{n} <> {blank} then c{n} end ignore nulls) over so_far"
            for n, blank in self._blanks.items()
        }
        replaced = [f"coalesce({value}, {name}) as {name}" for name, value in values.items()]
        changed = [f"coalesce({value}, {name}) <> {name}" for name, value in values.items()]
        lasting = LASTING if self.ordered else "true"
        return {"lasting": lasting, "replaced": ", ".join(replaced), "changed": " or ".join(changed)}


def _columns(found: pa.Table) -> list[pa.ChunkedArray]:
    return [found[name] for name in found.schema.names if name[1:].isdecimal()]
