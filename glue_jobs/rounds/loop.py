"""One loop per table. It decides when a round runs and handles its errors, without effect on other tables."""

from __future__ import annotations

import math
import threading
import time
import zlib
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from calve.errors import CalveError, LostRace, Retryable, Suspended
from calve.log import event
from calve.outputs.job_status import TableState
from calve.rounds.scheduling import (
    FAILED_AFTER,
    LONGEST_BACKOFF_S,
    MISSED,
    Schedule,
    Timed,
    backoff_s,
    lateness,
)
from calve.table.position import Offsets, TopicEnd
from calve.table.protocol import position_commit
from calve.table.summary import COMPLETE_ROUND, COMPLETE_UNTIL, INITIALISED, REQUESTS, STATE, decode
from glue_jobs.maintenance.between_rounds import LoopMaintenance
from glue_jobs.maintenance.tasks import take
from glue_jobs.process import faults
from glue_jobs.process.java import ENDING, java_class, java_message
from glue_jobs.rounds.round import Round
from glue_jobs.table.open_table import Outcome, TableMemory
from glue_jobs.table.opening import Opener

REPORT_EVERY_S = 300.0
FIGURES = ("freshness_p50_s", "freshness_p95_s", "lag_records", "stage_ms", "round_ms")


@dataclass(slots=True)
class FreshnessTarget:
    """A table's freshness target: updates its schedule after each round and reports missed targets."""

    reported: str | None = None
    reported_at: float = 0.0

    def after(self, schedule: Schedule, outcome: Outcome, looked_at: float, who: dict[str, str]) -> Schedule:
        """Return the schedule after a round that began at `looked_at` (epoch seconds).

        If the records were too old, log it: at once if the cause is new, then every few minutes while it lasts.
        """
        records, found = outcome.ledger.consumed, schedule
        took_s = (outcome.metrics.get("round_ms", 0) + outcome.commit_ms) / 1000
        if records:
            found = schedule.after(Timed(records, took_s), outcome.commit_ms / 1000)
        if not outcome.more:
            found = found.level(looked_at, records)
        cause, now = outcome.metrics.get(MISSED), time.monotonic()
        if outcome.snapshot is None or (cause == self.reported and now - self.reported_at < REPORT_EVERY_S):
            return found
        self.reported, self.reported_at = cause, now
        if cause is None:
            return found
        since_s = looked_at - schedule.level_at if schedule.level_at else 0.0
        event(
            "freshness.missed",
            **who,
            cause=cause,
            target_s=schedule.target_s,
            **{name: outcome.metrics[name] for name in FIGURES},
            commit_ms=outcome.commit_ms,
            records=records,
            busy=round(took_s / max(took_s, since_s, 0.001), 2),
        )
        return found


State = Literal["pending", "running", "paused", "suspended", "failed"]
SHORTEST_WAIT_S = 0.5
POLL_S = 5.0
TAG_EVERY_S = 3600.0
NOTE_EVERY_S = 300.0
UNSEEN_S = 120.0
"""So long an idle table waits for a look at its topic. Then it has a round, which names the trouble of the looks.
Many times `POLL_S`: if late looks began rounds, a busy job would get a round of each idle table, and never become less busy."""
SILENT_S = 900.0
"""A loop is heard of more often, apart from its waits: it logs something, or a look finds that the table is complete."""


