"""The columnar engine on the driver: offsets become tasks, and what those have done becomes staged files and figures."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field

from pyspark import SparkContext

from calve.config.engine_choice import Unsupported
from calve.decoding.avro_program import reasons
from glue_jobs.engines.columnar.counted import Counted
from glue_jobs.engines.columnar.data_files import data_files, layout_of, location_of, sweep
from glue_jobs.engines.columnar.layouts import Layout
from glue_jobs.engines.columnar.storage import Storage
from glue_jobs.engines.columnar.tasks import Done, Work, run_in_worker, run_task
from glue_jobs.engines.columnar_steps.chain import Steps
from glue_jobs.engines.columnar_steps.planning import columnar_steps
from glue_jobs.engines.reading import Reading
from glue_jobs.iceberg.staging import Staged
from glue_jobs.iceberg.value_counts import counts
from glue_jobs.kafka.client import settings_of
from glue_jobs.kafka.fetching import Range, planned
from glue_jobs.process.workers import Trouble
from glue_jobs.table.counts import Seen
from glue_jobs.table.row_plan import Shaping
from glue_jobs.table.target import Target

BYTES_PER_TASK = 16_000_000

_here = threading.BoundedSemaphore(16)
"""The driver does no more rounds at once, whose records are in its memory; some may wait for a broker that does not answer."""


@dataclass(frozen=True, slots=True)
class _Planned:
    """What is known of a table for as long as it is shaped so. steps: None: it has none."""

    shaping: Shaping
    steps: Steps | None
    reasons: tuple[str, ...]


@dataclass(slots=True)
class Columnar:
    """The engine of one table. It is asked, before each stage, whether it supports the table."""

    target: Target
    _storage: Storage = field(init=False)
    _planned: _Planned | None = None
    _layout: Layout | None = None

    def __post_init__(self) -> None:
        self._storage = Storage.of(self.target.lake.spark)

    def unsupported(self) -> tuple[str, ...]:
        """Why the table, as it is open now, cannot be made by this engine.

        Raises:
            Suspended: `step_unusable`, as the steps themselves.
        """
        if self._planned is None or self._planned.shaping is not self.target.shaping:
            self._planned = _planned(self.target)
        try:
            self._layout = layout_of(self.target.main, self._storage)
        except Unsupported as why:
            return (*self._planned.reasons, why.message)
        return self._planned.reasons

    def stage(self, reading: Reading, stage_id: str, size_bytes: float) -> tuple[Staged, Seen]:
        """As `Reading.stage_rows`, of rows that have so many bytes in Kafka, more or less.

        Raises:
            CalveError: as `run_task`; of several tasks' errors the first. Nothing is left behind.
            Unexpected: as `Trouble`.
        """
        target, work = self.target, self._work(reading, stage_id)
        parts = planned(reading.start, reading.to, tasks_for(size_bytes, target.cores))
        if len(parts) > 1:
            found = _spread(target.lake.spark.sparkContext, work, parts)
        else:  # a task of Spark's would only be further away
            with _here:
                found = [run_task(work, part, "0") for part in parts]
        done = [each for each in found if isinstance(each, Done)]
        for trouble in (each for each in found if isinstance(each, Trouble)):
            sweep(target.main, work.location)
            raise trouble.error()
        counted = Counted.together(each.counted for each in done)
        return _staged(target, work, done, counted), counted.seen()

    def _work(self, reading: Reading, stage_id: str) -> Work:
        target = self.target
        if self._planned is None or self._layout is None:
            raise AssertionError("it was not asked whether the table is supported")
        return Work(
            settings=settings_of(target.cluster.connection),
            topic=target.table.topic,
            topic_id=reading.topic.topic_id,
            decoding=target.decoding,
            columns=target.shaping.source,
            layout=self._layout,
            location=location_of(target.main, f"{stage_id}-{uuid.uuid4().hex[:8]}"),
            steps=self._planned.steps,
            count_by=target.table.count_by,
            keys=target.masking_keys if target.table.masks else (),
        )


def reasons_of(target: Target) -> tuple[str, ...]:
    """Why a table cannot be made by this engine, but for its layout."""
    return _planned(target).reasons


def compile_everywhere(context: SparkContext) -> None:
    """Let every machine of the job have the kernels before a round needs them; this one has compiled them by now."""
    if not str(context.master).startswith("local"):
        tasks = context.defaultParallelism
        context.parallelize(range(tasks), tasks).map(_compiled).collect()


def tasks_for(size_bytes: float, cores: int) -> int:
    """As many tasks as there are cores, unless they would have too little to do."""
    return max(1, min(cores, int(size_bytes // BYTES_PER_TASK)))


def _planned(target: Target) -> _Planned:
    shaping = target.shaping
    found = reasons(target.decoding, shaping.source)
    if not shaping.chain.steps:
        return _Planned(shaping, None, tuple(found))
    try:
        steps = columnar_steps(shaping.chain, target.lake.spark, shaping.source, shaping.columns)
    except Unsupported as why:
        return _Planned(shaping, None, (*found, why.message))
    return _Planned(shaping, steps, tuple(found))


def _spread(context: SparkContext, work: Work, parts: Sequence[tuple[Range, ...]]) -> list[Done | Trouble]:
    """Each part in a task of Spark's. The work goes with the function, in memory alone: Spark writes data into a file."""
    numbers = context.parallelize(range(len(parts)), len(parts))
    return numbers.map(lambda number: run_in_worker(work, parts[number], number)).collect()


def _staged(target: Target, work: Work, done: Sequence[Done], counted: Counted) -> Staged:
    written = [file for each in done for file in each.files]
    rows = sum(each.rows for each in written)
    values = (counted.values or {}).items()
    return Staged(
        data_files(target.main, work.layout, written),
        rows,
        sum(each.size for each in written),
        counts=counts(work.count_by, values, rows) if work.count_by else None,
        cpu_s=sum(each.cpu_s for each in done),
    )


def _compiled(number: int) -> int:
    """That this module is there says that the kernels are."""
    return number
