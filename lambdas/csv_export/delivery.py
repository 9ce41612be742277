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

from botocore.exceptions import ClientError
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

from calve.config.publishing import Export
from lambdas.aws import code_of
from lambdas.csv_export.aggregate import Aggregation, columns_read, columns_written
from lambdas.csv_export.scan import ROWS, Scan, plan, slices
from lambdas.csv_export.upload import Content, Files, Writer, discard
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
    """The files of one window of one export, in the lake's bucket."""

    lake: Lake
    export: Export
    period: Period

    @property
    def path(self) -> str:
        return f"{self.lake.prefix}{self.export.name}/{self.period.name}/"

    def file_key(self, n: int, *, numbered: bool) -> Callable[[int], str]:
        """The name of the i-th file of delivery `n`; `numbered`: there are several."""
        ending = ".csv.gz" if self.export.csv.gzip else ".csv"
        stem = f"{self.path}{n}/{self.lake.run}/{self.export.name}_{self.period.name}"
        return lambda i: f"{stem}_part{i:02}{ending}" if numbered else f"{stem}{ending}"

    def manifest_key(self, n: int) -> str:
        return f"{self.path}{n}/{NAME}"

    def newest(self) -> tuple[int, Manifest] | None:
        """The last delivery with a manifest: its number and manifest."""
        numbers = []
        listing = self.lake.s3.get_paginator("list_objects_v2")
        for page in listing.paginate(Bucket=self.lake.bucket, Prefix=self.path):
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
                self.lake.s3.put_object(
                    Bucket=self.lake.bucket,
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
        found = self.lake.s3.get_object(Bucket=self.lake.bucket, Key=self.manifest_key(n))
        body: bytes = found["Body"].read()
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
        plain = ("status", "rows", "size_bytes", "parts", "complete", "correction", "manifest")
        return {
            "window": self.period.to_json(),
            "failure": self.failure.kind if self.failure else None,
            "again_at": self.again_at.isoformat() if self.again_at else None,
            **{name: getattr(self, name) for name in plain},
        }


@dataclass(frozen=True, slots=True)
class Lake:
    """Access to tables and files, and the remaining time of the function. Each run has another `run`, the folder of its files.

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


class Delivery:
    """One snapshot of a table, and the windows of one export that are written from it."""

    def __init__(self, export: Export, lake: Lake, table: Table, until: datetime | None) -> None:
        self._export, self._lake, self._table, self._until = export, lake, table, until
        self._began = lake.now()
        snapshot = table.current_snapshot()
        self._snapshot_id = str(snapshot.snapshot_id) if snapshot else None

    def due(self, period: Period, *, complete: bool) -> Outcome:
        folder = Folder(self._lake, self._export, period)
        return self._deliver(folder, folder.newest(), self._export.columns, complete=complete)

    def again(self, period: Period) -> Outcome | None:
        """Check an earlier window; None if nothing was delivered for it.

        Only the columns of its file are read: a column that was added since is not a late row.
        """
        folder = Folder(self._lake, self._export, period)
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
        if before:
            known = {None, *(str(snapshot.snapshot_id) for snapshot in self._table.snapshots())}
            late = datetime.fromisoformat(before["created_at"]) >= self._began
            # A run that began later and was faster has read a newer state.
            if before["snapshot_id"] == self._snapshot_id or (late and before["snapshot_id"] not in known):
                return Outcome("unchanged", folder.period, rows=before["rows"], complete=complete)
        names = columns_read(self._export) if self._export.measures else names
        scan = plan(self._table, self._export, folder.period, names, self._lake.remaining_s)
        file = _File(self._export, folder, scan)
        if before and file.content.to_json() == before["content"]:
            return Outcome("unchanged", folder.period, rows=before["rows"], complete=complete)
        n = newest[0] + 1 if newest else 1
        content, parts = file.write(n)
        zone = folder.period.zone
        manifest = {
            "format": FORMAT,
            "export": json.loads(self._export.to_json()),
            "window": folder.period.to_json(),
            "snapshot_id": self._snapshot_id,
            "rows": content.rows,
            "content": content.to_json(),
            "parts": [asdict(part) for part in parts],
            "schema": [{"name": column.name, "type": str(column.type)} for column in file.columns],
            "complete": complete,
            "ingested_until": self._until.astimezone(zone).isoformat() if self._until else None,
            "created_at": self._lake.now().astimezone(UTC).isoformat(),
            "correction": before is not None,
            "redefined": newest is not None and before is None,
        }
        if not folder.put(n, manifest):
            discard(self._lake.s3, self._lake.bucket, [part.key for part in parts])
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


class _File:
    """The rows of one window as they are written; they can be read several times. An aggregation is computed once and kept."""

    def __init__(self, export: Export, folder: Folder, scan: Scan) -> None:
        self.folder, self.columns = folder, scan.columns
        self._csv, self._scan = export.csv, scan
        self._groups: Aggregation | None = None
        if export.measures:
            self.columns = columns_written(export, scan.columns)
            self._groups = Aggregation(export)
            for batch in scan.batches():
                self._groups.add(batch)
        self._writer = Writer([column.name for column in self.columns], export.csv, folder.period.zone)

    @cached_property
    def content(self) -> Content:
        """The content of the file, without writing it."""
        content = Content()
        for lines in self._lines():
            content.add(lines)
        return content

    def write(self, n: int) -> tuple[Content, list[Part]]:
        """Write delivery `n`. The files' names need to know before the first file whether there are several."""
        csv, lake, content = self._csv, self.folder.lake, Content()
        rows_at_most = sum(task.file.record_count for task in self._scan.tasks)
        numbered = rows_at_most > csv.row_limit and self.content.rows > csv.row_limit
        key, header = self.folder.file_key(n, numbered=numbered), self._writer.header()
        with Files(lake.s3, lake.bucket, key, header, csv.row_limit, gzip=csv.gzip) as files:
            for lines in self._lines():
                content.add(lines)
                files.write(lines)
            return content, files.complete()

    def _lines(self) -> Iterator[Any]:
        batches = self._scan.batches()
        if self._groups:
            batches = (piece for batch in self._groups.batches(ROWS) for piece in slices(batch))
        return map(self._writer.lines, batches)
