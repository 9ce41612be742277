"""One task of a round: it turns an offset range of a topic into data files and counts. No row leaves the task.

A task runs in a Python worker of Spark, or in the driver if the round is small. It returns errors as values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark import TaskContext

from calve.config.masking_keys import Key
from calve.decoding.decode_plan import DecodePlan
from calve.modes.history import History
from calve.modes.mode import APPEND, Mode
from calve.names import SYSTEM_COLUMN
from calve.schema.columns import Json
from calve.table.digests import Sums
from glue_jobs.columns.arrow_types import column_at
from glue_jobs.columns.texts import Longs
from glue_jobs.engines.columnar.decoder import Decoded, Decoder
from glue_jobs.engines.columnar.layouts import Layout
from glue_jobs.engines.columnar.parquet import Files, Written
from glue_jobs.engines.columnar_steps.chain import Steps
from glue_jobs.iceberg.staging import LONGEST, MOST_VALUES
from glue_jobs.index.decision import NO_RECORDS, KeyedRecords, KeyRule, without_key
from glue_jobs.index.versions import as_versions
from glue_jobs.kafka.client import Settings
from glue_jobs.kafka.fetching import CHUNK_BYTES, Range, fetch
from glue_jobs.kafka.records import KIND, Records, header_lists, parts
from glue_jobs.process.workers import TaskError, cpu_since_last_s
from glue_jobs.table.counts import Counts
from glue_jobs.totals.fold import Fold, Gathered, Totals

RANKS = 400
"""Timestamps kept per chunk and per task. The rank error of a percentile is at most one in 200."""


@dataclass(frozen=True, slots=True)
class Ages:
    """Sorted timestamps (ms). Each represents as many records as its weight."""

    timestamps: NDArray[np.int64]
    weights: NDArray[np.float64]

    @classmethod
    def of(cls, timestamps: NDArray[np.int64]) -> Ages:
        return cls(np.sort(timestamps), np.ones(len(timestamps))).thinned()

    @classmethod
    def together(cls, parts: Iterable[Ages]) -> Ages:
        found = list(parts)
        if not found:
            return cls(np.empty(0, np.int64), np.empty(0))
        timestamps = np.concatenate([each.timestamps for each in found])
        order = np.argsort(timestamps, kind="stable")
        return cls(timestamps[order], np.concatenate([each.weights for each in found])[order])

    def thinned(self) -> Ages:
        """At most `RANKS` values for the same records: the middle of each of `RANKS` equal parts."""
        if len(self.timestamps) <= RANKS:
            return self
        ends = np.cumsum(self.weights)
        part = ends[-1] / RANKS
        middle = np.searchsorted(ends, part * (np.arange(RANKS) + 0.5))
        return Ages(self.timestamps[middle], np.full(RANKS, part))

    def percentile(self, share: float) -> int | None:
        """The least timestamp that at least this share of the records does not exceed; None without records."""
        if not len(self.timestamps):
            return None
        ends = np.cumsum(self.weights)
        place = int(np.searchsorted(ends, share * ends[-1] * (1 - 1e-12)))
        return int(self.timestamps[place])


Values = Mapping[str | None, int]
"""Rows by value. None counts rows without a value and rows with a longer one than is reported."""


def values_of(column: pa.ChunkedArray) -> Values | None:
    """The counts of a column of strings, booleans or integers; None if there are too many values, or invalid UTF-8."""
    counted = pc.value_counts(column)
    texts, counts = counted.field("values").cast(pa.string()), counted.field("counts")
    short = pc.fill_null(pc.less_equal(pc.utf8_length(texts), LONGEST), False)  # noqa: FBT003 a value, not a switch
    if (pc.sum(short).as_py() or 0) > MOST_VALUES:
        return None
    try:
        found = dict(zip(texts.filter(short).to_pylist(), counts.filter(short).to_pylist(), strict=True))
    except UnicodeDecodeError:
        return None
    return found | {None: len(column) - sum(found.values())}


def values_together(parts: Iterable[Values | None]) -> Values | None:
    found: dict[str | None, int] = {}
    for part in parts:
        if part is None:
            return None
        for value, count in part.items():
            found[value] = found.get(value, 0) + count
    return found if len(found.keys() - {None}) <= MOST_VALUES else None


SUMMED = ("records", "rejects", "size_bytes", "left_out", "failed", "cut", "truncates")


@dataclass(frozen=True, slots=True)
class TaskCounts:
    """counts: without `median` and `late`, which `ages` gives. values: rows by value of the counted column; None: too many."""

    counts: Counts = field(default_factory=Counts)
    ages: Ages = field(default_factory=lambda: Ages.together(()))
    values: Values | None = field(default_factory=dict)

    @classmethod
    def of_records(
        cls, records: Records, rejected: NDArray[np.int64], others: Mapping[int, int]
    ) -> TaskCounts:
        """Counts of decoded records; `rejected`: their places."""
        if not len(records):
            return cls()
        sizes = (np.maximum(each, 0).sum(dtype=np.int64) for each in (records.key_size, records.value_size))
        times = records.known_times
        counts = Counts(
            records=len(records),
            size_bytes=int(sum(sizes)),
            newest=_seconds(times.max() if len(times) else None),
            oldest=_seconds(times.min() if len(times) else None),
            others=others,
            **_rejects(records.offset[rejected]),
        )
        return cls(counts, Ages.of(times))

    @classmethod
    def together(cls, parts: Iterable[TaskCounts]) -> TaskCounts:
        found = list(parts)

        def known(name: str) -> list[Any]:
            return [value for each in found if (value := getattr(each.counts, name)) is not None]

        made, ranges = known("made"), known("reject_range")
        counts = Counts(
            **{name: sum(known(name)) for name in SUMMED},
            newest=max(known("newest"), default=None),
            oldest=min(known("oldest"), default=None),
            reject_range=(min(ranges)[0], max(last for _, last in ranges)) if ranges else None,
            others=dict(sum(map(Counter, known("others")), Counter[int]())),
            by_rule=dict(sum(map(Counter, known("by_rule")), Counter[int]())),
            made=sum(made) if made else None,
        )
        ages = Ages.together(each.ages for each in found).thinned()
        return cls(counts, ages, values_together(each.values for each in found))

    def of_round(self) -> Counts:
        median, late = (_seconds(self.ages.percentile(share)) for share in (0.5, 0.05))
        return replace(self.counts, median=median, late=late)


def _rejects(offsets: NDArray[np.int64]) -> dict[str, Any]:
    if not len(offsets):
        return {}
    return {"rejects": len(offsets), "reject_range": (int(offsets.min()), int(offsets.max()))}


def _seconds(moment_ms: int | None) -> float | None:
    return None if moment_ms is None else int(moment_ms) / 1000


def kafka_column(topic: str, records: Records, chosen: Longs, schema_id: Any) -> Any:
    """`_kafka` of the chosen records. The source has refused none of them. schema_id: as in `Decoded`."""
    size = chosen.size
    columns = [
        pa.repeat(pa.scalar(topic, pa.string()), size),
        pa.repeat(pa.scalar(records.partition, pa.int32()), size),
        pa.array(records.offset[chosen]),
        pa.array(records.timestamp[chosen] * 1000).view(KIND.field("timestamp").type),
        pa.array(records.timestamp_type[chosen].astype(np.int32)),
        parts(KIND.field("key").type, records.buffer, records.key_at[chosen], records.key_size[chosen]),
        header_lists(records, chosen),
        schema_id,
    ]
    return pa.StructArray.from_arrays(columns, fields=list(KIND))


@dataclass(frozen=True, slots=True)
class Work:
    """The input that all tasks of a staging share. columns: those that records are decoded to.

    location: the prefix of their file names, unique to this staging. count_by: the column to count. keys: the masking keys.
    rule: of a table by key. fold: of an aggregate table.
    """

    settings: Settings
    topic: str
    topic_id: str
    decoding: DecodePlan
    columns: Json
    layout: Layout
    location: str
    mode: Mode = APPEND
    steps: Steps | None = None
    count_by: str | None = None
    keys: tuple[Key, ...] = field(default=(), repr=False)
    rule: KeyRule | None = None
    fold: Fold | None = None


@dataclass(frozen=True, slots=True)
class TaskResult:
    """deletions: records that delete rows. cpu_s: CPU seconds of the worker's process that no other task has reported.

    totals: of an aggregate table, instead of files: a row for each group of the task's records. aside, sums: as those of `Files`.
    """

    files: tuple[Written, ...]
    counted: TaskCounts
    deletions: KeyedRecords = NO_RECORDS
    cpu_s: float = 0.0
    totals: Totals | None = None
    aside: pa.Table | None = None
    sums: Sums | None = None


class VersionsAside(Files):
    """Sets aside each record as a version of its row, and writes no file: the driver knows the versions before and after it."""

    def __init__(self, layout: Layout, location: str, mode: History) -> None:
        super().__init__(layout, location)
        self._mode = mode

    def write(self, rows: pa.Table | pa.RecordBatch) -> None:
        self.set_aside(as_versions(pa.table(rows), self._mode, gone=False))

    def delete(self, rows: pa.Table) -> None:
        self.set_aside(as_versions(rows, self._mode, gone=True))


def run_task(work: Work, ranges: tuple[Range, ...], place: str) -> TaskResult | TaskError:
    """Do a part of the work. place: names the task and its attempt in its file names."""
    values: list[Values | None] = []

    def seen(rows: pa.Table) -> None:
        if work.count_by:
            values.append(values_of(rows[work.count_by]))

    location, mode = f"{work.location}-{place}", work.mode
    if isinstance(mode, History):
        files: Files = VersionsAside(work.layout, location, mode)
    else:
        digested = mode.only_adds
        files = Files(work.layout, location, work.rule, seen, digested=digested, changes=mode.reads_changes)
    totals = Gathered(work.fold) if work.fold else None
    try:
        counted = TaskCounts.together(_chunks(work, ranges, files, totals))
        written = tuple(files.close())
        return TaskResult(
            written,
            replace(counted, values=values_together(values)),
            files.deletions,
            totals=totals.together() if totals else None,
            aside=files.aside,
            sums=files.sums,
        )
    except Exception as error:  # noqa: BLE001 returned as a value
        files.abort()
        return TaskError.of(error)


def run_in_worker(work: Work, ranges: tuple[Range, ...], number: int) -> TaskResult | TaskError:
    """As `run_task`, in a Spark worker, with the CPU seconds of its process."""
    context = TaskContext.get()
    done = run_task(work, ranges, f"{number}-{context.taskAttemptId() if context else 0}")
    cpu_s = cpu_since_last_s()
    return replace(done, cpu_s=cpu_s) if isinstance(done, TaskResult) else done


def _chunks(
    work: Work, ranges: tuple[Range, ...], files: Files, totals: Gathered | None
) -> Iterator[TaskCounts]:
    rule = work.rule
    decoder = Decoder(work.decoding, work.columns, work.mode)

    def written(rows: pa.Table) -> Counts:
        """Write rows, or add them to the totals. Those without a key are rejects."""
        lacking = without_key(rows, rule.key) if rule else None
        kept = rows if lacking is None else rows.filter(pa.array(~lacking))
        if totals is None:
            files.write(kept)
        else:
            totals.add({path: column_at(kept, path) for path in totals.fold.paths})
        return Counts(**_rejects(offsets_of(rows)[lacking])) if lacking is not None else Counts()

    def deleted(rows: pa.Table) -> Counts:
        """Keep the keys of rows that delete. Those without a key are rejects, unless a step has filtered them."""
        assert rule is not None, "no record deletes a row without a key"  # noqa: S101
        if work.steps is not None:
            rows = work.steps.deletions(rows, work.keys)
        lacking = without_key(rows, rule.key)
        kept = rows if lacking is None else rows.filter(pa.array(~lacking))
        files.delete(kept)
        return Counts(**_rejects(offsets_of(rows)[lacking])) if lacking is not None else Counts()

    for records in fetch(work.settings, work.topic, work.topic_id, ranges, CHUNK_BYTES):
        decoded = decoder.decode(records)
        yield TaskCounts.of_records(records, decoded.rejected, decoded.others)
        yield TaskCounts(Counts(truncates=decoded.truncates))
        for each in decoded.deletions:
            yield TaskCounts(deleted(_with_kafka(work, records, each)))
        columns = _with_kafka(work, records, decoded)
        if work.steps is None:
            yield TaskCounts(written(columns))
            continue
        for made in work.steps.run(columns, work.keys):
            yield TaskCounts(written(made.rows))
            if work.mode.drops and made.filtered.size:
                deleted(columns.take(pa.array(made.filtered)))
            rejects = _rejects(records.offset[decoded.good[made.rejected]])
            counts = Counts(
                left_out=len(made.filtered),
                made=made.made,
                failed=made.failed,
                cut=made.cut,
                by_rule=made.by_rule,
                **rejects,
            )
            yield TaskCounts(counts)


def _with_kafka(work: Work, records: Records, rows: Decoded) -> pa.Table:
    kafka = kafka_column(work.topic, records, rows.good, rows.schema_id)
    return rows.columns.append_column(SYSTEM_COLUMN, kafka)


def offsets_of(rows: pa.Table) -> NDArray[np.int64]:
    found: NDArray[np.int64] = column_at(rows, f"{SYSTEM_COLUMN}.offset").to_numpy()
    return found
