"""Keeps the Delta log of a table equal to its Iceberg snapshots, after they are committed (ADR 77).

Each snapshot becomes one version, from the entries of its own manifests. Where a snapshot is missing in between (it has expired,
or the table was rolled back), one version holds all differences. The log names the snapshot it is at, so a crash at any
point is caught up by the next turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pyiceberg.io import load_file_io
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.table.snapshots import Operation, Snapshot, ancestors_of
from pyroaring import BitMap64

from calve.errors import CalveError, Fatal, Retryable
from calve.names import TableName
from lambdas.delta.log import Action, DeltaLog, LogState, removed
from lambdas.delta.snapshots import Changes, Lake, reader_features, renamed, schema_string, stats_of
from lambdas.followers import DROP, Current, Outcome, current
from lambdas.publish_states import Clock, PublishState, PublishStates, State, Target, leased, now_ms

TARGET = Target.DELTA
LEASE_MS = 310_000
"""Longer than a function may run."""
MOST_STEPS = 30
"""The most snapshots that become versions of their own in one turn."""
READ_ONLY = "icebergWritesThisTable"
"""A writer feature that no writer knows: Delta's writers refuse the table, its readers do not look at it."""
NO_SNAPSHOT = -1
WRITE = "write"


@dataclass(frozen=True)
class Mirror:
    """A table in both forms. name: for readers of the log."""

    name: str
    lake: Lake
    log: DeltaLog

    def catch_up(self) -> int:
        """Write the versions that are missing; returns their number.

        Raises:
            Fatal: Delta cannot have the table as it is. Retryable: another function writes its log.
        """
        metadata, state = self.lake.metadata, self.log.read()
        current, before = metadata.current_snapshot(), state.version
        same_columns = state.metadata == self._described(since=state.metadata)
        at = state.positions.get(_writer(metadata), {}).get("version")
        if same_columns and at == (current.snapshot_id if current else NO_SNAPSHOT):
            return 0
        watched = renamed(metadata.schemas, metadata.schema())
        steps = _steps(metadata, at) if same_columns or not watched else None
        try:
            for each in steps or ():
                changes = self.lake.changes(each)
                if watched:
                    self._require_names(changes.added.values())
                state = self._write(state, each, changes)
        except FileNotFoundError:
            steps = None  # its manifests were deleted: it has expired
        if steps is None:
            state = self._write_differences(state, current, watched=watched)
        elif not steps:  # other columns of the same snapshot
            state = self._write(state, current, Changes({}, frozenset(), frozenset(), deletes=False))
        return state.version - before

    def _write_differences(self, state: LogState, current: Snapshot | None, *, watched: bool) -> LogState:
        """One version with all differences between the log and a snapshot. Raises Retryable: the snapshot has expired."""
        try:
            files = {each.file_path: each for each in self.lake.data_files(current)} if current else {}
            if watched:
                self._require_names(files[location] for location in sorted(files))
            held = frozenset(map(self.log.location_of, state.files))
            kept = held & files.keys()
            added = {location: file for location, file in files.items() if location not in kept}
            return self._write(state, current, Changes(added, held - kept, kept))
        except FileNotFoundError as error:
            raise Retryable(f"{self.name}: its newest snapshot was replaced meanwhile: {error}") from None

    def _write(self, state: LogState, snapshot: Snapshot | None, changes: Changes) -> LogState:
        deleted: dict[str, BitMap64] = {}
        if snapshot and changes.deletes:
            deleted = self.lake.deleted(snapshot, changes.added.keys() | changes.touched)
        vectors = self.log.vectors(deleted)
        # A rewrite of the same rows: a reader that follows the log may skip it.
        rewritten = (
            snapshot is not None
            and snapshot.summary is not None
            and snapshot.summary.operation is Operation.REPLACE
        )
        actions = [*self._files(state, changes, vectors)]
        for (action,) in (each.values() for each in actions):
            action["dataChange"] = not rewritten
        described = self._described(since=state.metadata)
        if described != state.metadata:
            actions.insert(0, {"metaData": described})
        protocol = self._protocol(
            state, vectors=any("deletionVector" in each.get("add", ()) for each in actions)
        )
        if protocol != state.protocol:
            actions.insert(0, {"protocol": protocol})
        at = snapshot.snapshot_id if snapshot else NO_SNAPSHOT
        made = snapshot.timestamp_ms if snapshot else self.lake.metadata.last_updated_ms
        info = {
            "timestamp": made,
            "operation": "ICEBERG COMMIT",
            "operationParameters": {"snapshot": str(at)},
        }
        position = {"appId": _writer(self.lake.metadata), "version": at}
        return self.log.write(state, [{"commitInfo": info}, *actions, {"txn": position}])

    def _files(self, state: LogState, changes: Changes, vectors: Mapping[str, Action]) -> Iterator[Action]:
        """Removed and added files. A file whose deleted rows change is both."""
        for location, file in changes.added.items():
            if held := state.files.get(self.log.path_of(location)):
                yield removed(held)
            yield {"add": _with(self._added(location, file), vectors.get(location))}
        for location in changes.touched:
            held = state.files.get(self.log.path_of(location))
            if held and held.get("deletionVector") != vectors.get(location):
                yield removed(held)
                yield {"add": _with(held, vectors.get(location))}
        for location in changes.gone:
            if held := state.files.get(self.log.path_of(location)):
                yield removed(held)

    def _added(self, location: str, file: DataFile) -> Action:
        if file.file_format is not FileFormat.PARQUET:
            raise Fatal(f"the table has data files in {file.file_format}", fix="rewrite them as Parquet")
        return {
            "path": self.log.path_of(location),
            "partitionValues": {},
            "size": file.file_size_in_bytes,
            "modificationTime": self.lake.metadata.last_updated_ms,
            "stats": stats_of(file, self.lake.metadata.schema()),
        }

    def _protocol(self, state: LogState, *, vectors: bool) -> Action:
        """The lowest protocol for the rows. A feature stays: earlier versions and files may need it.

        vectors: whether a file of this version has one.
        """
        held = (state.protocol or {}).get("readerFeatures", ())
        features = sorted(reader_features(self._columns, vectors=vectors) | set(held))
        if not features:
            return {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": [READ_ONLY]}
        return {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": features,
            "writerFeatures": [*features, READ_ONLY],
        }

    @cached_property
    def _columns(self) -> str:
        return schema_string(self.lake.metadata.schema())

    def _described(self, *, since: Action | None) -> Action:
        """The table's description. since: the last one; a table keeps the time of the first."""
        metadata = self.lake.metadata
        return {
            "id": str(metadata.table_uuid),
            "name": self.name,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": self._columns,
            "partitionColumns": [],
            "configuration": {},
            "createdTime": since["createdTime"] if since else metadata.last_updated_ms,
        }

    def _require_names(self, files: Iterable[DataFile]) -> None:
        """Raises Fatal: a file has an earlier name of a column."""
        for each in files:
            if self.lake.names_differ(each, self.lake.metadata.schema()):
                raise Fatal(
                    f"{self.name}: a column was renamed, and data files have its earlier name, which Delta would read as null",
                    fix="wait: the maintenance job rewrites these files, and then the log goes on",
                )


def _with(add: Action, vector: Action | None) -> Action:
    kept = {key: value for key, value in add.items() if key != "deletionVector"}
    return {**kept, "deletionVector": vector} if vector else kept


def _steps(metadata: TableMetadata, at: int | None) -> list[Snapshot] | None:
    """The snapshots after `at`, oldest first; None if it is no ancestor of main, or they are too many."""
    found: list[Snapshot] = []
    for each in ancestors_of(metadata.current_snapshot(), metadata):
        if each.snapshot_id == at:
            return found[::-1]
        found.append(each)
        if len(found) > MOST_STEPS:
            break
    return None


def _writer(metadata: TableMetadata) -> str:
    return f"iceberg:{metadata.table_uuid}"


@dataclass(frozen=True, slots=True)
class DeltaSync:
    """Writes the Delta logs of tables. glue, s3: clients. file_io: properties of PyIceberg for reading the lake.

    patience_s: the longest wait for a table's lease.
    """

    glue: Any
    s3: Any
    states: PublishStates
    file_io: Mapping[str, str] = field(default_factory=dict)
    target: Target = TARGET
    patience_s: float = 10.0
    clock: Clock = field(default=now_ms)

    def table(self, name: TableName, *, published: bool) -> Outcome:
        """Write the missing versions of one table. The log of a table that is not published is deleted.

        Raises:
            Retryable: a system does not answer, or another function has the lease. Fatal: Delta cannot have the table.
        """
        with leased(self.states, TARGET, str(name), LEASE_MS, self.patience_s, self.clock) as lease:
            row = self.states.find(TARGET, str(name)) or PublishState(
                TARGET, str(name), State.PENDING, self.clock()
            )
            try:
                wanted = current(self.glue, self.s3, name)
                if not published:
                    return self._removed(row, wanted, lease.holder)
                return self._written(row, wanted, lease.holder)
            except CalveError as error:
                reason = " ".join(error.message.split())
                self.states.put(row.become(State.FAILED, self.clock(), reason), lease.holder)
                raise

    def _written(self, row: PublishState, there: Current | None, holder: str) -> Outcome:
        if there is None:
            self.states.put(row.become(State.PENDING, self.clock()), holder)
            return Outcome(row.table, State.PENDING)
        wanted, metadata = there[0], TableMetadataUtil.parse_obj(there[1])
        lake = Lake(load_file_io(dict(self.file_io), metadata.location), metadata)
        versions = Mirror(row.table, lake, DeltaLog(self.s3, metadata.location)).catch_up()
        now, lag_s = self.clock(), row.lag_s
        if versions and wanted.committed_ms is not None:
            lag_s = max(0, now - wanted.committed_ms) / 1000
        shown = row.become(
            State.SYNCED,
            now,
            uuid=wanted.uuid,
            metadata_location=wanted.metadata_location,
            snapshot_id=None if wanted.snapshot_id is None else str(wanted.snapshot_id),
            lag_s=lag_s,
        )
        if shown != row:
            self.states.put(shown, holder)
        return Outcome(row.table, State.SYNCED, (WRITE,) * bool(versions), lag_s if versions else None)

    def _removed(self, row: PublishState, there: Current | None, holder: str) -> Outcome:
        if there:
            DeltaLog(self.s3, there[1]["location"]).drop()
        self.states.remove(TARGET, row.table, holder)
        return Outcome(row.table, State.PENDING, (DROP,) if there else ())
