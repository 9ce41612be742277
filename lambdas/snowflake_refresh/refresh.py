"""Compares a table on both sides, and refreshes it if Snowflake is behind. A check is harmless at any time."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from calve.config.publishing import Snowflake
from calve.errors import CalveError, Retryable
from calve.names import TableName
from lambdas.lake_tables import Head, head, is_newer, of_metadata, read
from lambdas.publish_states import PublishState, PublishStates, State, Target
from lambdas.snowflake.sql import name, options
from lambdas.snowflake.sql_api import Refused, Session, system_status

RUNNING = "RUNNING"


@dataclass(frozen=True, slots=True)
class SnowflakeTable:
    """A table in Snowflake. stuck: why Snowflake no longer refreshes it by itself; None: it does."""

    metadata_location: str
    stuck: str | None


@dataclass(frozen=True, slots=True)
class SnowflakeTables:
    """The deployment's tables, in the service user's session. Every method raises as `Session.execute`."""

    session: Session
    config: Snowflake

    def find(self, table: TableName) -> SnowflakeTable | None:
        """A table; None if Snowflake has none."""
        try:
            said = system_status(self.session, "SYSTEM$GET_ICEBERG_TABLE_INFORMATION", self._name(table))
        except Refused as error:
            if error.absent:
                return None
            raise
        return SnowflakeTable(str(said.get("metadataLocation", "")), self._stuck(table))

    def create(self, table: TableName) -> None:
        """Create a table at the catalog's current state."""
        values = {
            "EXTERNAL_VOLUME": self.config.volume,
            "CATALOG": self.config.integration,
            "CATALOG_TABLE_NAME": table.table,
            "CATALOG_NAMESPACE": table.database,
            "AUTO_REFRESH": True,
        }
        self.session.execute(f"CREATE ICEBERG TABLE IF NOT EXISTS {self._name(table)} {options(values)}")

    def refresh(self, table: TableName) -> None:
        """Refresh a table to its catalog's state, which is never older.

        Snowflake refuses this during automatic refresh, so that is switched off and on again, which also restarts a stuck table.
        After a crash in between it stays off, and the next check sees the table as stuck.
        """
        self._refresh_by_itself(table, on=False)
        self.session.execute(f"ALTER ICEBERG TABLE {self._name(table)} REFRESH")
        self._refresh_by_itself(table, on=True)

    def drop(self, table: TableName) -> None:
        """Drop a table; its files belong to the lake."""
        self.session.execute(f"DROP ICEBERG TABLE IF EXISTS {self._name(table)}")

    def _refresh_by_itself(self, table: TableName, *, on: bool) -> None:
        self.session.execute(f"ALTER ICEBERG TABLE {self._name(table)} SET {options({'AUTO_REFRESH': on})}")

    def _stuck(self, table: TableName) -> str | None:
        said = system_status(self.session, "SYSTEM$AUTO_REFRESH_STATUS", self._name(table))
        state = str(said.get("executionState"))
        if state == RUNNING:
            return None
        return f"{state} {said.get('invalidExecutionStateReason') or ''}".strip()

    def _name(self, table: TableName) -> str:
        """In upper case, so that nobody must quote it; a linked database has the catalog's names."""
        if self.config.linked:
            return name(self.config.database, table.database, table.table)
        return name(self.config.database, self.config.schema, table.table.upper())


def link_stuck(session: Session, config: Snowflake) -> str | None:
    """Why a linked database no longer follows its catalog; None: it does. Raises: as `Session.execute`."""
    said = system_status(session, "SYSTEM$CATALOG_LINK_STATUS", config.database)
    if said.get("executionState") == RUNNING and not said.get("failureDetails"):
        return None
    return f"{said.get('executionState')} {said.get('failureDetails') or ''}".strip()


TARGET = Target.SNOWFLAKE
LEASE_MS = 60_000
WAIT_S = 20.0
PAUSE_S = 0.5


