"""The passes over topic and table: the rows and dead letters that the topic makes, and those that the table has.

Each side is reduced to order-free digests of ranges of offsets, so memory does not grow with the table, except for keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from calve.schema.columns import UNDELIVERED
from calve.table.protocol import TopicState
from cli.verify.claim import Bounds, Claim
from cli.verify.columns import Digests, Place, number, numbers, places_of, within
from cli.verify.counts import BY_SCHEMA, LASTING, Filters, Key, LeftOut, Skips
from cli.verify.dead_letters import Count, DeadLetters, dead_letters_of
from cli.verify.formats.decoding import Decoding, Refused
from cli.verify.formats.fields import EMPTIED, LEFT_OUT
from cli.verify.keyed.aggregate import Totals
from cli.verify.keyed.deduplicate import Firsts
from cli.verify.keyed.history import Versions
from cli.verify.keyed.modes import Mode
from cli.verify.keyed.upsert import TRUNCATES, Fold
from cli.verify.rows import Aged, ByFile, Forgotten, MainRows, Rows, rows_of
from cli.verify.topic import Reader, Records


@dataclass(slots=True)
class Sides:
    """What is compared, and what the passes found.

    `claimed`: offsets that the table claims; `spans`: those that Kafka still has, and whose schemas are known. `aged`,
    `aged_dead_letters`: deleted for their age.

    Of the topic: `records`: their number. `topic_rows`, `topic_dead_letters`: that it makes. `undecodable`: records that are
    neither rows nor dead letters: (partition, offset) -> reason. `misjudged`: dead letters whose bytes contradict the reason:
    (partition, offset) -> (given, found). `kept`: places of a compacted topic's records, as numbers; None: not compacted.
    `emptied`: number of records whose rows are all left out. `duplicates`: number of good records that repeat an earlier one's
    key. `fetched`: number of partitions that the job's fetch read (`Reader.bounded`).

    Of the table: `total`: its rows. `table_rows`: those to compare. `files`: their places, by file. `outside`: rows of unclaimed
    offsets, by file and partition. `compacted_away`: number of rows whose records are. `doubled`: rows with the key of another
    row; `stale`: rows whose record no longer counts.
    """

    decoder: Decoding
    dead_letters: DeadLetters
    claim: Claim
    source: TopicState
    claimed: Mapping[int, Bounds]
    spans: Mapping[int, Bounds]
    main: MainRows
    skips: Skips = field(default_factory=Skips)
    filters: Filters = field(default_factory=Filters)
    left_out: LeftOut = field(default_factory=LeftOut)
    mode: Mode | None = None
    fold: Fold | Firsts | Versions | None = None
    totals: Totals | None = None
    forgotten: Forgotten = field(default_factory=Forgotten)
    aged: Aged | None = None
    aged_dead_letters: Aged | None = None

    records: int = 0
    topic_rows: Digests = field(default_factory=Digests)
    topic_dead_letters: Digests = field(default_factory=Digests)
    undecodable: dict[Key, str] = field(default_factory=dict)
    misjudged: dict[Key, tuple[str, str | None]] = field(default_factory=dict)
    kept: list[int] | None = None
    emptied: int = 0
    duplicates: int = 0
    fetched: int = 0

    total: int = 0
    table_rows: Digests = field(default_factory=Digests)
    files: dict[str, set[Place]] = field(default_factory=dict)
    outside: dict[tuple[str, int | None], list[int | None]] = field(default_factory=dict)
    compacted_away: int = 0
    doubled: ByFile = field(default_factory=dict)
    stale: ByFile = field(default_factory=dict)

    @property
    def compacted(self) -> bool:
        return self.kept is not None

    @property
    def readable(self) -> dict[int, Bounds]:
        """The spans without offsets beyond the topic's end."""
        return {p: (a, min(b, self.source.end.get(p, 0))) for p, (a, b) in self.spans.items()}


