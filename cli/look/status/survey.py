"""The health of each table of a job, from its commits and from its topic's present end."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from pyiceberg.catalog import Catalog

from calve.config.job import Job, Table
from calve.config.topics import NotKept
from calve.errors import CalveError, Fatal, Retryable
from calve.names import TableName
from calve.table.position import Offsets, Position
from calve.table.protocol import TopicState
from cli import lake
from cli.config import surveyed, with_tables
from cli.kafka import Cluster, cluster_database
from cli.lake import Opener
from cli.look.health import STOPPED, Conditions, TableStatus
from cli.look.status.metadata import Facts, lag_of, read

PATIENCE_S = 3.0
"""Time limit of each question to Kafka: from outside a private network it never answers."""
AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class Survey:
    """One job's tables (also of its patterns) and topics; without a cluster, the job's own reports replace it.

    unreached: why there is no cluster. opened: reads the tables of all jobs; None: this job lists its own.
    """

    job: Job
    catalog: Catalog
    cluster: Cluster | None = None
    topics: dict[str, TopicState] = field(default_factory=dict)
    database: str | None = None
    conditions: Conditions = field(default_factory=Conditions)
    not_kept: tuple[NotKept, ...] = ()
    unreached: CalveError | None = None
    opened: Opener | None = None

    @classmethod
    def begin(cls, jobs: Sequence[Job], only: Sequence[str] = ()) -> list[Survey]:
        """One of each job, for its named tables or all.

        Ask the cluster about all topics at once; go on without it if it does not answer, or refuses.
        """
        job = jobs[0]
        catalog, database = lake.open_catalog(job.lake), cluster_database(job, PATIENCE_S)
        cluster, listed, unreached = None, list[str](), None
        topics: dict[str, TopicState] = {}
        try:
            cluster = Cluster(job.kafka, job.lake.region, PATIENCE_S)
            listed = cluster.topic_names() if any(each.patterns for each in jobs) else []
        except CalveError as error:
            cluster, unreached = None, error
        found = surveyed(jobs, catalog, database or job.lake.database, listed)
        whole = [with_tables(each, found) for each in jobs]
        names = [
            each.table_name(table, database)
            for each in whole
            for table in each.tables
            if not only or table.name in only
        ]
        opened = _opener(catalog, names)
        try:
            wanted = {table.topic for each in whole for table in each.tables}
            topics = cluster.topics(wanted) if cluster else {}
        except CalveError as error:
            cluster, unreached = None, error
        with ThreadPoolExecutor(AT_ONCE) as pool:
            conditions = list(pool.map(Conditions.of, whole))
        return [
            cls(each, catalog, cluster, topics, database, its, found.not_kept, unreached, opened)
            for each, its in zip(whole, conditions, strict=True)
        ]

    def statuses(self, only: Sequence[str] = ()) -> list[TableStatus]:
        """The tables in the order of calve.yaml."""
        wanted = [table for table in self.job.tables if not only or table.name in only]
        named = [(self.job.table_name(table, self.database), table) for table in wanted]
        opened = self.opened or _opener(self.catalog, [name for name, _ in named])
        found = [
            (self._status(name, table, facts), facts)
            for (name, table), facts in zip(named, read(opened, named), strict=True)
        ]
        if self.cluster is None:
            return [replace(status, **facts.reported) for status, facts in found]
        return self._with_lag(found, self.cluster)

    def _status(self, name: TableName, table: Table, facts: Facts) -> TableStatus:
        state = self.conditions.of_table(table.name, facts.written)
        if self.cluster and table.topic not in self.topics and state.state not in STOPPED:
            fix = f"make the topic, or correct that of {table.name} in calve.yaml"
            state = replace(state, reason=f"topic {table.topic} does not exist", fix=fix)
        return TableStatus(
            job=self.job.job,
            table=str(name),
            topic=table.topic,
            freshness_target_s=table.freshness_s,
            **asdict(state),
            **facts.figures,
        )

    def _with_lag(self, found: Sequence[tuple[TableStatus, Facts]], cluster: Cluster) -> list[TableStatus]:
        """Lag as of now: the topics' ends beyond each position; unknown if the position is of another incarnation."""
        waves: defaultdict[int, dict[str, Offsets]] = defaultdict(dict)
        turns: Counter[str] = Counter()
        behind: list[tuple[TableStatus, Offsets | None, int]] = []
        for status, facts in found:
            topic = status.topic
            unread = _unread(facts.position, self.topics.get(topic))
            behind.append((status, unread, turns[topic]))
            waves[turns[topic]][topic] = unread or {}
            turns[topic] += 1  # one consumer reads a topic at one place: the next table of it is another's
        oldest: dict[int, dict[str, float | None]] = {}
        with ThreadPoolExecutor(AT_ONCE) as pool:
            asked = {turn: pool.submit(cluster.oldest_records, unread) for turn, unread in waves.items()}
            for turn, answer in asked.items():
                with suppress(Retryable, Fatal):
                    oldest[turn] = answer.result()
        now = time.time()
        return [
            status
            if unread is None
            else replace(status, **_lag(unread, self.topics[status.topic], oldest.get(turn, {}), now))
            for status, unread, turn in behind
        ]


def _opener(catalog: Catalog, names: Sequence[TableName]) -> Opener:
    return lake.opener(catalog, [*names, *(each.dead_letters for each in names)])


def unread_offsets(known: Offsets, topic: TopicState) -> Offsets:
    """The next offset to read of every partition that holds more; expired offsets do not count."""
    starts = {p: max(known.get(p, first), first) for p, first in topic.log_start.items()}
    return {p: offset for p, offset in starts.items() if offset < topic.end[p]}


def _unread(position: Position | None, topic: TopicState | None) -> Offsets | None:
    if topic is None:
        return None
    known = position.of(topic.key) if position else None
    if known is None and position and position.offsets:
        return None
    return unread_offsets(known or {}, topic)


def _lag(
    unread: Offsets, topic: TopicState, oldest: Mapping[str, float | None], now: float
) -> dict[str, Any]:
    """Lag in records and seconds. Transaction markers are not records, and of a silent partition their age is unknown."""
    records = sum(topic.end[p] - offset for p, offset in unread.items())
    lag_s: float | None = None
    if not unread:
        lag_s = 0.0
    elif topic.name in oldest:
        began = oldest[topic.name]
        records, lag_s = (0, 0.0) if began is None else (records, round(max(0.0, now - began), 1))
    return lag_of(records, lag_s, "kafka", now)
