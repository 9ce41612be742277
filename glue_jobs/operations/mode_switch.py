"""Change the mode of a table, in one commit that moves no offset. The change is atomic (ADR 18).

To `upsert`: the appended rows are treated as one batch of changes. Current rows stay; the others are deleted by
position. Records without a value wait as dead letters. They are tombstones now and are marked as redriven.
To `history`: in the same way, but every row is written again, with the time for which it was valid.
From `upsert`: the rows stay, and the position stores the offsets up to which they are folded.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from calve.errors import Suspended
from calve.modes.history import History
from calve.modes.mode import Mode
from calve.modes.switch import folded_to, opened
from calve.modes.switch import switch as change_of
from calve.requests.redrive import Request, position_after
from calve.schema.columns import HISTORY
from calve.table.position import Ledger, Offsets, Position
from calve.table.protocol import ancestry_is_cut, check_ledger
from calve.table.summary import ADOPTED, REDRIVE, kind_of, ledger_of
from glue_jobs.columns.expressions import (
    OFFSET,
    PARTITION,
    TIMESTAMP,
    TOMBSTONE,
    at,
    by_columns,
    false,
    key_columns,
    key_names,
    keys_of,
)
from glue_jobs.dead_letters.records import DEAD_LETTER, UNDECRYPTED, as_records
from glue_jobs.decode.decode import decode
from glue_jobs.engines.batch import PLACE
from glue_jobs.iceberg.staging import NOTHING, Staged
from glue_jobs.index.table_index import TableIndex
from glue_jobs.modes.history import stage_every
from glue_jobs.operations.publishing import publish_work
from glue_jobs.operations.redrive import stage_marks
from glue_jobs.process import faults
from glue_jobs.table.open_table import OpenTable

TOMBSTONES = "null_value"
"""The reject reason of an append table for records that are tombstones in an upsert table."""
UNKNOWN = "nobody knows which rows they delete"


def fresh(table: OpenTable, base: Position) -> Position:
    """A table that has read nothing takes any mode."""
    return base if base.offsets else replace(base, mode=table.config.mode_note(table.main.schema))


def switch(table: OpenTable, base: Position) -> bool:
    """Commit the mode change that calve.yaml requires, if any; True if main has changed.

    Raises Suspended: `mode_changed`: the change is not possible; `key_unusable`: some rows have no key.
    Raises LostRace, Retryable: as a round.
    """
    wanted = table.config.mode_note(table.main.schema)
    match change_of(str(table.name), table.config.name, base.mode, wanted):
        case None:
            return False
        case "open":
            position = _after(table, base, opened(str(base.mode), base.offsets))
            _commit(table, base, position, NOTHING, Ledger())
        case "fold" | "version":
            _Fold(table, base, table.mode).run(wanted)
    return True


@dataclass(slots=True)
class _Fold:
    """The rows appended since the last fold, and the tombstones among the dead letters, as one batch of changes."""

    table: OpenTable
    base: Position
    mode: Mode

    def run(self, wanted: str | None) -> None:
        table, position = self.table, _after(self.table, self.base, wanted)
        self._require_whole()
        rows = table.rows
        batch = rows.where(self._beyond(at(PARTITION), at(OFFSET)))
        self._require_keys(batch)
        dead = self._tombstones()
        if isinstance(self.mode, History):
            staged = self._stage_versions(self.mode, batch, dead, position.round)
        else:
            staged = self._stage_deletes(rows, batch, dead, position.round)
        faults.point("switch.staged", table.config.name)
        deleted = staged.deletes.rows if staged.deletes else 0
        ledger = Ledger(rows_appended=staged.rows, rows_deleted=deleted)
        if dead is None:
            _commit(table, self.base, position, staged, ledger)
            return
        marked = stage_marks(table, table.dead_letters.ensure(), dead, position.round)
        faults.point("switch.marked", table.config.name)
        held = table.dead_letters.stage_on_branch(marked, round_id=position.round, base=self.base)
        faults.point("switch.held", table.config.name)
        position = position_after(position, round_id=position.round, writer=position.writer, held=held)
        ledger = replace(ledger, selected=marked.rows, redriven=marked.rows)
        _commit(table, self.base, position, staged, ledger)
        table.dead_letters.publish(position, marked)

    def _require_whole(self) -> None:
        ancestors = tuple(self.table.main.ancestors())
        ledgers = [ledger_of(each.summary) for each in ancestors]
        filtered = sum(each.filtered_by_steps for each in ledgers)
        skipped = sum(each.skipped.get(TOMBSTONES, 0) for each in ledgers)
        unknown = ancestry_is_cut(ancestors) and self.table.config.on_error == "skip"
        if ADOPTED in self.table.main.properties:
            why = "it has rows of its former writer, which have no order"
        elif len(self.base.offsets) > 1:
            why = "it holds records of a topic that was made again since, and no order between both"
        elif self.mode.deletes and (skipped or unknown):
            why = f"{skipped or 'perhaps some'} records without a value were skipped: {UNKNOWN}"
        elif self.mode.drops and filtered:
            why = f"its steps left out {filtered} records: {UNKNOWN}"
        else:
            return
        raise self._unable(why)

    def _unable(self, why: str) -> Suspended:
        return Suspended(
            "mode_changed",
            f"table {self.table.name} cannot change to the mode {self.mode.kind}: {why}",
            fix=f"in calve.yaml, remove `{self.mode.kind}` from table {self.table.config.name}, or name another table",
        )

    def _require_keys(self, batch: DataFrame) -> None:
        for path, by in self.table.config.hashed_key.items():
            if batch.where(~at(path).cast("string").startswith(f"{by}:")).limit(1).collect():
                raise self._unable(f"it has rows whose {path} was hashed by another masking key than {by}")
        nameless = batch.where(reduce(Column.__or__, (at(path).isNull() for path in self.mode.key)))
        if found := nameless.select(*(at(path) for path in PLACE)).limit(1).collect():
            raise Suspended(
                "key_unusable",
                f"table {self.table.name} cannot hold one row for each key: {nameless.count()} of its rows have none,"
                f" one of them partition {found[0][0]} offset {found[0][1]}",
                fix="choose columns that are never null, or name another table, where such records are dead letters",
            )

    def _tombstones(self) -> DataFrame | None:
        """The dead letters that delete, as rows with `DEAD_LETTER` and `TOMBSTONE`.

        Those with an unreadable key stay dead letters.
        """
        table = self.table
        dead_letters = table.dead_letters.level_with(self.base) if self.mode.deletes else None
        if dead_letters is None:
            return None
        keys = table.services.masking_keys
        chosen = as_records(dead_letters, Request("", "", reason=TOMBSTONES), keys)
        chosen = chosen.where(self._beyond(F.col("partition"), F.col("offset")))
        if unopened := chosen.where(F.col(UNDECRYPTED)).count():
            raise self._unable(
                f"{unopened} dead letters without a value are encrypted by keys that the secret lacks: {UNKNOWN}"
            )
        decoded = decode(chosen, table.decode_plan, self.mode)
        records = table.row_plan.records(decoded.where(F.col(TOMBSTONE)), DEAD_LETTER)
        dead, _ = table.row_plan.rows(records)
        return dead if dead.limit(1).collect() else None

    def _stage_versions(
        self, mode: History, batch: DataFrame, dead: DataFrame | None, round_id: str
    ) -> Staged:
        """Every row and tombstone as a version, and deletes of the rows as they were."""
        table, changes = self.table, batch.drop(HISTORY["name"]).withColumn(TOMBSTONE, false())
        if dead is not None:
            changes = changes.unionByName(dead.drop(DEAD_LETTER))
        staged = stage_every(mode, table, changes, 2 * table.services.cores, round_id)
        gone = keys_of(batch, PLACE)
        return replace(staged, deletes=TableIndex().stage_deletes(table.main, gone, PLACE, round_id))

    def _stage_deletes(
        self, rows: DataFrame, batch: DataFrame, dead: DataFrame | None, round_id: str
    ) -> Staged:
        """Deletes of the batch's outdated rows, and of earlier rows that the batch replaces."""
        table, upsert = self.table, self.mode
        changes = batch.withColumn(TOMBSTONE, false())
        if dead is not None:
            changes = changes.unionByName(dead.drop(DEAD_LETTER))
        newest = newest_of_each_key(changes, upsert, 2 * table.services.cores)
        newest = without_overtaken(newest, table).persist()
        try:
            kept = keys_of(newest.where(~F.col(TOMBSTONE)), PLACE)
            gone = keys_of(batch, PLACE).join(kept, kept.columns, "left_anti")
            if folded_to(self.base.mode):
                earlier = rows.where(~self._beyond(at(PARTITION), at(OFFSET)))
                replaced = by_columns(earlier, upsert.key, keys_of(newest, upsert.key), "left_semi")
                gone = gone.unionByName(keys_of(replaced, PLACE))
            return replace(
                NOTHING,
                deletes=TableIndex().stage_deletes(table.main, gone, PLACE, round_id),
            )
        finally:
            newest.unpersist()

    def _beyond(self, partition: Column, offset: Column) -> Column:
        """True for places appended since the last fold; for all places if the table was never folded."""
        found = folded_to(self.base.mode)
        to: Offsets = next(iter(found.values()), {})
        folded = ((partition == each) & (offset < end) for each, end in to.items())
        return ~reduce(Column.__or__, folded, false())


