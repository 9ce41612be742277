"""The pass over the topic: what must be in the table, and what among the dead letters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from calve.position import Offsets
from cli.verify.aged import Aged
from cli.verify.decoding import Decoding
from cli.verify.digest import Digests
from cli.verify.filters import Filters
from cli.verify.firsts import Firsts
from cli.verify.fold import Fold
from cli.verify.forgotten import Forgotten
from cli.verify.left_out import LeftOut
from cli.verify.letters import Count, Letters, Span
from cli.verify.modes import Mode, keyed_rows
from cli.verify.rows import LETTER_COLUMNS, Rows, comparable_records, letter_columns, rows_of, unhashed
from cli.verify.seals import BYTES
from cli.verify.skips import BY_SCHEMA, LASTING, Key, Skips
from cli.verify.steps import EMPTIED, LEFT_OUT
from cli.verify.topic import Reader, Records, moment
from cli.verify.totals import Totals


@dataclass(slots=True)
class TopicSide:
    """What the topic says must be in the table and among the dead letters.

    `undecodable` are records that are no rows and no dead letters either: (partition, offset) -> reason.
    `misjudged` are dead letters whose reason the bytes contradict: (partition, offset) -> (reason given, reason found).
    `duplicates` counts good records that make no row, as the table has the first of their key; `left_out` those that a step
    leaves out; `emptied` those of which it leaves out all rows. `aged`, `aged_letters`: what has left for its age. `fetched`: how
    many partitions were read as the job reads them (`Reader.bounded`).
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
    left_out: LeftOut = field(default_factory=LeftOut)
    emptied: int = 0
    totals: Totals | None = None
    forgotten: Forgotten = field(default_factory=Forgotten)
    aged: Aged | None = None
    aged_letters: Aged | None = None
    fetched: int = 0

    def has_left(self, partition: int, offset: int, timestamp_ms: int) -> bool:
        """Whether a record may be a dead letter no more for its age."""
        return self.aged_letters is not None and self.aged_letters.may_be(partition, offset, timestamp_ms)

    def expected(self, records: Records) -> Records:
        """The records but the forgotten. Where keys tell rows apart those count all the same: no older one is the row."""
        if not self.forgotten.requests:
            return records
        partitions, offsets = np.array(records.partitions, np.int64), np.array(records.offsets, np.int64)
        rows = self.forgotten.rows.masks(partitions, offsets)
        if self.fold is not None and self.mode is not None:
            places = zip(records.partitions, records.offsets, strict=True)
            rows &= ~np.array([self.mode.covers(*place) for place in places], bool)
        return records.select(
            np.flatnonzero(~(rows | self.forgotten.letters.masks(partitions, offsets))).tolist()
        )


def read_topic(
    reader: Reader,
    spans: dict[int, Span],
    decoder: Decoding,
    letters: Letters,
    side: TopicSide,
    *,
    count: Count,
) -> TopicSide:
    """One pass over the topic, into `side`. Of an upsert table the rows are in its `fold`, not in `rows` yet; of one of totals
    they are in its `totals`.
    """
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
        if side.totals is not None:
            for rows in found:
                side.totals.add(rows.batch)
            found = ()
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
        places = set(rows.where(duplicates).places())
        side.duplicates += len(places - letters.redriven.keys())
        yield rows.where(pc.invert(duplicates))


def topic_rows(
    records: Records,
    decoder: Decoding,
    letters: Letters,
    side: TopicSide,
    *,
    left_out: set[Key] | None = None,
) -> Iterator[Rows]:
    """The rows that the records make; what is no row is noted in `side`, its `skips`, its `filters` and its `left_out`.

    left_out: where this is not None nothing is noted, but in it what a step leaves out.
    """
    skips, filters, mode, note = side.skips, side.filters, side.mode, left_out is None
    records = side.expected(records)
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
    found, refused = made_of(living, decoder, mode, side.aged)
    by_steps: set[Key] = set() if left_out is None else left_out
    for place, reason in refused:
        key = living.partitions[place], living.offsets[place]
        if reason == LEFT_OUT:
            by_steps.add(key)
        elif reason == EMPTIED:
            side.emptied += note
        elif note and not side.has_left(*key, living.timestamps_ms[place]) and not skips.take(key, reason):
            side.undecodable[key] = reason
    if note:
        side.left_out.take(by_steps - letters.redriven.keys())
    yield from (each.staying for each in found)


