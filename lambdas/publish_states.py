"""How far each table is at each target: a row of a DynamoDB table. Functions write it, `calve status` reads it.

The row is also the lease of its table: only one function at a time works on it.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any, Self

from calve.errors import Retryable
from lambdas.aws import tolerating

PAUSE_S = 0.25
"""Between two looks at a lease."""

Clock = Callable[[], int]
"""Epoch milliseconds."""


def now_ms() -> int:
    return time.time_ns() // 1_000_000


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
