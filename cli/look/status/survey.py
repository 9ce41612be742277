"""The health of each table of a configuration, from its commits and from its topic's present end."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from calve.config.job import Job, Table
from calve.config.topics import NotKept
from calve.errors import CalveError, Fatal, Retryable
from calve.names import TableName
from calve.table.position import Offsets, Position
from calve.table.protocol import TopicState
from cli.conditions import STOPPED, Conditions
from cli.config import AT_ONCE, surveyed, with_tables
from cli.kafka import Cluster, cluster_database
from cli.lake import Tables
from cli.look.health import TableStatus
from cli.look.status.metadata import Facts, lag_of, read

PATIENCE_S = 3.0
"""Time limit of each question to Kafka: from outside a private network it never answers."""


@dataclass(frozen=True, slots=True)
class Found:
    """A table of a job, with the facts of its metadata."""

    job: Job
    table: Table
    name: TableName
    facts: Facts


def facts_of(
    jobs: Iterable[Job], tables: Tables, database: str | None, only: Sequence[str] = ()
) -> list[Found]:
    """The named tables of the jobs or all, in the order of calve.yaml. database: that of a cluster's id."""
    named = [
        (each, table, each.table_name(table, database))
        for each in jobs
        for table in each.tables
        if not only or table.name in only
    ]
    names = [name for *_, name in named]
    tables.expect([*names, *(each.dead_letters for each in names)])
    facts = read(tables, [(name, table) for _, table, name in named])
    return [Found(*each, its) for each, its in zip(named, facts, strict=True)]


@dataclass(frozen=True, slots=True)
class Survey:
    """The tables of a configuration (also of its patterns) and their topics.

    Without a cluster, the jobs' own reports replace it. unreached: why there is none. conditions: by job.
    """

    found: Sequence[Found]
    cluster: Cluster | None = None
    topics: Mapping[str, TopicState] = field(default_factory=dict)
    conditions: Mapping[str, Conditions] = field(default_factory=dict)
    not_kept: tuple[NotKept, ...] = ()
    unreached: CalveError | None = None

    @classmethod
    def begin(cls, jobs: Sequence[Job], tables: Tables, only: Sequence[str] = ()) -> Survey:
        """Of the named tables or all.

        Ask the cluster about all topics at once; go on without it if it does not answer, or refuses.
        """
        job = jobs[0]
        database = cluster_database(job, PATIENCE_S)
        cluster, listed, unreached = None, list[str](), None
        topics: dict[str, TopicState] = {}
        try:
            cluster = Cluster(job.kafka, job.lake.region, PATIENCE_S)
            listed = cluster.topic_names() if any(each.patterns for each in jobs) else []
        except CalveError as error:
            cluster, unreached = None, error
        of_patterns = surveyed(jobs, tables, database or job.lake.database, listed)
        whole = [with_tables(each, of_patterns) for each in jobs]
        with ThreadPoolExecutor() as pool:
            facts = pool.submit(facts_of, whole, tables, database, only)
            conditions = pool.submit(Conditions.of, whole)
            try:
                wanted = {table.topic for each in whole for table in each.tables}
                topics = cluster.topics(wanted) if cluster else {}
            except CalveError as error:
                cluster, unreached = None, error
            by_job = {each.job: its for each, its in zip(whole, conditions.result(), strict=True)}
            return cls(facts.result(), cluster, topics, by_job, of_patterns.not_kept, unreached)

    def statuses(self) -> list[TableStatus]:
        """The tables in the order of calve.yaml."""
        found = [(self._status(each), each.facts) for each in self.found]
        if self.cluster is None:
            return [replace(status, **facts.reported) for status, facts in found]
        return self._with_lag(found, self.cluster)

    def _status(self, found: Found) -> TableStatus:
        job, table = found.job, found.table
        state = self.conditions.get(job.job, Conditions()).of_table(table.name, found.facts.written)
        if self.cluster and table.topic not in self.topics and state.state not in STOPPED:
            fix = f"make the topic, or correct that of {table.name} in calve.yaml"
            state = replace(state, reason=f"topic {table.topic} does not exist", fix=fix)
        return TableStatus(
            job=job.job,
            table=str(found.name),
            topic=table.topic,
            freshness_target_s=table.freshness_s,
            **asdict(state),
            **found.facts.figures,
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