def _after(table: OpenTable, base: Position, mode: str | None) -> Position:
    return replace(base, round=uuid.uuid4().hex, writer=table.services.writer, snapshot=None, mode=mode)


def _commit(table: OpenTable, base: Position, position: Position, staged: Staged, ledger: Ledger) -> None:
    check_ledger(ledger, staged_rows=staged.rows)
    entries = {REDRIVE: position.round} if ledger.selected else {}
    publish_work(table, base, position, staged, ledger, entries=entries)
    faults.point("switch.committed", table.config.name)
    mode, deleted = kind_of(position.mode), ledger.rows_deleted
    table.event("table.switched", mode=mode, rows_deleted=deleted, tombstones=ledger.redriven)


RESET = "calve:reset"
"""True if the batch holds a tombstone of the key: the table's row of the key is ignored."""
LATEST, RANK, BEFORE = "calve:latest", "calve:rank", "calve:before"


def newest_of_each_key(good: DataFrame, upsert: Mode, tasks: int) -> DataFrame:
    """One of the records with `TOMBSTONE` for each key, in `tasks` tasks, with `RESET`: the newest row, or a tombstone.

    A tombstone deletes every record of its key read before it. Of the others, the greatest `order_by` wins; null is least.
    Among equals the last one read wins: by offset in a partition, by timestamp between partitions.
    """
    key = [at(path) for path in upsert.key]
    here = Window.partitionBy(*key, at(PARTITION))
    latest = F.max(F.when(F.col(TOMBSTONE), at(OFFSET))).over(here)
    order = [] if upsert.order_by is None else [at(upsert.order_by).desc_nulls_last()]
    in_partition = here.orderBy(F.col(TOMBSTONE), *order, at(OFFSET).desc())
    in_all = Window.partitionBy(*key).orderBy(*order, at(TIMESTAMP).desc(), at(PARTITION).desc())
    return (
        good.repartition(tasks, *key)
        .withColumn(LATEST, latest)
        .where(F.col(LATEST).isNull() | (at(OFFSET) >= F.col(LATEST)))
        .withColumn(RANK, F.row_number().over(in_partition))
        .where(F.col(RANK) == 1)
        .withColumn(RESET, F.max(F.col(LATEST).isNotNull()).over(Window.partitionBy(*key)))
        .withColumn(RANK, F.row_number().over(in_all))
        .where(F.col(RANK) == 1)
        .drop(LATEST, RANK)
    )


def without_overtaken(newest: DataFrame, table: OpenTable) -> DataFrame:
    """The changes, without those whose key has a row of a greater order. Reads the table's key and order columns.

    Reads the current table: a fixed snapshot would have the columns of its time. If another round commits meanwhile, this one
    is refused.
    """
    key, order_by = table.mode.key, table.mode.order_by
    if order_by is None:
        return newest
    kept = table.rows.select(*key_columns(key), at(order_by).alias(BEFORE))
    same = [at(path) == F.col(name) for path, name in zip(key, key_names(key), strict=True)]
    overtaken = F.col(BEFORE).isNotNull() & (at(order_by).isNull() | (at(order_by) < F.col(BEFORE)))
    return newest.join(kept, reduce(Column.__and__, same, ~F.col(RESET) & overtaken), "left_anti").drop(RESET)
