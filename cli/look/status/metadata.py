"""What the metadata of tables says, without their jobs and topics."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile, DataFileContent, ManifestFile
from pyiceberg.schema import Schema, index_by_id, index_name_by_id
from pyiceberg.table import Table as IcebergTable
from pyiceberg.types import PrimitiveType

from calve.config.job import Table
from calve.config.maintenance import ORPHANS_NOTE, SURPLUS_FILES, Figures, Maintenance, due, surplus
from calve.errors import Fatal, Retryable
from calve.names import SYSTEM_COLUMN, TableName
from calve.outputs.job_status import TableState
from calve.requests.requests import Pause
from calve.rounds.expectations import Missed
from calve.schema.columns import REJECTED_AT
from calve.table.position import Position
from calve.table.protocol import complete_until
from calve.table.summary import ADOPT, BACKFILL, FORGET, MOVE, REDRIVE, RELEASE, TRAVEL, has_ledger
from cli import lake
from cli.config import AT_ONCE
from cli.dead_letters import Selection
from cli.lake import Metadata, Snapshot, Tables, aws_errors
from cli.look.health import ANY_REASON, Waiting

DEAD_LETTER_FILES = 200
"""With more files, dead letters are not read for a screen."""
_COUNTED: dict[tuple[str, int], dict[str, int]] = {}
"""Open dead letters by table and snapshot: a snapshot never changes, so it is read once."""
REQUESTS = {
    REDRIVE: "redrive",
    FORGET: "forget",
    TRAVEL: "rollback",
    BACKFILL: "backfill",
    RELEASE: "release",
    MOVE: "move",
    ADOPT: "adopt",
}

Named = Sequence[tuple[TableName, Table]]


@dataclass(frozen=True, slots=True)
class Facts:
    """One table. written: the state in its properties; None: there is no table.

    position: the lag is counted from it. figures: fields of `TableStatus`. reported: its lag as the job reported it.
    """

    written: TableState | None = None
    position: Position | None = None
    figures: Mapping[str, Any] = field(default_factory=dict)
    reported: Mapping[str, Any] = field(default_factory=dict)


def read(tables: Tables, named: Named) -> list[Facts]:
    """The facts of each table, in this order."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(partial(_facts, tables), named))


def _facts(tables: Tables, named: tuple[TableName, Table]) -> Facts:
    name, table = named
    main, dead_letters = tables.read(name), tables.read(name.dead_letters)
    if main is None:
        return Facts(figures={"dead_letters": _count_open(dead_letters)} if dead_letters else {})
    written, history = lake.state_of(main), lake.ancestors(main)
    commit, position = lake.latest_commit(main) or (None, None)
    shown = commit if position and position.offsets else None
    # Merges repeat the position, and move nothing.
    reported = next((each for each in history if "freshness_s" in each.metrics), None)
    moved = next((each for each in history if has_ledger(each.summary)), shown) if shown else None
    metrics = reported.metrics if reported else {}
    figures = {
        "rows": lake.rows(main),
        "snapshot_id": shown.id if shown else None,
        "committed_at": moved.at.isoformat(timespec="milliseconds") if moved else None,
        "commit_age_s": round(time.time() - moved.committed_at, 1) if moved else None,
        "freshness_s": metrics.get("freshness_s"),
        "freshness_p50_s": metrics.get("freshness_p50_s"),
        "freshness_p95_s": metrics.get("freshness_p95_s"),
        "freshness_missed": metrics.get("missed"),
        "expectations_missed": tuple(str(Missed(**each)) for each in metrics.get("expected", ())),
        "dead_letters": _count_open(dead_letters) if dead_letters else {},
        "lost": sum(each.lost for each in history),
        "files": history[0].total("data-files") if history else 0,
        "bytes": history[0].total("files-size") if history else 0,
        "delete_files": history[0].total("delete-files") if history else 0,
        "snapshots": len(main.snapshots),
        "due": due(upkeep(main, dead_letters, table.maintenance), table.maintenance),
        "waiting": waiting(main.properties, written.state),
    }
    return Facts(written, position, figures, _report(main, history, reported) if reported else {})


def waiting(properties: Mapping[str, str], state: str) -> tuple[Waiting, ...]:
    known = {title: properties[name] for name, title in REQUESTS.items() if name in properties}
    found = [Waiting(title, json.loads(text).get("at")) for title, text in known.items()]
    pause = Pause.of(properties, datetime.now(UTC))
    if pause and state == "running":
        found.append(Waiting("pause", pause.at))
    return tuple(found)


def lag_of(records: int, lag_s: float | None, source: str, as_of: float) -> dict[str, Any]:
    moment = datetime.fromtimestamp(as_of, UTC).isoformat(timespec="seconds")
    return {"lag_records": records, "lag_s": lag_s, "lag_source": source, "lag_as_of": moment}


def _report(main: Metadata, history: Sequence[Snapshot], reported: Snapshot) -> dict[str, Any]:
    """The lag as the job reported it: with its last round, or as complete until a later moment."""
    as_of, lag = reported.committed_at, reported.metrics
    records, lag_s = lag.get("lag_records"), lag.get("lag_s")
    until = complete_until(history, main.properties)
    if until is not None and until > as_of:
        as_of, records, lag_s = until, 0, 0.0
    return {} if records is None else lag_of(records, lag_s, "job", as_of)


