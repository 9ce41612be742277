"""Which records of a batch stay in a table by key, and which rows of the table they replace (ADR 46).

The columnar engine writes the records that win in their part of a batch. Those that lose to other parts or to the table are
deleted from its files by position, in the same commit.
Spark's records are chosen before they are written: they are at hand, and a record may make several rows.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import DataFrame, Observation

from calve.errors import Retryable
from calve.modes.upsert import Deduplicate
from glue_jobs.columns.expressions import TOMBSTONE
from glue_jobs.engines.batch import Batch
from glue_jobs.engines.choice import loaded
from glue_jobs.iceberg.delete_files import LiveFile
from glue_jobs.iceberg.staging import Staged, discard
from glue_jobs.index.decision import NO_RECORDS, KeyedFiles, KeyedRecords, KeyRule, overtaken, resets, starts
from glue_jobs.index.hashing import Hashes
from glue_jobs.index.records import at_places, only, records_of
from glue_jobs.index.table_index import AddedFile
from glue_jobs.index.window import apart, in_order
from glue_jobs.modes.filling import filled
from glue_jobs.table.counts import Counts, counted_records, observe_records, with_counted_rows
from glue_jobs.table.open_table import OpenTable
from glue_jobs.table.records import rows


def decided(
    table: OpenTable, files: Staged, counts: Counts, keyed: KeyedFiles, stage_id: str
) -> tuple[Staged, Counts]:
    """The staged files with deletes of their losing rows, and of the rows of the table that their winners replace.

    Raises TooLarge: as `filled`. The staged files are as they were.
    """
    rule, written, aside = keyed.rule, keyed.records, keyed.aside
    set_aside = NO_RECORDS if aside is None else KeyedRecords.of(aside, rule)
    every = KeyedRecords.together([*written, set_aside, keyed.deletions])
    kept = _chosen(table, rule, every)
    replaced, made = _replaced(rule, every, kept), int((kept & ~every.deletes).sum())
    if aside is not None:
        sizes = [_live(each) for each in files.files]
        rows = filled(table, rule, every, kept, aside, sizes)
        more, records = loaded(table.services.lake.spark.sparkContext).stage_rows(table, rows, rule, stage_id)
        files, written = files.plus(more), (*written, *records)
        kept = np.concatenate([kept[: sum(each.rows for each in sizes)], np.ones(more.rows, bool)])
    ends = np.cumsum([0, *(len(each.high) for each in written)])
    added = [
        AddedFile(file, records.keys, rule.compared(records), kept[begin:end])
        for file, records, (begin, end) in zip(files.files, written, pairwise(ends), strict=True)
    ]
    staying = [each for each in added if each.kept.any()]  # in a file of duplicates no row does
    dead = Staged.of(each.file for each in added if not each.kept.any())
    discard(table.main, dead)
    deletes = table.index.delete(table.main, replaced, rule.key, stage_id, staying)
    found = Staged.of(each.file for each in staying)
    chosen = replace(
        files,
        files=found.files,
        size_bytes=found.size_bytes,
        rows=made,
        deletes=deletes,
        discarded=len(dead.files),
    )
    return chosen, counted(rule, counts, made)


def _live(staged: Any) -> LiveFile:
    """staged: Java's data file."""
    return LiveFile(
        -1, staged.location(), "PARQUET", staged.recordCount(), staged.fileSizeInBytes(), deletes=()
    )


def stage_by_key(batch: Batch, stage_id: str) -> tuple[Staged, Counts]:
    """As `glue_jobs.engines.choice.Fold`."""
    table = batch.table
    observed, observation = observe_records(batch.records())
    several = table.row_plan.chain.explodes
    good = rows(observed) if several else table.row_plan.rows(observed)[0]
    staged, made, found = stage_chosen(table, good, batch.tasks, stage_id)
    counts = counted(rule_of(table), counted_records(observation), made)
    return staged, with_counted_rows(counts, found) if found else counts


