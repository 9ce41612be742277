"""Read records again (ADR 32).

A rollback goes to an earlier snapshot. One metadata commit moves main and answers the request, so it happens once. As after any
rollback, the dead letters are brought level, and the next round reads from that snapshot's position. A backfill makes the rows of
an offset range again and replaces the old ones, in one commit that moves no offset.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from functools import reduce

from pyspark.sql import Column, DataFrame

from calve.errors import CalveError, Retryable
from calve.requests.forget import position_after
from calve.requests.requests import Entry, now, outdated
from calve.requests.time_travel import (
    BackfillRequest,
    Range,
    RollbackRequest,
    journey,
    range_of,
    remade_json,
    require_readable,
)
from calve.table.position import Ledger
from calve.table.protocol import begin, bytes_per_record, check_ledger, recheck
from calve.table.summary import BACKFILL, REMADE, TRAVEL, ledger_of
from glue_jobs.columns.expressions import OFFSET, PARTITION, at, keys_of
from glue_jobs.engines.batch import PLACE, USUAL_BYTES, Batch, errors_of_source
from glue_jobs.iceberg.staging import Staged, discard, rows_of, whole
from glue_jobs.index.table_index import TableIndex
from glue_jobs.modes.staging import engine_of, stage_batch
from glue_jobs.operations.operation import RAISED, Operation
from glue_jobs.operations.publishing import publish_work
from glue_jobs.process import faults


class Rollback(Operation[RollbackRequest, Entry]):
    """snapshot: the one that main goes back to; None: main stays."""

    kind = RollbackRequest
    raised = (*RAISED, Retryable)
    snapshot: int | None = None

    def refused(self, request: RollbackRequest | None, why: str) -> Entry:
        if request is None:
            return Entry("unknown", now(), "rollback", "", problem=why)
        return Entry(request.id, now(), request.what, _asked(request), request.by, problem=why)

    def run(self, request: RollbackRequest) -> Entry:
        config, cluster = self.table.config, self.table.services.cluster
        way = journey(tuple(self.table.main.ancestors()), request.snapshot)
        if self.base.offsets:
            topic = cluster.state(config.topic)
            first = {} if way.position.offsets else cluster.first_offsets(topic, config.start)
            require_readable(way, topic.key, begin(way.position, topic, first=first, on_data_loss="suspend"))
        told = f"{_asked(request)}: {way.reread} offsets are read again"
        self.snapshot = way.to.id
        return Entry(request.id, now(), request.what, told, request.by)

    def answer(self, answer: Entry) -> None:
        table, main = self.table, self.table.main
        removed = [TRAVEL, *outdated(main.properties)]
        if self.snapshot is None:
            main.set_properties(answer.property(), remove=removed)
            main.refresh()
        else:
            main.roll_back(self.snapshot, answer.property(), remove=removed)
        faults.point("rewind.completed", table.config.name)
        facts = {"request": answer.id, "what": answer.what, "result": answer.told, "problem": answer.problem}
        table.event("rewind.completed", **facts)


def _asked(request: RollbackRequest) -> str:
    return f"{request.what} to snapshot {request.snapshot}"


class Backfill(Operation[BackfillRequest, Entry]):
    """An answer says how many rows were replaced by how many."""

    kind = BackfillRequest

    def refused(self, request: BackfillRequest | None, why: str) -> Entry:
        if request is None:
            return Entry("unknown", now(), "backfill", "", problem=why)
        return Entry(request.id, now(), "backfill", "backfill", request.by, problem=why)

    def answer(self, answer: Entry) -> None:
        table, main = self.table, self.table.main
        main.refresh()
        main.set_properties(answer.property(), remove=[BACKFILL, *outdated(main.properties)])
        faults.point("backfill.completed", table.config.name)
        main.refresh()
        table.event("backfill.completed", request=answer.id, result=answer.told, problem=answer.problem)

    def run(self, request: BackfillRequest) -> Entry:
        self.request = request
        with errors_of_source(self.table.config):
            result = self._run()
        return Entry(request.id, now(), "backfill", result, request.by)

    def _run(self) -> str:
        if done := self.request.done_by(self.table.main.ancestors()):
            return _result(ledger_of(done.summary))
        table, topic = self.table, self.table.services.cluster.state(self.table.config.topic)
        if why := table.mode.cannot_backfill:
            raise CalveError(why)
        if self.base.of(topic.key) is None or len(self.base.offsets) > 1:
            raise CalveError("the topic was created again, and a row does not name its topic")
        ends = (
            each.offsets if each.at == "offsets" else table.services.cluster.first_offsets(topic, each)
            for each in (self.request.start, self.request.to)
        )
        held = self.base.of(topic.key) or {}
        chosen = range_of(*ends, held=held, log_start=topic.log_start)
        start, to = ({p: each[end] for p, each in chosen.items()} for end in (0, 1))
        engine, _ = engine_of(table)
        size = bytes_per_record(table.main.ancestors()) or USUAL_BYTES
        batch = Batch(table, start, to, topic.key, size)
        staged, _, _ = stage_batch(engine, batch, uuid.uuid4().hex)
        try:
            inside = (
                (at(PARTITION) == partition) & (at(OFFSET) >= first) & (at(OFFSET) < end)
                for partition, (first, end) in chosen.items()
            )
            rows = table.rows.where(reduce(Column.__or__, inside))
            old = keys_of(rows, PLACE).distinct().persist()
            try:
                self._require_same(staged, old)
                recheck(topic, table.services.cluster.state(topic.name), start)
                return self._replace(staged, old, chosen)
            finally:
                old.unpersist()
        except BaseException:
            if not self.changed:
                discard(table.main, staged)
            raise

    def _require_same(self, staged: Staged, old: DataFrame) -> None:
        """Require the same records as before: the ledgers of the original rounds account for them."""
        main = self.table.main
        with rows_of(main, whole(main, staged.files)) as rows:
            if rows is None:
                came, went = 0, old.count()
            else:
                new = keys_of(rows, PLACE).distinct().persist()
                try:
                    came = new.join(old, new.columns, "left_anti").count()
                    went = old.join(new, new.columns, "left_anti").count()
                finally:
                    new.unpersist()
        if came:
            raise CalveError(
                f"{came} records of the range are rows now that the table does not have: redrive its dead letters, or rewind"
            )
        if went:
            raise CalveError(f"{went} rows of the range could not be made again: correct that, or rewind")

    def _replace(self, staged: Staged, old: DataFrame, chosen: Range) -> str:
        table, round_id = self.table, uuid.uuid4().hex
        deletes = TableIndex().stage_deletes(table.main, old, PLACE, round_id)
        faults.point("backfill.staged", table.config.name)
        staged = replace(staged, deletes=deletes)
        ledger = Ledger(rows_appended=staged.rows, rows_deleted=deletes.rows if deletes else 0)
        check_ledger(ledger, staged_rows=staged.rows)
        position = position_after(self.base, round_id=round_id, writer=table.services.writer)
        metrics = self.meter.of_work(table.main, staged, all_read=True)
        entries = {BACKFILL: self.request.id, REMADE: remade_json(chosen)}
        self.changed = True
        publish_work(table, self.base, position, staged, ledger, metrics=metrics, entries=entries)
        faults.point("backfill.committed", table.config.name)
        return _result(ledger)


def _result(ledger: Ledger) -> str:
    return f"{ledger.rows_deleted} rows replaced by {ledger.rows_appended}"
