"""The figures that say what maintenance a table needs, from its metadata alone: no row is read."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFileContent
from pyiceberg.types import PrimitiveType

from calve.columns import REJECTED_AT
from calve.maintenance import ORPHANS_NOTE, SURPLUS_FILES, Figures, surplus
from cli.lake import ancestors, aws_errors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyiceberg.manifest import DataFile, ManifestFile
    from pyiceberg.table import Table as Iceberg

    from calve.maintenance import Maintenance

PER_SECOND = {"date": 1 / 86_400, "timestamp_ns": 10**9, "timestamptz_ns": 10**9}
"""Units of Iceberg's types of time; of the others, microseconds."""


def figures(main: Iceberg, letters: Iceberg | None, maintenance: Maintenance) -> Figures:
    """Of the head of main, and of its dead letters.

    Raises:
        Retryable, Fatal: the object store does not answer, or refuses.
    """
    head = next(iter(ancestors(main)), None)
    if head is None:
        return Figures()
    now, manifests = datetime.now(UTC).timestamp(), _manifests(main)
    oldest_s = min(each.timestamp_ms for each in main.metadata.snapshots) / 1000
    data_files, size_bytes = head.total("data-files"), head.total("files-size")
    # The sizes of all files are read only where their number alone leaves it open.
    many = data_files - -(-size_bytes // maintenance.file_bytes) >= SURPLUS_FILES
    files = _data_files(main, manifests) if many or maintenance.rows else []
    return Figures(
        data_files=data_files,
        surplus_files=_surplus(files, maintenance.file_bytes) if many else 0,
        delete_files=head.total("delete-files"),
        rows=head.total("records"),
        deleted_rows=head.total("position-deletes"),
        manifests=len(manifests),
        manifest_bytes=sum(each.manifest_length for each in manifests),
        snapshots=len(main.metadata.snapshots),
        oldest_snapshot_s=now - oldest_s,
        oldest_row_s=_age_s(now, main, files, maintenance.rows.column) if maintenance.rows else None,
        oldest_letter_s=_age_s(now, letters, _data_files(letters, _manifests(letters)), REJECTED_AT)
        if letters is not None and maintenance.dead_letters_s is not None
        else None,
        orphans_s=now - (_looked_at(main) or oldest_s),
    )


def _manifests(table: Iceberg) -> list[ManifestFile]:
    current = table.current_snapshot()
    with aws_errors(f"table {'.'.join(table.name())}"):
        return current.manifests(table.io) if current else []


def _data_files(table: Iceberg, manifests: Sequence[ManifestFile]) -> list[DataFile]:
    with aws_errors(f"table {'.'.join(table.name())}"):
        entries = (entry for each in manifests for entry in each.fetch_manifest_entry(table.io))
        return [each.data_file for each in entries if each.data_file.content is DataFileContent.DATA]


def _surplus(files: Sequence[DataFile], file_bytes: int) -> int:
    sizes: dict[object, list[int]] = {}
    for each in files:
        sizes.setdefault((each.spec_id, repr(each.partition)), []).append(each.file_size_in_bytes)
    return surplus(sizes, file_bytes)


def _age_s(now: float, table: Iceberg, files: Sequence[DataFile], column: str) -> float | None:
    """The age of the oldest row by what the table says of each file; None where it does not say it."""
    try:
        field = table.schema().find_field(column)
    except ValueError:  # no round has made it yet
        return None
    kind = field.field_type
    bounds = [(each.lower_bounds or {}).get(field.field_id) for each in files]
    found = [int(from_bytes(kind, each)) for each in bounds if each and isinstance(kind, PrimitiveType)]
    return now - min(found) / PER_SECOND.get(str(kind), 10**6) if found else None


def _looked_at(table: Iceberg) -> float | None:
    """When somebody looked for orphans last."""
    note = table.io.new_input(f"{table.location().rstrip('/')}/metadata/{ORPHANS_NOTE}")
    with aws_errors(f"table {'.'.join(table.name())}"):
        try:
            with note.open() as stream:
                return float(json.loads(stream.read())["at"])
        except (FileNotFoundError, PermissionError):  # who may not list a bucket is denied what is not there
            return None
