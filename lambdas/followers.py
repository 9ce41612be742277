"""The functions that follow the lake's commits: each keeps the tables at one target equal to those of the lake."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol, Self
from urllib.parse import urlsplit

from aws_lambda_powertools import Logger, Metrics, Tracer
from aws_lambda_powertools.utilities.data_classes import CloudFormationCustomResourceEvent
from aws_lambda_powertools.utilities.typing import LambdaContext

from calve.errors import CalveError, Retryable
from calve.names import DEAD_LETTERS_SUFFIX, TableName
from calve.outputs.announcement import table_of
from calve.outputs.metrics import Metric
from lambdas.aws import databases_of, read_text
from lambdas.function import add
from lambdas.publish_states import PublishStates, State, Target, make_pending

AT_ONCE = 8
LATE_S = 60.0
"""A commit that is missing for longer was lost, not delayed."""
DROP = "drop"
"""The act that removes a table from its target."""
GZIP = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class Head:
    """A table by its newest metadata, in Glue or in another catalog.

    sequence_number: of the newest snapshot ever committed; a rollback does not change it.
    updated_ms: when the metadata was written. snapshot_id: of main; None: the table is empty.
    committed_ms: when main's snapshot was committed. previous: earlier metadata files, as far as this one lists them.
    """

    name: TableName
    uuid: str
    metadata_location: str
    sequence_number: int
    updated_ms: int
    snapshot_id: int | None = None
    committed_ms: int | None = None
    previous: frozenset[str] = frozenset()


def is_newer(one: Head, other: Head) -> bool:
    """Whether one metadata file of a table was written after another. A follower never goes back.

    The order is that of files, not of snapshots: after a rollback, a later file names an earlier snapshot. A file that lists the
    other as previous is newer. Otherwise timestamps decide: clocks of two writers differ, but with so many commits between the
    files that the older is no longer listed, their times are far apart.
    """
    if other.metadata_location in one.previous:
        return True
    if one.metadata_location in other.previous:
        return False
    return (one.sequence_number, one.updated_ms) > (other.sequence_number, other.updated_ms)


Current = tuple[Head, dict[str, Any]]
"""A table's head, and the content of its metadata file."""


def current(glue: Any, s3: Any, name: TableName) -> Current | None:
    """The table's head and metadata, from Glue and S3; None if Glue has no such Iceberg table."""
    try:
        found = glue.get_table(DatabaseName=name.database, Name=name.table)["Table"]
    except glue.exceptions.EntityNotFoundException:
        return None
    location = found.get("Parameters", {}).get("metadata_location")
    if not location:
        return None
    metadata = read(s3, location)
    return of_metadata(name, location, metadata), metadata


def head(glue: Any, s3: Any, name: TableName) -> Head | None:
    """The table's head, as `current`."""
    found = current(glue, s3, name)
    return found[0] if found else None


def of_metadata(name: TableName, location: str, metadata: dict[str, Any]) -> Head:
    current = metadata.get("current-snapshot-id")
    snapshots = metadata.get("snapshots") or ()
    return Head(
        name=name,
        uuid=metadata["table-uuid"],
        metadata_location=location,
        sequence_number=metadata.get("last-sequence-number", 0),
        updated_ms=metadata["last-updated-ms"],
        snapshot_id=None if current == -1 else current,
        committed_ms=next(
            (each["timestamp-ms"] for each in snapshots if each["snapshot-id"] == current), None
        ),
        previous=frozenset(each["metadata-file"] for each in metadata.get("metadata-log") or ()),
    )


def read(s3: Any, location: str) -> dict[str, Any]:
    """A metadata file, compressed or not."""
    where = urlsplit(location)
    body = s3.get_object(Bucket=where.netloc, Key=where.path.removeprefix("/"))["Body"].read()
    parsed: dict[str, Any] = json.loads(gzip.decompress(body) if body.startswith(GZIP) else body)
    return parsed


def may_pass(error: Exception | None) -> bool:
    """Whether a retry soon may succeed. After a refusal, the next comparison of all tables retries."""
    return error is not None and (isinstance(error, Retryable) or not isinstance(error, CalveError))


