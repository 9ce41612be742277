"""The comparison: one pass over the dead letters, one over the topic, one over the table, then a closer look at what differs.

Each side is reduced to order-free digests of ranges of offsets, so memory does not grow with the table. Only ranges whose
digests differ are read again, row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from calve.position import Offsets
from cli.verify.decoding import Decoding
from cli.verify.digest import Digests, Place
from cli.verify.filters import Filters
from cli.verify.firsts import Firsts
from cli.verify.fold import Fold, KeyCheck
from cli.verify.modes import Mode, keyed_rows
from cli.verify.rows import (
    LETTER_COLUMNS,
    LetterRows,
    MainRows,
    Rows,
    comparable_records,
    letter_columns,
    rows_of,
)
from cli.verify.skips import BY_SCHEMA, LASTING, Skips
from cli.verify.topic import Reader, Records

Span = tuple[int, int]
Count = Callable[[int], object]


@dataclass(slots=True)
class Letters:
    """The dead letters without their contents: partition -> offset -> reason of those that can be compared.

    `redriven`: those of them that came back, so that the table must have their records, each with the round of the redrive.
    `came_back`: how many did, in all.
    """

    rows: LetterRows | None
    reasons: dict[int, dict[int, str]] = field(default_factory=dict)
    digests: Digests = field(default_factory=Digests)
    places: dict[str, set[Place]] = field(default_factory=dict)
    by_reason: dict[str, int] = field(default_factory=dict)
    redriven: dict[tuple[int, int], str] = field(default_factory=dict)
    came_back: int = 0

    def keeps(self, partition: int, offset: int) -> bool:
        """True where there is a dead letter, open or not."""
        return offset in self.reasons.get(partition, {})

    def holds(self, partition: int, offset: int) -> bool:
        """True where there is one that is open: its record must not be in the table."""
        return self.keeps(partition, offset) and (partition, offset) not in self.redriven


@dataclass(slots=True)
class TopicSide:
    """What the topic says must be in the table and among the dead letters.

    `undecodable` are records that are no rows and no dead letters either: (partition, offset) -> reason.
    `misjudged` are dead letters whose reason the bytes contradict: (partition, offset) -> (reason given, reason found).
    `duplicates` counts good records that make no row, as the table has the first of their key.
    """

    records: Offsets = field(default_factory=dict)
    rows: Digests = field(default_factory=Digests)
    letters: Digests = field(default_factory=Digests)
    undecodable: dict[tuple[int, int], str] = field(default_factory=dict)
    misjudged: dict[tuple[int, int], tuple[str, str | None]] = field(default_factory=dict)
    held: dict[int, list[Any]] | None = None
    skips: Skips = field(default_factory=Skips)
    filters: Filters = field(default_factory=Filters)
    mode: Mode | None = None
    fold: Fold | None = None
    firsts: Firsts | None = None
    duplicates: int = 0


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


def read_letters(rows: LetterRows | None, claimed: dict[int, Span], spans: dict[int, Span]) -> Letters:
    """One pass over the dead letters. All that the table claims are counted, those that Kafka still has can be compared."""
    letters = Letters(rows)
    for task in rows.tasks if rows else ():
        for found, reasons, marked in rows.read(task) if rows else ():
            claimed_here = _inside(found, claimed)
            letters.came_back += pc.count(marked.filter(claimed_here)).as_py()
            counted = reasons.filter(claimed_here)
            for pair in counted.value_counts().to_pylist():
                letters.by_reason[pair["values"]] = letters.by_reason.get(pair["values"], 0) + pair["counts"]
            inside = _inside(found, spans)
            kept = found.where(inside)
            added = letters.digests.add(kept.partitions, kept.offsets, kept.hashes)
            letters.places.setdefault(found.file, set()).update(added)
            places = zip(kept.partitions.to_pylist(), kept.offsets.to_pylist(), strict=True)
            told = zip(reasons.filter(inside).to_pylist(), marked.filter(inside).to_pylist(), strict=True)
            for (partition, offset), (reason, back) in zip(places, told, strict=True):
                letters.reasons.setdefault(partition, {})[offset] = reason
                if back:
                    letters.redriven[partition, offset] = back
    return letters


def read_topic(
    reader: Reader,
    spans: dict[int, Span],
    decoder: Decoding,
    letters: Letters,
    side: TopicSide,
    *,
    count: Count,
) -> TopicSide:
    """One pass over the topic, into `side`. Of an upsert table the rows are in its `fold`, not in `rows` yet."""
    done = 0
    for records in reader.read(spans):
        for partition in set(records.partitions):
            side.records[partition] = side.records.get(partition, 0) + records.partitions.count(partition)
        if side.held is not None:
            for partition, offset in zip(records.partitions, records.offsets, strict=True):
                side.held.setdefault(partition, []).append(offset)
        found: Iterable[Rows] = list(topic_rows(records, decoder, letters, side))
        if side.fold is not None:
            side.fold.add(each for each in found if each.keys is not None)
            found = (each for each in found if each.keys is None)
        for rows in found if side.firsts is None else _firsts_of(found, side, side.firsts, letters):
            side.rows.add(rows.partitions, rows.offsets, rows.hashes)
        dead = topic_letters(records, letters)
        side.letters.add(dead.partitions, dead.offsets, dead.hashes)
        done += len(records)
        count(done)
    return side


def _firsts_of(found: Iterable[Rows], side: TopicSide, firsts: Firsts, letters: Letters) -> Iterator[Rows]:
    """The rows but duplicates, which are counted, unless they were dead letters once: a redrive's ledger has those."""
    for rows in found:
        duplicates = firsts.duplicates(rows)
        places = rows.where(duplicates).places()
        side.duplicates += sum(place not in letters.redriven for place in places)
        yield rows.where(pc.invert(duplicates))


