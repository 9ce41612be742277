"""Commits of the lake -> `feed`, by a queue; a schedule -> `reconcile`, which checks every table.

A check compares a table on both sides, and refreshes it if Snowflake is behind. It is harmless at any time.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import boto3
from aws_lambda_powertools import Logger, Metrics, Tracer
from aws_lambda_powertools.utilities.typing import LambdaContext

from calve.config.publishing import Snowflake
from calve.errors import CalveError, Retryable
from calve.names import DEAD_LETTERS_SUFFIX, TableName
from calve.outputs.metrics import SNOWFLAKE_FAILED, SNOWFLAKE_LAG, SNOWFLAKE_STUCK
from lambdas.aws import tolerating
from lambdas.followers import CommitBatch, Head, head, is_newer, may_pass, of_metadata, read
from lambdas.function import NAMESPACE, add
from lambdas.publish_states import Clock, PublishState, PublishStates, State, Target, leased, now_ms
from lambdas.snowflake.sql import name, options
from lambdas.snowflake.sql_api import Refused, Session, service, system_status

SERVICE = "snowflake_refresh"
AT_ONCE = 8
"""Checks mostly wait for Snowflake."""
logger = Logger(service=SERVICE)
tracer = Tracer(service=SERVICE)
metrics = Metrics(namespace=NAMESPACE, service=SERVICE)

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
        for change in ("SET AUTO_REFRESH = FALSE", "REFRESH", "SET AUTO_REFRESH = TRUE"):
            self.session.execute(f"ALTER ICEBERG TABLE {self._name(table)} {change}")

    def drop(self, table: TableName) -> None:
        """Drop a table; its files belong to the lake."""
        self.session.execute(f"DROP ICEBERG TABLE IF EXISTS {self._name(table)}")

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


TARGET = Target.SNOWFLAKE
LEASE_MS = 60_000
WAIT_S = 20.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a check. lag_s: from the newest commit until Snowflake showed it, if that is new.

    stuck: why Snowflake did not refresh the table by itself.
    """

    table: TableName
    lag_s: float | None = None
    stuck: str | None = None
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class Refresher:
    """Both sides. `glue` and `s3` are clients."""

    tables: SnowflakeTables
    glue: Any
    s3: Any
    states: PublishStates
    now_ms: Clock = field(default=now_ms)

    def look(self, table: TableName) -> Outcome:
        """Refresh a table to the lake's state, and store the result. Of two concurrent checks of a table one waits."""
        try:
            with leased(self.states, TARGET, str(table), LEASE_MS, WAIT_S, self.now_ms) as lease:
                try:
                    return self._bring(table, lease.holder)
                except Exception as error:  # noqa: BLE001 one table's trouble is not the others'
                    reason = error.message if isinstance(error, CalveError) else type(error).__name__
                    failed = self._state(table).become(State.FAILED, self.now_ms(), reason)
                    self.states.put(failed, lease.holder)
                    return Outcome(table, error=error)
        except Retryable as error:
            return Outcome(table, error=error)

    def _bring(self, table: TableName, holder: str) -> Outcome:
        there, shown = head(self.glue, self.s3, table), self.tables.find(table)
        stuck = shown.stuck if shown else None
        if not self.tables.config.linked:
            shown = self._act(table, there, shown)
        before = self._state(table)
        if there is None:
            # The job has not made the table yet, or it was deleted.
            if before.uuid:
                self.states.remove(TARGET, str(table), holder)
            else:
                self.states.put(before.become(State.PENDING, self.now_ms()), holder)
            return Outcome(table)
        if shown is None or not self._shows(shown, there):
            self.states.put(before.become(State.SYNCING, self.now_ms()), holder)
            return Outcome(table, stuck=stuck)
        lag_s = None
        if before.snapshot_id != str(there.snapshot_id) and there.committed_ms is not None:
            lag_s = max(0, self.now_ms() - there.committed_ms) / 1000
        synced = before.become(
            State.SYNCED,
            self.now_ms(),
            uuid=there.uuid,
            metadata_location=shown.metadata_location,
            snapshot_id=str(there.snapshot_id),
            lag_s=before.lag_s if lag_s is None else lag_s,
        )
        self.states.put(synced, holder)
        return Outcome(table, lag_s, stuck)

    def _act(
        self, table: TableName, there: Head | None, shown: SnowflakeTable | None
    ) -> SnowflakeTable | None:
        """Raises: Retryable: Snowflake was still behind afterwards."""
        metadata = self._metadata(shown) if shown and there else None
        if shown and (there is None or (metadata and metadata.uuid != there.uuid)):
            self.tables.drop(table)
            shown = None
        if there is None:
            return None
        if shown is None:
            self.tables.create(table)
        elif shown.stuck or not self._shows(shown, there):
            self.tables.refresh(table)
        else:
            return shown
        shown = self.tables.find(table)
        if shown is None or not self._shows(shown, there):
            raise Retryable(f"Snowflake was refreshed and still does not show {there.metadata_location}")
        return shown

    def _shows(self, shown: SnowflakeTable, there: Head) -> bool:
        """Whether Snowflake has this state of the table, or a newer one."""
        if shown.metadata_location == there.metadata_location:
            return True
        metadata = self._metadata(shown)
        return metadata is not None and metadata.uuid == there.uuid and not is_newer(there, metadata)

    def _metadata(self, shown: SnowflakeTable) -> Head | None:
        """The metadata that Snowflake shows; None if the lake no longer has that file."""
        location = shown.metadata_location
        # S3 denies an absent object to a role that may list only a part of its bucket, as in a shared one.
        with tolerating("NoSuchKey", "AccessDenied"):
            return of_metadata(TableName("", ""), location, read(self.s3, location))
        return None

    def _state(self, table: TableName) -> PublishState:
        known = self.states.find(TARGET, str(table))
        return known or PublishState(TARGET, str(table), State.PENDING, self.now_ms())