def made_of(
    records: Records, decoder: Decoding, mode: Mode | None, aged: Aged | None = None
) -> tuple[list[Rows], list[tuple[int, str]]]:
    """Rows, with their keys where those decide whether they are rows, and (place, reason) of records that are none."""
    if any(records.refused):
        kept = [n for n, why in enumerate(records.refused) if why is None]
        made, unread = made_of(records.select(kept), decoder, mode, aged)
        undelivered = [(n, why) for n, why in enumerate(records.refused) if why]
        return made, [*undelivered, *((kept[n], reason) for n, reason in unread)]
    every = range(len(records))
    keyed: Sequence[int] = every if mode else ()
    if mode and mode.to is not None:
        keyed = [n for n in every if mode.covers(records.partitions[n], records.offsets[n])]
    plain: Sequence[int] = sorted(set(every) - set(keyed)) if keyed else every
    found: list[Rows] = []
    refused: list[tuple[int, str]] = []
    if plain:
        batches, unread = decoder.rows(records.select(plain) if keyed else records)
        found += [rows_of(batch, aged=aged) for batch in batches]
        refused += [(plain[n], reason) for n, reason in unread]
    if mode and keyed:
        batches_by_key, unread = keyed_rows(decoder, records.select(keyed) if plain else records, mode)
        found += [
            unhashed(each.batch) if mode.totals else rows_of(each.batch, "", each) for each in batches_by_key
        ]
        refused += [(keyed[n], reason) for n, reason in unread]
    return found, refused


def topic_letters(records: Records, letters: Letters) -> Rows:
    """The records that are dead letters, as those keep them; of those that cannot be opened, what is known without."""
    places = zip(records.partitions, records.offsets, strict=True)
    dead = records.select(
        [n for n, (partition, offset) in enumerate(places) if letters.keeps(partition, offset)]
    )
    topic = letters.rows.topic if letters.rows else ""
    held = zip(dead.partitions, dead.offsets, strict=True)
    closed = [place in letters.unopened for place in held]
    made: dict[str, Any] = {
        "topic": [topic] * len(dead),
        "partition": dead.partitions,
        "offset": dead.offsets,
        "timestamp": list(map(moment, dead.timestamps_ms)),
        "timestamp_type": dead.timestamp_types,
        "key": dead.keys,
        "value": dead.values,
        "headers": [
            None if each is None else [{"key": key, "value": value} for key, value in each]
            for each in dead.headers
        ],
    }
    for name in BYTES if any(closed) else ():
        made[name] = [None if sealed else each for sealed, each in zip(closed, made[name], strict=True)]
    schema = letter_columns()
    batch = pa.record_batch(
        [pa.array(made[name], schema.field(name).type) for name in LETTER_COLUMNS], schema=schema
    )
    return Rows("", batch.column("partition"), batch.column("offset"), comparable_records(batch))


def _judge(records: Records, alive: set[int], decoder: Decoding, letters: Letters, side: TopicSide) -> None:
    """Compare the reason of each dead letter with what its bytes say."""
    dead = records.select([place for place in range(len(records)) if place not in alive])
    given = [letters.reasons[p][o] for p, o in zip(dead.partitions, dead.offsets, strict=True)]
    lasting = [place for place, reason in enumerate(given) if reason in LASTING]
    judged = dead.select(lasting)
    found = decoder.judge(judged) if side.mode is None else side.mode.judge(decoder, judged)
    for n, (place, reason) in enumerate(zip(lasting, found, strict=True)):
        reason = (judged.refused[n] if judged.refused else None) or reason
        if reason not in (given[place], EMPTIED):
            side.misjudged[dead.partitions[place], dead.offsets[place]] = (given[place], reason)
