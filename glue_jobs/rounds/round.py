"""One ingest round of one table. Its steps are `glue_jobs.process.faults.STEPS`.

The table is the checkpoint (ADR 1). A round starts at the position proven by main's history. One commit moves it.
Nothing that a step leaves behind counts before `publish`. If the job crashes before it, the next round repeats the work.
If the job crashes after it, `recover` of the next round completes the work.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any, TypeVar

from calve.errors import Retryable, Suspended
from calve.modes.upsert import require_tombstones
from calve.requests.requests import Pause
from calve.rounds.expectations import Rules, check_rules, missed, require_expected
from calve.table.digests import entry
from calve.table.position import Ledger
from calve.table.protocol import (
    begin,
    bounded,
    bytes_per_record,
    check_gaps,
    check_ledger,
    next_position,
    recheck,
)
from calve.table.summary import ANNOUNCED, COUNTS, encode
from glue_jobs.engines.batch import Batch, errors_of_source, sampled
from glue_jobs.iceberg.catalog import catalog_errors
from glue_jobs.iceberg.commit_cost import CostMeter
from glue_jobs.iceberg.staging import discard
from glue_jobs.modes.staging import engine_of, stage_batch
from glue_jobs.operations.forget import Forget
from glue_jobs.operations.leaving import MoveTable, ReleaseTable
from glue_jobs.operations.mode_switch import fresh, switch
from glue_jobs.operations.operation import Operation, handle
from glue_jobs.operations.publishing import publish_round, require_allowed, require_same
from glue_jobs.operations.redrive import Redrive
from glue_jobs.operations.relayout import relayout
from glue_jobs.operations.time_travel import Backfill, Rollback
from glue_jobs.outputs.emit import emit
from glue_jobs.process import faults
from glue_jobs.rounds.steps import Audited, Committed, Judged, Planned, Positioned, Written
from glue_jobs.table.counts import Counts
from glue_jobs.table.open_table import OpenTable, Outcome, TableMemory, position_of
from glue_jobs.table.opening import Opener

PERSIST_AFTER_S = 3600
LOOKS = 5
OPERATIONS: tuple[type[Operation[Any, Any]], ...] = (
    *(Redrive, Forget, Rollback, Backfill, MoveTable, ReleaseTable),
)
"""The requests of operators that a round answers, in this order."""

V = TypeVar("V")
R = TypeVar("R")


class Round:
    """One round. Each step takes the result of the step before it, so a wrong order does not type-check."""

    def __init__(self, opener: Opener, memory: TableMemory) -> None:
        self.opener = opener
        self.memory = memory
        self.id = uuid.uuid4().hex
        self.began = time.time()
        self.meter = CostMeter(opener.services.lake)

    def run(self) -> Outcome:
        """Run the steps in the order of `faults.STEPS` until one returns the outcome.

        Raises Suspended: the table must not be written until a person has checked it.
        Raises LostRace: another writer published, or main was rolled back, since this round began.
        Raises Retryable: a system did not answer.
        """
        table = self._passed("prepare", self.prepare, self.opener)
        at = self._passed("recover", self.recover, table)
        at = self._passed("switch", self.switch, at)
        at = self._passed("requests", self.requests, at)
        planned = self._passed("plan", self.plan, at)
        if isinstance(planned, Outcome):
            return planned
        written = self._passed("stage", self.stage, planned)
        judged = self._passed("reject", self.reject, written)
        audited = self._passed("audit", self.audit, judged)
        if isinstance(audited, Outcome):
            return audited
        committed = self._passed("publish", self.publish, audited)
        self._passed("release", self.release, committed)
        return self._passed("emit", self.emit, committed)

    def _passed(self, step: str, work: Callable[[V], R], value: V) -> R:
        """The result of a step. Passes its fault points, and attributes its errors to their system."""
        config = self.opener.config
        faults.point(f"{step}.begin", config.name)
        with catalog_errors(f"table {self.opener.name}, {step}"), errors_of_source(config):
            result = work(value)
        faults.point(f"{step}.end", config.name)
        return result

    def prepare(self, opener: Opener) -> OpenTable:
        """Open the table: create it or evolve it to fit the registered schemas, and plan how records are decoded."""
        return opener.open()

    def recover(self, table: OpenTable) -> Positioned:
        """Read the position; then bring the dead letters and the output topic level with it.

        The dead letters are read before main and recovered after it.
        """
        at = self._positioned()
        self.opener.announcer.look(table.main)
        emit(at.table, at.base)
        return at

    def switch(self, at: Positioned) -> Positioned:
        """Change the table's mode and layout to those of calve.yaml, unless the table is paused."""
        if _pause(at):
            return at
        if switch(at.table, at.base):
            at = self._positioned()
        relayout(at.table, self.memory)
        return at

    def requests(self, at: Positioned) -> Positioned:
        """Answer the requests of operators. If main has changed, emit its rows from the new position."""
        for operation in OPERATIONS:
            if handle(operation(at.table, at.base)):
                at = self._positioned()
                emit(at.table, at.base)
        return at

    def plan(self, at: Positioned) -> Planned | Outcome:
        """Choose the offsets to read. The round ends here if the table is paused or the topic has no new offsets."""
        table, config = at.table, self.opener.config
        self.meter.resume()
        if pause := _pause(at):
            return Outcome(at.base, {}, paused=pause)
        cluster = table.services.cluster
        topic = cluster.state(config.topic)
        require_tombstones(config.topic, config.mode, compacted=topic.compacted)
        reached = at.base
        if self.memory.read_from == (reached.round, topic.key):
            reached = replace(reached, offsets=reached.offsets | {topic.key: self.memory.read_to})
        start = begin(
            reached,
            topic,
            first={} if at.base.offsets else cluster.first_offsets(topic, config.start),
            on_data_loss=config.on_data_loss,
            made_for=table.made_for,
        )
        known = self.memory.bytes_per_record or bytes_per_record(table.main.ancestors())
        if not known and start.offsets != topic.end:
            known = sampled(table, topic.key, start.offsets, topic.end)
        self.memory.bytes_per_record = known
        per_record = max(known or cluster.largest_record(topic.name), 1.0)
        to = bounded(
            start.offsets,
            topic.end,
            budget_records=max(1, int(config.flush_bytes / per_record)),
            partition_records=max(1, int(config.partition_flush_bytes / per_record)),
        )
        lacks_values = self.memory.lacks_values
        batch = Batch(table, start.offsets, to, topic.key, known or 0.0, lacks_values=lacks_values)
        planned = Planned(at, topic, start, batch)
        if to == start.offsets and not start.lost and not self._must_persist(planned):
            at_end = (topic.key, to) if planned.complete_until else None
            return Outcome(at.base, to, complete_until=planned.complete_until, at_end=at_end)
        return planned

    def stage(self, planned: Planned) -> Written:
        """Read and decode the records. Write the good ones as data files that no snapshot contains yet."""
        return self._written(planned) if planned.batch.to != planned.batch.start else Written(planned)

    def reject(self, written: Written) -> Judged:
        """Handle rejected records: read their range again with the same schemas, then stage them as dead letters or count them.

        If schema ids were registered since the round began, learn them and stage the rows again.
        If the table's policy or budget forbids the rejects, delete the staged files. The round is retried while that
        is so.
        """
        name = self.opener.config.name
        if written.counts.rejects:
            planned = written.plan
            learnt = planned.at.table.learn(*planned.batch.unknown_ids(written.counts))
            if learnt is not None:
                discard(learnt.main, written.files)
                faults.point("reject.discarded", name)
                at, batch = replace(planned.at, table=learnt), replace(planned.batch, table=learnt)
                written = self._written(replace(planned, at=at, batch=batch))
                faults.point("reject.restaged", name)
        if not written.counts.rejects:
            return Judged(written)
        planned, batch, counts = written.plan, written.plan.batch, written.counts
        require_allowed(batch, counts, written.files)
        if self.opener.config.on_error == "skip":
            skipped = batch.count_rejects(counts)
            require_same(planned.topic, counts, sum(skipped.reasons.values()))
            return Judged(written, skipped=skipped)
        rejects, kept = batch.stage_rejects(counts, self.id)
        require_same(planned.topic, counts, rejects.rows)
        faults.point("reject.staged", name)
        at = planned.at
        held = at.table.dead_letters.stage_on_branch(rejects, round_id=self.id, base=at.base)
        return Judged(written, rejects, kept, held=held)

    def audit(self, judged: Judged) -> Audited | Outcome:
        """Check the topic again, explain every offset and balance the ledger. A round without records ends here.

        If too few records met an expectation that suspends, delete the staged files.
        """
        written = judged.written
        planned, counts, files = written.plan, written.counts, written.files
        topic, batch, config = planned.topic, planned.batch, self.opener.config
        cluster = planned.at.table.services.cluster
        after = cluster.state(topic.name)
        try:
            recheck(topic, after, batch.start)
        except Suspended as error:
            if config.on_data_loss == "continue":
                raise Retryable(error.message) from None
            raise
        span = sum(batch.span.values())
        if span != counts.records and not topic.compacted:
            topic = replace(topic, transactional=cluster.has_transactions(topic))
        gaps = check_gaps(
            topic, span=span, records=counts.records, allowed=config.gaps == "allow", missing=batch.missing
        )
        before = planned.since
        empty = sum(o - before[p] for p, o in planned.start.since.items())
        ledger = Ledger(
            span=sum(batch.to[p] - o for p, o in before.items()),
            consumed=counts.records,
            gaps=gaps + empty,
            applied=counts.applied,
            deduplicated=counts.duplicates,
            filtered=counts.filtered,
            filtered_by_steps=counts.left_out,
            dead_lettered=judged.rejects.rows,
            rows_appended=counts.rows,
            rows_deleted=files.deletes.rows if files.deletes else 0,
            rows_filtered=counts.cut,
            lost=sum(b - a for a, b in planned.start.lost.values()),
            rejected=dict(judged.kept.reasons),
            skipped=dict(judged.skipped.reasons),
            skipped_schemas=judged.skipped.schemas,
            filtered_schemas=batch.filtered_schemas(counts),
        )
        rules = Rules.of(config.steps, counts.by_rule, judged.kept.unmet or judged.skipped.unmet)
        check_ledger(ledger, staged_rows=files.rows)
        check_rules(rules, ledger)
        if not counts.records and not planned.start.lost and not self._must_persist(planned):
            self.memory.read_from, self.memory.read_to = (planned.at.base.round, topic.key), batch.to
            return Outcome(
                planned.at.base, batch.to, more=planned.more, complete_until=planned.complete_until
            )
        main = planned.at.table.main
        found = missed(config.steps, main.ancestors(), ledger, rules, now=time.time())
        try:
            require_expected(config.name, config.steps, found)
        except Suspended:
            discard(main, files)
            raise
        return Audited(judged, topic, after, ledger, rules, found)

    def publish(self, audited: Audited) -> Committed:
        """Commit rows, position and ledger at once. Refuse if the position is not `base` any more."""
        judged, written = audited.judged, audited.judged.written
        planned, counts = written.plan, written.counts
        table, base, key = planned.at.table, planned.at.base, planned.topic.key
        position = next_position(
            base,
            audited.topic,
            planned.batch.to,
            round_id=self.id,
            writer=table.services.writer,
            dead_letters=judged.held if judged.rejects.rows else None,
        )
        published_at = time.time()
        metrics = self._metrics(audited, published_at)
        stated = {
            "complete_until": planned.complete_until,
            "read_with": table.read_with,
            COUNTS: written.files.counts,
            ANNOUNCED: self.opener.announcer.sent_to,
            "left_out": audited.rules.left_out,
            "unmet": audited.rules.unmet,
            "expected": [asdict(each) for each in audited.missed],
        }
        summary = encode(
            position=position,
            topic=key,
            start={key: planned.since},
            ledger=audited.ledger,
            metrics={name: each for name, each in (metrics | stated).items() if each not in (None, {}, [])},
        )
        summary |= entry(written.files.sums)
        began = time.monotonic()
        snapshot, files = publish_round(table.main, written.files, summary, base=base, round_id=self.id)
        commit_ms = _ms(began)
        if table.mode.key:
            table.index.committed(table.main, snapshot, files)
        self.memory.committed_at = time.monotonic()
        if counts.records:
            self.memory.bytes_per_record = counts.size_bytes / counts.records
        for each in audited.missed:
            table.event("expectation.missed", **asdict(each))
        faults.point("publish.committed", table.config.name)
        outcome = Outcome(
            position,
            planned.batch.to,
            more=planned.more,
            snapshot=snapshot,
            ledger=audited.ledger,
            metrics=metrics | self._ages(counts, published_at, commit_ms / 1000),
            commit_ms=commit_ms,
            complete_until=planned.complete_until,
        )
        return Committed(judged, outcome)

    def release(self, committed: Committed) -> None:
        judged = committed.judged
        if judged.rejects.rows:
            judged.written.plan.at.table.dead_letters.publish(committed.outcome.position, judged.rejects)

    def emit(self, committed: Committed) -> Outcome:
        emit(committed.judged.written.plan.at.table, committed.outcome.position)
        return committed.outcome

    def _positioned(self) -> Positioned:
        """The position, after the dead letters were brought level with it."""
        table = self.opener.opened
        for _ in range(LOOKS):
            before = table.dead_letters.look()
            found, sequence = position_of(table.main, table.dead_letters, table.services)
            self.memory.stood = self.memory.stood if sequence is None else sequence
            base = fresh(table, found)
            if table.dead_letters.recover(base, before):
                return Positioned(table, base)
        raise Retryable(f"table {table.name}: another writer keeps moving the dead letters")

    def _written(self, planned: Planned) -> Written:
        began, table = time.monotonic(), planned.at.table
        engine, chosen = engine_of(table)
        if chosen != self.memory.engine:
            self.memory.engine = chosen
            table.event("table.engine", engine=chosen.engine, reasons=list(chosen.reasons))
        files, counts, batch = stage_batch(engine, planned.batch, self.id)
        self.memory.lacks_values = bool(counts.unavailable)
        at = replace(planned.at, table=batch.table)
        return Written(replace(planned, at=at, batch=batch), files, counts, _ms(began))

    def _must_persist(self, planned: Planned) -> bool:
        """Whether offsets without records must be committed.

        Usually they move the position in memory only, but retention must not pass the committed position.
        A first position is committed at once: later, `latest` or a timestamp would mean other offsets.
        """
        since = planned.since
        if not planned.at.base.offsets:
            return planned.batch.to != since or self.opener.config.start.at in ("latest", "timestamp")
        if planned.start.offsets == since:
            return False
        overtaken = any(planned.topic.log_start[p] > o for p, o in since.items())
        return overtaken or time.monotonic() - self.memory.committed_at > PERSIST_AFTER_S

    def _metrics(self, audited: Audited, published_at: float) -> dict[str, Any]:
        judged, written = audited.judged, audited.judged.written
        planned, counts, files = written.plan, written.counts, written.files
        behind = sum(max(0, end - planned.batch.to.get(p, 0)) for p, end in audited.after.end.items())
        had_dead_letters = planned.at.base.dead_letters is not None
        main, mode = planned.at.table.main, self.opener.config.mode
        plans, read, read_cpu_s = planned.at.table.index.reading() if mode.key else (0, 0, 0.0)
        staged = replace(files, cpu_s=files.cpu_s + read_cpu_s)
        taken = self.meter.of_round(
            main, staged, judged.rejects, plans=plans, read=read, had_dead_letters=had_dead_letters
        )
        return taken | {
            "bytes_in": counts.size_bytes,
            "files": len(files.files),
            "file_bytes": files.size_bytes,
            "lag_records": behind,
            "lag_s": round(published_at - counts.newest, 3) if behind and counts.newest else 0.0,
            "stage_ms": written.stage_ms,
            "round_ms": int((published_at - self.began) * 1000),
            **self._ages(counts, published_at, self.memory.schedule.commit_s),
        }

    def _ages(self, counts: Counts, published_at: float, commit_s: float) -> dict[str, Any]:
        return self.memory.schedule.ages(
            (counts.oldest, counts.median, counts.late),
            published_at=published_at,
            round_s=published_at - self.began,
            commit_s=commit_s,
        )


def _pause(at: Positioned) -> Pause | None:
    return Pause.of(at.table.main.properties, datetime.now(UTC))


def _ms(began: float) -> int:
    return int((time.monotonic() - began) * 1000)
