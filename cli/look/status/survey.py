"""The health of each table of a job, from its commits and from its topic's present end."""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

from pyiceberg.catalog import Catalog
from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile, DataFileContent, ManifestFile
from pyiceberg.table import Table as Iceberg
from pyiceberg.types import PrimitiveType

from calve.config.job import Job, Table
from calve.config.maintenance import ORPHANS_NOTE, SURPLUS_FILES, Figures, Maintenance, due, surplus
from calve.config.topics import NotKept
from calve.errors import CalveError, Fatal, Retryable
from calve.requests.requests import Pause
from calve.schema.columns import REJECTED_AT
from calve.table.position import Offsets, Position
from calve.table.protocol import TopicState, complete_until
from calve.table.summary import BACKFILL, FORGET, REDRIVE, TRAVEL
from cli import lake
from cli.config import surveyed, with_tables
from cli.dead_letters import Selection
from cli.kafka import Cluster, cluster_database
from cli.lake import Snapshot, aws_errors
from cli.look.health import ANY_REASON, STOPPED, Conditions, TableStatus, Waiting

PATIENCE_S = 3.0
"""Time limit of each question to Kafka: from outside a private network it never answers."""
AT_ONCE = 16
DEAD_LETTER_FILES = 200
"""With more files, dead letters are not read for a screen."""
_COUNTED: dict[tuple[str, int], dict[str, int]] = {}
"""Open dead letters by table and snapshot: a snapshot never changes, so it is read once."""
REQUESTS = {REDRIVE: "redrive", FORGET: "forget", TRAVEL: "rollback", BACKFILL: "backfill"}


class Found(NamedTuple):
    """A table by its metadata, and the position that its lag is counted from."""

    status: TableStatus
    position: Position | None
    reported: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Survey:
    """One job's tables (also of its patterns) and topics; without a cluster, the job's own reports replace it.

    unreached: why there is no cluster.
    """

    job: Job
    catalog: Catalog
    cluster: Cluster | None = None
    topics: dict[str, TopicState] = field(default_factory=dict)
    database: str | None = None
    conditions: Conditions = field(default_factory=Conditions)
    not_kept: tuple[NotKept, ...] = ()
    unreached: CalveError | None = None

    @classmethod
    def begin(cls, jobs: Sequence[Job]) -> list[Survey]:
        """One of each job. Ask the cluster about all topics at once; go on without it if it does not answer, or refuses."""
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
        try:
            wanted = {table.topic for each in whole for table in each.tables}
            topics = cluster.topics(wanted) if cluster else {}
        except CalveError as error:
            cluster, unreached = None, error
        with ThreadPoolExecutor(AT_ONCE) as pool:
            conditions = list(pool.map(Conditions.of, whole))
        return [
            cls(each, catalog, cluster, topics, database, its, found.not_kept, unreached)
            for each, its in zip(whole, conditions, strict=True)
        ]

    def statuses(self, only: Sequence[str] = ()) -> list[TableStatus]:
        """The tables in the order of calve.yaml."""
        wanted = [table for table in self.job.tables if not only or table.name in only]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            found = list(pool.map(self._found, wanted))
        if self.cluster is None:
            return [replace(each.status, **each.reported) for each in found]
        return self._with_lag(found, self.cluster)

    def _found(self, table: Table) -> Found:
        name = self.job.table_name(table, self.database)
        main, dead_letters = lake.load(self.catalog, name), lake.load(self.catalog, name.dead_letters)
        state = self.conditions.of_table(table.name, lake.state_of(main) if main else None)
        if self.cluster and table.topic not in self.topics and state.state not in STOPPED:
            fix = f"make the topic, or correct that of {table.name} in calve.yaml"
            state = replace(state, reason=f"topic {table.topic} does not exist", fix=fix)
        commit, position = (main and lake.latest_commit(main)) or (None, None)
        shown = commit if position and position.offsets else None
        history = lake.ancestors(main) if main else []
        # Merges repeat the position, and move nothing.
        reported = next((each for each in history if "freshness_s" in each.metrics), None)
        moved = next((each for each in history if each.ledger), shown) if shown else None
        metrics = reported.metrics if reported else {}
        status = TableStatus(
            job=self.job.job,
            table=str(name),
            topic=table.topic,
            **asdict(state),
            rows=lake.rows(main) if main else 0,
            snapshot_id=shown.id if shown else None,
            committed_at=moved.at.isoformat(timespec="milliseconds") if moved else None,
            commit_age_s=round(time.time() - moved.committed_at, 1) if moved else None,
            freshness_s=metrics.get("freshness_s"),
            freshness_p50_s=metrics.get("freshness_p50_s"),
            freshness_p95_s=metrics.get("freshness_p95_s"),
            freshness_target_s=table.freshness_s,
            freshness_missed=metrics.get("missed"),
            dead_letters=_count_open(dead_letters) if dead_letters else {},
            lost=sum(each.ledger.lost for each in history if each.ledger),
            files=history[0].total("data-files") if history else 0,
            bytes=history[0].total("files-size") if history else 0,
            delete_files=history[0].total("delete-files") if history else 0,
            snapshots=len(main.metadata.snapshots) if main else 0,
            due=due(figures(main, dead_letters, table.maintenance), table.maintenance) if main else (),
            waiting=waiting(main.properties, lake.state_of(main).state) if main else (),
        )
        return Found(status, position, _report(main, history, reported) if main and reported else {})

    def _with_lag(self, found: Sequence[Found], cluster: Cluster) -> list[TableStatus]:
        """Lag as of now: the topics' ends beyond each position; unknown if the position is of another incarnation."""
        waves: defaultdict[int, dict[str, Offsets]] = defaultdict(dict)
        turns: Counter[str] = Counter()
        behind: list[tuple[Found, Offsets | None, int]] = []
        for each in found:
            topic = each.status.topic
            unread = _unread(each.position, self.topics.get(topic))
            behind.append((each, unread, turns[topic]))
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
            each.status
            if unread is None
            else replace(
                each.status, **_lag(unread, self.topics[each.status.topic], oldest.get(turn, {}), now)
            )
            for each, unread, turn in behind
        ]


