"""The pass over the table, whose rows are compared with what topic and dead letters say.

Each side is reduced to order-free digests of ranges of offsets, so memory does not grow with the table, but for keys where those
tell rows apart. Only ranges whose digests differ are read again, row by row.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cli.verify.digest import Digests, Place
from cli.verify.fold import KeyCheck
from cli.verify.letters import Count, Span, within
from cli.verify.modes import Mode
from cli.verify.rows import MainRows, Rows
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
    doubled: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    stale: dict[tuple[str, int], list[int]] = field(default_factory=dict)


def read_table(
    main: MainRows,
    claimed: dict[int, Span],
    spans: dict[int, Span],
    topic: TopicSide,
    count: Count,
) -> TableSide:
    """One pass over the table. `claimed` are the offsets it says it holds, `spans` those of them that Kafka still has.

    Completes what the topic says of an upsert table, in `topic.rows`: a row whose record Kafka has let go may have a greater
    order than all that is left.
    """
    side, held = TableSide(), topic.held
    keys = KeyCheck(topic.fold) if topic.fold else None
    kept_offsets = (
        {p: pa.array(offsets, pa.int64()) for p, offsets in held.items()} if held is not None else None
    )
    for task in main.tasks:
        for rows in main.read(task):
            side.total += len(rows.offsets)
            _note_outside(rows, claimed, side)
            provable = within(rows, spans)
            if kept_offsets is not None:
                before = pc.sum(provable).as_py() or 0
                provable = pc.and_(provable, _held(rows, kept_offsets))
                side.compacted += before - (pc.sum(provable).as_py() or 0)
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
        return pa.repeat(pa.scalar(True), len(rows.offsets))  # noqa: FBT003 a value
    return within(rows, {p: (0, to) for p, to in mode.to.items()})


def _held(rows: Rows, held: dict[int, Any]) -> Any:
    mask = pa.repeat(pa.scalar(False), len(rows.offsets))  # noqa: FBT003 a value
    for partition, offsets in held.items():
        mask = pc.or_(mask, pc.and_(pc.is_in(rows.offsets, offsets), pc.equal(rows.partitions, partition)))
    return mask


def _note_outside(rows: Rows, claimed: dict[int, Span], side: TableSide) -> None:
    outside = rows.where(pc.invert(within(rows, claimed)))
    for partition, offset in zip(outside.partitions.to_pylist(), outside.offsets.to_pylist(), strict=True):
        side.outside.setdefault((rows.file, partition), []).append(offset)