def _count_open(dead_letters: Metadata) -> dict[str, int]:
    """Open dead letters by reason; all under one if there are too many files to read, or access is refused."""
    head = dead_letters.head
    if head is None:
        return {}
    if (place := (dead_letters.uuid, head.id)) in _COUNTED:
        return _COUNTED[place]
    if head.total("data-files") <= DEAD_LETTER_FILES:
        with suppress(Retryable, Fatal):
            table = dead_letters.whole()
            _COUNTED[place] = lake.count_by(table, "reason", Selection().within(table))
            return _COUNTED[place]
    return {ANY_REASON: head.rows} if head.rows else {}


PER_SECOND = {"date": 1 / 86_400, "timestamp_ns": 10**9, "timestamptz_ns": 10**9}
"""Units of Iceberg's types of time; of the others, microseconds."""


def upkeep(main: Metadata, dead_letters: Metadata | None, maintenance: Maintenance) -> Figures:
    """Figures for maintenance, of main's head and of its dead letters."""
    head = main.head
    if head is None:
        return Figures()
    now = datetime.now(UTC).timestamp()
    oldest_s = min(each.committed_at for each in main.snapshots.values())
    data_files, size_bytes = head.total("data-files"), head.total("files-size")
    # A manifest has at least one file. Fewer files than this make neither too many manifests nor too many small files.
    few = data_files + head.total("delete-files") < SURPLUS_FILES
    manifests = [] if few and not maintenance.rows else _manifests(main)
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
        snapshots=len(main.snapshots),
        oldest_snapshot_s=now - oldest_s,
        oldest_row_s=_oldest_s(now, main, files, maintenance.rows.column) if maintenance.rows else None,
        oldest_dead_letter_s=oldest_dead_letter_s,
        orphans_s=now - (_looked_at(main) or oldest_s),
    )


def _manifests(table: Metadata) -> list[ManifestFile]:
    with aws_errors(f"table {table.name}"):
        current = table.whole().current_snapshot()
        return current.manifests(table.io) if current else []


def _data_files(table: Metadata, manifests: Sequence[ManifestFile]) -> list[DataFile]:
    with aws_errors(f"table {table.name}"):
        entries = (entry for each in manifests for entry in each.fetch_manifest_entry(table.io))
        return [each.data_file for each in entries if each.data_file.content is DataFileContent.DATA]


def _oldest_s(now: float, table: Metadata, files: Sequence[DataFile], column: str) -> float | None:
    """The age of the oldest row in seconds by the files' bounds; None if a file has none."""
    try:
        field = table.whole().schema().find_field(column)
    except ValueError:  # no round has made it yet
        return None
    kind = field.field_type
    bounds = [(each.lower_bounds or {}).get(field.field_id) for each in files]
    found = [int(from_bytes(kind, each)) for each in bounds if each and isinstance(kind, PrimitiveType)]
    return now - min(found) / PER_SECOND.get(str(kind), 10**6) if found else None


def _looked_at(table: Metadata) -> float | None:
    note = f"{table.location.rstrip('/')}/metadata/{ORPHANS_NOTE}"
    with aws_errors(f"table {table.name}"):
        try:
            with table.io.new_input(note).open() as stream:
                return float(json.loads(stream.read())["at"])
        except FileNotFoundError:
            return None
        except OSError as error:  # an operator may not list the bucket, so S3 denies an absent note
            if not isinstance(error, PermissionError) and "ACCESS_DENIED" not in str(error):
                raise
            return None


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """One schema of a table. columns: at the top. at: its first commit that is kept, in epoch seconds; None: there is none.

    changes: `+ note string`, `- note`, `note -> remark`, `amount: int -> long`, against the version before.
    """

    id: int
    columns: int
    at: float | None = None
    changes: tuple[str, ...] = ()


def versions(table: IcebergTable) -> tuple[SchemaVersion, ...]:
    """The schemas that the table's metadata has, the newest first."""
    began: dict[int, float] = {}
    for each in table.snapshots():
        if each.schema_id is not None:
            at = each.timestamp_ms / 1000
            began[each.schema_id] = min(at, began.get(each.schema_id, at))
    found, before = [], None
    for schema in sorted(table.schemas().values(), key=lambda each: each.schema_id):
        changes = tuple(_changes(before, schema)) if before else ()
        columns = sum(each.name != SYSTEM_COLUMN for each in schema.fields)
        found.append(SchemaVersion(schema.schema_id, columns, began.get(schema.schema_id), changes))
        before = schema
    return tuple(reversed(found))


def _changes(before: Schema, after: Schema) -> Iterator[str]:
    """A column's parts are not named if it came or went with them."""
    old, new = index_name_by_id(before), index_name_by_id(after)
    types = index_by_id(before), index_by_id(after)
    for id, name in _outermost({id: name for id, name in new.items() if id not in old}):
        kind = types[1][id].field_type
        yield f"+ {name} {kind if isinstance(kind, PrimitiveType) else type(kind).__name__[:-4].lower()}"
    for _, name in _outermost({id: name for id, name in old.items() if id not in new}):
        yield f"- {name}"
    for id in old.keys() & new.keys():
        was, now = (each[id] for each in types)
        if was.name != now.name:
            yield f"{old[id]} -> {new[id]}"
        if isinstance(now.field_type, PrimitiveType) and was.field_type != now.field_type:
            yield f"{new[id]}: {was.field_type} -> {now.field_type}"


def _outermost(names: Mapping[int, str]) -> Iterator[tuple[int, str]]:
    paths = set(names.values())
    for id, name in names.items():
        if name.rpartition(".")[0] not in paths:
            yield id, name