def stage_chosen(
    table: OpenTable, good: DataFrame, tasks: int, stage_id: str, gone: Hashes | None = None
) -> tuple[Staged, int, Observation | None]:
    """Stage the good records that stay, and deletes of the rows they replace; also returns their number.

    If a record makes several rows, its key is chosen first; the observation counts the rows.
    gone: keys of other rows to delete.
    """
    rule = rule_of(table)
    good = good.persist()
    try:
        every = records_of(good, rule)
        kept = _chosen(table, rule, every)
        stays = kept & ~every.deletes
        staged, several = _stage(table, only(good, every, stays), tasks, stage_id)
    finally:
        good.unpersist()
    replaced = _replaced(rule, every, kept)
    if gone is not None:
        replaced = replaced.plus(gone)
    deletes = table.index.delete(table.main, replaced, rule.key, stage_id)
    return replace(staged, deletes=deletes), int(stays.sum()), several


def stage_changed(
    table: OpenTable, good: DataFrame, changed: KeyedRecords, tasks: int, stage_id: str
) -> tuple[Staged, Observation | None]:
    """As `stage_chosen`, for records that are chosen already: `changed`, one of each key. Some of them delete.

    Raises Retryable: some of these records are gone. The deletes of their keys would lose the rows.
    """
    kept = changed.take(~changed.deletes)
    made = at_places(good, kept).persist()
    try:
        if made.count() != len(kept.offset):
            raise Retryable(f"topic {table.config.topic} was compacted while its records were read again")
        staged, several = _stage(table, made, tasks, stage_id)
    finally:
        made.unpersist()
    deletes = table.index.delete(table.main, changed.keys, rule_of(table).key, stage_id)
    return replace(staged, deletes=deletes), several


def _stage(table: OpenTable, made: DataFrame, tasks: int, stage_id: str) -> tuple[Staged, Observation | None]:
    several = None
    if table.row_plan.chain.explodes:
        made, several = table.row_plan.rows(made)
    return table.stage(made.drop(TOMBSTONE), tasks, stage_id), several


def without_held(table: OpenTable, good: DataFrame) -> DataFrame | None:
    """The good records whose key the table does not hold, if its mode keeps the first of each; None: of any other mode."""
    if not isinstance(table.mode, Deduplicate):
        return None
    rule = rule_of(table)
    every = records_of(good, rule)
    return only(good, every, _chosen(table, rule, every))


def rule_of(table: OpenTable) -> KeyRule:
    return KeyRule.of(table.mode)


def counted(rule: KeyRule, counts: Counts, made: int) -> Counts:
    """A table of the newest records counts changes; one of the first records counts duplicates."""
    return replace(counts, changes=made) if rule.newest else replace(counts, duplicates=counts.applied - made)


def _chosen(table: OpenTable, rule: KeyRule, every: KeyedRecords) -> NDArray[np.bool_]:
    """Which of all records of a batch stay: one of each key, unless the table's row of the key wins. Some of them delete."""
    if rule.window_ms is not None:
        return _apart(table, rule, every, rule.window_ms * 1000)
    kept = rule.kept(every)
    best = every.take(kept)
    if not rule.newest:
        kept[kept] = ~table.index.holds(table.main, best.keys, rule.key)
    elif rule.order_by is not None:
        held = table.index.orders(table.main, best.keys, rule.key)
        kept[kept] = ~overtaken(best, *held) | resets(every, best)
    return kept


def _apart(table: OpenTable, rule: KeyRule, every: KeyedRecords, window: int) -> NDArray[np.bool_]:
    kept = np.zeros(len(every.high), bool)
    if len(kept):
        order = in_order(every)
        ordered = every.take(order)
        keys = ordered.keys.take(np.flatnonzero(starts((ordered.high, ordered.low))))
        since, until = int(every.timestamp.min()) - window, int(every.timestamp.max()) + window
        held = table.index.times(table.main, keys, rule.key, since, until)
        kept[order] = apart(ordered, *held, window)
    return kept


def _replaced(rule: KeyRule, every: KeyedRecords, kept: NDArray[np.bool_]) -> Hashes:
    """A table of the newest records deletes their older rows. One of the first records deletes none."""
    return every.keys.take(np.flatnonzero(kept) if rule.newest else np.empty(0, np.intp))