def waiting(properties: Mapping[str, str], state: str) -> tuple[Waiting, ...]:
    known = {title: properties[name] for name, title in REQUESTS.items() if name in properties}
    found = [Waiting(title, json.loads(text).get("at")) for title, text in known.items()]
    pause = Pause.of(properties, datetime.now(UTC))
    if pause and state == "running":
        found.append(Waiting("pause", pause.at))
    return tuple(found)


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
    return _lag_of(records, lag_s, "kafka", now)


def _lag_of(records: int, lag_s: float | None, source: str, as_of: float) -> dict[str, Any]:
    moment = datetime.fromtimestamp(as_of, UTC).isoformat(timespec="seconds")
    return {"lag_records": records, "lag_s": lag_s, "lag_source": source, "lag_as_of": moment}


def _report(main: Iceberg, history: Sequence[Snapshot], reported: Snapshot) -> dict[str, Any]:
    """The lag as the job reported it: with its last round, or as complete until a later moment."""
    as_of, lag = reported.committed_at, reported.metrics
    records, lag_s = lag.get("lag_records"), lag.get("lag_s")
    until = complete_until(history, main.properties)
    if until is not None and until > as_of:
        as_of, records, lag_s = until, 0, 0.0
    return {} if records is None else _lag_of(records, lag_s, "job", as_of)


def _count_open(dead_letters: Iceberg) -> dict[str, int]:
    """Open dead letters by reason; all under one if there are too many files to read, or access is refused."""
    head = next(iter(lake.ancestors(dead_letters)), None)
    if head is None:
        return {}
    if (place := (str(dead_letters.metadata.table_uuid), head.id)) in _COUNTED:
        return _COUNTED[place]
    if head.total("data-files") <= DEAD_LETTER_FILES:
        with suppress(Retryable, Fatal):
            _COUNTED[place] = lake.count_by(dead_letters, "reason", Selection().within(dead_letters))
            return _COUNTED[place]
    count = lake.rows(dead_letters)
    return {ANY_REASON: count} if count else {}


