"""The loops of a job. Named tables start with the job; tables of a pattern start when their topic appears."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial

from py4j.protocol import Py4JNetworkError

from calve.config.job import Job, Start, Table
from calve.config.topics import Keeper, NotKept, expand
from calve.errors import CalveError, Fatal, Retryable
from calve.log import event
from calve.names import TableName, database_for_cluster
from calve.outputs.announcement import EventSource
from calve.registry.registry import open_registry
from calve.rounds.scheduling import FAILED_AFTER, backoff_s
from calve.table.summary import TOPIC
from glue_jobs.columns.tokens import MaskingKeys
from glue_jobs.iceberg.catalog import Lake
from glue_jobs.kafka.cluster import Cluster
from glue_jobs.outputs.outbox import Outbox
from glue_jobs.rounds.loop import State, TableLoop, first_line
from glue_jobs.rounds.waiting import Waiting
from glue_jobs.table.announcements import Announcer
from glue_jobs.table.open_table import Services
from glue_jobs.table.opening import Opener

MOST_THREADS = 256
"""How many tables work at once: far more than a machine has cores, so that tables that wait for an answer stop no other."""


@dataclass(slots=True)
class Loops:
    """Runs loops until all are over. A `Fatal` of one loop stops all."""

    stop: threading.Event
    tables: list[TableLoop] = field(default_factory=list)
    _waiting: Waiting = field(init=False)
    _threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(MOST_THREADS))
    _errors: list[CalveError] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._waiting = Waiting(self.stop)

    def start(self, loop: TableLoop) -> TableName:
        self.tables.append(loop)
        self._waiting.begin()
        self._keep(loop)
        return loop.opener.name

    def run(self, work: Callable[[], object], what: str) -> None:
        """Run other work beside the loops. Errors name it by `what`."""
        self._waiting.begin()
        self._threads.submit(self._work, work, what)

    def wait(self) -> dict[str, State]:
        """Wait until all loops are over, including loops that start meanwhile; returns the state of each table.

        Raises Fatal: the job cannot continue, for instance because credentials were refused. All loops are stopped.
        Raises Retryable: other work failed. The tables are as far as they got without it.
        """
        over = threading.Event()
        with self._threads:
            self._threads.submit(
                self._guarded, partial(self._waiting.look, over), "the looks at waiting tables"
            )
            try:
                while due := self._waiting.due():
                    for each in due:
                        self._keep(each)
            finally:
                over.set()
        if self._errors:
            raise self._errors[0]
        return {str(loop.opener.name): loop.state for loop in self.tables}

    def _keep(self, loop: TableLoop) -> None:
        def work() -> None:
            if loop.work():
                self._waiting.add(loop)

        self._threads.submit(self._work, work, f"the loop of table {loop.opener.name}")

    def _work(self, work: Callable[[], object], what: str) -> None:
        try:
            self._guarded(work, what)
        finally:
            self._waiting.end()

    def _guarded(self, work: Callable[[], object], what: str) -> None:
        try:
            work()
        except Fatal as error:
            self._end(error)
        except CalveError as error:
            self._errors.append(error)
        except (Py4JNetworkError, ConnectionError):
            self._end(Fatal("Spark's JVM has ended", fix="read its log: was its memory too small?"))
        except Exception as error:  # noqa: BLE001 a loop must not end in silence
            self._end(Fatal(f"{what} ended: {first_line(error)}"))

    def _end(self, error: Fatal) -> None:
        self._errors.insert(0, error)
        self.stop.set()


class Openers:
    """Creates an opener for each table, at any time. `outbox` is None if the job announces nothing."""

    def __init__(
        self, job: Job, lake: Lake, cluster: Cluster, output: Cluster, outbox: Outbox | None = None
    ) -> None:
        self._job, self._lake, self._outbox = job, lake, outbox
        per_cluster = job.lake.namespace == "cluster_id"
        self._database = job.database(database_for_cluster(cluster.id) if per_cluster else None)
        registered = any(each.registered for each in (*job.tables, *job.patterns))
        self.services = Services(
            lake,
            cluster,
            output,
            registry=open_registry(job.registry) if registered else None,
            writer=uuid.uuid4().hex,
            cores=lake.spark.sparkContext.defaultParallelism,
            masking=MaskingKeys(lake.spark, job.masking) if job.masking else None,
        )

    def of(self, table: Table) -> Opener:
        name = TableName(self._database, table.name)
        alert_on = table.announce.alert_on if table.announce else ()
        source = EventSource(self._job.name, self._job.job, name, alert_on)
        return Opener(table, name, self.services, Announcer(source, table.topic, self._outbox))

    def topic_of(self, table: str) -> str | None:
        """The topic that a table of the catalog was created for; None if there is no such table.

        Raises Retryable: the catalog does not answer.
        """
        found = self._lake.load(TableName(self._database, table))
        return None if found is None else found.properties.get(TOPIC)


EVERY_S = 60.0
REPORT_EVERY_S = 240.0
"""Often enough for one event in every five minutes of an alarm."""


@dataclass(slots=True)
class Discovery:
    """Finds the topics of a job's patterns: once with `drain`, else every minute until `stop` is set.

    names: lists the cluster's topics in one request. keep: starts the loop of a table.
    """

    job: Job
    names: Callable[[], Iterable[str]]
    keeper: Keeper
    keep: Callable[[Table], TableName]
    stop: threading.Event
    drain: bool
    _kept: dict[str, str] = field(default_factory=dict)
    """Table -> topic of all started loops."""
    _reported: dict[NotKept, float] = field(default_factory=dict)
    _begun: set[str] = field(default_factory=set)

    def run(self) -> None:
        """Look until the job ends. Raises Retryable: with `drain`, the topics cannot be listed."""
        failures = 0
        while not self.stop.is_set():
            wait_s = EVERY_S
            try:
                self.look()
                failures = 0
                if self.drain:
                    return
            except Retryable as error:
                failures += 1
                if failures == 1:
                    event("topics.failed", job=self.job.job, why=error.message, fix=error.fix)
                if self.drain and failures == FAILED_AFTER:
                    raise
                wait_s = backoff_s(failures)
            self.stop.wait(wait_s)

    def look(self) -> None:
        """Start tables for topics that are new since the last look. Log topics that match but get no table.

        Raises Retryable: the topics cannot be listed, or the catalog does not answer.
        """
        found = expand(self.job, self.names(), lambda table: self._kept.get(table) or self.keeper(table))
        starts = {each.name: self._start(each, found.tables) for each in self.job.patterns}
        new = [each for each in found.tables if self._kept.get(each.name) != each.topic]
        kept = [self.keep(replace(each, start=starts[each.pattern or ""])) for each in new]
        self._kept |= {each.name: each.topic for each in new}
        if new:
            event("topics.matched", job=self.job.job, tables=list(map(str, kept)), count=len(self._kept))
        now = time.monotonic()
        for each in found.not_kept:
            if each not in self._reported or now - self._reported[each] >= REPORT_EVERY_S:
                self._reported[each] = now
                facts = {"topic": each.topic, "entry": each.entry, "reason": each.reason, "fix": each.fix}
                event("topic.refused", job=self.job.job, **facts)

    def _start(self, pattern: Table, tables: Iterable[Table]) -> Start:
        """Where new topics start.

        `latest` applies only to topics that existed before the pattern. The table of a newer topic needs its records
        from the start.
        """
        if pattern.start.at != "latest":
            return pattern.start
        begun = pattern.name in self._begun or any(
            self.keeper(each.name) is not None for each in tables if each.pattern == pattern.name
        )
        self._begun.add(pattern.name)
        return Start() if begun else pattern.start