@dataclass(slots=True)
class TableLoop:
    """Keeps one table fresh until `stop` is set. With `drain`, until the end offsets at start are reached.

    It has a thread only while it works. While it waits, `glue_jobs.rounds.waiting` looks at its topic and moves `due_at`.
    All times are monotonic.
    """

    opener: Opener
    stop: threading.Event
    drain: bool
    state: State = "pending"
    code: str | None = None
    said: TableState = field(default_factory=TableState)
    made: bool = False
    """The table exists and calve created it. Known after the first change of state."""
    troubled: Retryable | None = None
    """Why the newest round failed, if the loop retries it. None after a successful round."""
    memory: TableMemory = field(default_factory=TableMemory)
    drain_to: Offsets | None = None
    drain_until: float | None = None
    failures: int = 0
    tagged_at: float | None = None
    complete_until: float = 0.0
    began: float = 0.0
    target: FreshnessTarget = field(default_factory=FreshnessTarget)
    read_to: Offsets = field(default_factory=dict)
    heard_at: float = field(default_factory=time.monotonic)
    """When the loop last wrote an event, or a look found the table complete. Infinite once it is over."""
    quiet_s: float = 0.0
    """The longest wait between rounds since then. The loop writes nothing while it waits."""
    due_at: float = 0.0
    """When the next round is due."""
    poll_s: float = POLL_S
    looks_at: float = 0.0
    listed_at: float = 0.0
    """When the next look at the topic is due, and when the last one at the catalog was made."""
    location: str | None = None
    """The metadata file of the table as of the last round."""
    idle: TopicEnd | None = None
    """The end of the topic, if the last round found nothing to do and nobody has requested anything."""
    worked_at: float = 0.0
    first_wait: bool = True
    phase: float = field(init=False)
    """From 0 to 1. Tables that start together must not run in step: each starts its second round at its own time."""
    maintenance: LoopMaintenance = field(init=False)

    def __post_init__(self) -> None:
        self.maintenance = LoopMaintenance(self.opener)
        self.phase = zlib.crc32(str(self.opener.name).encode()) / 2**32
        self.memory.schedule = Schedule(None if self.drain else self.opener.config.freshness_s)

    def work(self) -> bool:
        """Run rounds until the next one is not due yet; returns False if the loop is over."""
        self.opener.services.lake.enter_thread(self.opener.name.table)
        while not self.stop.is_set():
            wait_s = self._round()
            if (main := self.opener.main) is not None:
                self.opener.announcer.look(main)
            if wait_s is None:
                break
            if wait_s and self.state == "running":
                wait_s = max(0.0, wait_s - take(self.opener.opened, wait_s))
            if wait_s:
                self._wait(wait_s)
                return True
        self.heard_at = math.inf
        return False

    @property
    def silent(self) -> bool:
        """The loop hangs, or an open transaction in its topic keeps it from being complete."""
        return time.monotonic() - self.heard_at >= SILENT_S + self.quiet_s

    def _round(self) -> float | None:
        """Run one round; returns the seconds to wait before the next, or None if the loop is over."""
        try:
            return self._work()
        except Suspended as error:
            self._enter("suspended", error.code, error)
            return None if self.drain else LONGEST_BACKOFF_S
        except LostRace as error:
            return self._lost_race(error)
        except Retryable as error:
            return self._retry(error)
        except ENDING:
            raise
        except Exception as error:  # noqa: BLE001 one table's error must not end the others
            self._enter("failed", type(error).__name__, CalveError(first_line(error)))
            return None if self.drain else LONGEST_BACKOFF_S

    def _work(self) -> float | None:
        self.began, looked_at = time.monotonic(), time.time()
        self.worked_at, self.idle = self.began, None
        if self.drain and self.drain_to is None:
            topic = self.opener.services.cluster.state(self.opener.config.topic)
            self.drain_to, self.drain_until = dict(topic.end), topic.complete_until
        outcome = Round(self.opener, self.memory).run()
        self.failures, self.troubled = 0, None
        if outcome.paused:
            self._enter("paused", outcome.paused.id, CalveError(outcome.paused.words))
            return None if self.drain else LONGEST_BACKOFF_S
        self._report(outcome)
        self.memory.schedule = self.target.after(self.memory.schedule, outcome, looked_at, self._who())
        wait_s = self.maintenance.between(outcome, self._after(outcome))
        if not self.drain and REQUESTS.isdisjoint(self.opener.opened.main.properties):
            self.idle = outcome.at_end
        return wait_s

    def _after(self, outcome: Outcome) -> float | None:
        self._enter("running")
        if self.drain and self.drain_to is not None:
            if all(outcome.to.get(p, 0) >= end for p, end in self.drain_to.items()):
                self._mark(outcome, tag_every_s=0, note_every_s=0)
                return None
            return 0.0
        if outcome.more:
            return 0.0
        if outcome.snapshot is None:
            self._mark(outcome, tag_every_s=TAG_EVERY_S, note_every_s=NOTE_EVERY_S)
        shortest = SHORTEST_WAIT_S if outcome.snapshot is None else 0.0
        wait_s = max(shortest, self.memory.schedule.left_s(time.monotonic() - self.began))
        part, self.first_wait = self.phase if self.first_wait else 1.0, False
        return part * wait_s

    def _wait(self, wait_s: float) -> None:
        now, main = time.monotonic(), self.opener.main
        self._due_in(now, wait_s)
        self.quiet_s = max(self.quiet_s, self.due_at - now)
        self.listed_at = now
        may_have_much = self.state == "running" and self.memory.bytes_per_record is not None
        self.looks_at = now + self.poll_s if self.idle or may_have_much else math.inf
        self.location = main.found["metadata_location"] if main is not None else None

    def _due_in(self, since: float, wait_s: float) -> None:
        """Wait for so long, and if the table is idle, until a look finds news."""
        self.poll_s = min(POLL_S, max(SHORTEST_WAIT_S / 2, wait_s / 4))
        self.due_at = since + (max(wait_s, UNSEEN_S) if self.idle else wait_s)

    def looked(self, end: TopicEnd, asked: float, rest_s: float) -> None:
        """Move the next round: the topic had this end when it was asked for.

        An idle table rests as long as nothing new comes, about `rest_s` at most. Else the round begins early for a backlog of
        `flush_bytes`, or if the backlog needs more time than the freshness target leaves.
        """
        now = time.monotonic()
        if self.idle:
            rests = asked - self.worked_at < rest_s * (1 + self.phase) / 2 and self.opener.announcer.is_level
            if end == self.idle and rests:
                self.began, self.heard_at, self.quiet_s = asked, now, 0.0
                self.memory.schedule = self.memory.schedule.level(time.time() - (now - asked), 0)
                self._due_in(asked, self._period_s)
                return
            self.idle = None
            self._due_in(self.began, self._period_s)
        per_record = self.memory.bytes_per_record
        if per_record is None or self.due_at - now <= self.poll_s:
            return
        backlog = sum(offset - self.read_to.get(p, 0) for p, offset in end[1].items())
        left_s = self.memory.schedule.left_s(now - self.began, backlog)
        is_full = backlog * per_record >= self.opener.config.flush_bytes
        self.due_at = now if is_full else min(self.due_at, now + left_s)

    @property
    def _period_s(self) -> float:
        """The wait from an idle look on. Tables that are looked at together, and get records together, must not run in step."""
        return max(SHORTEST_WAIT_S, self.memory.schedule.left_s(0.0) * (3 + self.phase) / 4)

    def _retry(self, error: Retryable) -> float | None:
        self.failures, self.troubled = self.failures + 1, error
        self.memory.schedule = self.memory.schedule.interrupted(self.state)
        ended = self.drain and self.failures == FAILED_AFTER
        wait_s = 0.0 if ended else backoff_s(self.failures)
        for cluster in {self.opener.services.cluster, self.opener.services.output}:
            cluster.connection.doubted()
        self._log("round.retried", why=error.message, failures=self.failures, wait_s=wait_s)
        if self.failures == FAILED_AFTER:
            self._enter("failed", "retries_exhausted", error)
        return None if ended else wait_s

    def _lost_race(self, error: LostRace) -> float | None:
        """Stop this loop if another writer published. Start a new round after a rollback or a late answer to our own commit.

        Every commit gives main a greater sequence number. A rollback gives main a smaller one.
        """
        main = self.opener.main
        stood = position_commit(main.ancestors()) if main is not None else None
        if stood is not None and stood.sequence < self.memory.stood:
            self._log("table.rolled_back", snapshot_id=stood.id)
            return 0.0
        if stood is not None and decode(stood.summary).writer == self.opener.services.writer:
            return 0.0
        self._enter("failed", "lost_race", error)
        return None if self.drain else LONGEST_BACKOFF_S

    def _enter(self, state: State, code: str | None = None, error: CalveError | None = None) -> None:
        """Log a state. If it is new, store it in the table's properties and announce that the table has stopped."""
        changed = (state, code) != (self.state, self.code)
        if not changed and state == "running":
            return
        if state != "running":
            self.memory.schedule = self.memory.schedule.interrupted(state)
        reason, fix = (error.message, error.fix) if error else (None, None)
        since = datetime.now(UTC).isoformat(timespec="seconds") if changed else self.said.since
        self.state, self.code, self.said = state, code, TableState(state, code, reason, since, fix)
        self._log("table.state", state=state, code=code, reason=reason, fix=fix)
        if not changed:
            return
        self._write_state(self.said)
        if state in ("suspended", "failed") and error:
            self.opener.announcer.stopped(state, code or state, error.message, fix)

    def _write_state(self, state: TableState) -> None:
        """Store the state, best effort: if this fails, the state is in the log and its cause stays visible."""
        try:
            main = self.opener.services.lake.load(self.opener.name)
            self.made = main is not None and INITIALISED in main.properties
            if main is not None and self.made:
                former = main.properties.get(STATE)
                entered = state.after(TableState.from_json(former) if former else None)
                main.set_properties({STATE: entered.to_json()})
                faults.point("state.written", self.opener.config.name)
        except CalveError as error:
            self._log("state.failed", why=error.message)

    def _mark(self, outcome: Outcome, *, tag_every_s: float, note_every_s: float) -> None:
        """Set the position tag and the note of completeness, best effort.

        The tag is needed only if others expire main's history. An old note only makes an export wait.
        """
        now = time.monotonic()
        until = outcome.complete_until or self.drain_until
        try:
            if self.tagged_at is None or now - self.tagged_at >= tag_every_s:
                self.tagged_at = now
                self.opener.opened.mark_idle()
            if until is not None and until - self.complete_until >= note_every_s:
                # The note is for one round: a rollback does not undo properties.
                note = {COMPLETE_UNTIL: f"{until:.3f}", COMPLETE_ROUND: outcome.position.round}
                self.opener.opened.main.set_properties(note)
                faults.point("idle.noted", self.opener.config.name)
                self.complete_until = until
                self._log("table.complete", complete_until=until)
        except CalveError as error:
            self._log("tag.failed", why=error.message)

    def _report(self, outcome: Outcome) -> None:
        self.read_to = outcome.to
        if outcome.snapshot is None:
            return
        self.complete_until = outcome.complete_until or self.complete_until
        ledger = outcome.ledger
        self._log(
            "round.committed",
            round=outcome.position.round,
            snapshot_id=outcome.snapshot,
            records=ledger.consumed,
            rows=ledger.rows_appended,
            rows_deleted=ledger.rows_deleted,
            dead_letters=ledger.rejected,
            skipped=ledger.skipped,
            filtered=ledger.filtered,
            deduplicated=ledger.deduplicated,
            gaps=ledger.gaps,
            lost=ledger.lost,
            commit_ms=outcome.commit_ms,
            complete_until=outcome.complete_until,
            lateness=lateness(outcome.metrics["freshness_p95_s"], self.opener.config.freshness_s),
            **outcome.metrics,
        )

    def _log(self, name: str, **facts: object) -> None:
        self.heard_at, self.quiet_s = time.monotonic(), 0.0
        event(name, **self._who(), **facts)

    def _who(self) -> dict[str, str]:
        return {"table": str(self.opener.name), "topic": self.opener.config.topic}


def first_line(error: Exception) -> str:
    """The error's class and first line. Logs hold no Java stack traces and no values; Spark's messages quote values."""
    if isinstance(error, Py4JJavaError):
        return f"{java_class(error)}: {java_message(error)}"
    if isinstance(error, PySparkException):
        return f"{type(error).__name__}: {error.getCondition() or ''}"
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