def _now_ms() -> int:
    return int(time.time() * 1000)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a check. lag_s: from the newest commit until Snowflake showed it, if that is new.

    stuck: why Snowflake did not refresh the table by itself.
    """

    table: TableName
    lag_s: float | None = None
    stuck: str | None = None
    error: Exception | None = None

    @property
    def retryable(self) -> bool:
        """Whether a retry soon may succeed. After a refusal, the schedule retries."""
        return self.error is not None and (
            isinstance(self.error, Retryable) or not isinstance(self.error, CalveError)
        )


@dataclass(frozen=True, slots=True)
class Refresher:
    """Both sides. `glue` and `s3` are clients."""

    tables: SnowflakeTables
    glue: Any
    s3: Any
    states: PublishStates
    now_ms: Callable[[], int] = _now_ms

    def look(self, table: TableName) -> Outcome:
        """Refresh a table to the lake's state, and store the result. Of two concurrent checks of a table one waits."""
        holder = str(uuid.uuid4())  # not the invocation's id: a retry has the same
        try:
            self._wait_for_lease(table, holder)
        except Retryable as error:
            return Outcome(table, error=error)
        try:
            return self._bring(table, holder)
        except Exception as error:  # noqa: BLE001 one table's trouble is not the others'
            reason = error.message if isinstance(error, CalveError) else type(error).__name__
            self.states.put(self._state(table).become(State.FAILED, self.now_ms(), reason), holder)
            return Outcome(table, error=error)
        finally:
            self.states.release(TARGET, str(table), holder)

    def _bring(self, table: TableName, holder: str) -> Outcome:
        there = head(self.glue, self.s3, table)
        seen = self.tables.find(table)
        if there is None:
            return self._without_head(table, seen, holder)
        stuck = seen.stuck if seen else None
        if not self.tables.config.linked:
            seen = self._act(table, there, seen)
        before = self._state(table)
        if seen is None or not self._shows(seen, there):
            self.states.put(before.become(State.SYNCING, self.now_ms()), holder)
            return Outcome(table, stuck=stuck)
        lag_s = None
        if before.snapshot_id != str(there.snapshot_id) and there.committed_ms is not None:
            lag_s = max(0, self.now_ms() - there.committed_ms) / 1000
        synced = before.become(
            State.SYNCED,
            self.now_ms(),
            uuid=there.uuid,
            metadata_location=seen.metadata_location,
            snapshot_id=str(there.snapshot_id),
            lag_s=before.lag_s if lag_s is None else lag_s,
        )
        self.states.put(synced, holder)
        return Outcome(table, lag_s, stuck)

    def _act(self, table: TableName, there: Head, seen: SnowflakeTable | None) -> SnowflakeTable | None:
        """Raises: Retryable: Snowflake was still behind afterwards."""
        if seen and self._uuid(seen) not in (None, there.uuid):
            self.tables.drop(table)
            seen = None
        if seen is None:
            self.tables.create(table)
        elif seen.stuck or not self._shows(seen, there):
            self.tables.refresh(table)
        else:
            return seen
        seen = self.tables.find(table)
        if seen is None or not self._shows(seen, there):
            raise Retryable(f"Snowflake was refreshed and still does not show {there.metadata_location}")
        return seen

    def _without_head(self, table: TableName, seen: SnowflakeTable | None, holder: str) -> Outcome:
        """A table that the job has not created yet, or that was deleted."""
        known = self._state(table)
        if seen and not self.tables.config.linked:
            self.tables.drop(table)
        if known.uuid:
            self.states.remove(TARGET, str(table), holder)
        else:
            self.states.put(known.become(State.PENDING, self.now_ms()), holder)
        return Outcome(table)

    def _shows(self, seen: SnowflakeTable, there: Head) -> bool:
        """Whether Snowflake has this state of the table, or a newer one."""
        if seen.metadata_location == there.metadata_location:
            return True
        shown = self._metadata(seen)
        return shown is not None and shown.uuid == there.uuid and not is_newer(there, shown)

    def _uuid(self, seen: SnowflakeTable) -> str | None:
        shown = self._metadata(seen)
        return shown.uuid if shown else None

    def _metadata(self, seen: SnowflakeTable) -> Head | None:
        """The metadata that Snowflake shows; None if the lake no longer has that file."""
        try:
            return of_metadata(
                TableName("", ""), seen.metadata_location, read(self.s3, seen.metadata_location)
            )
        except self.s3.exceptions.NoSuchKey:
            return None

    def _state(self, table: TableName) -> PublishState:
        known = self.states.find(TARGET, str(table))
        return known or PublishState(TARGET, str(table), State.PENDING, self.now_ms())

    def _wait_for_lease(self, table: TableName, holder: str) -> None:
        deadline = time.monotonic() + WAIT_S
        while True:
            now_ms = self.now_ms()
            if self.states.take(TARGET, str(table), holder, now_ms=now_ms, until_ms=now_ms + LEASE_MS):
                return
            if time.monotonic() > deadline:
                raise Retryable(f"{table} is being looked at by another function")
            time.sleep(PAUSE_S)
