"""The current state of a lake table: the metadata file in Glue, and its content."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from calve.names import OWNER_TAG, TableName

GZIP = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class Head:
    """A table by its newest metadata, in Glue or in another catalog.

    sequence_number: of the newest snapshot ever committed; a rollback does not change it.
    updated_ms: when the metadata was written. snapshot_id: of main; None: the table is empty.
    committed_ms: when main's snapshot was committed. previous: earlier metadata files, as far as this one lists them.
    """

    name: TableName
    uuid: str
    metadata_location: str
    sequence_number: int
    updated_ms: int
    snapshot_id: int | None = None
    committed_ms: int | None = None
    previous: frozenset[str] = frozenset()


def is_newer(one: Head, other: Head) -> bool:
    """Whether one metadata file of a table was written after another. A follower never goes back.

    The order is that of files, not of snapshots: after a rollback, a later file names an earlier snapshot. A file that lists the
    other as previous is newer. Otherwise timestamps decide: clocks of two writers differ, but with so many commits between the
    files that the older is no longer listed, their times are far apart.
    """
    if other.metadata_location in one.previous:
        return True
    if one.metadata_location in other.previous:
        return False
    return (one.sequence_number, one.updated_ms) > (other.sequence_number, other.updated_ms)


Current = tuple[Head, dict[str, Any]]
"""A table's head, and the content of its metadata file."""


def current(glue: Any, s3: Any, name: TableName) -> Current | None:
    """The table's head and metadata, from Glue and S3; None if Glue has no such Iceberg table."""
    try:
        found = glue.get_table(DatabaseName=name.database, Name=name.table)["Table"]
    except glue.exceptions.EntityNotFoundException:
        return None
    location = found.get("Parameters", {}).get("metadata_location")
    if not location:
        return None
    metadata = read(s3, location)
    return of_metadata(name, location, metadata), metadata


def head(glue: Any, s3: Any, name: TableName) -> Head | None:
    """The table's head, as `current`."""
    found = current(glue, s3, name)
    return found[0] if found else None


def databases_of(glue: Any, deployment: str) -> list[str]:
    """The databases that a deployment made, one per cluster; a property names the deployment."""
    pages = glue.get_paginator("get_databases").paginate()
    found = (each for page in pages for each in page["DatabaseList"])
    return [each["Name"] for each in found if each.get("Parameters", {}).get(OWNER_TAG) == deployment]


def of_metadata(name: TableName, location: str, metadata: dict[str, Any]) -> Head:
    current = metadata.get("current-snapshot-id")
    snapshots = metadata.get("snapshots") or ()
    return Head(
        name=name,
        uuid=metadata["table-uuid"],
        metadata_location=location,
        sequence_number=metadata.get("last-sequence-number", 0),
        updated_ms=metadata["last-updated-ms"],
        snapshot_id=None if current == -1 else current,
        committed_ms=next(
            (each["timestamp-ms"] for each in snapshots if each["snapshot-id"] == current), None
        ),
        previous=frozenset(each["metadata-file"] for each in metadata.get("metadata-log") or ()),
    )


def read(s3: Any, location: str) -> dict[str, Any]:
    """A metadata file, compressed or not."""
    where = urlsplit(location)
    body = s3.get_object(Bucket=where.netloc, Key=where.path.removeprefix("/"))["Body"].read()
    parsed: dict[str, Any] = json.loads(gzip.decompress(body) if body.startswith(GZIP) else body)
    return parsed
