"""Makes tables in a catalog equal to those of the lake. One table: compare both sides, do the one needed act, compare again.

The writer holds the table's lease and reads Glue while it holds it, so the catalog never moves back. The lease outlives the
function that took it. After a write without an answer the lease is kept until it ends: the write may still arrive.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from calve.errors import CalveError, Fatal, Retryable
from calve.names import TableName
from lambdas.catalog_sync.catalog import Catalog, Conflict, NotFound, Unanswered
from lambdas.followers import DROP, Head, Outcome, Published, head, is_newer, unpublished
from lambdas.followers import withdraw as withdraw_all
from lambdas.publish_states import Clock, Lease, PublishState, PublishStates, State, Target, leased, now_ms


class Act(StrEnum):
    """KEEP: both are equal. ABSENT: neither has it, or the catalog's table is not ours. FOREIGN, BEHIND: a person must decide."""

    KEEP = "keep"
    ABSENT = "absent"
    REGISTER = "register"
    MOVE = "move"
    DROP = DROP
    FOREIGN = "foreign"
    BEHIND = "behind"


REFUSALS = {
    Act.FOREIGN: (
        "the catalog has a table of this name that calve did not register",
        "drop it there, or name another publish.iceberg_rest.namespace",
    ),
    Act.BEHIND: (
        "the catalog has newer metadata of the table than Glue; it is not moved back",
        "write the table through Glue alone; to go back in the catalog, too, drop the table there",
    ),
}


def decide(head: Head | None, there: Head | None, ours: str | None) -> Act:
    """`head`: the published table in Glue, None if there is none. `ours`: the uuid of the table that we registered, if any."""
    if there is None:
        return Act.REGISTER if head else Act.ABSENT
    if head is None:
        return Act.DROP if there.uuid == ours else Act.ABSENT
    if ours is None or there.uuid not in (ours, head.uuid):
        return Act.FOREIGN
    if there.metadata_location == head.metadata_location:
        return Act.KEEP
    if there.uuid == head.uuid and not is_newer(head, there):
        return Act.BEHIND
    return Act.MOVE


OWNER = "calve.deployment"
"""Property of a namespace: the deployment that created it."""
LOOKS = 6
LEASE_MS = 180_000
WRITE_MS = 60_000
"""The least rest of a lease for a write, which arrives sooner or never."""
TARGET = Target.ICEBERG_REST


@dataclass(frozen=True, slots=True)
class Sync:
    """Synchronizes tables. namespace: None: the database of each table. patience_s: the longest wait for a lease.

    moving_away: another catalog replaces this one, and rows remain: functions may already use them.
    """

    glue: Any
    s3: Any
    catalog: Catalog
    states: PublishStates
    deployment: str
    target: Target = TARGET
    namespace: str | None = None
    moving_away: bool = False
    patience_s: float = 10.0
    clock: Clock = field(default=now_ms)

    def table(self, name: TableName, *, published: bool) -> Outcome:
        """Make one table equal to Glue. A table that is not published is dropped, if it is ours.

        Raises:
            Retryable: a system does not answer, or another function has the lease. Fatal: the catalog refuses.
        """
        with leased(self.states, TARGET, str(name), LEASE_MS, self.patience_s, self.clock) as lease:
            try:
                return _Turn(self, name, lease).take(published=published)
            except CalveError as error:
                lease.kept = isinstance(error, Unanswered)
                row = self.states.find(TARGET, str(name))
                if row or published:
                    row = row or PublishState(TARGET, str(name), State.PENDING, self.clock())
                    reason = " ".join(error.message.split())
                    self.states.put(row.become(State.FAILED, self.clock(), reason), lease.holder)
                raise

    def namespace_of(self, name: TableName) -> str:
        return self.namespace or name.database


