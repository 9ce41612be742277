"""Writes the files of a window and its manifest, unless the newest manifest of the window already says the same.

Each run writes into a folder of its own, so two runs of one window never write the same object. The manifest is written last and
causes the mail. It names only the files of its run. The bucket's lifecycle deletes the files of a run that crashed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Literal

import pyarrow as pa
from botocore.exceptions import ClientError
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

from calve.config.publishing import Export
from lambdas.aws import code_of
from lambdas.csv_export.aggregate import Aggregation, columns_read, columns_written
from lambdas.csv_export.scan import ROWS, Scan, plan, slices
from lambdas.csv_export.upload import Content, Files, Lines, Writer, discard
from lambdas.csv_export.window import ExportFailed, Period
from lambdas.links import Part

FORMAT = 1
PUTS = 5
"""Attempts to write a manifest while another request changes the same key."""

NAME = "manifest.json"
CONTENT = (
    "database", "table", "time_column", "time_zone", "columns", "filter", "group_by", "measures", "csv",
)  # fmt: skip
"""The settings of an export that decide the content of a file."""

Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Folder:
    """The files of one window of one export, in the lake's bucket. `run`: the folder that this run writes."""

    s3: Any
    bucket: str
    prefix: str
    export: Export
    period: Period
    run: str

    @property
    def path(self) -> str:
        return f"{self.prefix}{self.export.name}/{self.period.name}/"

    def file_key(self, n: int, *, numbered: bool) -> Callable[[int], str]:
        """The name of the i-th file of delivery `n`; `numbered`: there are several."""
        ending = ".csv.gz" if self.export.csv.gzip else ".csv"
        stem = f"{self.path}{n}/{self.run}/{self.export.name}_{self.period.name}"
        return lambda i: f"{stem}_part{i:02}{ending}" if numbered else f"{stem}{ending}"

    def manifest_key(self, n: int) -> str:
        return f"{self.path}{n}/{NAME}"

    def newest(self) -> tuple[int, Manifest] | None:
        """The last delivery with a manifest: its number and manifest."""
        numbers = []
        pages = self.s3.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=self.path)
        for page in pages:
            for each in page.get("Contents", []):
                number, _, name = each["Key"].removeprefix(self.path).partition("/")
                if name == NAME and number.isdecimal():
                    numbers.append(int(number))
        if not numbers:
            return None
        return max(numbers), json.loads(self._read(max(numbers)))

    def put(self, n: int, manifest: Manifest) -> bool:
        """Write the manifest of delivery `n`; False if another run has written one."""
        body = json.dumps(manifest, sort_keys=True, indent=2).encode()
        for tries_left in reversed(range(PUTS)):
            try:
                self.s3.put_object(
                    Bucket=self.bucket,
                    Key=self.manifest_key(n),
                    Body=body,
                    ContentType="application/json",
                    IfNoneMatch="*",
                )
            except ClientError as error:
                code = code_of(error)
                if code == "PreconditionFailed":
                    # The client repeats a put whose answer was lost; then this run's own manifest refuses it.
                    return self._read(n) == body
                if code != "ConditionalRequestConflict" or not tries_left:
                    raise
            else:
                break
        return True

    def _read(self, n: int) -> bytes:
        body: bytes = self.s3.get_object(Bucket=self.bucket, Key=self.manifest_key(n))["Body"].read()
        return body


def same_definition(manifest: Manifest, export: Export) -> bool:
    """Whether the manifest's file was made with the same content settings."""
    before = Export.from_json(json.dumps(manifest["export"]))  # an earlier release wrote fewer options
    return all(getattr(before, key) == getattr(export, key) for key in CONTENT)


Status = Literal["written", "unchanged", "waiting", "redefined", "failed"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result for one window. `redefined`: the export was changed, so late rows cannot be distinguished from the change."""

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
        """Counts and names, no values of the table."""
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
    """Access to tables and files, and the remaining time of the function. Each run has another `run`.

    databases: lists the deployment's databases in Glue, if these are named after clusters.
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
    """The content of a file; it can be read several times. An aggregation is computed once and kept."""

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
    """One snapshot of a table, and the windows of one export that are written from it."""

    def __init__(self, export: Export, lake: Lake, table: Table, until: datetime | None) -> None:
        self._export, self._lake, self._table, self._until = export, lake, table, until
        self._began = lake.now()
        snapshot = table.current_snapshot()
        self._snapshot_id = str(snapshot.snapshot_id) if snapshot else None

    def due(self, period: Period, *, complete: bool) -> Outcome:
        folder = self._lake.folder(self._export, period)
        return self._deliver(folder, folder.newest(), self._export.columns, complete=complete)

    def again(self, period: Period) -> Outcome | None:
        """Check an earlier window; None if nothing was delivered for it.

        Only the columns of its file are read: a column that was added since is not a late row.
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
        names = columns_read(self._export) if self._export.measures else names
        scan = plan(self._table, self._export, folder.period, names, self._lake.remaining_s)
        file = _File(self._export, folder, Rows(self._export, scan))
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
        """Whether the manifest is of a newer state, by a run that began later and was faster."""
        known = {None, *(str(snapshot.snapshot_id) for snapshot in self._table.snapshots())}
        created = datetime.fromisoformat(manifest["created_at"])
        return manifest["snapshot_id"] not in known and created >= self._began

    def _manifest(self, file: _File, content: Content, parts: list[Part], *, complete: bool) -> Manifest:
        period = file.folder.period
        return {
            "format": FORMAT,
            "export": json.loads(self._export.to_json()),
            "window": period.to_json(),
            "snapshot_id": self._snapshot_id,
            "rows": content.rows,
            "content": content.to_json(),
            "parts": [asdict(part) for part in parts],
            "schema": [{"name": column.name, "type": str(column.type)} for column in file.rows.columns],
            "complete": complete,
            "ingested_until": self._until.astimezone(period.zone).isoformat() if self._until else None,
            "created_at": self._lake.now().astimezone(UTC).isoformat(),
        }


@dataclass
class _File:
    """The rows of one window as they are written."""

    export: Export
    folder: Folder
    rows: Rows

    @cached_property
    def content(self) -> Content:
        """The content of the file, without writing it."""
        content = Content()
        for lines in self._lines():
            content.add(lines)
        return content

    def write(self, n: int) -> tuple[Content, list[Part]]:
        """Write delivery `n`. The files' names need to know before the first file whether there are several."""
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
