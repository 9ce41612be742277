"""The tables that a deployment publishes, how far each is at each target, and the turns of functions that make them equal there.

How far a table is, is a row of a DynamoDB table: functions write it, `calve status` reads it. The row is also the lease of its
table: only one function at a time works on it. `CommitBatch` is a batch of commit events. A table is published if it has
a row, or if its name matches in the databases of the deployment.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any, Protocol, Self

from calve.errors import CalveError, Retryable
from calve.names import DEAD_LETTERS_SUFFIX, TableName
from calve.outputs.announcement import table_of
from lambdas.aws import tolerating
from lambdas.lake_tables import databases_of

PAUSE_S = 0.25
"""Between two looks at a lease."""

Clock = Callable[[], int]
"""Epoch milliseconds."""


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def may_pass(error: Exception | None) -> bool:
    """Whether a retry soon may succeed. After a refusal, the next comparison of all tables retries."""
    return error is not None and (isinstance(error, Retryable) or not isinstance(error, CalveError))


class Target(StrEnum):
    """The systems to which tables are published."""

    SNOWFLAKE = "snowflake"
    ICEBERG_REST = "iceberg_rest"
    DELTA = "delta"
    OPENLINEAGE = "openlineage"


class State(StrEnum):
    """PENDING: nothing is published yet. SYNCING: a write is in progress. SYNCED: it was equal to Glue at the last check."""

    PENDING = "pending"
    SYNCING = "syncing"
    SYNCED = "synced"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class PublishState:
    """A table at a target.

    table: `database.table` in Glue. since_ms: when this state began. uuid: of the Iceberg table that calve published; None: none.
    metadata_location, snapshot_id: what the target shows, if known.
    lag_s: from the newest commit that the target shows until it showed it.
    sent, sent_ms: a digest of the last events of lineage, and their time.
    """

    target: Target
    table: str
    state: State
    since_ms: int
    reason: str | None = None
    uuid: str | None = None
    metadata_location: str | None = None
    snapshot_id: str | None = None
    lag_s: float | None = None
    sent: str | None = None
    sent_ms: int | None = None

    def become(self, state: State, now_ms: int, reason: str | None = None, **changes: Any) -> Self:
        """The same table in this state; `since_ms` changes only with the state."""
        since_ms = self.since_ms if state == self.state else now_ms
        return replace(self, state=state, since_ms=since_ms, reason=reason, **changes)


class PublishStates:
    """The rows of a deployment; `client` is DynamoDB's."""

    def __init__(self, table: str, client: Any) -> None:
        self._table = table
        self._client = client

    def find(self, target: Target, table: str) -> PublishState | None:
        answer = self._client.get_item(TableName=self._table, Key=_key(target, table), ConsistentRead=True)
        return _state(answer.get("Item", {}))

    def all(self, target: Target | None = None) -> Iterator[PublishState]:
        """All rows, or those of one target; unordered."""
        pages = self._client.get_paginator("scan").paginate(TableName=self._table, ConsistentRead=True)
        found = (_state(item) for page in pages for item in page["Items"])
        return (each for each in found if each and target in (None, each.target))

    def put(self, state: PublishState, holder: str | None = None) -> bool:
        """Write a row; False if `holder` is given and no longer has the lease."""
        values = {name: value for name, value in asdict(state).items() if name not in ("target", "table")}
        change = "SET " + ", ".join(f"#{name} = :{name}" for name in values if values[name] is not None)
        if absent := [f"#{name}" for name in values if values[name] is None]:
            change += " REMOVE " + ", ".join(absent)
        update = self._client.update_item
        return self._write(update, state.target, state.table, holder, values, UpdateExpression=change)

    def remove(self, target: Target, table: str, holder: str | None = None) -> bool:
        """Delete a row with its lease; False as with `put`."""
        return self._write(self._client.delete_item, target, table, holder)

    def take(self, target: Target, table: str, holder: str, *, now_ms: int, until_ms: int) -> bool:
        """Take the table's lease until then; `holder` must be unique. False if it is taken."""
        return self._write(
            self._client.update_item,
            target,
            table,
            values={"holder": holder, "until": until_ms, "now": now_ms},
            UpdateExpression="SET #holder = :holder, #held_until_ms = :until",
            ConditionExpression="attribute_not_exists(#holder) OR #held_until_ms < :now",
        )

    def release(self, target: Target, table: str, holder: str) -> None:
        """Release the lease, if the holder still has it."""
        forget = "REMOVE #holder, #held_until_ms"
        self._write(self._client.update_item, target, table, holder, UpdateExpression=forget)

    def _write(
        self,
        call: Callable[..., object],
        target: Target,
        table: str,
        holder: str | None = None,
        values: Mapping[str, Any] | None = None,
        **expressions: str,
    ) -> bool:
        """False if the condition does not hold; with `holder`, the condition is that it has the lease.

        In an expression, `#name` is an attribute and `:name` one of the `values`.
        """
        if holder is not None:
            values = {**(values or {}), "holder": holder}
            expressions["ConditionExpression"] = "#holder = :holder"
        arguments: dict[str, Any] = dict(expressions)
        words = set(re.findall(r"[#:]\w+", " ".join(expressions.values())))
        if attributes := {word: word[1:] for word in words if word[0] == "#"}:
            arguments["ExpressionAttributeNames"] = attributes
        if values and (given := {word: _attribute(values[word[1:]]) for word in words if word[0] == ":"}):
            arguments["ExpressionAttributeValues"] = given
        with tolerating("ConditionalCheckFailedException"):
            call(TableName=self._table, Key=_key(target, table), **arguments)
            return True
        return False


