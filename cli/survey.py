"""How each table of a job fares, from what its commits say and what its topic holds now."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

from calve.errors import Fatal, Retryable
from cli.dead_letters.selection import Selection
from cli.kafka import Cluster, Topic, cluster_database
from cli.lake import count_by, latest_commit, load, open_catalog, rows, state_of
from cli.topics import surveyed, with_tables

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyiceberg.catalog import Catalog

    from calve.job import Job, Table
    from calve.position import Offsets, Position
    from calve.topics import NotKept
    from cli.console import Console

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class TableStatus:
    """One table. None stands for what is not known: nothing was committed, or the topic cannot be reached.

    `lag_records` counts offsets from the table's position to the end of the topic, `lag_s` is the age of the
    oldest record that is not in the table. `freshness_s` is what the last commit achieved, `freshness_target_s` the
    promise.
    """

    job: str
    table: str
    topic: str
    state: str
    code: str | None = None
    reason: str | None = None
    since: str | None = None
    rows: int = 0
    snapshot_id: int | None = None
    committed_at: str | None = None
    commit_age_s: float | None = None
    lag_records: int | None = None
    lag_s: float | None = None
    freshness_s: float | None = None
    freshness_target_s: float = 0.0
    dead_letters: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Survey:
    """One job's tables, those of its patterns among them, and topics; without a cluster, nothing is said about lag."""

    job: Job
    catalog: Catalog
    cluster: Cluster | None = None
    topics: dict[str, Topic] = field(default_factory=dict)
    database: str | None = None
    not_kept: tuple[NotKept, ...] = ()

    @classmethod
    def begin(cls, job: Job, console: Console) -> Survey:
        """Ask the cluster about all topics at once; where it does not answer, say so and go on without it."""
        catalog, database = open_catalog(job.lake), cluster_database(job)

        def answered(question: Callable[[], _T]) -> _T | None:
            try:
                return question()
            except (Retryable, Fatal) as error:
                console.error(error)
                return None

        cluster = answered(lambda: Cluster(job.kafka, job.lake.region))
        listed = answered(cluster.topic_names) if cluster and job.patterns else []
        found = surveyed(job, catalog, database or job.lake.database, listed or ())
        whole = with_tables(job, found)
        names = {table.topic for table in whole.tables}
        topics = answered(lambda: cluster.topics(names)) if cluster and listed is not None else None
        reached = cluster if topics is not None else None
        return cls(whole, catalog, reached, topics or {}, database, found.not_kept)

    def statuses(self, only: Sequence[str] = ()) -> list[TableStatus]:
        """The tables in the order of calve.yaml.

        Raises:
            Retryable: the catalog or the object store does not answer.
        """
        wanted = [table for table in self.job.tables if not only or table.name in only]
        with ThreadPoolExecutor(max_workers=8) as pool:
            return list(pool.map(self._status, wanted))

    def _status(self, table: Table) -> TableStatus:
        name = self.job.table_name(table, self.database)
        main, letters = load(self.catalog, name), load(self.catalog, name.dead_letters)
        state = state_of(main)
        reason = state.reason
        if self.cluster and table.topic not in self.topics:
            reason = reason or f"topic {table.topic} does not exist"
        commit, position = (main and latest_commit(main)) or (None, None)
        lag_records, lag_s = self._lag(position, self.topics.get(table.topic))
        shown = commit if position and position.offsets else None
        age = datetime.now(UTC) - shown.committed_at if shown else None
        return TableStatus(
            job=self.job.job,
            table=str(name),
            topic=table.topic,
            state=state.state,
            code=state.code,
            reason=reason,
            since=state.since,
            rows=rows(main) if main else 0,
            snapshot_id=shown.id if shown else None,
            committed_at=shown.committed_at.isoformat(timespec="milliseconds") if shown else None,
            commit_age_s=round(age.total_seconds(), 1) if age else None,
            lag_records=lag_records,
            lag_s=lag_s,
            freshness_s=shown.metrics.get("freshness_s") if shown else None,
            freshness_target_s=table.freshness_s,
            dead_letters=count_by(letters, "reason", Selection().within(letters)) if letters else {},
        )

    def _lag(self, position: Position | None, topic: Topic | None) -> tuple[int | None, float | None]:
        """Records and seconds; neither is known where the position belongs to another incarnation."""
        if topic is None or self.cluster is None:
            return None, None
        known = position.of(topic.key) if position else None
        if known is None and position and position.offsets:
            return None, None
        unread = unread_offsets(known or {}, topic)
        if not unread:
            return 0, 0.0
        records = sum(topic.end[p] - offset for p, offset in unread.items())
        try:
            oldest = self.cluster.oldest_record(topic.name, unread)
        except Retryable:
            return records, None
        return (0, 0.0) if oldest is None else (records, round(max(0.0, time.time() - oldest), 1))


def unread_offsets(known: Offsets, topic: Topic) -> Offsets:
    """The next offset to read of every partition that holds more; expired offsets are not waited for."""
    starts = {p: max(known.get(p, first), first) for p, first in topic.log_start.items()}
    return {p: offset for p, offset in starts.items() if offset < topic.end[p]}