@dataclass(frozen=True, slots=True)
class CommitBatch:
    """Ids of messages, by table. `unread`: of messages without a table; they are retried and end in the dead-letter queue."""

    about: Mapping[TableName, list[str]]
    unread: list[str]

    @classmethod
    def of(cls, event: Mapping[str, Any]) -> Self:
        about: dict[TableName, list[str]] = {}
        unread = []
        for message in event["Records"]:
            try:
                about.setdefault(table_of(json.loads(message["body"])["detail"]), []).append(
                    message["messageId"]
                )
            except (ValueError, KeyError, TypeError):
                unread.append(message["messageId"])
        return cls(about, unread)

    def answer(self, again: Collection[TableName]) -> dict[str, Any]:
        """Lambda's batch response; `again`: tables whose messages must be delivered again."""
        ids = [id for table, ids in self.about.items() if table in again for id in ids]
        return {"batchItemFailures": [{"itemIdentifier": id} for id in (*ids, *self.unread)]}


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result for one table. lag_s: from the commit until the catalog had it; None if nothing changed.

    late_s: how long Glue had had it before the catalog. error: why the table could not be made equal.
    """

    table: str
    state: State
    acts: tuple[str, ...] = ()
    lag_s: float | None = None
    late_s: float = 0.0
    error: Exception | None = None

    @property
    def repaired(self) -> bool:
        """Whether no recent commit explains the change."""
        return DROP in self.acts or (bool(self.acts) and self.late_s > LATE_S)

    @property
    def reason(self) -> str:
        """The error in one line, for logs."""
        if isinstance(self.error, CalveError):
            return " ".join(str(self.error).split())
        return f"{type(self.error).__name__}: {self.error}"


class Follower(Protocol):
    """Makes one table equal at a target. Properties, because values of a frozen class are read alone."""

    @property
    def target(self) -> Target: ...
    @property
    def glue(self) -> Any: ...
    @property
    def states(self) -> PublishStates: ...

    def table(self, name: TableName, *, published: bool) -> Outcome:
        """Make the table equal to that of the lake, or remove it from the target if it is not published."""


@dataclass(frozen=True, slots=True)
class Published:
    """What a deployment publishes.

    tables: names, `database.table`. patterns: expressions for names of tables that do not exist yet.
    database: of these; None: the databases that the deployment made, one per cluster. A table with a row is published, too.
    """

    deployment: str
    tables: frozenset[str] = frozenset()
    patterns: tuple[str, ...] = ()
    database: str | None = None

    @classmethod
    def from_json(cls, text: str) -> Self:
        raw = json.loads(text)
        return cls(raw["deployment"], frozenset(raw["tables"]), tuple(raw["patterns"]), raw["database"])

    @classmethod
    def read(cls, s3: Any, uri: str) -> Self:
        """From the object that a deploy wrote; `s3` is the client."""
        return cls.from_json(read_text(s3, uri))

    def matches(self, glue: Any, name: TableName) -> bool:
        return str(name) in self.tables or (
            self._named(name.table) and name.database in self._databases(glue)
        )

    def unknown(self, glue: Any, known: Collection[TableName]) -> Iterator[TableName]:
        """The tables in Glue that match and have no row yet."""
        if not self.patterns:
            return
        for database in self._databases(glue):
            pages = glue.get_paginator("get_tables").paginate(DatabaseName=database)
            for table in (each["Name"] for page in pages for each in page["TableList"]):
                name = TableName(database, table)
                if self._named(table) and name not in known:
                    yield name

    def _named(self, table: str) -> bool:
        return not table.endswith(DEAD_LETTERS_SUFFIX) and any(
            re.fullmatch(pattern, table) for pattern in self.patterns
        )

    def _databases(self, glue: Any) -> list[str]:
        return databases_of(glue, self.deployment) if self.database is None else [self.database]


def known(follower: Follower) -> list[TableName]:
    """The tables with a row at the target."""
    found = (each.table.rpartition(".") for each in follower.states.all(follower.target))
    return sorted((TableName(database, table) for database, _, table in found), key=str)


def follow(follower: Follower, names: Iterable[TableName], *, published: bool = True) -> list[Outcome]:
    """Make these tables equal, or remove them if they are not published."""

    def one(name: TableName) -> Outcome:
        try:
            return follower.table(name, published=published)
        except Exception as error:  # noqa: BLE001 also an AWS client's: the other tables have their turn
            return Outcome(str(name), State.FAILED, error=error)

    with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
        return list(pool.map(one, dict.fromkeys(names)))


def follow_batch(
    follower: Follower, published: Published, event: Mapping[str, Any]
) -> tuple[list[Outcome], dict[str, Any]]:
    """Follow the commits in a batch of messages: the outcomes, and Lambda's answer with the messages to deliver again."""
    batch = CommitBatch.of(event)
    names = [
        name
        for name in batch.about
        if follower.states.find(follower.target, str(name)) is not None
        or published.matches(follower.glue, name)
    ]
    outcomes = follow(follower, names)
    again = {each.table for each in outcomes if may_pass(each.error)}
    return outcomes, batch.answer([name for name in names if str(name) in again])