@dataclass(slots=True)
class Lease:
    """`ends_ms`: by the clock of `leased`. `kept`: it is not released, because a write may still arrive."""

    holder: str
    ends_ms: int
    kept: bool = False


@contextmanager
def leased(
    states: PublishStates, target: Target, table: str, lease_ms: int, patience_s: float, clock: Clock
) -> Iterator[Lease]:
    """Hold a table's lease. Raises Retryable: another function has it, and still had it after `patience_s`."""
    holder = uuid.uuid4().hex  # Lambda may repeat a request while the first still runs
    begun_s = time.monotonic()
    while not states.take(target, table, holder, now_ms=(now := clock()), until_ms=now + lease_ms):
        if time.monotonic() - begun_s > patience_s:
            raise Retryable(f"another function is at work on {table}")
        time.sleep(PAUSE_S)
    lease = Lease(holder, now + lease_ms)
    try:
        yield lease
    finally:
        if not lease.kept:
            states.release(target, table, holder)


def make_pending(states: PublishStates, target: Target, tables: Iterable[str]) -> None:
    """Give those of the tables that have no row a pending one."""
    for each in tables:
        if states.find(target, each) is None:
            states.put(PublishState(target, each, State.PENDING, now_ms()))


def _key(target: Target, table: str) -> dict[str, Any]:
    return {"target": {"S": target}, "table": {"S": table}}


def _attribute(value: str | float) -> dict[str, str]:
    return {"S": value} if isinstance(value, str) else {"N": str(value)}


def _state(item: dict[str, Any]) -> PublishState | None:
    if "state" not in item:  # only a lease
        return None
    texts = {name: value["S"] for name, value in item.items() if "S" in value and name != "holder"}
    return PublishState(
        **texts
        | {
            "target": Target(texts["target"]),
            "state": State(texts["state"]),
            "since_ms": int(item["since_ms"]["N"]),
            "lag_s": float(item["lag_s"]["N"]) if "lag_s" in item else None,
            "sent_ms": int(item["sent_ms"]["N"]) if "sent_ms" in item else None,
        }
    )


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


AT_ONCE = 8
LATE_S = 60.0
"""A commit that is missing for longer was lost, not delayed."""
DROP = "drop"
"""The act that removes a table from its target."""


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
    database: of these; None: the databases that the deployment made, one per cluster.
    """

    deployment: str
    tables: frozenset[str] = frozenset()
    patterns: tuple[str, ...] = ()
    database: str | None = None

    @classmethod
    def from_json(cls, text: str) -> Self:
        raw = json.loads(text)
        return cls(raw["deployment"], frozenset(raw["tables"]), tuple(raw["patterns"]), raw["database"])

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


def reconcile(follower: Follower, published: Published) -> list[Outcome]:
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
