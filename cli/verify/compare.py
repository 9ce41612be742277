"""The pass over the table, which compares its rows with those that topic and dead letters make.

Each side is reduced to order-free digests of ranges of offsets, so memory does not grow with the table, except for keys. Only
ranges with different digests are read again, row by row: which offsets, data files and columns differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from calve.table.protocol import TopicState
from cli.verify.claim import Bounds, Claim
from cli.verify.columns import RANGE, Digests, Place, numbers, within
from cli.verify.counts import Key
from cli.verify.dead_letters import Count, DeadLetters, dead_letters_of
from cli.verify.findings import Finding, Findings, ranges
from cli.verify.keyed.deduplicate import Firsts
from cli.verify.keyed.modes import Mode
from cli.verify.keyed.upsert import Fold
from cli.verify.rows import ByFile, MainRows, Rows
from cli.verify.topic import Reader
from cli.verify.topic_side import TopicSide, topic_rows

MAX_PLACES = 64
"""Ranges to compare row by row; further ones are reported as ranges only."""

Hashes = tuple[int, ...]
Found = dict[Key, list[tuple[str, Hashes]]]


@dataclass(slots=True)
class TableSide:
    """The content of the table. `outside`: rows of unclaimed offsets, by file and partition.

    `doubled`: rows with the key of another row; `stale`: rows whose record no longer counts: both by file and partition.
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

    `claimed`: offsets that the table claims; `spans`: those that Kafka still has.
    """

    claim: Claim
    source: TopicState
    claimed: Mapping[int, Bounds]
    spans: Mapping[int, Bounds]
    main: MainRows
    topic: TopicSide
    table: TableSide

    @property
    def dead_letters(self) -> DeadLetters:
        return self.topic.dead_letters

    @property
    def compacted(self) -> bool:
        return self.topic.held is not None


def read_table(
    main: MainRows, claimed: Mapping[int, Bounds], spans: Mapping[int, Bounds], topic: TopicSide, count: Count
) -> TableSide:
    """One pass over the table. `claimed`: offsets that it claims; `spans`: those that Kafka still has.

    Completes the rows of an upsert table in `topic.rows`: a row whose record Kafka has deleted may have a greater order than all
    that is left.
    """
    side = TableSide()
    fold = topic.fold if isinstance(topic.fold, Fold) else None
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
            if fold is not None:
                folded = _folded(rows, topic.mode)
                fold.hold(rows.where(folded), provable.filter(folded))
            found = side.rows.add(inside.partitions, inside.offsets, inside.hashes)
            side.places.setdefault(rows.file, set()).update(found)
            count(side.total)
    if fold is not None:
        side.doubled, side.stale = fold.judge()
    elif isinstance(topic.fold, Firsts):
        side.doubled = topic.fold.doubled()
        topic.duplicates = topic.fold.duplicates(topic.dead_letters.redriven)
    for batch in topic.fold.rows() if topic.fold else ():
        topic.rows.add(*batch.columns)
    return side


def _folded(rows: Rows, mode: Mode | None) -> Any:
    """True for rows whose keys decide whether they exist."""
    if mode is None or mode.to is None:
        return pa.array(np.full(len(rows.offsets), fill_value=True))
    return within(rows.partitions, rows.offsets, {p: (0, to) for p, to in mode.to.items()})


def _note_outside(rows: Rows, claimed: Mapping[int, Bounds], side: TableSide) -> None:
    for partition, offset in rows.where(pc.invert(within(rows.partitions, rows.offsets, claimed))).places():
        side.outside.setdefault((rows.file, partition), []).append(offset)


@dataclass(slots=True)
class _Look:
    """Both sides of some places, row by row. `records`: the places that have a record in Kafka.

    `replaced`: places of records that another record of their key replaces, and of tombstones. `left_out`: of records that a step
    leaves out.
    """

    records: set[Key] = field(default_factory=set)
    replaced: set[Key] = field(default_factory=set)
    filtered: set[Key] = field(default_factory=set)
    left_out: set[Key] = field(default_factory=set)
    rows: dict[Key, list[Hashes]] = field(default_factory=dict)
    dead_letters: dict[Key, Hashes] = field(default_factory=dict)
    found_rows: Found = field(default_factory=dict)
    found_dead_letters: Found = field(default_factory=dict)

    def keep(self, newest: set[Key], mode: Mode | None) -> None:
        """Of the rows that keys decide on, keep those of the records that count."""
        self.replaced = {key for key in self.rows.keys() - newest if mode is None or mode.covers(*key)}
        for key in self.replaced:
            del self.rows[key]

    def why_no_row(self, key: Key) -> str | None:
        """Why a good record makes no row; None if it may make one."""
        if key in self.filtered:
            return "they belong to other tables"
        if key in self.left_out:
            return "a step leaves them out"
        return "another record of their key is the row" if key in self.replaced else None


class Explainer:
    """Turns differing places into findings."""

    def __init__(self, sides: Sides, reader: Reader) -> None:
        self._claim, self._main, self._table = sides.claim, sides.main, sides.table
        self._topic, self._dead_letters = sides.topic, sides.dead_letters
        self._spans = {p: (a, min(b, sides.source.end.get(p, 0))) for p, (a, b) in sides.spans.items()}
        self._reader = reader

    def findings(self) -> list[Finding]:
        """A finding for every place where the sides differ."""
        suspects = set(self._topic.rows.differing(self._table.rows))
        suspects |= set(self._topic.dead.differing(self._dead_letters.digests))
        suspects |= {Place(partition, offset // RANGE) for partition, offset in self._topic.undecodable}
        places = sorted(suspects)
        near, far = places[:MAX_PLACES], places[MAX_PLACES:]
        look = self._look(near) if near else _Look()
        found = Findings()
        rows = look.records | look.found_rows.keys()
        for key in sorted(rows if self._topic.totals is None else rows & self._topic.undecodable.keys()):
            self._judge_row(key, look, found)
        for key in sorted(look.dead_letters.keys() | look.found_dead_letters.keys()):
            self._judge_dead_letter(key, look, found)
        return [*found.findings(), *self._coarse(far)]

    def _judge_row(self, key: Key, look: _Look, found: Findings) -> None:
        held, expected = look.found_rows.get(key, []), look.rows.get(key, [])
        files = [file for file, _ in held]
        dead = self._dead_letters.holds(*key)
        undecodable = self._topic.undecodable.get(key)
        refused = undecodable or look.why_no_row(key) or self._topic.skips.found.get(key)
        if key not in look.records:
            found.add("coverage", "rows whose offset has no record in Kafka", *key, files)
        elif dead and held:
            found.add("coverage", "records both in the table and among the dead letters", *key, files)
        elif refused and held:
            what = "cannot be decoded" if undecodable else "are no rows"
            found.add("contents", f"rows of records that {what}: {refused}", *key, files)
        elif undecodable:
            text = f"undecodable records ({undecodable}) that are no dead letters{self._round(key)}"
            found.add("coverage", text, *key)
        elif expected and not held and key in self._dead_letters.redriven:
            found.add("redriven", "dead letters that came back, and whose records are not in the table", *key)
        elif expected and not (dead or held):
            found.add(
                "coverage", f"records in neither the table nor the dead letters{self._round(key)}", *key
            )
        elif len(held) != len(expected):
            found.add("coverage", _wrong_number(len(held), len(expected)), *key, files)
        for file, hashes, like in unlike(held, expected) if expected else ():
            columns = _differing(self._main.names, hashes, like)
            if columns:
                found.add("contents", "rows that are not what was produced", *key, [file], columns)

    def _judge_dead_letter(self, key: Key, look: _Look, found: Findings) -> None:
        held = look.found_dead_letters.get(key, [])
        files = [file for file, _ in held]
        if key not in look.dead_letters:
            found.add("dead letters", "dead letters whose offset has no record in Kafka", *key, files)
            return
        if len(held) > 1:
            found.add("dead letters", "records more than once among the dead letters", *key, files)
        names = self._dead_letters.rows.names if self._dead_letters.rows else []
        for file, hashes in held:
            if columns := _differing(names, hashes, look.dead_letters[key]):
                found.add("dead letters", "dead letters that are not the record", *key, [file], columns)

    def _round(self, key: Key) -> str:
        """The commit that claims the offset."""
        snapshot = next((each.snapshot for each in self._claim.rounds if each.covers(*key)), None)
        return "" if snapshot is None else f" (claimed by snapshot {snapshot})"

    def _look(self, places: list[Place]) -> _Look:
        look = _Look()
        wanted = set(places)
        for spans in self._runs(places):
            for records in self._reader.read(spans):
                look.records.update(zip(records.partitions, records.offsets, strict=True))
                topic = self._topic
                look.dead_letters.update(_expected(dead_letters_of(records, self._dead_letters)))
                if topic.totals is not None:
                    continue
                look.filtered.update(topic.filters.keys(records))
                for rows in topic_rows(records, topic, left_out=look.left_out):
                    for key, hashes in _expected(rows):
                        look.rows.setdefault(key, []).append(hashes)
        if self._topic.fold is not None:
            filled = self._topic.fold.filled()
            look.rows |= {key: [found] for key, found in filled.items() if key in look.rows}
            look.keep(self._topic.fold.places(look.rows), self._topic.mode)
        self._gather_held(look, wanted)
        return look

    def _gather_held(self, look: _Look, wanted: set[Place]) -> None:
        for task in self._main.tasks:
            if wanted & self._table.places.get(task.file.file_path, set()):
                for rows in self._main.read(task):
                    _gather(look.found_rows, self._comparable(rows.staying, wanted, look))
        dead_letters = self._dead_letters.rows
        for task in dead_letters.tasks if dead_letters else ():
            if dead_letters and wanted & self._dead_letters.places.get(task.file.file_path, set()):
                for rows, *_ in dead_letters.read(task):
                    _gather(look.found_dead_letters, self._comparable(rows, wanted, look))

    def _comparable(self, rows: Rows, wanted: set[Place], look: _Look) -> Iterator[tuple[Key, str, Hashes]]:
        """Rows of the wanted places whose records Kafka still has."""
        for key, hashes in _expected(rows):
            partition, offset = key
            if None in key or Place(partition, offset // RANGE) not in wanted:
                continue
            start, to = self._spans.get(partition, (0, 0))
            compacted_away = self._topic.held is not None and key not in look.records
            if start <= offset < to and not compacted_away:
                yield key, rows.file, hashes

    def _runs(self, places: list[Place]) -> Iterator[dict[int, Bounds]]:
        """Spans to read; neighbouring places of a partition are one."""
        for partition in sorted({place.partition for place in places}):
            numbers = [place.number for place in places if place.partition == partition]
            start, to = self._spans.get(partition, (0, 0))
            for first, last in ranges(numbers):
                yield {partition: (max(start, first * RANGE), min(to, last * RANGE))}

    def _coarse(self, places: list[Place]) -> Iterator[Finding]:
        """Findings for ranges and files that were not read row by row."""
        for partition in sorted({place.partition for place in places}):
            mine = {place for place in places if place.partition == partition}
            files = sorted(file for file, held in self._table.places.items() if held & mine)
            spans = ((a * RANGE, b * RANGE) for a, b in ranges(sorted(place.number for place in mine)))
            message = "table and topic differ in further ranges"
            yield Finding("contents", message, partition, tuple(spans), tuple(files))


def _expected(rows: Rows) -> Iterator[tuple[Key, Hashes]]:
    partitions, offsets = rows.partitions.to_pylist(), rows.offsets.to_pylist()
    columns = [column.to_pylist() for column in rows.columns]
    yield from zip(zip(partitions, offsets, strict=True), zip(*columns, strict=True), strict=True)


def unlike(
    held: Sequence[tuple[str, Hashes]], expected: Sequence[Hashes]
) -> Iterator[tuple[str, Hashes, Hashes]]:
    """Rows, with their files, that are not expected, each with the most similar expected one."""
    missing = Counter(expected)
    others = []
    for file, found in held:
        if missing[found]:
            missing[found] -= 1
        else:
            others.append((file, found))
    candidates = list(missing.elements()) or expected
    for file, found in others:
        yield file, found, min(candidates, key=lambda each: _differences(each, found))


def _differences(one: Hashes, other: Hashes) -> int:
    return sum(a != b for a, b in zip(one, other, strict=True))


def _wrong_number(held: int, expected: int) -> str:
    if expected < 2:
        return "records more than once in the table" if expected else "rows of records that make none"
    return f"records with {'more' if held > expected else 'fewer'} rows in the table than they make"


def _gather(found: Found, rows: Iterable[tuple[Key, str, Hashes]]) -> None:
    for key, file, hashes in rows:
        found.setdefault(key, []).append((file, hashes))


def _differing(names: list[str], found: Hashes, expected: Hashes) -> tuple[str, ...]:
    return tuple(name for name, a, b in zip(names, found, expected, strict=True) if a != b)
