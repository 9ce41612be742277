"""The driver side of the columnar engine: split offsets into tasks, and turn task results into staged files and counts."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

import pyarrow as pa
from pyspark import SparkContext

from calve.config.engine_choice import Unsupported
from calve.modes.aggregate import Aggregate
from calve.table.digests import together
from glue_jobs.engines.batch import Batch
from glue_jobs.engines.columnar.layouts import Layout, layout
from glue_jobs.engines.columnar.parquet import Files, Written
from glue_jobs.engines.columnar.tasks import (
    TaskCounts,
    TaskResult,
    Values,
    Work,
    run_in_worker,
    run_task,
    values_of,
    values_together,
)
from glue_jobs.engines.columnar_steps.chain import Steps
from glue_jobs.engines.columnar_steps.planning import columnar_steps
from glue_jobs.iceberg.catalog import Table, catalog_errors
from glue_jobs.iceberg.exposure import require_own_paths
from glue_jobs.iceberg.staging import Staged, counts
from glue_jobs.iceberg.storage import Storage
from glue_jobs.index.decision import KeyedFiles, KeyedRecords, KeyRule
from glue_jobs.kafka.client import settings_of
from glue_jobs.kafka.fetching import planned
from glue_jobs.process.workers import TaskError
from glue_jobs.table.counts import Counts
from glue_jobs.table.open_table import OpenTable, RowPlan, TablePlan
from glue_jobs.totals.fold import Fold, Totals

BYTES_PER_TASK = 16_000_000

_here = threading.BoundedSemaphore(16)
"""How many rounds the driver runs at once, because their records are in its memory. Some may wait for a silent broker."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """The plan for a table's rows. steps: None if the table has none."""

    storage: Storage
    steps: Steps | None
    reasons: tuple[str, ...]


_plans: WeakKeyDictionary[RowPlan, _Plan] = WeakKeyDictionary()
"""Cached, because planning steps needs Spark's analyser and a row plan serves many rounds."""


@dataclass(frozen=True, slots=True)
class ColumnarEngine:
    """The engine of one open table. layout: None if the table is `unsupported`."""

    table: OpenTable
    plan: _Plan
    layout: Layout | None
    unsupported: tuple[str, ...]

    @classmethod
    def of(cls, table: OpenTable) -> ColumnarEngine:
        """The engine for an open table. Raises Suspended: `step_unusable`, as the steps."""
        plan = _plan(table)
        try:
            layout = layout_of(table.main, plan.storage)
        except Unsupported as why:
            return cls(table, plan, None, (*plan.reasons, why.message))
        return cls(table, plan, layout, plan.reasons)

    def stage(self, batch: Batch, stage_id: str) -> tuple[Staged, Counts, KeyedFiles | Totals | None]:
        """As `Engine.stage`.

        Raises CalveError: as `run_task`; the first error of several tasks. No files are left behind. Unexpected: as
        `TaskError`. Suspended: as `Fold.of`.
        """
        table, work = self.table, self._work(batch, stage_id)
        parts = planned(batch.start, batch.to, tasks_for(batch.size_bytes, table.services.cores))
        if len(parts) > 1:  # the work travels in the function, in memory: Spark would write data to a file
            numbers = table.services.lake.spark.sparkContext.parallelize(range(len(parts)), len(parts))
            found = numbers.map(lambda number: run_in_worker(work, parts[number], number)).collect()
        else:  # a Spark task would only add overhead
            with _here:
                found = [run_task(work, part, "0") for part in parts]
        for trouble in (each for each in found if isinstance(each, TaskError)):
            sweep(table.main, work.location)
            raise trouble.error()
        done = [each for each in found if isinstance(each, TaskResult)]
        counted = TaskCounts.together(each.counted for each in done)
        written = [file for each in done for file in each.files]
        staged = staged_files(table, work.layout, written, counted.values)
        sums = together(each.sums for each in done if each.sums is not None)
        cpu_s = sum(each.cpu_s for each in done)
        staged = replace(staged, cpu_s=cpu_s, sums=sums if work.mode.only_adds else None)
        left: KeyedFiles | Totals | None = None
        if work.fold is not None:
            parts = [each.totals.rows for each in done if each.totals is not None]
            left = Totals(work.fold, work.fold.together(parts))
        elif work.rule is not None:
            records = tuple(each.records for each in written if each.records is not None)
            deletions = KeyedRecords.together(each.deletions for each in done)
            aside = [each.aside for each in done if each.aside is not None]
            left = KeyedFiles(work.rule, records, deletions, pa.concat_tables(aside) if aside else None)
        return staged, counted.of_round(), left

    def _work(self, batch: Batch, stage_id: str) -> Work:
        table, mode = self.table, self.table.row_plan.mode
        if self.layout is None:
            raise AssertionError("the table is not supported")
        return Work(
            settings=settings_of(table.services.cluster.connection),
            topic=table.config.topic,
            topic_id=batch.topic.topic_id,
            decoding=table.decode_plan,
            columns=table.row_plan.source,
            layout=self.layout,
            location=location_of(table.main, f"{stage_id}-{uuid.uuid4().hex[:8]}"),
            mode=mode,
            steps=self.plan.steps,
            count_by=table.config.count_by,
            keys=table.services.masking_keys if table.config.masks else (),
            rule=KeyRule.of(mode) if mode.key else None,
            fold=fold_of(table, mode) if isinstance(mode, Aggregate) else None,
        )


