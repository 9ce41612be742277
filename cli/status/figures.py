"""The figures that say what maintenance a table needs, from its metadata alone: no row is read."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pyiceberg.manifest import DataFileContent

from calve.maintenance import SURPLUS_FILES, Figures, surplus
from cli.lake import ancestors, aws_errors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyiceberg.manifest import ManifestFile
    from pyiceberg.table import Table as Iceberg

    from calve.maintenance import Maintenance


def figures(main: Iceberg, maintenance: Maintenance) -> Figures:
    """Of the head of main.

    Raises:
        Retryable, Fatal: the object store does not answer, or refuses.
    """
    head = next(iter(ancestors(main)), None)
    if head is None:
        return Figures()
    manifests = _manifests(main)
    oldest_ms = min(each.timestamp_ms for each in main.metadata.snapshots)
    data_files, size_bytes = head.total("data-files"), head.total("files-size")
    at_most = data_files - -(-size_bytes // maintenance.file_bytes)
    return Figures(
        data_files=data_files,
        surplus_files=_surplus(main, manifests, maintenance.file_bytes) if at_most >= SURPLUS_FILES else 0,
        delete_files=head.total("delete-files"),
        rows=head.total("records"),
        deleted_rows=head.total("position-deletes"),
        manifests=len(manifests),
        manifest_bytes=sum(each.manifest_length for each in manifests),
        snapshots=len(main.metadata.snapshots),
        oldest_snapshot_s=datetime.now(UTC).timestamp() - oldest_ms / 1000,
    )


def _manifests(main: Iceberg) -> list[ManifestFile]:
    current = main.current_snapshot()
    with aws_errors(f"table {'.'.join(main.name())}"):
        return current.manifests(main.io) if current else []


def _surplus(main: Iceberg, manifests: Sequence[ManifestFile], file_bytes: int) -> int:
    """By the sizes of all files in their partitions: only where their number alone leaves it open is it worth the reading."""
    sizes: dict[object, list[int]] = {}
    with aws_errors(f"table {'.'.join(main.name())}"):
        for manifest in manifests:
            for entry in manifest.fetch_manifest_entry(main.io):
                file = entry.data_file
                if file.content is DataFileContent.DATA:
                    place = (manifest.partition_spec_id, repr(file.partition))
                    sizes.setdefault(place, []).append(file.file_size_in_bytes)
    return surplus(sizes, file_bytes)
