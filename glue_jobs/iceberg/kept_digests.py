"""The digests of rounds whose snapshots expire, in files of the folder `_digests/` of the table (ADR 78).

A property of the table names the newest file. A file grows with each expiry, by a longer copy, until it is full; then the next
file names it. So a digest is in a file before its snapshot is gone. A crash leaves at most a file that nothing names.
Iceberg takes no file of a folder with `_` for an orphan. S3 Tables does: there the files are in the lake's folder.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial

from calve.table.digests import DigestFile, RoundDigest, after_other_modes, all_digests, chain, digests_of
from calve.table.protocol import Commit
from calve.table.summary import DIGESTS
from glue_jobs.iceberg.catalog import Table, catalog_errors
from glue_jobs.process.java import write_text

Places = Mapping[str, Sequence[Sequence[int]]]
FULL = 20_000
"""The ranges of offsets in a file: about a megabyte. Each expiry writes the newest file again."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What to do about digests. properties: to set before snapshots expire, by `Table.note`: another job may have been faster.

    files: to delete after that; others replace them.
    """

    properties: dict[str, str]
    files: Sequence[str] = ()


NOTHING = Kept({})


def keep(table: Table, gone: Sequence[Commit]) -> Kept:
    """Write the digests of commits, newest first, whose snapshots are about to expire.

    Raises Retryable: the object store failed.
    """
    own, path = after_other_modes(gone), table.properties.get(DIGESTS)
    with catalog_errors(f"table {table.name}, digests"):
        if len(own) < len(gone):
            return _instead(table, digests_of(own), files_of(table))
        newest = (path and _read(table, path)) or DigestFile(None, ())
        found = newest.plus(digests_of(own))
        if found == newest:
            return NOTHING
        if path and sum(len(each.parts) for each in newest.digests) >= FULL:
            return Kept(_written(table, DigestFile(path, found.digests[len(newest.digests) :])))
        return Kept(_written(table, found), [path] if path else [])


def keep_without(table: Table, line: Sequence[Commit], places: Places) -> Kept:
    """Write all digests again, those of files and of the commits of `line`, newest first, but none of the ranges with `places`.

    places: as those of `RoundDigest.without`. Raises Retryable: the object store failed.
    """
    with catalog_errors(f"table {table.name}, digests"):
        files = files_of(table)
        found = all_digests(line, files.values())
        return _instead(table, [each.without(places) for each in found], files)


def _instead(table: Table, digests: Sequence[RoundDigest], files: Mapping[str, DigestFile]) -> Kept:
    """One file with these digests instead of others."""
    if not digests and not any(each.digests for each in files.values()):
        return NOTHING
    return Kept(_written(table, DigestFile(None, digests)), [*files])


def files_of(table: Table) -> dict[str, DigestFile]:
    """The files with digests by their paths, the newest first."""
    return dict(chain(table.properties.get(DIGESTS), partial(_read, table)))


def _read(table: Table, path: str) -> DigestFile | None:
    """None: others have deleted it. Its rounds have no digest any more; that must not stop the expiry of snapshots."""
    found = table.java.io().newInputFile(path)
    if not found.exists():
        return None
    with closing(found.newStream()) as stream:
        return DigestFile.parse(bytes(stream.readAllBytes()).decode())


def _written(table: Table, file: DigestFile) -> dict[str, str]:
    folder = str(table.java.location()).rstrip("/")
    if table.lake.is_managed:  # it deletes all files that no snapshot names
        folder = f"{table.lake.files}/{table.name.database}/{table.name.table}"
    path = f"{folder}/_digests/{uuid.uuid4()}.jsonl"
    write_text(table.java.io(), path, file.text())
    return {DIGESTS: path}
