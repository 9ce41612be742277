"""Writes windows of one state of a table, and nothing where the newest file of a window says the same already."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Literal

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

from calve.config.export import Export
from lambdas.csv_export.aggregate import Aggregation, columns_read, columns_written
from lambdas.csv_export.batches import ROWS, slices
from lambdas.csv_export.failure import ExportFailed
from lambdas.csv_export.manifest import FORMAT, Folder, Manifest, same_definition
from lambdas.csv_export.scan import Scan, plan
from lambdas.csv_export.upload import Content, Files, Lines, Part, Writer, discard
from lambdas.csv_export.window import Period

Status = Literal["written", "unchanged", "waiting", "redefined", "failed"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one window. `redefined`: the export was changed since, so late rows could not be told from the change."""

    status: Status
    period: Period
    rows: int = 0
    size_bytes: int = 0
    parts: int = 0
    complete: bool = True
    correction: bool = False
    manifest: str | None = None
    again_at: datetime | None = None
    failure: ExportFailed | None = None

    def to_json(self) -> dict[str, Any]:
        """Counts and names; no value of the table."""
        return {
            "status": self.status,
            "window": self.period.to_json(),
            "rows": self.rows,
            "size_bytes": self.size_bytes,
            "parts": self.parts,
            "complete": self.complete,
            "correction": self.correction,
            "manifest": self.manifest,
            "failure": self.failure.kind if self.failure else None,
            "again_at": self.again_at.isoformat() if self.again_at else None,
        }


@dataclass(frozen=True, slots=True)
class Lake:
    """Where tables are read and files are written, and how long the function still has. No two runs have the same `run`.

    databases: asks Glue for those of the deployment, where they are named after clusters.
    """

    catalog: Catalog
    databases: Callable[[], Iterable[str]]
    s3: Any
    bucket: str
    prefix: str
    run: str
    now: Callable[[], datetime]
    remaining_s: Callable[[], float]

    def table(self, export: Export) -> Table | None:
        """Raises: ExportFailed: `several_tables`."""
        found = []
        for database in [export.database] if export.database else sorted(self.databases()):
            with suppress(NoSuchTableError):
                found.append(self.catalog.load_table((database, export.table)))
        if len(found) > 1:
            databases = ", ".join(each.name()[0] for each in found)
            raise ExportFailed(
                "several_tables",
                f"there is a table {export.table} of each of these clusters: {databases}",
                fix="drop, or rename in Glue, the one of the cluster that no job reads any more",
            )
        return found[0] if found else None

    def folder(self, export: Export, period: Period) -> Folder:
        return Folder(self.s3, self.bucket, self.prefix, export, period, self.run)


class Rows:
    """What a file will hold, read as often as asked; an aggregation is computed once, and held."""

    def __init__(self, export: Export, scan: Scan) -> None:
        self._scan = scan
        self._groups: Aggregation | None = None
        self.columns = scan.columns
        if export.measures:
            self.columns = columns_written(export, scan.columns)
            self._groups = Aggregation(export)
            for batch in scan.batches():
                self._groups.add(batch)

    @property
    def at_most(self) -> int:
        return self._scan.rows_at_most

    def batches(self) -> Iterable[pa.RecordBatch]:
        if self._groups is None:
            return self._scan.batches()
        return (piece for batch in self._groups.batches(ROWS) for piece in slices(batch))