def read_topic(sides: Sides, reader: Reader, count: Count) -> None:
    """One pass over the topic: digests of the rows and dead letters that it makes."""
    for records in reader.read(sides.readable):
        sides.records += len(records)
        if sides.kept is not None:
            sides.kept += map(number, records.partitions, records.offsets)
        found = list(rows_made(records, sides))
        if sides.fold is not None:
            sides.fold.add(each for each in found if each.keys is not None)
        for rows in found:
            if sides.totals is not None:
                sides.totals.add(rows.batch)
            elif rows.keys is None:
                sides.topic_rows.add(rows.partitions, rows.offsets, rows.hashes)
        dead = dead_letters_of(records, sides.dead_letters)
        sides.topic_dead_letters.add(dead.partitions, dead.offsets, dead.hashes)
        count(sides.records)
    sides.fetched = len(reader.bounded)


def rows_made(records: Records, sides: Sides, why: dict[Key, str] | None = None) -> Iterator[Rows]:
    """The rows of the records; other outcomes are noted in `sides`.

    why: if given, nothing is noted but why records are other tables' or are left out by a step, and only here.
    """
    living = _expected(records, sides)
    places = zip(living.partitions, living.offsets, strict=True)
    dead = [n for n, place in enumerate(places) if sides.dead_letters.holds(*place)]
    if why is None and dead:
        _judge(living.select(dead), sides)
    living = living.without(dead)
    others = sides.filters.places(living)
    if why is None:
        sides.filters.take(living, others)
    else:
        why |= {living.place(n): "they belong to other tables" for n in others}
    living = living.without(others)
    skipped = sides.skips.for_their_schema(living)
    for n in skipped if why is None else ():
        sides.skips.take(living.place(n), BY_SCHEMA)
    living = living.without(skipped)
    found, refused = made_of(living, sides.decoder, sides.mode, sides.aged)
    if why is None:
        _note(living, refused, sides)
    else:
        why |= {living.place(n): "a step leaves them out" for n, reason in refused if reason == LEFT_OUT}
    yield from (each.staying for each in found)


def _expected(records: Records, sides: Sides) -> Records:
    """The records without forgotten ones. In a fold these count all the same: no older record is the row."""
    if not sides.forgotten.requests:
        return records
    partitions, offsets = np.array(records.partitions, np.int64), np.array(records.offsets, np.int64)
    rows = sides.forgotten.rows.masks(partitions, offsets)
    if sides.mode is not None and sides.mode.newest:
        places = zip(records.partitions, records.offsets, strict=True)
        rows &= ~np.array([sides.mode.covers(*place) for place in places], bool)
    gone = rows | sides.forgotten.dead_letters.masks(partitions, offsets)
    return records.without(np.flatnonzero(gone).tolist())


def _judge(dead: Records, sides: Sides) -> None:
    """Compare the reason of each dead letter with its bytes."""
    given = [sides.dead_letters.reasons[p][o] for p, o in zip(dead.partitions, dead.offsets, strict=True)]
    lasting = [place for place, reason in enumerate(given) if reason in LASTING]
    judged = dead.select(lasting)
    _, refused = made_of(judged, sides.decoder, sides.mode)
    found, doubtful = dict(refused), sides.decoder.doubtful(judged)
    for n, place in enumerate(lasting):
        reason = found.get(n)
        # A refused record, or one with a bad key, keeps that reason whatever its value is.
        if n in doubtful and reason not in UNDELIVERED and not (reason or "").startswith("key_"):
            reason = "malformed"
        if reason not in (given[place], EMPTIED):
            sides.misjudged[dead.place(place)] = (given[place], reason)


def _note(records: Records, refused: Refused, sides: Sides) -> None:
    """Note the records that make no rows, and are no dead letters."""
    by_steps: set[Key] = set()
    left = sides.aged_dead_letters
    for n, reason in refused:
        key = records.place(n)
        if reason == LEFT_OUT:
            by_steps.add(key)
        elif reason == EMPTIED:
            sides.emptied += 1
        elif left is not None and left.may_be(*key, records.timestamps_ms[n]):
            pass
        elif not sides.skips.take(key, reason):
            sides.undecodable[key] = reason
    sides.left_out.take(by_steps - sides.dead_letters.redriven.keys())