PER_SECOND = {"date": 1 / 86_400, "timestamp_ns": 10**9, "timestamptz_ns": 10**9}
"""Units of Iceberg's types of time; of the others, microseconds."""


def figures(main: Iceberg, dead_letters: Iceberg | None, maintenance: Maintenance) -> Figures:
    """Figures for maintenance, of main's head and of its dead letters."""
    head = next(iter(lake.ancestors(main)), None)
    if head is None:
        return Figures()
    now, manifests = datetime.now(UTC).timestamp(), _manifests(main)
    oldest_s = min(each.timestamp_ms for each in main.metadata.snapshots) / 1000
    data_files, size_bytes = head.total("data-files"), head.total("files-size")
    # The sizes of all files are read only if their number does not decide.
    many = data_files - -(-size_bytes // maintenance.file_bytes) >= SURPLUS_FILES
    files = _data_files(main, manifests) if many or maintenance.rows else []
    sizes: defaultdict[object, list[int]] = defaultdict(list)
    for each in files if many else ():
        sizes[each.spec_id, repr(each.partition)].append(each.file_size_in_bytes)
    oldest_dead_letter_s = None
    if dead_letters is not None and maintenance.dead_letters_s is not None:
        rejected = _data_files(dead_letters, _manifests(dead_letters))
        oldest_dead_letter_s = _oldest_s(now, dead_letters, rejected, REJECTED_AT)
    return Figures(
        data_files=data_files,
        surplus_files=surplus(sizes, maintenance.file_bytes),
        delete_files=head.total("delete-files"),
        rows=head.total("records"),
        deleted_rows=head.total("position-deletes"),
        manifests=len(manifests),
        manifest_bytes=sum(each.manifest_length for each in manifests),
        snapshots=len(main.metadata.snapshots),
        oldest_snapshot_s=now - oldest_s,
        oldest_row_s=_oldest_s(now, main, files, maintenance.rows.column) if maintenance.rows else None,
        oldest_dead_letter_s=oldest_dead_letter_s,
        orphans_s=now - (_looked_at(main) or oldest_s),
    )


def _manifests(table: Iceberg) -> list[ManifestFile]:
    current = table.current_snapshot()
    with aws_errors(f"table {'.'.join(table.name())}"):
        return current.manifests(table.io) if current else []


def _data_files(table: Iceberg, manifests: Sequence[ManifestFile]) -> list[DataFile]:
    with aws_errors(f"table {'.'.join(table.name())}"):
        entries = (entry for each in manifests for entry in each.fetch_manifest_entry(table.io))
        return [each.data_file for each in entries if each.data_file.content is DataFileContent.DATA]


def _oldest_s(now: float, table: Iceberg, files: Sequence[DataFile], column: str) -> float | None:
    """The age of the oldest row in seconds by the files' bounds; None if a file has none."""
    try:
        field = table.schema().find_field(column)
    except ValueError:  # no round has made it yet
        return None
    kind = field.field_type
    bounds = [(each.lower_bounds or {}).get(field.field_id) for each in files]
    found = [int(from_bytes(kind, each)) for each in bounds if each and isinstance(kind, PrimitiveType)]
    return now - min(found) / PER_SECOND.get(str(kind), 10**6) if found else None


def _looked_at(table: Iceberg) -> float | None:
    note = f"{table.location().rstrip('/')}/metadata/{ORPHANS_NOTE}"
    with aws_errors(f"table {'.'.join(table.name())}"):
        try:
            with table.io.new_input(note).open() as stream:
                return float(json.loads(stream.read())["at"])
        except FileNotFoundError:
            return None
        except OSError as error:  # an operator may not list the bucket, so S3 denies an absent note
            if not isinstance(error, PermissionError) and "ACCESS_DENIED" not in str(error):
                raise
            return None