def fold_of(table: OpenTable, mode: Aggregate) -> Fold:
    """Raises Suspended: as `Fold.of`."""
    return Fold.of(mode, str(table.name), table.main.schema, table.row_plan.made)


def stage_rows(
    table: OpenTable, rows: pa.Table, rule: KeyRule, stage_id: str
) -> tuple[Staged, tuple[KeyedRecords, ...]]:
    """Write rows of the table from the driver, as data files that no snapshot contains; returns also the records of each file.

    Raises Unsupported: the table needs a feature that this engine lacks. Retryable: the object store failed; no file is left.
    """
    storage = Storage.of(table.services.lake.spark)
    wanted, location = (
        layout_of(table.main, storage),
        location_of(table.main, f"{stage_id}-{uuid.uuid4().hex[:8]}"),
    )
    values: list[Values | None] = []

    def seen(written: pa.Table) -> None:
        if table.config.count_by:
            values.append(values_of(written[table.config.count_by]))

    files = Files(wanted, location, rule, seen)
    try:
        files.write(rows)
        written = files.close()
    except Exception:
        files.abort()
        sweep(table.main, location)
        raise
    records = tuple(each.records for each in written if each.records is not None)
    return staged_files(table, wanted, written, values_together(values)), records


def staged_files(
    table: OpenTable, wanted: Layout, written: Sequence[Written], values: Values | None
) -> Staged:
    """values: rows by value of the counted column, if there is one; None: too many values."""
    rows, count_by = sum(each.rows for each in written), table.config.count_by
    return Staged(
        data_files(table.main, wanted, written),
        rows,
        sum(each.size for each in written),
        counts=counts(count_by, (values or {}).items(), rows) if count_by else None,
    )


def reasons_of(table: TablePlan) -> tuple[str, ...]:
    """Why this engine cannot make a table. The layout is not checked."""
    return _plan(table).reasons


def compile_everywhere(context: SparkContext) -> None:
    """Compile the kernels on every machine of the job before a round needs them. This machine has compiled them already."""
    if not str(context.master).startswith("local"):
        tasks = context.defaultParallelism
        context.parallelize(range(tasks), tasks).map(_compiled).collect()