def follow_all(follower: Follower, published: Published) -> list[Outcome]:
    """Make all tables equal: those with a row, and new ones."""
    there = known(follower)
    return follow(follower, [*there, *published.unknown(follower.glue, there)])


def unpublished(follower: Follower, published: Published) -> list[TableName]:
    """The tables with a row that the deployment publishes no more."""
    return [name for name in known(follower) if not published.matches(follower.glue, name)]


def publish(follower: Follower, published: Published) -> None:
    """Apply a deploy: new tables become pending, and those that are no longer published are removed. Raises: as `withdraw`."""
    make_pending(follower.states, follower.target, sorted(published.tables))
    withdraw(follower, unpublished(follower, published))


def withdraw(follower: Follower, names: Iterable[TableName]) -> None:
    """Remove tables from the target. Raises Retryable: one could not be removed."""
    kept = [each for each in follow(follower, names, published=False) if each.error]
    if kept:
        reasons = "; ".join(f"{each.table}: {each.reason}" for each in kept[:3])
        raise Retryable(f"{len(kept)} tables could not be dropped: {reasons}")


def deploy(follower: Follower, request: CloudFormationCustomResourceEvent, s3: Any) -> None:
    """Apply what a deploy publishes, or withdraw all at a delete. Raises: as `withdraw`."""
    properties = request.resource_properties
    if request.request_type == "Delete":
        publish(follower, Published(properties["Deployment"]))
    else:
        publish(follower, Published.read(s3, properties["PublishedFile"]))


@dataclass(frozen=True, slots=True)
class Words:
    """What the functions of a target say: the first word of their events, the second for an equal table, and metrics."""

    name: str
    done: str
    followed: Metric
    lag: Metric
    failed: Metric
    repairs: Metric | None = None


Feed = Callable[[dict[str, Any], LambdaContext], dict[str, Any]]
Reconcile = Callable[[dict[str, Any], LambdaContext], None]


def functions_of(
    words: Words,
    logger: Logger,
    tracer: Tracer,
    metrics: Metrics,
    *,
    follower: Callable[[], Follower],
    published: Callable[[], Published],
    forget: Callable[[], None] = lambda: None,
) -> tuple[Feed, Reconcile]:
    """`feed`, which follows commits, and `reconcile`, which looks at every table.

    forget: called after an error, so that the next turn reads changed secrets.
    """

    def log(outcomes: Iterable[Outcome]) -> None:
        for each in outcomes:
            facts = {"table": each.table, "acts": [*each.acts]}
            if each.acts:
                logger.info(f"{words.name}.{words.done}", extra=facts | {"lag_s": each.lag_s})
            if each.lag_s is not None:
                add(metrics, words.lag, each.lag_s)
            if each.error:
                forget()
                logger.error(
                    f"{words.name}.not_{words.done}", extra={"table": each.table, "reason": each.reason}
                )

    @logger.inject_lambda_context(log_event=False)
    @tracer.capture_lambda_handler(capture_response=False)
    @metrics.log_metrics
    def feed(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
        # Several deployments share the namespace of metrics.
        metrics.add_dimension("function", context.function_name)
        outcomes, answer = follow_batch(follower(), published(), event)
        add(metrics, words.followed, len(outcomes))
        log(outcomes)
        return answer

    @logger.inject_lambda_context(log_event=False)
    @tracer.capture_lambda_handler(capture_response=False)
    @metrics.log_metrics
    def reconcile(event: dict[str, Any], context: LambdaContext) -> None:
        metrics.add_dimension("function", context.function_name)
        outcomes = follow_all(follower(), published())
        log(outcomes)
        if words.repairs:
            repaired = [each for each in outcomes if each.repaired]
            for each in repaired:
                facts = {"table": each.table, "acts": [*each.acts], "late_s": each.late_s}
                logger.warning(f"{words.name}.repaired", extra=facts)
            add(metrics, words.repairs, len(repaired))
        failed = sum(each.error is not None for each in outcomes)
        add(metrics, words.failed, failed)
        logger.info(f"{words.name}.reconciled", extra={"tables": len(outcomes), "failed": failed})

    return feed, reconcile
