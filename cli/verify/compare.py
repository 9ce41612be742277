"""Ranges of offsets whose digests differ, read again row by row: which offsets, data files and columns differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from cli.verify.columns import RANGE, Place
from cli.verify.counts import Key
from cli.verify.dead_letters import RECORD, dead_letters_of
from cli.verify.findings import Finding, Findings, ranges
from cli.verify.keyed.history import Versions
from cli.verify.keyed.upsert import Fold
from cli.verify.rows import Rows
from cli.verify.sides import Sides, rows_made
from cli.verify.topic import Reader

MAX_PLACES = 64
"""Ranges to compare row by row; further ones are reported as ranges only."""

Hashes = tuple[int, ...]
Found = dict[Key, list[tuple[str, Hashes]]]
"""The file and the hashes of the columns of each row, by place."""


def explain(sides: Sides, reader: Reader) -> list[Finding]:
    suspects = set(sides.topic_rows.differing(sides.table_rows))
    suspects |= set(sides.topic_dead_letters.differing(sides.dead_letters.digests))
    suspects |= {Place(partition, offset // RANGE) for partition, offset in sides.undecodable}
    places = sorted(suspects)
    near, far = places[:MAX_PLACES], places[MAX_PLACES:]
    return [*Look(sides, reader, near).findings(), *_coarse(sides, far)]


def _coarse(sides: Sides, places: list[Place]) -> Iterator[Finding]:
    """Findings for ranges and files that were not read row by row."""
    for partition in sorted({place.partition for place in places}):
        mine = {place for place in places if place.partition == partition}
        files = sorted(file for file, held in sides.files.items() if held & mine)
        spans = ((a * RANGE, b * RANGE) for a, b in ranges(place.number for place in mine))
        yield Finding(
            "contents", "table and topic differ in further ranges", partition, tuple(spans), tuple(files)
        )


class Look:
    """Both sides of some places, row by row."""

    def __init__(self, sides: Sides, reader: Reader, places: Sequence[Place]) -> None:
        self._sides, self._spans, self._found = sides, sides.readable, Findings()
        self._records: set[Key] = set()
        """The places that have a record in Kafka."""
        self._why: dict[Key, str] = {}
        """Why good records make no row."""
        self._rows: dict[Key, list[Hashes]] = {}
        self._dead: dict[Key, Hashes] = {}
        self._held_rows: Found = {}
        self._held_dead: Found = {}
        if places:
            self._read_topic(reader, places)
            self._read_table(set(places))

    def findings(self) -> list[Finding]:
        rows = self._records | self._held_rows.keys()
        for key in sorted(rows & self._sides.undecodable.keys() if self._sides.totals else rows):
            self._judge_row(key)
        for key in sorted(self._dead.keys() | self._held_dead.keys()):
            self._judge_dead_letter(key)
        return self._found.findings()

    def _read_topic(self, reader: Reader, places: Sequence[Place]) -> None:
        """Neighbouring places of a partition are read at once."""
        sides = self._sides
        for partition in sorted({place.partition for place in places}):
            start, to = self._spans.get(partition, (0, 0))
            for first, last in ranges(place.number for place in places if place.partition == partition):
                for records in reader.read({partition: (max(start, first * RANGE), min(to, last * RANGE))}):
                    self._records.update(zip(records.partitions, records.offsets, strict=True))
                    self._dead.update(_by_place(dead_letters_of(records, sides.dead_letters)))
                    for rows in rows_made(records, sides, self._why) if sides.totals is None else ():
                        for key, hashes in _by_place(rows):
                            self._rows.setdefault(key, []).append(hashes)
        self._fold()

    def _fold(self) -> None:
        """The rows that a fold leaves of those of the records, with their columns."""
        sides = self._sides
        if isinstance(sides.fold, Fold):
            filled = sides.fold.filled()
            self._rows |= {key: [found] for key, found in filled.items() if key in self._rows}
        elif isinstance(sides.fold, Versions):
            self._rows = {key: [found] for key, found in sides.fold.columns(self._rows).items()}
        if sides.fold is not None:
            for key in self._rows.keys() - sides.fold.places(self._rows):
                if sides.mode is None or sides.mode.covers(*key):
                    self._why[key] = "another record of their key is the row"
                    del self._rows[key]

    def _read_table(self, places: set[Place]) -> None:
        sides, letters = self._sides, self._sides.dead_letters
        files = {file for file, held in sides.files.items() if held & places}
        for rows in sides.main.read(files):
            self._gather(self._held_rows, rows.staying, places)
        files = {file for file, held in letters.places.items() if held & places}
        for rows, *_ in letters.rows.read(files) if letters.rows else ():
            self._gather(self._held_dead, rows, places)

    def _gather(self, found: Found, rows: Rows, places: set[Place]) -> None:
        """Keep rows of these places whose records Kafka still has."""
        for key, hashes in _by_place(rows):
            partition, offset = key
            if None in key or Place(partition, offset // RANGE) not in places:
                continue
            start, to = self._spans.get(partition, (0, 0))
            if start <= offset < to and not (self._sides.compacted and key not in self._records):
                found.setdefault(key, []).append((rows.file, hashes))

    def _judge_row(self, key: Key) -> None:
        sides, held, expected = self._sides, self._held_rows.get(key, []), self._rows.get(key, [])
        files = [file for file, _ in held]
        dead = sides.dead_letters.holds(*key)
        undecodable = sides.undecodable.get(key)
        refused = undecodable or self._why.get(key) or sides.skips.found.get(key)
        if key not in self._records:
            self._found.add("coverage", "rows whose offset has no record in Kafka", *key, files)
        elif dead and held:
            self._found.add("coverage", "records both in the table and among the dead letters", *key, files)
        elif refused and held:
            what = "cannot be decoded" if undecodable else "are no rows"
            self._found.add("contents", f"rows of records that {what}: {refused}", *key, files)
        elif undecodable:
            text = f"undecodable records ({undecodable}) that are no dead letters{self._round(key)}"
            self._found.add("coverage", text, *key)
        elif expected and not held and key in sides.dead_letters.redriven:
            text = "dead letters that came back, and whose records are not in the table"
            self._found.add("redriven", text, *key)
        elif expected and not (dead or held):
            text = f"records in neither the table nor the dead letters{self._round(key)}"
            self._found.add("coverage", text, *key)
        elif len(held) != len(expected):
            self._found.add("coverage", _wrong_number(len(held), len(expected)), *key, files)
        for file, hashes, like in unlike(held, expected) if expected else ():
            if columns := _differing(sides.main.columns.names, hashes, like):
                self._found.add("contents", "rows that are not what was produced", *key, [file], columns)

    def _round(self, key: Key) -> str:
        """The commit that claims the offset."""
        rounds = self._sides.claim.rounds
        snapshot = next((each.snapshot for each in rounds if each.covers(*key)), None)
        return "" if snapshot is None else f" (claimed by snapshot {snapshot})"

    def _judge_dead_letter(self, key: Key) -> None:
        held = self._held_dead.get(key, [])
        files = [file for file, _ in held]
        if key not in self._dead:
            text = "dead letters whose offset has no record in Kafka"
            self._found.add("dead letters", text, *key, files)
            return
        if len(held) > 1:
            self._found.add("dead letters", "records more than once among the dead letters", *key, files)
        for file, hashes in held:
            if columns := _differing(RECORD, hashes, self._dead[key]):
                text = "dead letters that are not the record"
                self._found.add("dead letters", text, *key, [file], columns)


def _by_place(rows: Rows) -> Iterator[tuple[Key, Hashes]]:
    columns = [column.to_pylist() for column in rows.columns]
    yield from zip(rows.places(), zip(*columns, strict=True), strict=True)


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
        yield (
            file,
            found,
            min(candidates, key=lambda each: sum(a != b for a, b in zip(each, found, strict=True))),
        )


def _wrong_number(held: int, expected: int) -> str:
    if expected < 2:
        return "records more than once in the table" if expected else "rows of records that make none"
    return f"records with {'more' if held > expected else 'fewer'} rows in the table than they make"


def _differing(names: Iterable[str], found: Hashes, expected: Hashes) -> tuple[str, ...]:
    return tuple(name for name, a, b in zip(names, found, expected, strict=True) if a != b)
