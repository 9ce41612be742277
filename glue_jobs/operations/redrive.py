"""Redrive: decode the requested dead letters as a round does, and add their rows to the table in one commit.

Main comes first, as with rejects (ADR 5). The dead letters that became rows wait on a branch, marked as redriven.
Main's commit names them. Then this job, or after a crash the next one, replaces the unmarked ones with them (ADR 12).
"""

from __future__ import annotations

import uuid
from dataclasses import asdict, replace
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from calve.errors import Retryable, Suspended
from calve.modes.aggregate import Aggregate
from calve.modes.history import History
from calve.names import SYSTEM_COLUMN
from calve.requests.redrive import Request, Result, done_before, position_after
from calve.requests.requests import now
from calve.schema.columns import REDRIVEN
from calve.table.position import Ledger, TopicKey
from calve.table.protocol import check_ledger
from calve.table.summary import COUNTS, REDRIVE, REDRIVE_RESULT
from glue_jobs.columns.expressions import FILTERED, IDLE, OTHER, REJECT, SIZE, false
from glue_jobs.dead_letters.records import (
    DEAD_LETTER,
    RECORD,
    UNDECRYPTED,
    as_records,
    by_record,
    record_of,
)
from glue_jobs.decode.decode import decode
from glue_jobs.iceberg.catalog import Table
from glue_jobs.iceberg.layout import tasks_for
from glue_jobs.iceberg.staging import Staged, discard, stage
from glue_jobs.modes.aggregate import stage_totals
from glue_jobs.modes.by_key import stage_changed, without_held
from glue_jobs.modes.history import stage_versions
from glue_jobs.operations.operation import Operation
from glue_jobs.operations.publishing import publish_work
from glue_jobs.operations.replay import FATE, OVERTAKEN, PLACE, replay, require_one_topic
from glue_jobs.process import faults
from glue_jobs.table.counts import Counts, unknown_ids, with_counted_rows
from glue_jobs.table.open_table import OpenTable
from glue_jobs.table.records import rows


