"""The status of a run and its tables, for the commands; and the control object by which a deployment ends a run.

Both are small JSON objects in the lake bucket. The job uses Iceberg's file IO for them and needs no other S3 client.
The status also reports tables that the job could not create.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Self, cast

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from calve.config.job import Job
from calve.errors import CalveError, TopicMissing
from calve.log import event
from calve.outputs.job_status import EVERY_S, JobStatus, ReportedTable, Run
from glue_jobs.process.java import catalog_settings, read_json, write_text

if TYPE_CHECKING:
    from glue_jobs.rounds.loop import TableLoop
    from glue_jobs.rounds.loops import Loops

READ_TIMEOUT_MS = 5000
LOOK_S, POLL_S = 1.0, 10.0
"""How often the reporter looks at the loops, and a run at its control object."""
MOST_NAMES = 20


class LakeObject:
    """One object. A failed read or write is tried again the next time."""

    def __init__(self, spark: SparkSession, uri: str) -> None:
        limits = {"http-client.apache.socket-timeout-ms": str(READ_TIMEOUT_MS), "s3.retry.num-retries": "0"}
        properties, jvm = catalog_settings(spark) | limits, cast("Any", spark._jvm)
        self._io = jvm.org.apache.iceberg.CatalogUtil.loadFileIO(
            properties["io-impl"], properties, spark.sparkContext._jsc.hadoopConfiguration()
        )
        self._uri = uri

    def read(self) -> dict[str, Any] | None:
        """The object's content; None if it is missing or unreadable."""
        try:
            said = read_json(self._io, self._uri)
        except (Py4JError, ConnectionError, ValueError):
            return None
        return said if isinstance(said, dict) else None

    def write(self, text: str) -> bool:
        """Replace the object; False if that failed."""
        try:
            write_text(self._io, self._uri, text)
        except (Py4JError, ConnectionError):
            return False
        return True


@dataclass(slots=True)
class Reporter:
    """Writes the status after each change, at least once a minute, and at the end of the block.

    Logs once a minute that the job is alive, and how its tables are: the job's heartbeat.
    """

    job: Job
    object: LakeObject
    generation: str | None = None
    loops: Loops | None = None
    """The loops of the tables, once all named tables have one."""
    _id: str = field(default_factory=lambda: uuid.uuid4().hex)
    _run: Run = field(default_factory=lambda: Run(_now(), _now()))
    _said: dict[str, ReportedTable] | None = None
    _written: bool = True
    _over: Event = field(default_factory=Event)

    @contextmanager
    def running(self) -> Iterator[Self]:
        self._run = replace(self._run, generation=self.generation)
        thread = Thread(target=self._report, name="status", daemon=True)
        thread.start()
        why: dict[str, Any] = {}
        try:
            yield self
        except CalveError as error:
            why = {"reason": error.message, "fix": error.fix}
            raise
        except BaseException as error:
            why = {"reason": f"unexpected: {type(error).__name__}"}
            raise
        finally:
            self._over.set()
            thread.join()
            self._run = replace(self._run, ended=_now(), **why)
            self._write(self._tables())

    def _report(self) -> None:
        """Look until the block is over, and once more then: a short run was alive, too, and opened its tables."""
        written_at, logged_at = 0.0, -EVERY_S
        while True:
            over, tables = self._over.is_set(), self._tables()
            if self._run.opened is None and self._acknowledges():
                self._run, written_at = replace(self._run, opened=_now()), 0.0
            if self.loops and time.monotonic() - logged_at >= EVERY_S:
                self._log(list(self.loops.tables))
                logged_at = time.monotonic()
            if tables != self._said or time.monotonic() - written_at >= EVERY_S:
                self._write(tables)
                written_at = time.monotonic()
            if over:
                return
            self._over.wait(LOOK_S)

    def _log(self, loops: list[TableLoop]) -> None:
        silent = [str(each.opener.name) for each in loops if each.silent]
        states = dict(Counter(each.state for each in loops))
        event("job.tables", job=self.job.job, states=states, silent=len(silent), names=silent[:MOST_NAMES])

    def _tables(self) -> dict[str, ReportedTable]:
        loops = list(self.loops.tables) if self.loops else []
        reported = {each.name: ReportedTable(self._id) for each in self.job.tables}
        for each in loops:
            error, opener = each.troubled, each.opener
            why, fix = (error.message, error.fix) if error else (None, None)
            made = each.made or opener.main is not None
            reported[opener.name.table] = ReportedTable(self._id, each.said, made, each.failures, why, fix)
        return reported

    def _acknowledges(self) -> bool:
        """True if every table is open, or has failed a round while others are open. One bad table never stops another.

        True also if no topic exists yet: a first deploy may make their cluster.
        A job of patterns alone waits only for the tables that it has found: if there are none yet, it acknowledges at once.
        """
        if self.loops is None:
            return False
        loops = list(self.loops.tables)
        judged = [each.opener.is_open or each.state != "pending" or each.failures > 0 for each in loops]
        opened = any(each.opener.is_open for each in loops)
        return all(judged) and (opened or all(isinstance(each.troubled, TopicMissing) for each in loops))

    def _write(self, tables: dict[str, ReportedTable]) -> None:
        self._run, self._said = replace(self._run, at=_now()), tables
        found = self.object.read()
        before = JobStatus.from_dict(found) if found else JobStatus()
        written = self.object.write(before.said_by(self._id, self._run, tables).to_json())
        if self._written and not written:
            event("status.failed", job=self.job.job)
        self._written = written


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def watch(spark: SparkSession, job: str, control: str, generation: str, stop: Event) -> Event:
    """Poll a control object, `{"generation": NAME or null}`, in a thread that ends with the process.

    Sets `stop` and the returned event once the object names another generation. null asks every generation to end.
    """
    asked, said = Event(), LakeObject(spark, control)

    def poll() -> None:
        while not stop.is_set():
            named = said.read() or {}  # a run goes on until a new generation is named
            if named.get("generation", generation) != generation:
                event("job.handed_over", job=job, generation=generation, to=named["generation"])
                asked.set()
                stop.set()
                return
            stop.wait(POLL_S)

    Thread(target=poll, name="hand-over", daemon=True).start()
    return asked
