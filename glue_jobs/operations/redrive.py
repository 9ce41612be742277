"""Redrive: decode the requested dead letters as a round does, and add their rows to the table in one commit.

Main comes first, as with rejects (ADR 5). The dead letters that became rows wait on a branch, marked as redriven.
Main's commit names them. Then this job, or after a crash the next one, replaces the unmarked ones with them (ADR 12).
"""

from __future__ import annotations

import os
import uuid
from collections import Counter
from dataclasses import asdict, dataclass, replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from calve.errors import Retryable, Suspended
from calve.names import SYSTEM_COLUMN
from calve.requests.redrive import Request, Result, done_before, is_level, position_after
from calve.schema.columns import REDRIVEN
from calve.table.position import Ledger, Position, TopicKey
from calve.table.protocol import check_ledger
from calve.table.summary import COUNTS, REDRIVE, REDRIVE_RESULT
from glue_jobs.columns.expressions import false
from glue_jobs.columns.helpers import FILTERED, OTHER, REJECT, SIZE
from glue_jobs.dead_letters.encryption import DEAD_LETTER, UNDECRYPTED, as_records
from glue_jobs.dead_letters.redriven import RECORD, by_record, records_in
from glue_jobs.decode.decode import decode
from glue_jobs.iceberg.catalog import Table
from glue_jobs.iceberg.layout import tasks_for
from glue_jobs.iceberg.staging import Staged, discard, stage
from glue_jobs.modes.staging import without_held
from glue_jobs.operations.operation import Operation, now
from glue_jobs.operations.publishing import publish_work
from glue_jobs.process import faults
from glue_jobs.table.counts import Counts, unknown_ids, with_counted_rows
from glue_jobs.table.open_table import OpenTable
from glue_jobs.table.records import rows


class Redrive(Operation[Request, Result]):
    """The dead letters are level with `base`."""

    kind = Request

    def __init__(self, table: OpenTable, base: Position) -> None:
        super().__init__(table, base)
        self.mark = os.urandom(8)

    def refuse(self, request: Request) -> str | None:
        if why := self.table.mode.cannot_redrive:
            return why
        self.dead_letters = self.table.dead_letters.table
        if self.dead_letters is not None and not is_level(self.base, self.dead_letters.ancestors()):
            raise Retryable(f"table {self.dead_letters.name}: another writer is moving the dead letters")
        return None

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
        for share in shares:
            if share.fresh or share.present:
                self._bring_back(share)
        refused: Counter[str] = Counter()
        for share in shares:
            refused.update(dict(share.refused))
        redriven = done.redriven + sum(each.fresh for each in shares)
        present = done.present + sum(each.present for each in shares)
        selected = redriven + present + refused.total()
        return Result(request.id, now(), selected, redriven, present, dict(refused))

    def _shares(self) -> list[Share]:
        """Select dead letters, look up unknown schema ids, and count the result for each dead letter."""
        if self.dead_letters is None:
            return []
        self.chosen = as_records(
            self.table.services.lake, self.dead_letters, self.request, self.table.services.masking_keys
        )
        if not self.chosen.limit(1).collect():
            return []
        self.table = self.table.learn(*unknown_ids(self.chosen, self.table.decode_plan)) or self.table
        self.held = self._held()
        return counted(self._judged())

    def _held(self) -> DataFrame | None:
        """Good records that main already holds: a second proof beside the marks, nearly always none.

        Where the table holds the first record of each key, these are all records whose key it holds or will hold.
        """
        good = self._records().where(F.col(REJECT).isNull())
        if (fresh := without_held(self.table, rows(good))) is not None:
            found = by_record(_places(good), _places(fresh), "left_anti")
        else:
            found = records_in(self.table.rows, _places(good))
        return found if found.limit(1).collect() else None

    def _records(self) -> DataFrame:
        """The dead letters as rows.

        A dead letter stays if it cannot be decrypted, belongs to another table now, or is filtered by a step.
        """
        found = decode(self.chosen, self.table.decode_plan, self.mark, self.table.mode)
        found = found.withColumn(REJECT, F.when(F.col(UNDECRYPTED), F.lit("sealed")).otherwise(F.col(REJECT)))
        if OTHER in found.columns:
            others = F.when(F.col(OTHER).isNotNull(), F.lit("incompatible_schema"))
            found = found.withColumn(REJECT, F.coalesce(others, REJECT)).drop(OTHER)
        made = self.table.row_plan.records(found, DEAD_LETTER)
        if FILTERED not in made.columns:
            return made
        left_out = F.when(F.col(FILTERED), F.lit("filtered"))
        return made.withColumn(REJECT, F.coalesce(REJECT, left_out)).drop(FILTERED)

    def _judged(self) -> DataFrame:
        records = self._records()
        if self.held is None:
            return records.withColumn(PRESENT, false())
        held = self.held.select(*(F.col(name).alias(f"held:{name}") for name in RECORD))
        same = [F.col(SYSTEM_COLUMN)[name].eqNullSafe(F.col(f"held:{name}")) for name in RECORD]
        joined = records.join(held, same, "left").withColumn(PRESENT, F.col("held:offset").isNotNull())
        return joined.drop(*held.columns)

    def _bring_back(self, share: Share) -> None:
        table, round_id = self.table, uuid.uuid4().hex
        dead_letters = table.dead_letters.ensure()
        letter, topic = F.col(DEAD_LETTER), share.topic
        mine = (letter["cluster_id"] == topic.cluster_id) & (letter["topic_id"] == topic.topic_id)
        good = self._judged().where(F.col(REJECT).isNull() & mine)
        staged = self._stage_rows(good.where(~F.col(PRESENT)), share, round_id)
        faults.point("redrive.staged", table.config.name)
        marked = stage_marks(table, dead_letters, good, round_id)
        faults.point("redrive.marked", table.config.name)
        ledger = share.ledger
        if table.row_plan.chain.explodes:
            ledger = replace(ledger, rows_appended=staged.rows)
        if (staged.rows, marked.rows) != (ledger.rows_appended, share.fresh + share.present):
            discard(table.main, staged)
            raise Retryable(f"{staged.rows} rows and {marked.rows} marks were written for {share}")
        held = table.dead_letters.stage_on_branch(marked, round_id=round_id, base=self.base)
        faults.point("redrive.held", table.config.name)
        check_ledger(ledger, staged_rows=staged.rows)
        position = position_after(self.base, round_id=round_id, writer=table.services.writer, held=held)
        self.changed = True
        metrics = self.meter.of_round(table.main, table.mode, staged, marked, had_dead_letters=True)
        if staged.counts:
            metrics[COUNTS] = staged.counts
        snapshot = publish_work(
            table,
            self.base,
            position,
            staged,
            ledger,
            topic=share.topic,
            metrics=metrics,
            entries={REDRIVE: self.request.id},
        )
        faults.point("redrive.committed", table.config.name)
        table.dead_letters.publish(position, marked)
        self.base = replace(position, snapshot=snapshot)

    def _stage_rows(self, good: DataFrame, share: Share, round_id: str) -> Staged:
        table = self.table
        tasks = tasks_for(share.size_bytes, table.services.cores, table.services.cores)
        made, several = table.row_plan.rows(good.drop(DEAD_LETTER, PRESENT))
        staged = table.stage(made, tasks, round_id)
        if several and with_counted_rows(Counts(), several).failed:
            discard(table.main, staged)
            raise Suspended("step_failed", "the table's steps cannot compute the rows of these dead letters")
        return staged


