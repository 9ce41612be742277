"""Write a batch as data files that no snapshot contains, by the table's engine and the fold of its mode."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from pyspark.sql import DataFrame

from calve.config.engine_choice import Chosen
from calve.errors import CalveError
from calve.modes.aggregate import Aggregate
from calve.modes.history import History
from calve.modes.mode import Mode
from calve.modes.upsert import ChangeData, Deduplicate, Upsert
from glue_jobs.engines.batch import Batch
from glue_jobs.engines.choice import Engine, Fold, RowEngine, choose_engine
from glue_jobs.iceberg.staging import Staged, discard
from glue_jobs.index.decision import KeyedFiles
from glue_jobs.modes.aggregate import stage_groups, stage_totals
from glue_jobs.modes.by_key import decided, stage_by_key
from glue_jobs.modes.change_data import stage_change_data
from glue_jobs.modes.filling import TooLarge
from glue_jobs.modes.history import MOST_BYTES, placed, stage_versions
from glue_jobs.process import faults
from glue_jobs.table.counts import Counts, counted_records, observe_records, with_counted_rows
from glue_jobs.table.open_table import OpenTable
from glue_jobs.totals.fold import Totals

Write = Callable[[OpenTable, DataFrame, int, str], tuple[Staged, int | None]]
"""A table, the rows of its good records, tasks and a file id -> data files, and how many rows replace others or are new."""


def _written_by(write: Write, batch: Batch, stage_id: str) -> tuple[Staged, Counts]:
    """As `glue_jobs.engines.choice.Fold`, for modes that need only the rows of the good records."""
    table = batch.table
    observed, observation = observe_records(batch.records())
    good, several = table.row_plan.rows(observed)
    staged, changed = write(table, good, batch.tasks, stage_id)
    counts = replace(counted_records(observation), changes=changed)
    return staged, with_counted_rows(counts, several) if several else counts


def _append(table: OpenTable, good: DataFrame, tasks: int, stage_id: str) -> tuple[Staged, None]:
    return table.stage(good, tasks, stage_id), None


def engine_of(table: OpenTable) -> tuple[Engine, Chosen]:
    return choose_engine(table, fold_of(table.mode))


def stage_batch(engine: Engine, batch: Batch, stage_id: str) -> tuple[Staged, Counts, Batch]:
    """Write the good records as data files and count all records; returns also the batch for reading its rejects.

    If the table infers its columns and these records make new ones, they are added and the batch is written again.
    Raises CalveError: as `Engine.stage`. Nothing is committed.
    """
    files, counts, read = _stage(engine, batch, stage_id)
    try:
        grown = batch.table.grow(files)
    except CalveError:
        discard(batch.table.main, files)
        raise
    if grown is None:
        return files, counts, read
    discard(grown.main, files)
    faults.point("stage.discarded", grown.config.name)
    engine, _ = engine_of(grown)
    return _stage(engine, replace(read, table=grown), stage_id)


def _stage(engine: Engine, batch: Batch, stage_id: str) -> tuple[Staged, Counts, Batch]:
    """As `stage_batch`, without new columns.

    If rows of a record cannot be computed, the row engine reads the batch again and rejects the record. It also makes a batch of
    change data with a truncation, which ends rows of the table, or with more lacking values, or versions, than the driver has
    room for.
    """
    mode = batch.table.mode
    by_rows = RowEngine(fold_of(mode))
    if isinstance(mode, History) and batch.size_bytes > MOST_BYTES:
        engine = by_rows
    files, counts, left = engine.stage(batch, stage_id)
    if counts.failed or (left is not None and counts.truncates):
        discard(batch.table.main, files)
        batch = batch.with_failing() if counts.failed else batch
        files, counts, left = by_rows.stage(batch, stage_id)
    match left:
        case KeyedFiles():
            try:
                if isinstance(mode, History):
                    files, counts = placed(mode, batch.table, files, counts, left, stage_id)
                else:
                    files, counts = decided(batch.table, files, counts, left, stage_id)
            except TooLarge:
                discard(batch.table.main, files)
                files, counts, _ = by_rows.stage(replace(batch, lacks_values=True), stage_id)
        case Totals():
            staged, changes = stage_groups(batch.table, left, batch.tasks, stage_id)
            files, counts = replace(staged, cpu_s=files.cpu_s), replace(counts, changes=changes)
    return files, counts, batch


def fold_of(mode: Mode) -> Fold:
    """The only place that chooses by mode how rows are written."""
    match mode:
        case ChangeData():
            return partial(stage_change_data, mode)
        case History():
            return partial(_written_by, partial(stage_versions, mode))
        case Upsert() | Deduplicate():
            return stage_by_key
        case Aggregate():
            return partial(_written_by, partial(stage_totals, mode))
    return partial(_written_by, _append)