def made_of(
    records: Records, decoder: Decoding, mode: Mode | None, aged: Aged | None = None
) -> tuple[list[Rows], Refused]:
    """Rows, with keys if these decide, and (place, reason) of records without rows."""
    refused: Refused = [(n, why) for n, why in enumerate(records.refused) if why]
    undelivered = {n for n, _ in refused}
    places = enumerate(zip(records.partitions, records.offsets, strict=True))
    keyed = {n for n, place in places if mode is not None and mode.covers(*place)} - undelivered
    found: list[Rows] = []
    plain = sorted(set(range(len(records))) - keyed - undelivered)
    if plain:
        batches, unread = decoder.rows(records.select(plain))
        found += [rows_of(batch, aged=aged) for batch in batches]
        refused += [(plain[n], reason) for n, reason in unread]
    if mode and keyed:
        by_key = sorted(keyed)
        made, unread = keyed_rows(decoder, records.select(by_key), mode)
        found += made
        refused += [(by_key[n], reason) for n, reason in unread]
    return found, refused


def keyed_rows(decoder: Decoding, records: Records, mode: Mode) -> tuple[list[Rows], Refused]:
    """Rows and tombstones of the records with their keys, and (place, reason) of other records.

    If one row of a record has a null in its key, the record makes none.
    """
    empty = mode.deletes or mode.changes is not None
    dead = [n for n, value in enumerate(records.values) if value is None and empty]
    living = [n for n, value in enumerate(records.values) if value is not None or not empty]
    known = {place: n for n, place in enumerate(map(number, records.partitions, records.offsets))}
    found: list[Rows] = []
    refused: Refused = []
    for places, tombstones in ((living, False), (dead, True)):
        if not places:
            continue
        batches, unread = decoder.rows(records.select(places), tombstones=tombstones)
        refused += [(places[n], reason) for n, reason in unread]
        deeds = (each for batch in batches for each in mode.by_deed(batch, tombstones=tombstones))
        for batch, deletes, idle in deeds:
            at = places_of(batch)
            if mode.versions and idle == TRUNCATES:
                refused += [(known[place], "truncation") for place in at.to_pylist()]
                continue
            lacking = pc.unique(at.filter(mode.nameless(batch))) if idle is None else at[:0]
            refused += [(known[place], "null_key") for place in lacking.to_pylist()]
            named = batch.filter(pc.invert(pc.is_in(at, lacking)))
            found.append(rows_of(named, mode=mode, tombstones=deletes, idle=idle))
    left_out = [n for n, reason in refused if reason == LEFT_OUT]
    if mode.drops and left_out:
        for batch in decoder.dropped(records.select(left_out)):
            named = batch.filter(pc.invert(mode.nameless(batch)))
            found.append(rows_of(named, mode=mode, tombstones=True))
    return found, refused


def read_table(sides: Sides, count: Count) -> None:
    """One pass over the table.

    Completes the rows of an upsert table: a row whose record Kafka has deleted may have a greater order than all that is left.
    """
    fold = sides.fold
    kept = None if sides.kept is None else pa.array(sides.kept, pa.int64())
    for rows in sides.main.read():
        sides.total += len(rows.offsets)
        unclaimed = pc.invert(within(rows.partitions, rows.offsets, sides.claimed))
        for partition, offset in rows.where(unclaimed).places():
            sides.outside.setdefault((rows.file, partition), []).append(offset)
        provable = within(rows.partitions, rows.offsets, sides.spans)
        if kept is not None:
            there = pc.and_(provable, pc.is_in(numbers(rows.partitions, rows.offsets), kept))
            sides.compacted_away += provable.true_count - there.true_count
            provable = there
        if isinstance(fold, Fold):
            folded = _folded(rows, sides.mode)
            fold.hold(rows.where(folded), provable.filter(folded))
        elif isinstance(fold, Versions):
            fold.hold(rows.where(pc.invert(provable)))
        inside = rows.where(provable).staying
        found = sides.table_rows.add(inside.partitions, inside.offsets, inside.hashes)
        sides.files.setdefault(rows.file, set()).update(found)
        count(sides.total)
    if isinstance(fold, Fold):
        sides.doubled, sides.stale = fold.judge()
    elif isinstance(fold, Firsts):
        sides.doubled = fold.doubled()
        sides.duplicates = fold.duplicates()
    for batch in fold.rows() if fold else ():
        sides.topic_rows.add(*batch.columns)


def _folded(rows: Rows, mode: Mode | None) -> pa.BooleanArray:
    """True for rows whose keys decide whether they exist."""
    if mode is None or mode.to is None:
        return pa.array(np.full(len(rows.offsets), fill_value=True))
    return within(rows.partitions, rows.offsets, {p: (0, to) for p, to in mode.to.items()})