class Redrive(Operation[Request, Result]):
    """The dead letters are level with `base`."""

    kind = Request

    def pending(self) -> Request | None:
        request = super().pending()
        if request is not None:
            self.dead_letters = self.table.dead_letters.level_with(self.base)
        return request

    def refused(self, request: Request | None, why: str) -> Result:
        return Result(request.id if request else "", now(), problem=why)

    def answer(self, answer: Result) -> None:
        table = self.table
        table.main.set_properties({REDRIVE_RESULT: answer.to_json()}, remove=[REDRIVE])
        faults.point("redrive.completed", table.config.name)
        table.main.refresh()
        facts = {name: value for name, value in asdict(answer).items() if name not in ("id", "at")}
        table.event("redrive.completed", request=answer.id, **facts)

    def run(self, request: Request) -> Result:
        """Redrive all possible dead letters, with one commit for each incarnation of the topic.

        Commits of an earlier try of the same request count: their dead letters are marked and not selected again.
        """
        self.request = request
        done = done_before(self.table.main.ancestors(), request.id)
        shares = self._shares()
        for topic, (ledger, size_bytes) in shares.items():
            if ledger.closed:
                self._bring_back(topic, ledger, size_bytes)
        total = reduce(Ledger.plus, (ledger for ledger, _ in shares.values()), done)
        selected = total.closed + sum(total.refused.values())
        counts = selected, total.redriven, total.present, total.refused
        return Result(request.id, now(), *counts, overtaken=total.overtaken)

    def _shares(self) -> Shares:
        """Select dead letters, look up unknown schema ids, and count the result for each dead letter."""
        if self.dead_letters is None:
            return {}
        self.chosen = as_records(self.dead_letters, self.request, self.table.services.masking_keys)
        if not self.chosen.limit(1).collect():
            return {}
        self.table = self.table.learn(*unknown_ids(self.chosen, self.table.decode_plan)) or self.table
        self.held = None if self.table.mode.groups_rows else self._held()
        self.replay = None
        mode = self.table.mode
        if mode.keeps_versions:
            require_one_topic(self.table, self.base)
        elif mode.replaces_rows and not mode.groups_rows:
            good = self._judged().where(F.col(REJECT).isNull() & ~F.col(PRESENT))
            if good.limit(1).collect():
                self.replay = replay(self.table, self.base, self.dead_letters, good)
        return counted(self._judged())

    def _held(self) -> DataFrame | None:
        """Good records that main already holds: a second proof beside the marks, nearly always none.

        Where the table holds the first record of each key, these are all records whose key it holds or will hold.
        """
        good = self._records().where(F.col(REJECT).isNull())
        if (fresh := without_held(self.table, rows(good))) is not None:
            found = by_record(record_of(good), record_of(fresh), "left_anti")
        else:
            found = by_record(record_of(self.table.rows), record_of(good), "left_semi").distinct()
        return found if found.limit(1).collect() else None

    def _records(self) -> DataFrame:
        """The dead letters as rows.

        A dead letter stays if it cannot be decrypted, belongs to another table now, is filtered by a step, or is a change event
        without a row: a truncation or a message.
        """
        found = decode(self.chosen, self.table.decode_plan, self.table.mode)
        found = found.withColumn(REJECT, F.when(F.col(UNDECRYPTED), F.lit("sealed")).otherwise(F.col(REJECT)))
        if OTHER in found.columns:
            others = F.when(F.col(OTHER).isNotNull(), F.lit("incompatible_schema"))
            found = found.withColumn(REJECT, F.coalesce(others, REJECT)).drop(OTHER)
        made = self.table.row_plan.records(found, DEAD_LETTER)
        if IDLE in made.columns:
            made = made.withColumn(REJECT, F.coalesce(REJECT, F.when(F.col(IDLE), F.lit("no_row"))))
        if FILTERED not in made.columns:
            return made
        left_out = F.when(F.col(FILTERED), F.lit("filtered"))
        return made.withColumn(REJECT, F.coalesce(REJECT, left_out)).drop(FILTERED)

    def _judged(self) -> DataFrame:
        """The records with `PRESENT` and `IS_OVERTAKEN`."""
        records = self._with_present(self._records())
        if self.replay is None:
            return records.withColumn(IS_OVERTAKEN, false())
        fates, fate = self.replay.fates, F.col(FATE)
        same = [F.col(DEAD_LETTER)[name] == fates[name] for name in PLACE]
        joined = records.join(F.broadcast(fates), same, "left").drop(*PLACE)
        refused = F.coalesce(REJECT, F.when(fate != OVERTAKEN, fate))
        is_overtaken = F.coalesce(fate == OVERTAKEN, false())
        return joined.withColumns({REJECT: refused, IS_OVERTAKEN: is_overtaken}).drop(FATE)

    def _with_present(self, records: DataFrame) -> DataFrame:
        if self.held is None:
            return records.withColumn(PRESENT, false())
        held = self.held.select(*(F.col(name).alias(f"held:{name}") for name in RECORD))
        same = [F.col(SYSTEM_COLUMN)[name].eqNullSafe(F.col(f"held:{name}")) for name in RECORD]
        joined = records.join(held, same, "left").withColumn(PRESENT, F.col("held:offset").isNotNull())
        return joined.drop(*held.columns)

    def _bring_back(self, topic: TopicKey, ledger: Ledger, size_bytes: int) -> None:
        table, round_id = self.table, uuid.uuid4().hex
        dead_letters = table.dead_letters.ensure()
        letter = F.col(DEAD_LETTER)
        mine = (letter["cluster_id"] == topic.cluster_id) & (letter["topic_id"] == topic.topic_id)
        good = self._judged().where(F.col(REJECT).isNull() & mine)
        staged = self._stage_rows(good.where(~F.col(PRESENT) & ~F.col(IS_OVERTAKEN)), size_bytes, round_id)
        if (grown := table.grow(staged)) is not None:
            discard(table.main, staged)
            self.table = grown
            self._bring_back(topic, ledger, size_bytes)
            return
        faults.point("redrive.staged", table.config.name)
        marked = stage_marks(table, dead_letters, good, round_id)
        faults.point("redrive.marked", table.config.name)
        if table.row_plan.chain.explodes or table.mode.replaces_rows:
            deleted = staged.deletes.rows if staged.deletes else 0
            ledger = replace(ledger, rows_appended=staged.rows, rows_deleted=deleted)
        if (staged.rows, marked.rows) != (ledger.rows_appended, ledger.closed):
            discard(table.main, staged)
            raise Retryable(f"{staged.rows} rows and {marked.rows} marks were written for {ledger}")
        held = table.dead_letters.stage_on_branch(marked, round_id=round_id, base=self.base)
        faults.point("redrive.held", table.config.name)
        check_ledger(ledger, staged_rows=staged.rows)
        position = position_after(self.base, round_id=round_id, writer=table.services.writer, held=held)
        self.changed = True
        metrics = self.meter.of_round(table.main, staged, marked, had_dead_letters=True)
        if staged.counts:
            metrics[COUNTS] = staged.counts
        entries = {REDRIVE: self.request.id}
        snapshot = publish_work(
            table, self.base, position, staged, ledger, topic=topic, metrics=metrics, entries=entries
        )
        faults.point("redrive.committed", table.config.name)
        table.dead_letters.publish(position, marked)
        self.base = replace(position, snapshot=snapshot)

    def _stage_rows(self, good: DataFrame, size_bytes: int, round_id: str) -> Staged:
        table = self.table
        tasks = tasks_for(size_bytes, table.services.cores, table.services.cores)
        if self.replay is not None:
            staged, several = stage_changed(table, self.replay.records, self.replay.changed, tasks, round_id)
        else:
            made, several = table.row_plan.rows(good.drop(DEAD_LETTER, PRESENT, IS_OVERTAKEN))
            if isinstance(table.mode, Aggregate):
                staged, _ = stage_totals(table.mode, table, made, tasks, round_id)
            elif isinstance(table.mode, History):
                staged, _ = stage_versions(table.mode, table, made, tasks, round_id, late=True)
            else:
                staged = table.stage(made, tasks, round_id)
        if several and with_counted_rows(Counts(), several).failed:
            discard(table.main, staged)
            raise Suspended("step_failed", "the table's steps cannot compute the rows of these dead letters")
        return staged