def topic_rows(
    records: Records,
    decoder: Decoding,
    letters: Letters,
    side: TopicSide,
    *,
    note: bool = True,
) -> Iterator[Rows]:
    """The rows that the records make; `note`: what is no row in `side`, its `skips` and its `filters`."""
    skips, filters, mode = side.skips, side.filters, side.mode
    places = zip(records.partitions, records.offsets, strict=True)
    alive = [
        place for place, (partition, offset) in enumerate(places) if not letters.holds(partition, offset)
    ]
    if note and len(alive) < len(records):
        _judge(records, set(alive), decoder, letters, side)
    living = records if len(alive) == len(records) else records.select(alive)
    living = filters.own(living, count=note)
    if skipped := skips.for_their_schema(living):
        if note:
            for place in skipped:
                skips.take((living.partitions[place], living.offsets[place]), BY_SCHEMA)
        living = living.select([place for place in range(len(living)) if place not in skipped])
    found, refused = _rows_of(living, decoder, mode)
    if note:
        for place, reason in refused:
            key = living.partitions[place], living.offsets[place]
            if not skips.take(key, reason):
                side.undecodable[key] = reason
    yield from found


def _rows_of(
    records: Records, decoder: Decoding, mode: Mode | None
) -> tuple[list[Rows], list[tuple[int, str]]]:
    """Rows, with their keys where those decide whether they are rows, and (place, reason) of records that are none."""
    places = range(len(records))
    keyed = [n for n in places if mode and mode.covers(records.partitions[n], records.offsets[n])]
    plain = sorted(set(places) - set(keyed))
    found: list[Rows] = []
    refused: list[tuple[int, str]] = []
    if plain:
        batches, unread = decoder.rows(records.select(plain) if keyed else records)
        found += [rows_of(batch) for batch in batches]
        refused += [(plain[n], reason) for n, reason in unread]
    if mode and keyed:
        batches_by_key, unread = keyed_rows(decoder, records.select(keyed) if plain else records, mode)
        found += [rows_of(each.batch, "", each) for each in batches_by_key]
        refused += [(keyed[n], reason) for n, reason in unread]
    return found, refused


def topic_letters(records: Records, letters: Letters) -> Rows:
    """The records that are dead letters, as those keep them."""
    places = zip(records.partitions, records.offsets, strict=True)
    dead = records.select(
        [n for n, (partition, offset) in enumerate(places) if letters.keeps(partition, offset)]
    )
    topic = letters.rows.topic if letters.rows else ""
    made = {
        "topic": [topic] * len(dead),
        "partition": dead.partitions,
        "offset": dead.offsets,
        "timestamp": [ms * 1000 for ms in dead.timestamps_ms],
        "timestamp_type": dead.timestamp_types,
        "key": dead.keys,
        "value": dead.values,
        "headers": [
            None if each is None else [{"key": key, "value": value} for key, value in each]
            for each in dead.headers
        ],
    }
    schema = letter_columns()
    batch = pa.record_batch(
        [pa.array(made[name], schema.field(name).type) for name in LETTER_COLUMNS], schema=schema
    )
    return Rows("", batch.column("partition"), batch.column("offset"), comparable_records(batch))


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
            provable = _inside(rows, spans)
            if kept_offsets is not None:
                before = pc.sum(provable).as_py() or 0
                provable = pc.and_(provable, _held(rows, kept_offsets))
                side.compacted += before - (pc.sum(provable).as_py() or 0)
            inside = rows.where(provable)
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


def _judge(records: Records, alive: set[int], decoder: Decoding, letters: Letters, side: TopicSide) -> None:
    """Compare the reason of each dead letter with what its bytes say."""
    for place in set(range(len(records))) - alive:
        partition, offset = records.partitions[place], records.offsets[place]
        given = letters.reasons[partition][offset]
        if given not in LASTING:
            continue
        judge = decoder.judge if side.mode is None else partial(side.mode.judge, decoder)
        if (found := judge(records, place)) != given:
            side.misjudged[partition, offset] = (given, found)


def _folded(rows: Rows, mode: Mode | None) -> Any:
    """True for rows whose keys decide whether they are there."""
    if mode is None or mode.to is None:
        return pa.repeat(pa.scalar(True), len(rows.offsets))  # noqa: FBT003 a value
    return _inside(rows, {p: (0, to) for p, to in mode.to.items()})


def _inside(rows: Rows, spans: dict[int, Span]) -> Any:
    """True for rows whose offset lies in the span of their partition."""
    mask = pa.repeat(pa.scalar(False), len(rows.offsets))  # noqa: FBT003 a value
    for partition in pc.unique(rows.partitions.drop_null()).to_pylist():
        start, to = spans.get(partition, (0, 0))
        here = pc.and_(pc.greater_equal(rows.offsets, start), pc.less(rows.offsets, to))
        mask = pc.or_(mask, pc.and_(here, pc.equal(rows.partitions, partition)))
    return pc.fill_null(mask, False)  # noqa: FBT003 a value


def _held(rows: Rows, held: dict[int, Any]) -> Any:
    mask = pa.repeat(pa.scalar(False), len(rows.offsets))  # noqa: FBT003 a value
    for partition, offsets in held.items():
        mask = pc.or_(mask, pc.and_(pc.is_in(rows.offsets, offsets), pc.equal(rows.partitions, partition)))
    return mask


def _note_outside(rows: Rows, claimed: dict[int, Span], side: TableSide) -> None:
    outside = rows.where(pc.invert(_inside(rows, claimed)))
    for partition, offset in zip(outside.partitions.to_pylist(), outside.offsets.to_pylist(), strict=True):
        side.outside.setdefault((rows.file, partition), []).append(offset)