@cache
def refresher() -> Refresher:
    """Made once per process, and again after a failure: the key may have changed."""
    config = Snowflake.from_json(os.environ["SNOWFLAKE"])
    session = service(config, os.environ["KEY_SECRET"])
    states = PublishStates(os.environ["STATES_TABLE"], boto3.client("dynamodb"))
    return Refresher(SnowflakeTables(session, config), boto3.client("glue"), boto3.client("s3"), states)


@logger.inject_lambda_context(log_event=False)
@tracer.capture_lambda_handler(capture_response=False)
@metrics.log_metrics
def feed(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Check each table in a batch of messages once; returns the messages to deliver again."""
    metrics.add_dimension("deployment", os.environ["CALVE_NAME"])
    batch = CommitBatch.of(event)
    outcomes = _look(name for name in batch.about if not name.table.endswith(DEAD_LETTERS_SUFFIX))
    return batch.answer({each.table for each in outcomes if may_pass(each.error)})


@logger.inject_lambda_context(log_event=False)
@tracer.capture_lambda_handler(capture_response=False)
@metrics.log_metrics
def reconcile(event: dict[str, Any], context: LambdaContext) -> None:
    """Check every table that a deploy or a commit has named.

    This finds lost events, and tables that Snowflake no longer refreshes by itself.
    """
    metrics.add_dimension("deployment", os.environ["CALVE_NAME"])
    known = [TableName(*each.table.split(".")) for each in refresher().states.all(TARGET)]
    outcomes = _look(known)
    stuck = sum(each.stuck is not None for each in outcomes)
    tables = refresher().tables
    if tables.config.linked:  # does the database still follow its catalog
        said = system_status(tables.session, "SYSTEM$CATALOG_LINK_STATUS", tables.config.database)
        state, details = said.get("executionState"), said.get("failureDetails") or ""
        if state != RUNNING or details:
            logger.error("snowflake.link_stuck", extra={"reason": f"{state} {details}".strip()})
            add(metrics, SNOWFLAKE_STUCK)
    add(metrics, SNOWFLAKE_STUCK, stuck)
    logger.info("snowflake.reconciled", extra={"tables": len(outcomes), "stuck": stuck})


def _look(tables: Iterable[TableName]) -> list[Outcome]:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        outcomes = list(pool.map(refresher().look, tables))
    for each in outcomes:
        about = {"table": str(each.table)}
        if each.lag_s is not None:
            add(metrics, SNOWFLAKE_LAG, each.lag_s)
            logger.info("snowflake.synced", extra=about | {"lag_s": each.lag_s})
        if each.stuck:
            logger.warning("snowflake.stuck", extra=about | {"reason": each.stuck})
        if each.error:
            logger.error("snowflake.not_synced", extra=about | {"error": type(each.error).__name__})
            refresher.cache_clear()
    add(metrics, SNOWFLAKE_FAILED, sum(each.error is not None for each in outcomes))
    return outcomes