def _places(records: DataFrame) -> DataFrame:
    """The columns by which a table row identifies its record."""
    return records.select(*(F.col(SYSTEM_COLUMN)[name].alias(name) for name in RECORD))


def stage_marks(table: OpenTable, dead_letters: Table, chosen: DataFrame, round_id: str) -> Staged:
    """Write redriven dead letters (`DEAD_LETTER` of each) with the mark of their round."""
    kept = chosen.select(f"{DEAD_LETTER}.*").withColumn(REDRIVEN, F.lit(round_id))
    columns = [each["name"] for each in dead_letters.schema["fields"]]
    return stage(table.services.lake, dead_letters, kept.select(*columns).coalesce(1), f"{round_id}-letters")


PRESENT = "calve:present"
"""A column beside those of a record: whether main has the dead letter's record."""


@dataclass(frozen=True, slots=True)
class Share:
    """The selected dead letters of one incarnation of the topic, counted."""

    topic: TopicKey
    fresh: int = 0
    present: int = 0
    size_bytes: int = 0
    refused: tuple[tuple[str, int], ...] = ()

    @property
    def ledger(self) -> Ledger:
        refused = dict(self.refused)
        return Ledger(
            selected=self.fresh + self.present + sum(refused.values()),
            redriven=self.fresh,
            present=self.present,
            refused=refused,
            rows_appended=self.fresh,
        )


def counted(judged: DataFrame) -> list[Share]:
    """The shares of records with `DEAD_LETTER`, `REJECT`, `PRESENT` and `SIZE`."""
    letter = F.col(DEAD_LETTER)
    keys = (letter["cluster_id"].alias("cluster"), letter["topic_id"].alias("topic"), REJECT, PRESENT)
    sums = judged.groupBy(*keys).agg(F.count(F.lit(1)).alias("letters"), F.sum(SIZE).alias("size"))
    shares: dict[TopicKey, Share] = {}
    for row in sums.collect():
        topic, dead_letters = TopicKey(row["cluster"], row["topic"]), row["letters"]
        share = shares.get(topic, Share(topic))
        if row[REJECT] is not None:  # once for dead letters with a row in main, and once for others
            refused = Counter(dict(share.refused)) + Counter({row[REJECT]: dead_letters})
            shares[topic] = replace(share, refused=tuple(sorted(refused.items())))
        elif row[PRESENT]:
            shares[topic] = replace(share, present=dead_letters)
        else:
            shares[topic] = replace(share, fresh=dead_letters, size_bytes=int(row["size"] or 0))
    return list(shares.values())
