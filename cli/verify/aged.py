"""Rows and dead letters that have left for their age: what a table says of them, and which records that is true of."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from calve.maintenance import retained
from calve.position import Offsets, TopicKey
from cli import lake

if TYPE_CHECKING:
    from pyiceberg.table import Table


@dataclass(frozen=True, slots=True)
class Aged:
    """Nothing is asked of rows whose `column` is before a moment, where their offsets lie below `to`.

    rows: how many have left.
    """

    column: str
    before: datetime
    to: Offsets
    rows: int

    @classmethod
    def of(cls, table: Table | None, topic: TopicKey) -> Aged | None:
        """What a table says of a topic's incarnation; None: nothing has left for its age."""
        if table is None:
            return None
        line = [each.commit for each in lake.ancestors(table)]
        newest = retained(line, table.properties)
        if newest is None:
            return None
        before = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=newest.before_us)
        return cls(newest.column, before, dict(newest.to.get(topic, {})), newest.rows)

    def mask(self, batch: pa.RecordBatch, partitions: Any, offsets: Any) -> Any:
        """Which rows of a batch these are."""
        names = self.column.split(".")
        values: Any = batch.column(names[0])
        for name in names[1:]:
            values = pc.struct_field(values, name)
        limit = self.before.date() if pa.types.is_date(values.type) else self.before
        if pa.types.is_timestamp(values.type) and values.type.tz is None:
            limit = self.before.replace(tzinfo=None)
        old = pc.less(values, pa.scalar(limit, values.type))
        below = pa.repeat(pa.scalar(False), len(offsets))  # noqa: FBT003 a value
        for partition, to in self.to.items():
            here = pc.and_(pc.equal(partitions, partition), pc.less(offsets, to))
            below = pc.or_(below, here)
        return pc.fill_null(pc.and_(old, below), False)  # noqa: FBT003 a value

    def may_be(self, partition: int, offset: int, timestamp_ms: int) -> bool:
        """Whether a record may have been a dead letter that has left: it was there before it was rejected."""
        return offset < self.to.get(partition, 0) and timestamp_ms < self.before.timestamp() * 1000
