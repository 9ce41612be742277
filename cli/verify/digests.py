"""`verify --without-kafka`: compare the rows of a table with the digests of the commits that added them (ADR 78)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import _read_all_delete_files

from calve.config.maintenance import retained
from calve.errors import CalveError, Suspended
from calve.names import SYSTEM_COLUMN, TableName
from calve.table.digests import MODULUS, Claimed, DigestFile, RoundDigest, all_digests, chain
from calve.table.position import Offsets, TopicKey
from calve.table.summary import DIGESTS, kind_of
from cli import lake
from cli.verify.findings import Check, Finding, State, Verification

if TYPE_CHECKING:
    from pyiceberg.table import FileScanTask, Table

    from cli.progress import Progress

CHECK, CHANGED, AGED = "digests", "changed by a request", "beyond retention"
UNKNOWN: State = "not verifiable"
AT_ONCE = 65_536
"""Rows that are read and hashed at once."""
SHOWN = 100
"""The most ranges of offsets that are named one by one."""


@dataclass(slots=True)
class Group:
    """Offsets [start, end) of a partition, and all commits that added rows there: one, unless their offsets overlap.

    rows, digest: what they added; None: this is not known any more. found, sum: what the table has.
    """

    start: int
    end: int
    rows: int
    digest: int | None
    rounds: list[RoundDigest]
    found: int = 0
    sum: int = 0

    @classmethod
    def together(cls, groups: Sequence[Group]) -> Group:
        """One of several, in order."""
        digests = [each.digest for each in groups if each.digest is not None]
        return cls(
            groups[0].start,
            max(each.end for each in groups),
            sum(each.rows for each in groups),
            sum(digests) % MODULUS if len(digests) == len(groups) else None,
            [each for group in groups for each in group.rounds],
        )

    def outcome(self, aged: int) -> str:
        """`CHECK`: the rows are those that were added. Else why nobody can say, or how they differ.

        aged: rows below this offset may have been deleted for their age.
        """
        if self.digest is None:
            return CHANGED
        if self.found < self.rows and self.start < aged:
            return AGED
        if self.found != self.rows:
            return f"{_named(self.rounds)} added {self.rows:,} rows, the table has {self.found:,}"
        return CHECK if self.sum == self.digest else f"rows of {_named(self.rounds)} have other values now"


def _named(rounds: Sequence[RoundDigest]) -> str:
    first = rounds[0]
    at = datetime.fromtimestamp(first.at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    more = f" and {len(rounds) - 1} more" if len(rounds) > 1 else ""
    return f"round {first.round} of {at}{more}"


@dataclass(slots=True)
class Groups:
    """The groups of a partition, by offset, and the sums of the rows that were read. No two overlap.

    to: the table's position. uncovered, beyond: rows at offsets of no group, below the position and from it on.
    """

    groups: list[Group]
    to: int
    uncovered: int = 0
    beyond: int = 0
    _starts: Any = field(init=False)
    _ends: Any = field(init=False)
    _rows: Any = field(init=False)
    _sums: Any = field(init=False)

    def __post_init__(self) -> None:
        self._starts = np.array([each.start for each in self.groups], np.int64)
        self._ends = np.array([each.end for each in self.groups], np.int64)
        self._rows = np.zeros(len(self.groups), np.int64)
        self._sums = np.zeros(len(self.groups), np.uint64)

    def add(self, offsets: Any, hashes: Any) -> None:
        at = np.searchsorted(self._starts, offsets, side="right") - 1
        inside = (at >= 0) & (offsets < self._ends[at]) if len(self.groups) else np.zeros(len(offsets), bool)
        self.uncovered += int((~inside & (offsets < self.to)).sum())
        self.beyond += int((~inside & (offsets >= self.to)).sum())
        np.add.at(self._rows, at[inside], 1)
        np.add.at(self._sums, at[inside], hashes[inside])

    def counted(self) -> Iterator[Group]:
        for each, rows, total in zip(self.groups, self._rows.tolist(), self._sums.tolist(), strict=True):
            each.found, each.sum = rows, total
            yield each


def verify_digests(table: Table, progress: Progress) -> Verification:
    """Prove that the rows are those that calve's commits added, round by round, by the table alone.

    Rows that a commit replaced or deleted for its own reasons (age, a person) are no faults: their rounds are not verifiable.
    Raises CalveError: the table has no digests. Retryable: the catalog or the object store does not answer.
    """
    began = time.monotonic()
    name = TableName(*table.name())
    latest = lake.latest_commit(table)
    if latest is None:
        raise Suspended("position_lost", f"no snapshot of {name} says which offsets the table holds")
    position = latest[1]
    if (kind := kind_of(position.mode)) != "append":
        raise CalveError(
            f"table {name} has no digests: in mode {kind}, a later round changes rows of earlier ones",
            fix=f"prove it by its topic: calve verify {name.table}",
        )
    files = chain(table.properties.get(DIGESTS), partial(_read, table))
    digests = all_digests(lake.ancestors(table), (file for _, file in files))
    if not digests:
        raise CalveError(
            f"table {name} has no digests: no round of this release, or a later one, has added rows",
            fix=f"prove it by its topic: calve verify {name.table}",
        )
    to = _highest(position.offsets)
    groups = grouped(digests)
    partitions = {p: Groups(groups.get(p, []), to.get(p, 0)) for p in sorted({*groups, *to})}
    others = 0
    tasks = list(table.scan().plan_files())
    with progress.task(
        "reading the table", total=sum(each.file.record_count for each in tasks), unit="records"
    ) as task:
        for batch in _batches(table, tasks):
            others += _count(batch, partitions)
            task.update(batch.num_rows)
    aged = retained(lake.ancestors(table), table.properties)
    checks, findings = _judged(partitions, _highest(aged.to) if aged else {}, others)
    seconds = round(time.monotonic() - began, 1)
    return Verification(str(name), position.topic, checks, findings, seconds=seconds)


def _highest(by_topic: Mapping[TopicKey, Offsets]) -> Offsets:
    """Of each partition the highest offset in any incarnation of the topic."""
    found: Offsets = {}
    for offsets in by_topic.values():
        found |= {p: max(offset, found.get(p, 0)) for p, offset in offsets.items()}
    return found


def _read(table: Table, path: str) -> DigestFile | None:
    """None: others have deleted the file. Raises CalveError: another release wrote it."""
    with lake.aws_errors(f"file {path}"):
        found = table.io.new_input(path)
        if not found.exists():
            return None
        with found.open() as stream:
            text = stream.read().decode()
    try:
        return DigestFile.parse(text)
    except ValueError as error:
        raise CalveError(f"file {path} has digests of {error}", fix="use a newer release of calve") from None


def grouped(digests: Iterable[RoundDigest]) -> dict[int, list[Group]]:
    """By partition: the offsets of digests, without those that a backfill replaced. Overlapping ones are one group."""
    found: dict[int, list[Group]] = {}
    for each in digests:
        for partition, claimed in each.parts.items():
            before = found.setdefault(partition, [])
            if each.replaces:
                before[:] = _replaced(before, claimed)
            group = Group(claimed.start, claimed.end, claimed.rows, claimed.digest, [each])
            before.append(group)
    return {partition: _joined(groups) for partition, groups in found.items()}


def _replaced(groups: Iterable[Group], by: Claimed) -> Iterator[Group]:
    """The groups outside of a range, and those across its ends, whose other rows no digest proves any more."""
    for each in list(groups):
        if each.end <= by.start or by.end <= each.start:
            yield each
        elif each.start < by.start or by.end < each.end:
            yield replace(each, digest=None)


def _joined(groups: Iterable[Group]) -> list[Group]:
    found: list[list[Group]] = []
    end = 0
    for each in sorted(groups, key=lambda each: (each.start, each.end)):
        if found and each.start < end:
            found[-1].append(each)
        else:
            found.append([each])
        end = max(end, each.end)
    return [each[0] if len(each) == 1 else Group.together(each) for each in found]


def _batches(table: Table, tasks: Sequence[FileScanTask]) -> Iterator[pa.RecordBatch]:
    """The live rows as their files have them: names and types of any time, with the ids of fields."""
    with lake.aws_errors(f"table {'.'.join(table.name())}"):
        deleted = _read_all_delete_files(table.io, tasks)
        for path in (each.file.file_path for each in tasks):
            gone = np.concatenate(
                [np.empty(0, np.int64), *(part.to_numpy() for part in deleted.get(path, ()))]
            )
            first = 0
            with table.io.new_input(path).open() as stream, pq.ParquetFile(stream) as file:
                for batch in file.iter_batches(AT_ONCE):
                    rows = np.arange(first, first + batch.num_rows)
                    first += batch.num_rows
                    yield batch.filter(pa.array(~np.isin(rows, gone))) if gone.size else batch


def _count(batch: pa.RecordBatch, partitions: dict[int, Groups]) -> int:
    """Add the rows to their groups; returns the number of rows of another writer, which have no place."""
    from glue_jobs.columns.digest import hashes_of, places_of

    every: int = batch.num_rows
    if SYSTEM_COLUMN not in batch.schema.names:
        return every
    placed = batch.filter(batch.column(SYSTEM_COLUMN).field("offset").is_valid())
    if not placed.num_rows:
        return every
    held, offsets = places_of(placed)
    hashes = hashes_of(placed)
    for partition in np.unique(held).tolist():
        here = held == partition
        partitions.setdefault(partition, Groups([], 0)).add(offsets[here], hashes[here])
    return every - int(placed.num_rows)


@dataclass(slots=True)
class Tally:
    """Groups with the same outcome: how many rounds, and how many rows the table has of them."""

    rounds: set[str] = field(default_factory=set)
    rows: int = 0

    def add(self, group: Group) -> None:
        self.rounds.update(each.round for each in group.rounds)
        self.rows += group.found


def _judged(
    partitions: Mapping[int, Groups], aged: Offsets, others: int
) -> tuple[tuple[Check, ...], tuple[Finding, ...]]:
    """aged: rows below these offsets may have been deleted for their age. others: rows of another writer."""
    findings = []
    tallies = {CHECK: Tally(), CHANGED: Tally(), AGED: Tally()}
    for partition, groups in sorted(partitions.items()):
        for each in groups.counted():
            if (found := each.outcome(aged.get(partition, 0))) in tallies:
                tallies[found].add(each)
            else:
                findings.append(Finding(CHECK, found, partition, ((each.start, each.end),)))
        if groups.beyond:
            text = f"{groups.beyond:,} rows have offsets that no round has read yet"
            findings.append(Finding(CHECK, text, partition))
    if len(findings) > SHOWN:
        text = f"{len(findings) - SHOWN:,} more ranges differ"
        findings = [*findings[:SHOWN], Finding(CHECK, text)]
    checks = [
        Check(name, UNKNOWN, {"rounds": len(each.rounds), "rows": each.rows})
        for name, each in tallies.items()
        if each.rounds or name == CHECK
    ]
    checks[0] = replace(checks[0], state="failed" if findings else "proved")
    uncovered = sum(each.uncovered for each in partitions.values())
    for name, rows in (("without a digest", uncovered), ("of another writer", others)):
        if rows:
            checks.append(Check(name, UNKNOWN, {"rows": rows}))
    return tuple(checks), tuple(findings)
