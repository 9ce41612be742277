"""Replay: the rows that keys of dead letters would have, had the rounds not rejected these records (ADR 47).

The job reads the topic again since the round of the oldest dead letter. It keeps the records of the dead letters' keys. Beginning
with the table's older rows of these keys, it applies the rule of the mode round by round. Other open dead letters do not count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from calve.errors import CalveError
from calve.requests.redrive import RoundsSince
from calve.schema.columns import REDRIVEN
from calve.table.position import Position
from calve.table.protocol import TopicState, bytes_per_record, recheck
from glue_jobs.columns.expressions import OFFSET, PARTITION, by_columns, keys_of
from glue_jobs.dead_letters.records import DEAD_LETTER, rows_at
from glue_jobs.engines.batch import USUAL_BYTES, Batch
from glue_jobs.iceberg.catalog import Table
from glue_jobs.index.decision import KeyedRecords, KeyRule, overtaken, pairs, resets
from glue_jobs.index.records import records_of, together
from glue_jobs.modes.by_key import rule_of
from glue_jobs.modes.change_data import not_truncated
from glue_jobs.table.open_table import OpenTable
from glue_jobs.table.records import rows
from glue_jobs.transform.row_columns import lacks_values

PLACE = ("partition", "offset")
FATE = "calve:fate"
OVERTAKEN = "overtaken"
"""A later record of the key has replaced or deleted the row of the dead letter."""
EXPIRED = "offsets_expired"
"""The topic no longer holds the record, so later deletions of its key may be gone, too."""
LACKS_VALUES = "lacks_values"
"""A change event of the key lacks values, which come from the row before it."""


@dataclass(frozen=True, slots=True)
class Replay:
    """records: the good ones of the keys, as rows if each makes one. changed: those of them that replace rows of the table.

    fates: `PLACE` and `FATE` of the dead letters that are no rows: `OVERTAKEN`, or why they stay dead letters.
    """

    records: DataFrame
    changed: KeyedRecords
    fates: DataFrame


def replay(table: OpenTable, base: Position, dead_letters: Table, letters: DataFrame) -> Replay:
    """letters: good records with `DEAD_LETTER` and the columns of rows. dead_letters: level with main's position, `base`.

    Raises CalveError: the topic was created again. Suspended: as `recheck`.
    """
    spark, cluster = table.services.lake.spark, table.services.cluster
    topic = require_one_topic(table, base)
    places = letters.select(*(F.col(DEAD_LETTER)[name].alias(name) for name in PLACE)).toArrow()
    since = _since(table, topic, places)
    batch = _batch(table, topic, base, since)
    key = rule_of(table).key
    keys = F.broadcast(keys_of(letters, key).distinct())
    others = rows_at(dead_letters, dead_letters.head).where(F.col(REDRIVEN).isNull()).select(*PLACE)
    others = F.broadcast(others.join(spark.createDataFrame(places), [*PLACE], "left_anti"))
    flat = by_columns(batch.records(), (PARTITION, OFFSET), others, "left_anti")
    good = rows(flat) if table.row_plan.chain.explodes else table.row_plan.rows(flat)[0]
    records = by_columns(good, key, keys, "left_semi")
    held = by_columns(table.rows, key, keys, "left_semi")
    found = records.persist()
    try:
        changed, fates = _decided(table, since, flat, found, held, places)
        recheck(topic, cluster.state(topic.name), batch.start)
    finally:
        found.unpersist()
    return Replay(records, changed, spark.createDataFrame(fates))


def require_one_topic(table: OpenTable, base: Position) -> TopicState:
    """The topic of all rows. Raises CalveError: they are of several."""
    topic = table.services.cluster.state(table.config.topic)
    if base.of(topic.key) is None or len(base.offsets) > 1:
        raise CalveError("the topic was created again, and a row does not name its topic")
    return topic


def fold(rule: KeyRule, every: KeyedRecords, number: NDArray[np.int64]) -> KeyedRecords:
    """The record that each key has in the end: a row, or a deletion. number: of the round of each record; -1: an older row."""
    order = np.argsort(number, kind="stable")
    rounds = np.split(order, np.flatnonzero(np.diff(number[order])) + 1)
    found = every.take(np.empty(0, np.intp))
    for each in rounds:
        batch = every.take(each)
        best = batch.take(rule.kept(batch))
        if rule.order_by is not None:
            held = found.take(~found.deletes)
            _, here, there = np.intersect1d(pairs(best), pairs(held), return_indices=True)
            best = best.take(~overtaken(best, here, held.take(there).order) | resets(batch, best))
        found = KeyedRecords.together([found.take(~np.isin(pairs(found), pairs(best))), best])
    return found


def _since(table: OpenTable, topic: TopicState, places: pa.Table) -> RoundsSince:
    lowest = places.group_by(PLACE[0]).aggregate([(PLACE[1], "min")])
    offsets = zip(*(each.to_pylist() for each in lowest.columns), strict=True)
    return RoundsSince.of(table.main.ancestors(), topic.key, dict(offsets))


def _batch(table: OpenTable, topic: TopicState, base: Position, since: RoundsSince) -> Batch:
    """The records of these rounds that the topic still holds."""
    to, first = base.of(topic.key) or {}, since.start or {}
    start = {p: min(max(first.get(p, 0), topic.log_start[p]), end) for p, end in to.items()}
    return Batch(table, start, to, topic.key, bytes_per_record(table.main.ancestors()) or USUAL_BYTES)


def _decided(
    table: OpenTable,
    since: RoundsSince,
    flat: DataFrame,
    records: DataFrame,
    held: DataFrame,
    places: pa.Table,
) -> tuple[KeyedRecords, pa.Table]:
    """`Replay.changed`, and `Replay.fates` as values. held: rows of the table."""
    rule = rule_of(table)
    read, held_rows, letters = (
        records_of(records, rule),
        records_of(held, rule),
        together(*(each.to_numpy() for each in places.columns)),
    )
    lasting, lacking = read, read.take(np.empty(0, np.intp))
    if table.mode.reads_changes:
        lasting = records_of(not_truncated(flat, records), rule)
        lacking = records_of(records.where(lacks_values(records)), rule)
    others = held_rows.take(~np.isin(_places(held_rows), _places(lasting)))
    every = KeyedRecords.together([lasting, others])
    every = every.take(~np.isin(pairs(every), pairs(lacking)))
    newest = fold(rule, every, _numbers(every, since))
    mine = read.take(np.isin(_places(read), letters))
    fate = np.full(len(mine.offset), None, object)
    fate[~np.isin(_places(mine), _places(newest))] = OVERTAKEN
    fate[np.isin(pairs(mine), pairs(lacking))] = LACKS_VALUES
    gone = letters[~np.isin(letters, _places(read))]
    where = np.concatenate([_places(mine), gone])
    fates = pa.array([*fate, *[EXPIRED] * len(gone)], pa.string())
    found = pa.table([where["f0"], where["f1"], fates], [*PLACE, FATE])
    return newest.take(~np.isin(_places(newest), _places(held_rows))), found.filter(pc.is_valid(fates))


def _numbers(records: KeyedRecords, since: RoundsSince) -> NDArray[np.int64]:
    """The number of the round that read each record; -1: an earlier one."""
    number = np.zeros(len(records.offset), np.int64)
    for partition in np.unique(records.partition).tolist():
        here = records.partition == partition
        ends = [each.get(partition, 0) for each in since.ends]
        number[here] = np.searchsorted(ends, records.offset[here], side="right")
        if since.start is not None:
            number[here & (records.offset < since.start.get(partition, 0))] = -1
    return number


def _places(records: KeyedRecords) -> NDArray[Any]:
    return together(records.partition, records.offset)