def stage_marks(table: OpenTable, dead_letters: Table, chosen: DataFrame, round_id: str) -> Staged:
    """Write redriven dead letters (`DEAD_LETTER` of each) with the mark of their round."""
    kept = chosen.select(f"{DEAD_LETTER}.*").withColumn(REDRIVEN, F.lit(round_id))
    return stage(dead_letters, kept.select(*dead_letters.columns).coalesce(1), f"{round_id}-letters")


PRESENT = "calve:present"
"""A column beside those of a record: whether main has the dead letter's record."""
IS_OVERTAKEN = "calve:overtaken"
"""Another: whether a later record of its key has replaced or deleted its row."""


Shares = dict[TopicKey, tuple[Ledger, int]]
"""By incarnation of the topic: the counts of the selected dead letters, and the bytes of the new rows' records."""


def counted(judged: DataFrame) -> Shares:
    """The shares of records with `DEAD_LETTER`, `REJECT`, `PRESENT`, `IS_OVERTAKEN` and `SIZE`."""
    letter = F.col(DEAD_LETTER)
    topic_of = letter["cluster_id"].alias("cluster"), letter["topic_id"].alias("topic")
    kinds = judged.groupBy(*topic_of, REJECT, PRESENT, IS_OVERTAKEN)
    sums = kinds.agg(F.count(F.lit(1)).alias("letters"), F.sum(SIZE).alias("size"))
    shares: Shares = {}
    for row in sums.collect():
        topic, found, size_bytes = TopicKey(row["cluster"], row["topic"]), row["letters"], 0
        if row[REJECT] is not None:  # once for dead letters with a row in main, and once for others
            fate = Ledger(selected=found, refused={row[REJECT]: found})
        elif row[PRESENT]:
            fate = Ledger(selected=found, present=found)
        elif row[IS_OVERTAKEN]:
            fate = Ledger(selected=found, overtaken=found)
        else:
            fate = Ledger(selected=found, redriven=found, rows_appended=found)
            size_bytes = int(row["size"] or 0)
        ledger, size_before = shares.get(topic, (Ledger(), 0))
        shares[topic] = ledger.plus(fate), size_before + size_bytes
    return shares
