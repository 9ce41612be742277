"""The pass over the topic: which rows and dead letters must exist."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from calve.schema.columns import UNDELIVERED
from cli.verify.claim import Bounds
from cli.verify.columns import Digests, number
from cli.verify.counts import BY_SCHEMA, LASTING, Filters, Key, LeftOut, Skips
from cli.verify.dead_letters import Count, DeadLetters, dead_letters_of
from cli.verify.formats.decoding import Decoding, Refused
from cli.verify.keyed.aggregate import Totals
from cli.verify.keyed.modes import Mode, keyed_rows
from cli.verify.keyed.store import Store
from cli.verify.rows import Aged, Forgotten, Rows, rows_of, unhashed
from cli.verify.steps.chain import EMPTIED, LEFT_OUT
from cli.verify.topic import Reader, Records


@dataclass(slots=True)
class TopicSide:
    """The rows and dead letters that the topic demands, by the decoder and the existing dead letters.

    `undecodable`: records that are neither rows nor dead letters: (partition, offset) -> reason. `misjudged`: dead letters whose
    bytes contradict the reason: (partition, offset) -> (given, found). `held`: places of a compacted topic's records, as numbers;
    None: not compacted. `duplicates`: number of good records that repeat an earlier one's key; `left_out`: records that a step
    leaves out; `emptied`: number of records whose rows are all left out. `aged`, `aged_dead_letters`: deleted for their age.
    `fetched`: number of partitions that the job's fetch read (`Reader.bounded`).
    """

    decoder: Decoding
    dead_letters: DeadLetters
    records: Counter[int] = field(default_factory=Counter)
    rows: Digests = field(default_factory=Digests)
    dead: Digests = field(default_factory=Digests)
    undecodable: dict[tuple[int, int], str] = field(default_factory=dict)
    misjudged: dict[tuple[int, int], tuple[str, str | None]] = field(default_factory=dict)
    held: list[int] | None = None
    skips: Skips = field(default_factory=Skips)
    filters: Filters = field(default_factory=Filters)
    mode: Mode | None = None
    fold: Store | None = None
    duplicates: int = 0
    left_out: LeftOut = field(default_factory=LeftOut)
    emptied: int = 0
    totals: Totals | None = None
    forgotten: Forgotten = field(default_factory=Forgotten)
    aged: Aged | None = None
    aged_dead_letters: Aged | None = None
    fetched: int = 0

    def has_left(self, partition: int, offset: int, timestamp_ms: int) -> bool:
        """Whether a record may be a dead letter that was deleted for its age."""
        return self.aged_dead_letters is not None and self.aged_dead_letters.may_be(
            partition, offset, timestamp_ms
        )

    def expected(self, records: Records) -> Records:
        """The records without forgotten ones. In a fold these count all the same: no older record is the row."""
        if not self.forgotten.requests:
            return records
        partitions, offsets = np.array(records.partitions, np.int64), np.array(records.offsets, np.int64)
        rows = self.forgotten.rows.masks(partitions, offsets)
        if self.mode is not None and self.mode.newest:
            places = zip(records.partitions, records.offsets, strict=True)
            rows &= ~np.array([self.mode.covers(*place) for place in places], bool)
        return records.select(
            np.flatnonzero(~(rows | self.forgotten.dead_letters.masks(partitions, offsets))).tolist()
        )


def read_topic(reader: Reader, spans: dict[int, Bounds], side: TopicSide, *, count: Count) -> None:
    """One pass over the topic, into `side`. Rows that keys decide on are in its `fold`, or in its `totals`."""
    for records in reader.read(spans):
        side.records.update(records.partitions)
        if side.held is not None:
            side.held += map(number, records.partitions, records.offsets)
        found: Iterable[Rows] = list(topic_rows(records, side))
        if side.fold is not None:
            side.fold.add(each for each in found if each.keys is not None)
            found = (each for each in found if each.keys is None)
        if side.totals is not None:
            for rows in found:
                side.totals.add(rows.batch)
            found = ()
        for rows in found:
            side.rows.add(rows.partitions, rows.offsets, rows.hashes)
        dead = dead_letters_of(records, side.dead_letters)
        side.dead.add(dead.partitions, dead.offsets, dead.hashes)
        count(side.records.total())


def topic_rows(records: Records, side: TopicSide, *, left_out: set[Key] | None = None) -> Iterator[Rows]:
    """The rows of the records; other outcomes are noted in `side`, `skips`, `filters` and `left_out`.

    left_out: if given, only records that a step leaves out are noted, and only here.
    """
    note = left_out is None
    records = side.expected(records)
    dead = [
        side.dead_letters.holds(*place) for place in zip(records.partitions, records.offsets, strict=True)
    ]
    if note and any(dead):
        _judge(records.select(np.flatnonzero(dead).tolist()), side)
    living = records.select(np.flatnonzero(~np.array(dead, bool)).tolist()) if any(dead) else records
    living = side.filters.own(living, count=note)
    if skipped := side.skips.for_their_schema(living):
        for place in skipped if note else ():
            side.skips.take((living.partitions[place], living.offsets[place]), BY_SCHEMA)
        living = living.select([place for place in range(len(living)) if place not in skipped])
    found, refused = made_of(living, side.decoder, side.mode, side.aged)
    by_steps: set[Key] = set() if left_out is None else left_out
    for place, reason in refused:
        key = living.partitions[place], living.offsets[place]
        if reason == LEFT_OUT:
            by_steps.add(key)
        elif reason == EMPTIED:
            side.emptied += note
        elif (
            note and not side.has_left(*key, living.timestamps_ms[place]) and not side.skips.take(key, reason)
        ):
            side.undecodable[key] = reason
    if note:
        side.left_out.take(by_steps - side.dead_letters.redriven.keys())
    yield from (each.staying for each in found)


def made_of(
    records: Records, decoder: Decoding, mode: Mode | None, aged: Aged | None = None
) -> tuple[list[Rows], Refused]:
    """Rows, with keys if these decide, and (place, reason) of records without rows."""
    refused: Refused = [(n, why) for n, why in enumerate(records.refused) if why]
    undelivered = {n for n, _ in refused}
    places = zip(records.partitions, records.offsets, strict=True)
    keyed = [mode is not None and mode.covers(*place) for place in places]
    rest = [n for n in range(len(records)) if n not in undelivered]
    found: list[Rows] = []
    if plain := [n for n in rest if not keyed[n]]:
        batches, unread = decoder.rows(records.select(plain))
        found += [rows_of(batch, aged=aged) for batch in batches]
        refused += [(plain[n], reason) for n, reason in unread]
    if mode and (by_key := [n for n in rest if keyed[n]]):
        made, unread = keyed_rows(decoder, records.select(by_key), mode)
        found += [unhashed(each.batch) if mode.totals else rows_of(each.batch, "", each) for each in made]
        refused += [(by_key[n], reason) for n, reason in unread]
    return found, refused


def _judge(dead: Records, side: TopicSide) -> None:
    """Compare the reason of each dead letter with its bytes."""
    given = [side.dead_letters.reasons[p][o] for p, o in zip(dead.partitions, dead.offsets, strict=True)]
    lasting = [place for place, reason in enumerate(given) if reason in LASTING]
    judged = dead.select(lasting)
    _, refused = made_of(judged, side.decoder, side.mode)
    found, doubtful = dict(refused), side.decoder.doubtful(judged)
    for n, place in enumerate(lasting):
        reason = found.get(n)
        # A refused record, or one with a bad key, keeps that reason whatever its value is.
        if n in doubtful and reason not in UNDELIVERED and not (reason or "").startswith("key_"):
            reason = "malformed"
        if reason not in (given[place], EMPTIED):
            side.misjudged[dead.partitions[place], dead.offsets[place]] = (given[place], reason)
