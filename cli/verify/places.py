"""Places of records as one number each, and which round read them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from calve.names import SYSTEM_COLUMN
from cli.verify.claim import Round

SHIFT = 48
"""The partition stands above so many bits of offset."""


def number(partition: Any, offset: Any) -> Any:
    """The place as one number, of integers or of arrays of numpy's."""
    return (partition << SHIFT) + offset


def places_of(rows: pa.RecordBatch) -> Any:
    """The number of each row's place."""
    kafka = rows.column(SYSTEM_COLUMN)
    partition, offset = (kafka.field(name).cast(pa.int64()) for name in ("partition", "offset"))
    return pc.add(pc.shift_left(partition, SHIFT), offset)


class Rounds:
    """The rounds of one incarnation of a topic by what they read."""

    def __init__(self, rounds: Iterable[Round]) -> None:
        self._starts: dict[int, list[tuple[int, int, Round]]] = {}
        for each in rounds:
            for partition, first in each.start.get(each.topic, {}).items():
                to = each.to.get(each.topic, {}).get(partition, first)
                self._starts.setdefault(partition, []).append((first, to, each))
        for starts in self._starts.values():
            starts.sort(key=lambda each: each[:2])

    def reading(self, partition: int, offset: int) -> Round | None:
        """The one that read an offset; None where no snapshot says it any more."""
        starts = self._starts.get(partition, [])
        at = bisect_right(starts, offset, key=lambda each: each[0]) - 1
        return starts[at][2] if at >= 0 and offset < starts[at][1] else None