def tasks_for(size_bytes: float, cores: int) -> int:
    """One task per core, but fewer if tasks would be too small."""
    return max(1, min(cores, int(size_bytes // BYTES_PER_TASK)))


def _plan(table: TablePlan) -> _Plan:
    row_plan, spark = table.row_plan, table.services.lake.spark
    if (known := _plans.get(row_plan)) is not None:
        return known
    steps = None
    found: tuple[str, ...] = ()
    if row_plan.chain.steps:
        try:
            further = row_plan.mode.groups_rows or row_plan.mode.keeps_versions  # columns that no step makes
            columns = row_plan.made if further else row_plan.columns
            steps = columnar_steps(row_plan.chain, spark, row_plan.source, columns)
        except Unsupported as why:
            found = (why.message,)
    _plans[row_plan] = plan = _Plan(Storage.of(spark), steps, found)
    return plan


def _compiled(number: int) -> int:
    """Importing this module compiles the kernels."""
    return number


def layout_of(table: Table, storage: Storage) -> Layout:
    """The layout of the table as loaded. Raises Unsupported: the table needs a feature that this engine lacks."""
    iceberg, java = table.jvm.org.apache.iceberg, table.java
    spec = json.loads(iceberg.PartitionSpecParser.toJson(java.spec()))
    order = json.loads(iceberg.SortOrderParser.toJson(java.sortOrder()))
    return layout(table.schema, spec, order, table.properties, storage)


def location_of(table: Table, name: str) -> str:
    """The path prefix of a task's files, from the table's location provider. Raises Suspended: `foreign_path`."""
    require_own_paths(table)
    return str(table.java.locationProvider().newDataLocation(name))


def data_files(table: Table, wanted: Layout, written: Sequence[Written]) -> tuple[Any, ...]:
    """Data files with the metrics that Iceberg reads from their footers, by the table's properties.

    A py4j call costs more than its work. So calls that only set Iceberg's defaults are left out.
    """
    if not written:
        return ()
    iceberg = table.jvm.org.apache.iceberg
    stream, metrics_of = table.jvm.java.io.ByteArrayInputStream, iceberg.parquet.ParquetUtil.footerMetrics
    nothing, footers = table.jvm.java.util.stream.Stream.empty, _footers(table.jvm)
    builder, value = iceberg.DataFiles.builder, iceberg.SingleValueParser.fromJson
    longs, counts = _types(table.jvm)
    config = iceberg.MetricsConfig.forTable(table.java)
    spec = table.java.specs().get(wanted.spec_id)
    tuples = spec.partitionType()
    found = []
    for each in written:
        metrics = metrics_of(footers.readParquetMetadata(stream(each.footer)), nothing(), config)
        if each.nans:
            held = {"keys": list(each.nans), "values": list(each.nans.values())}
            metrics.nanValueCounts().putAll(value(counts, json.dumps(held)))
        file = builder(spec).withPath(each.path).withFileSizeInBytes(each.size).withMetrics(metrics)
        if len(each.splits) > 1:
            file = file.withSplitOffsets(value(longs, json.dumps(each.splits)))
        if each.partition is not None:
            file = file.withPartition(value(tuples, each.partition))
        if wanted.order:
            file = file.withSortOrderId(wanted.order_id)
        found.append(file.build())
    return tuple(found)


@cache
def _types(jvm: Any) -> tuple[Any, Any]:
    """Iceberg's types of a list of long numbers, and of a map to long numbers by integers."""
    types = jvm.org.apache.iceberg.types.Types
    integer, long = types.IntegerType.get(), types.LongType.get()
    return types.ListType.ofRequired(1, long), types.MapType.ofRequired(1, 2, integer, long)


@cache
def _footers(jvm: Any) -> Any:
    """Reads footers. All threads may use it. `ParquetUtil.fileMetrics` would read Hadoop's settings from XML for each file."""
    parquet = jvm.org.apache.iceberg.shaded.org.apache.parquet
    options = parquet.ParquetReadOptions.builder(parquet.conf.PlainParquetConfiguration()).build()
    return parquet.format.converter.ParquetMetadataConverter(options)


def sweep(table: Table, location: str) -> None:
    """Delete all files of the task attempts that begin with `location`. Raises Retryable: the object store does not answer."""
    with catalog_errors(f"table {table.name}"):
        table.java.io().deletePrefix(location)