class Delivery:
    """One state of a table, and the windows of one export that are written from it."""

    def __init__(self, export: Export, lake: Lake, table: Table, until: datetime | None) -> None:
        self._export, self._lake, self._table, self._until = export, lake, table, until
        self._began = lake.now()
        snapshot = table.current_snapshot()
        self._snapshot_id = str(snapshot.snapshot_id) if snapshot else None

    def due(self, period: Period, *, complete: bool) -> Outcome:
        folder = self._lake.folder(self._export, period)
        return self._deliver(folder, folder.newest(), self._export.columns, complete=complete)

    def again(self, period: Period) -> Outcome | None:
        """Look at an earlier window; None where nothing was delivered for it.

        It is read with the columns that its file has: a column that the table got since is no late row.
        """
        folder = self._lake.folder(self._export, period)
        newest = folder.newest()
        if newest is None:
            return None
        if not same_definition(newest[1], self._export):
            return Outcome("redefined", period)
        names = tuple(each["name"] for each in newest[1]["schema"])
        complete = self._until is not None and self._until >= period.end
        return self._deliver(folder, newest, names, complete=complete)

    def _deliver(
        self, folder: Folder, newest: tuple[int, Manifest] | None, names: tuple[str, ...], *, complete: bool
    ) -> Outcome:
        before = newest[1] if newest and same_definition(newest[1], self._export) else None
        if before and (before["snapshot_id"] == self._snapshot_id or self._is_newer(before)):
            return Outcome("unchanged", folder.period, rows=before["rows"], complete=complete)
        file = _File(self._export, folder, self._rows(folder.period, names))
        if before and file.content.to_json() == before["content"]:
            return Outcome("unchanged", folder.period, rows=before["rows"], complete=complete)
        n = newest[0] + 1 if newest else 1
        content, parts = file.write(n)
        manifest = self._manifest(file, content, parts, complete=complete) | {
            "correction": before is not None,
            "redefined": newest is not None and before is None,
        }
        if not folder.put(n, manifest):
            discard(folder.s3, folder.bucket, [part.key for part in parts])
            return Outcome("unchanged", folder.period, rows=content.rows, complete=complete)
        return Outcome(
            "written",
            folder.period,
            rows=content.rows,
            size_bytes=sum(part.size_bytes for part in parts),
            parts=len(parts),
            complete=complete,
            correction=before is not None,
            manifest=folder.manifest_key(n),
        )

    def _is_newer(self, manifest: Manifest) -> bool:
        """Whether it is of a later state than this one, by a run that began later and was faster."""
        known = {None, *(str(snapshot.snapshot_id) for snapshot in self._table.snapshots())}
        created = datetime.fromisoformat(manifest["created_at"])
        return manifest["snapshot_id"] not in known and created >= self._began

    def _rows(self, period: Period, names: tuple[str, ...]) -> Rows:
        if self._export.measures:
            names = columns_read(self._export)
        return Rows(self._export, plan(self._table, self._export, period, names, self._lake.remaining_s))

    def _manifest(self, file: _File, content: Content, parts: list[Part], *, complete: bool) -> Manifest:
        period = file.folder.period
        return {
            "format": FORMAT,
            "export": json.loads(self._export.to_json()),
            "window": period.to_json(),
            "snapshot_id": self._snapshot_id,
            "rows": content.rows,
            "content": content.to_json(),
            "parts": [part.to_json() for part in parts],
            "schema": [{"name": column.name, "type": str(column.type)} for column in file.rows.columns],
            "complete": complete,
            "ingested_until": self._until.astimezone(period.zone).isoformat() if self._until else None,
            "created_at": self._lake.now().astimezone(UTC).isoformat(),
        }


@dataclass
class _File:
    """The rows of one window as they will be written."""

    export: Export
    folder: Folder
    rows: Rows

    @cached_property
    def content(self) -> Content:
        """What the file will say: a read without a write."""
        content = Content()
        for lines in self._lines():
            content.add(lines)
        return content

    def write(self, n: int) -> tuple[Content, list[Part]]:
        """Write delivery `n`. Whether its files are numbered must be known before the first of them has a name."""
        csv = self.export.csv
        numbered = self.rows.at_most > csv.row_limit and self.content.rows > csv.row_limit
        content = Content()
        key = self.folder.file_key(n, numbered=numbered)
        header = self._writer.header()
        s3, bucket = self.folder.s3, self.folder.bucket
        with Files(s3, bucket, key, header, csv.row_limit, gzip=csv.gzip) as files:
            for lines in self._lines():
                content.add(lines)
                files.write(lines)
            return content, files.complete()

    @cached_property
    def _writer(self) -> Writer:
        names = [column.name for column in self.rows.columns]
        return Writer(names, self.export.csv, self.folder.period.zone)

    def _lines(self) -> Iterator[Lines]:
        for batch in self.rows.batches():
            yield self._writer.lines(batch)