@dataclass
class _Turn:
    """The work done under one lease of a table."""

    sync: Sync
    name: TableName
    lease: Lease
    acts: list[Act] = field(default_factory=list)
    late_s: float = 0.0

    def take(self, *, published: bool) -> Outcome:
        sync, namespace = self.sync, self.sync.namespace_of(self.name)
        for _ in range(LOOKS):
            row = sync.states.find(TARGET, str(self.name))
            wanted = head(sync.glue, sync.s3, self.name) if published else None
            there = sync.catalog.find(namespace, self.name.table)
            act = decide(wanted, there, row.uuid if row else None)
            row = row or PublishState(TARGET, str(self.name), State.PENDING, sync.clock())
            match act:
                case Act.FOREIGN | Act.BEHIND:
                    reason, fix = REFUSALS[act]
                    raise Fatal(f"{self.name}: {reason}", fix=fix)
                case Act.ABSENT:
                    return self._absent(row, published=published)
                case Act.KEEP if wanted and there:
                    return self._equal(row, wanted, there)
                case Act.DROP if there:
                    self._announce(row, row.uuid)
                    sync.catalog.drop(namespace, there, sync.clock())
                case Act.MOVE if wanted:
                    self.late_s = max(self.late_s, (sync.clock() - wanted.updated_ms) / 1000)
                    self._announce(row, row.uuid)
                    sync.catalog.move(namespace, wanted, sync.clock())
                case Act.REGISTER if wanted:
                    self.late_s = max(self.late_s, (sync.clock() - wanted.updated_ms) / 1000)
                    self._announce(row, wanted.uuid)
                    self._register(namespace, row, wanted)
            self.acts.append(act)
        # Commits come faster than the catalog accepts them; the newest one has an event of its own.
        return Outcome(str(self.name), State.SYNCING, tuple(self.acts), late_s=self.late_s)

    def _absent(self, row: PublishState, *, published: bool) -> Outcome:
        if published:
            nothing: dict[str, Any] = {"uuid": None, "metadata_location": None, "snapshot_id": None}
            self._put(row.become(State.PENDING, self.sync.clock(), lag_s=None, **nothing))
        elif self.sync.moving_away:
            self._put(row.become(State.PENDING, self.sync.clock()))
        else:
            self.sync.states.remove(TARGET, str(self.name), self.lease.holder)
        return Outcome(str(self.name), State.PENDING, tuple(self.acts))

    def _equal(self, row: PublishState, wanted: Head, there: Head) -> Outcome:
        now, lag_s = self.sync.clock(), None
        if self.acts and wanted.committed_ms is not None:
            lag_s = max(0, now - wanted.committed_ms) / 1000
        changes: dict[str, Any] = {
            "uuid": there.uuid,
            "metadata_location": there.metadata_location,
            "snapshot_id": None if there.snapshot_id is None else str(there.snapshot_id),
            "lag_s": row.lag_s if lag_s is None else lag_s,
        }
        if (shown := row.become(State.SYNCED, now, **changes)) != row:
            self._put(shown)
        return Outcome(str(self.name), State.SYNCED, tuple(self.acts), lag_s, self.late_s)

    def _announce(self, row: PublishState, uuid: str | None) -> None:
        """Record a write before it is sent: after a crash in between, the table is known to be ours."""
        self._put(row.become(State.SYNCING, self.sync.clock(), uuid=uuid))
        if self.sync.clock() > self.lease.ends_ms - WRITE_MS:
            raise Retryable(f"the time for {self.name} is used up")

    def _register(self, namespace: str, row: PublishState, wanted: Head) -> None:
        catalog = self.sync.catalog
        try:
            if catalog.namespace(namespace) is None:
                catalog.make_namespace(namespace, {OWNER: self.sync.deployment})
            catalog.register(namespace, wanted, self.sync.clock())
        except Conflict:
            # It did not exist before: another writer created it.
            self._put(row.become(State.SYNCING, self.sync.clock(), uuid=None))
        except NotFound as error:
            raise Retryable(f"{namespace} was dropped while {self.name} was registered: {error}") from None

    def _put(self, row: PublishState) -> None:
        if not self.sync.states.put(row, self.lease.holder):
            raise Retryable(f"another function is at work on {self.name}")


def withdraw(sync: Sync, published: Published) -> None:
    """Drop the tables with a row that are not published, and the namespaces of ours that are then empty.

    Raises:
        Retryable: a table could not be dropped.
    """
    gone = unpublished(sync, published)
    try:
        withdraw_all(sync, gone)
    finally:
        drop_namespaces(sync, {sync.namespace_of(name) for name in gone})


def drop_namespaces(sync: Sync, names: Iterable[str]) -> None:
    """Drop the empty namespaces that this deployment created."""
    for each in sorted(names):
        if (sync.catalog.namespace(each) or {}).get(OWNER) == sync.deployment:
            sync.catalog.drop_namespace(each)
