"""One ingest round of one table, its steps being those of `glue_jobs.process.faults.STEPS`.

The table is the checkpoint (ADR 1): a round begins at the position that main's history proves and ends with one commit that
moves it. Nothing a step leaves behind matters until `publish`; whatever dies before it is done again, whatever dies after it is
rolled forward by the next `recover`.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from calve.errors import Retryable, Suspended
from calve.log import event
from calve.modes.keys import require_tombstones
from calve.requests.requests import Pause
from calve.rounds.dead_letter_policy import Rejects
from calve.table.position import (
    ANNOUNCED,
    COUNTS,
    DeadLetterRound,
    Ledger,
    Offsets,
    Position,
    encode,
)
from calve.table.protocol import (
    Begin,
    TopicState,
    begin,
    bounded,
    bytes_per_record,
    check_gaps,
    check_ledger,
    next_position,
    recheck,
)
from glue_jobs.engines.batch import Batch, errors_of_source, sampled
from glue_jobs.iceberg.catalog import catalog_errors
from glue_jobs.iceberg.commit_cost import Meter
from glue_jobs.iceberg.staging import NOTHING, Staged, discard
from glue_jobs.modes.staging import engine_of, stage_batch
from glue_jobs.operations import backfill, forget, redrive, rollback
from glue_jobs.operations.mode_switch import fresh, switch
from glue_jobs.operations.publishing import publish_round, require_allowed, require_same
from glue_jobs.operations.relayout import relayout
from glue_jobs.outputs.emit import emit
from glue_jobs.process import faults
from glue_jobs.table.counts import Seen
from glue_jobs.table.outcome import Memory, Outcome
from glue_jobs.table.target import Target

PERSIST_AFTER_S = 3600
LOOKS = 5
USUAL_BYTES = 500.0
"""What a record is taken to have, by which a range that is read again is split, before any round has shown it."""


class Round:
    """A round in progress; the steps fill in what later steps use, in the order of `faults.STEPS`."""

    topic: TopicState
    base: Position
    start: Begin
    offsets: Offsets
    to: Offsets
    batch: Batch
    after: TopicState
    held: DeadLetterRound
    position: Position
    metrics: dict[str, Any]
    published_at: float
    snapshot: int
    commit_ms: int

    def __init__(self, target: Target, memory: Memory) -> None:
        self.target = target
        self.memory = memory
        self.id = uuid.uuid4().hex
        self.began = time.time()
        self.meter = Meter(target.lake)
        self.stage_ms = 0
        self.main: Staged = NOTHING
        self.rejects: Staged = NOTHING
        self.seen = Seen()
        self.skipped = Rejects()
        self.reasons: dict[str, int] = {}
        self.ledger = Ledger()
        self.result: Outcome | None = None

    def run(self) -> Outcome:
        """Do the steps in order until one has the outcome.

        Raises:
            Suspended: this table must not be written until somebody has looked.
            LostRace: another writer has published, or main was rolled back, since this round began.
            Retryable: a system did not answer.
        """
        for step in faults.STEPS:
            faults.point(f"{step}.begin", self.target.table.name)
            with catalog_errors(f"table {self.target.name}, {step}"), errors_of_source(self.target):
                getattr(self, step)()
            faults.point(f"{step}.end", self.target.table.name)
            if self.result:
                break
        if self.result is None:
            raise AssertionError("the last step of a round gives its outcome")
        return self.result

    def prepare(self) -> None:
        """Open the table, made or evolved to fit the registered schemas, and pin how records are decoded."""
        self.target.open()

    def recover(self) -> None:
        """Read the position; bring the dead letters, which are looked at before main and after it, and the output topic level."""
        self._level()
        self.target.announcer.look(self.target.main)
        emit(self.target, self.base)

    def switch(self) -> None:
        """Turn a table that was kept in another mode, or laid out otherwise, into what calve.yaml wants, unless it is paused;
        under another mode it stands at another round then.
        """
        if self._pause():
            return
        if switch(self.target, self.base):
            self._level()
        relayout(self.target)

    def redrive(self) -> None:
        """Answer a person's request to decode dead letters again; the table stands at another round then."""
        if redrive.serve(self.target, self.base):
            self._level()

    def forget(self) -> None:
        """Answer a person's request to be forgotten; the table stands at another round then."""
        if forget.serve(self.target, self.base):
            self._level()

    def travel(self) -> None:
        """Answer a person's request to go back, and emit from there on; or to make rows anew. The table stands elsewhere then."""
        if rollback.serve(self.target, self.base):
            self._level()
            emit(self.target, self.base)
        if backfill.serve(self.target, self.base, self.memory.bytes_per_record or USUAL_BYTES):
            self._level()

    def plan(self) -> None:
        """Choose the offsets to read; a pause, or a topic without new ones, ends the round."""
        table = self.target.table
        if pause := self._pause():
            self.result = Outcome(self.base, {}, paused=pause)
            return
        self.topic = self.target.cluster.state(table.topic)
        require_tombstones(table.topic, table.mode, compacted=self.topic.compacted)
        first = self.target.cluster.first_offsets(self.topic, table.start) if not self.base.offsets else {}
        self.start = begin(
            self._reached(),
            self.topic,
            first=first,
            on_data_loss=table.on_data_loss,
            made_for=self.target.made_for,
        )
        self.offsets = self.start.offsets
        per_record = self._bytes_per_record()
        self.to = bounded(
            self.offsets,
            self.topic.end,
            budget_records=_records(table.flush_bytes, per_record),
            partition_records=_records(table.partition_flush_bytes, per_record),
        )
        if self.to == self.offsets and not self.start.lost and not self._must_persist():
            self.result = Outcome(self.base, self.to, complete_until=self._complete_until())

    def stage(self) -> None:
        """Read, decode and write the good records as data files that no snapshot holds."""
        known = self.memory.bytes_per_record or 0.0
        self.batch = Batch(self.target, self.offsets, self.to, self.topic.key, known)
        if self.to != self.offsets:
            self._stage_rows()

    def reject(self) -> None:
        """Decide what becomes of the rejects: read their range again, with the same schemas, and hold or count them.

        Ids that were registered since the round began are learnt, and the rows are staged anew. Where the table's policy or
        its budget does not allow the rejects, nothing is left behind: the round is tried again for as long as that is so.
        """
        if self.seen.rejects and self.target.learn(*self.batch.unknown_ids(self.seen)):
            discard(self.target.main, self.main)
            faults.point("reject.discarded", self.target.table.name)
            self._stage_rows()
            faults.point("reject.restaged", self.target.table.name)
        if not self.seen.rejects:
            return
        require_allowed(self.batch, self.seen, self.main)
        if self.target.table.on_error == "skip":
            self.skipped = self.batch.count_rejects(self.seen)
            require_same(self.topic, self.seen, sum(self.skipped.reasons.values()))
            return
        self.rejects, self.reasons = self.batch.stage_rejects(self.seen, self.id)
        require_same(self.topic, self.seen, self.rejects.rows)
        faults.point("reject.staged", self.target.table.name)
        self.held = self.target.letters.hold(self.rejects, round_id=self.id, base=self.base)

    def audit(self) -> None:
        """Look at the topic again, explain every offset, balance the ledger; a round without records ends here."""
        self.after = self.target.cluster.state(self.topic.name)
        try:
            recheck(self.topic, self.after, self.offsets)
        except Suspended as error:
            if self.target.table.on_data_loss == "continue":
                raise Retryable(error.message) from None
            raise
        span = sum(self.batch.span.values())
        if span != self.seen.records and not self.topic.compacted:
            self.topic = replace(self.topic, transactional=self.target.cluster.has_transactions(self.topic))
        gaps = check_gaps(
            self.topic,
            span=span,
            records=self.seen.records,
            allowed=self.target.table.gaps == "allow",
            missing=self.batch.missing,
        )
        before = self._since()
        empty = sum(o - before[p] for p, o in self.start.since.items())
        deletes = self.main.deletes
        self.ledger = Ledger(
            span=sum(self.to[p] - o for p, o in before.items()),
            consumed=self.seen.records,
            gaps=gaps + empty,
            applied=self.seen.applied,
            deduplicated=self.seen.duplicates,
            filtered=self.seen.filtered,
            filtered_by_steps=self.seen.left_out,
            dead_lettered=self.rejects.rows,
            rows_appended=self.seen.rows,
            rows_deleted=deletes.rows if deletes else 0,
            rows_filtered=self.seen.cut,
            lost=sum(b - a for a, b in self.start.lost.values()),
            rejected=self.reasons,
            skipped=dict(self.skipped.reasons),
            skipped_schemas=self.skipped.schemas,
            filtered_schemas=self.batch.filtered_schemas(self.seen),
        )
        check_ledger(self.ledger, staged_rows=self.main.rows)
        if not self.seen.records and not self.start.lost and not self._must_persist():
            self.memory.read_from, self.memory.read_to = (self.base.round, self.topic.key), self.to
            self.result = Outcome(
                self.base,
                self.to,
                more=self.to != self.topic.end,
                complete_until=self._complete_until(),
            )

    def publish(self) -> None:
        """Move the table: rows, position and ledger in one commit, refused if the position is not `base` any more."""
        held = self.held if self.rejects.rows else None
        self.position = next_position(
            self.base, self.topic, self.to, round_id=self.id, writer=self.target.writer, dead_letters=held
        )
        self.metrics = self._metrics()
        stated = {
            "complete_until": self._complete_until(),
            "read_with": self.target.read_with,
            COUNTS: self.main.counts,
            ANNOUNCED: self.target.announcer.sent_to,
        }
        summary = encode(
            position=self.position,
            topic=self.topic.key,
            start={self.topic.key: self._since()},
            ledger=self.ledger,
            metrics={key: each for key, each in (self.metrics | stated).items() if each not in (None, {})},
        )
        began = time.monotonic()
        self.snapshot = publish_round(self.target.main, self.main, summary, base=self.base, round_id=self.id)
        self.commit_ms = _ms(began)
        self.memory.committed_at = time.monotonic()
        if self.seen.records:
            self.memory.bytes_per_record = self.seen.size_bytes / self.seen.records
        faults.point("publish.committed", self.target.table.name)

    def release(self) -> None:
        """Publish the dead letters that main now names."""
        if self.rejects.rows:
            self.target.letters.release(self.position, self.rejects)

    def emit(self) -> None:
        """Write the rows that main has now to the output topic."""
        emit(self.target, self.position)
        self.result = Outcome(
            self.position,
            self.to,
            more=self.to != self.topic.end,
            snapshot=self.snapshot,
            ledger=self.ledger,
            metrics=self.metrics | self._ages(self.commit_ms / 1000),
            commit_ms=self.commit_ms,
            complete_until=self._complete_until(),
        )

    def _level(self) -> None:
        for _ in range(LOOKS):
            before = self.target.letters.look()
            self.base = fresh(self.target, self.target.position())
            if self.target.letters.recover(self.base, before):
                return
        raise Retryable(f"table {self.target.name}: another writer keeps moving the dead letters")

    def _pause(self) -> Pause | None:
        return Pause.of(self.target.main.properties, datetime.now(UTC))

    def _stage_rows(self) -> None:
        began = time.monotonic()
        engine, chosen = engine_of(self.target)
        if chosen != self.memory.engine:
            self.memory.engine = chosen
            facts = {"engine": chosen.engine, "reasons": list(chosen.reasons)}
            event("table.engine", table=str(self.target.name), topic=self.topic.name, **facts)
        self.main, self.seen, self.batch = stage_batch(engine, self.batch, self.id)
        self.stage_ms = _ms(began)

    def _bytes_per_record(self) -> float:
        """As this process has seen it, or the table's history, or the topic's next records show it; where none of them does,
        every record is as large as the topic allows.
        """
        known = self.memory.bytes_per_record or bytes_per_record(self.target.main.ancestors())
        if not known and self.offsets != self.topic.end:
            known = sampled(self.target, self.topic.key, self.offsets, self.topic.end)
        self.memory.bytes_per_record = known
        return known or self.target.cluster.largest_record(self.target.table.topic)

    def _reached(self) -> Position:
        """The table's position, moved on over offsets that were read and held no record."""
        if self.memory.read_from != (self.base.round, self.topic.key):
            return self.base
        return replace(self.base, offsets=self.base.offsets | {self.topic.key: self.memory.read_to})

    def _since(self) -> Offsets:
        """Where this round's ledger begins: the table's position, below what was lost and what held no record."""
        known = self.base.of(self.topic.key) or {}
        return {p: known.get(p, o) for p, o in self.start.since.items()}

    def _must_persist(self) -> bool:
        """Offsets without records move the position in memory only, but not for ever: retention must not pass it.

        A first position is noted at once: a later round would find the end, or a time, at other offsets.
        """
        since = self._since()
        if not self.base.offsets:
            return self.to != since or self.target.table.start.at in ("latest", "timestamp")
        if self.offsets == since:
            return False
        overtaken = any(self.topic.log_start[p] > o for p, o in since.items())
        return overtaken or time.monotonic() - self.memory.committed_at > PERSIST_AFTER_S

    def _complete_until(self) -> float | None:
        return self.topic.complete_until if self.to == self.topic.end else None

    def _behind(self) -> int:
        return sum(max(0, end - self.to.get(p, 0)) for p, end in self.after.end.items())

    def _metrics(self) -> dict[str, Any]:
        self.published_at = now = time.time()
        behind = self._behind()
        newest = self.seen.newest
        taken = self.meter.of_round(
            self.target.main,
            self.target.table.mode,
            self.main,
            self.rejects,
            had_letters=self.base.dead_letters is not None,
        )
        return taken | {
            "bytes_in": self.seen.size_bytes,
            "files": len(self.main.files),
            "file_bytes": self.main.size_bytes,
            "lag_records": behind,
            "lag_s": round(now - newest, 3) if behind and newest else 0.0,
            "stage_ms": self.stage_ms,
            "round_ms": int((now - self.began) * 1000),
            **self._ages(self.memory.pace.commit_s),
        }

    def _ages(self, commit_s: float) -> dict[str, Any]:
        at, began = self.published_at, self.began
        return self.memory.pace.ages(self.seen, published_at=at, round_s=at - began, commit_s=commit_s)


def _records(size_bytes: int, bytes_per_record: float) -> int:
    """How many records make about `size_bytes`."""
    return max(1, int(size_bytes / max(bytes_per_record, 1.0)))


def _ms(began: float) -> int:
    return int((time.monotonic() - began) * 1000)
