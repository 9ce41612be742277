"""What a run says of itself and of its tables, where commands read it: also of a table that the job could not make.

It is written beside the rounds: none of them waits for it, and none fails because of it.
"""

from __future__ import annotations

import threading
import time
import uuid
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Self

from calve.errors import CalveError
from calve.job import Job
from calve.job_status import EVERY_S, JobStatus, Run, Said
from calve.log import event
from glue_jobs.lake_object import LakeObject

if TYPE_CHECKING:
    from glue_jobs.loop import TableLoop
    from glue_jobs.loops import Loops

LOOK_S = 1.0


@dataclass(slots=True)
class Reporter:
    """Writes whenever something has changed, at the latest after a minute, and at the end of the block."""

    job: Job
    object: LakeObject
    loops: Loops | None = None
    """Those of the tables, once there are any."""
    _id: str = field(default_factory=lambda: uuid.uuid4().hex)
    _run: Run = field(default_factory=lambda: Run(_now(), _now()))
    _said: dict[str, Said] | None = None
    _written: bool = True
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._report, name="status", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        if self._thread:
            self._thread.join()
        if isinstance(error, CalveError):
            self._run = replace(self._run, reason=error.message, fix=error.fix)
        elif error:
            self._run = replace(self._run, reason=f"unexpected: {type(error).__name__}")
        self._run = replace(self._run, ended=_now())
        self._write(self._tables())

    def _report(self) -> None:
        written_at = 0.0
        while True:
            tables = self._tables()
            if tables != self._said or time.monotonic() - written_at >= EVERY_S:
                self._write(tables)
                written_at = time.monotonic()
            if self._over.wait(LOOK_S):
                return

    def _tables(self) -> dict[str, Said]:
        loops = list(self.loops.tables) if self.loops else []
        begun = {each.target.name.table: self._of(each) for each in loops}
        return {each.name: Said(self._id) for each in self.job.tables} | begun

    def _of(self, loop: TableLoop) -> Said:
        error = loop.troubled
        why, fix = (error.message, error.fix) if error else (None, None)
        return Said(self._id, loop.said, loop.made or loop.target.opened, loop.failures, why, fix)

    def _write(self, tables: dict[str, Said]) -> None:
        self._run, self._said = replace(self._run, at=_now()), tables
        found = self.object.read()
        before = JobStatus.from_dict(found) if found else JobStatus()
        written = self.object.write(before.said_by(self._id, self._run, tables).to_json())
        if self._written and not written:
            event("status.not_written", job=self.job.job)
        self._written = written


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
