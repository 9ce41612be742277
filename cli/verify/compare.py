"""The pass over the table, whose rows are compared with what topic and dead letters say.

Each side is reduced to order-free digests of ranges of offsets, so memory does not grow with the table, but for keys where those
tell rows apart. Only ranges whose digests differ are read again, row by row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cli.kafka import Topic
from cli.verify.claim import Claim, Span
from cli.verify.columns import numbers, within
from cli.verify.hashing import Digests, Place
from cli.verify.keyed.fold import KeyCheck
from cli.verify.keyed.modes import Mode
from cli.verify.letters import Count, Letters
from cli.verify.rows import ByFile, MainRows, Rows
from cli.verify.topic_side import TopicSide


@dataclass(slots=True)
class TableSide:
    """What the table holds. `outside` are rows of offsets that the table does not claim, by file and partition.

    `doubled`: keys that more than one row has; `stale`: rows that a record which is no row any more has outlived: both by
    file and partition.
    """

    rows: Digests = field(default_factory=Digests)
    places: dict[str, set[Place]] = field(default_factory=dict)
    outside: dict[tuple[str, int | None], list[int | None]] = field(default_factory=dict)
    compacted: int = 0
    total: int = 0
    doubled: ByFile = field(default_factory=dict)
    stale: ByFile = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sides:
    """Both sides after the passes.

    `claimed` are the offsets that the table says it holds, `spans` those of them that Kafka has not let go.
    """

    claim: Claim
    source: Topic
    claimed: Mapping[int, Span]
    spans: Mapping[int, Span]
    main: MainRows
    topic: TopicSide
    table: TableSide

    @property
    def letters(self) -> Letters:
        return self.topic.letters

    @property
    def compacted(self) -> bool:
        return self.topic.held is not None


def read_table(
    main: MainRows, claimed: Mapping[int, Span], spans: Mapping[int, Span], topic: TopicSide, count: Count
) -> TableSide:
    """One pass over the table. `claimed` are the offsets it says it holds, `spans` those of them that Kafka still has.

    Completes what the topic says of an upsert table, in `topic.rows`: a row whose record Kafka has let go may have a greater
    order than all that is left.
    """
    side = TableSide()
    keys = KeyCheck(topic.fold) if topic.fold else None
    held = None if topic.held is None else pa.array(topic.held, pa.int64())
    for task in main.tasks:
        for rows in main.read(task):
            side.total += len(rows.offsets)
            _note_outside(rows, claimed, side)
            provable = within(rows.partitions, rows.offsets, spans)
            if held is not None:
                there = pc.and_(provable, pc.is_in(numbers(rows.partitions, rows.offsets), held))
                side.compacted += provable.true_count - there.true_count
                provable = there
            inside = rows.where(provable).staying
            if keys is not None:
                folded = _folded(rows, topic.mode)
                keys.take(rows.where(folded), provable.filter(folded))
            found = side.rows.add(inside.partitions, inside.offsets, inside.hashes)
            side.places.setdefault(rows.file, set()).update(found)
            count(side.total)
    if keys is not None and topic.fold is not None:
        side.doubled, side.stale = keys.judge()
        topic.rows.add(*topic.fold.rows())
    if topic.firsts is not None:
        side.doubled = topic.firsts.doubled()
    return side


def _folded(rows: Rows, mode: Mode | None) -> Any:
    """True for rows whose keys decide whether they are there."""
    if mode is None or mode.to is None:
        return pa.array(np.full(len(rows.offsets), fill_value=True))
    return within(rows.partitions, rows.offsets, {p: (0, to) for p, to in mode.to.items()})


def _note_outside(rows: Rows, claimed: Mapping[int, Span], side: TableSide) -> None:
    for partition, offset in rows.where(pc.invert(within(rows.partitions, rows.offsets, claimed))).places():
        side.outside.setdefault((rows.file, partition), []).append(offset)
