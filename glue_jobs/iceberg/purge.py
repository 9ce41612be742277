"""Delete files below a table's location that its metadata does not reach: those of old snapshots and of crashed jobs (ADR 24).

Files of a commit in progress must stay. So the files are listed first. Then `operations.forget` commits.
Every commit that started before it is refused. Only then the unreachable files of the list are deleted.
A metadata file belongs to a commit in progress only if its number is greater than the current one's.

Maintenance deletes such files in the second run that finds them (ADR 31). Iceberg's action lists them. It looks only below
the table's folder, and only at files older than `ORPHAN_AGE_S`. Uncommitted files of a job are younger. The first run notes
its findings in a file beside the table's metadata. The next run deletes the noted files that are still unnamed.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DateType, TimestampNTZType, TimestampType

from calve.config.maintenance import ORPHANS_NOTE
from calve.config.publishing import EXPORTS
from calve.config.spark_conf import CATALOG
from calve.errors import Retryable
from glue_jobs.columns.expressions import at, kind_at
from glue_jobs.iceberg import kept_digests
from glue_jobs.iceberg.catalog import Table, catalog_errors
from glue_jobs.iceberg.rewriting import CarriedCommit
from glue_jobs.process import faults
from glue_jobs.process.java import elements, java_cause, read_json, strings, write_text

METADATA = re.compile(r"(?:.*/)?(?:(\d+)-)?[^/]*\.metadata\.json")


def files_of(table: Table) -> set[str]:
    """The paths of all files below a table's location, and of files elsewhere that its metadata names."""
    return {*_below(table), *_reached(table), *_earlier_metadata(table)}


def rewritten_by_others(table: Table, since_ms: int) -> bool:
    """True if another engine has rewritten files, for example by compaction, since then.

    Its next rewrite may already have written files that no snapshot names yet.
    """
    return any(
        str(each.operation()) == "replace"
        and int(each.timestampMillis()) >= since_ms
        and not any(name.startswith("calve.") for name in strings(table.jvm, each.summary()))
        for each in elements(table.java.snapshots())
    )


def listed(table: Table, prefix: str) -> list[str]:
    return [str(each.location()) for each in elements(table.java.io().listPrefix(prefix))]


def expire(table: Table) -> None:
    update = table.java.expireSnapshots().cleanExpiredFiles(False)  # noqa: FBT003 Java knows no names
    older = [int(each.snapshotId()) for each in elements(table.java.snapshots())]
    older = [each for each in older if each != table.head]
    for each in older:
        update = update.expireSnapshotId(each)
    if older:
        update.commit()
        table.committed()
        table.refresh()


def unreachable(table: Table, files: Iterable[str]) -> list[str]:
    reached = _reached(table)
    return [each for each in files if each not in reached and not _is_later(table, each)]


def old_metadata(table: Table) -> list[str]:
    """Metadata files that are not the current one and never will be."""
    current = _current(table)
    files = {*filter(METADATA.fullmatch, _below(table)), *_earlier_metadata(table)}
    return [each for each in files if each != current and not _is_later(table, each)]


def delete(table: Table, files: Collection[str]) -> None:
    """Delete files; missing ones are no error. Raises Retryable: the object store failed; some may be gone.

    files: of the table; under S3 Tables, which deletes these itself, only files of the lake's folder.
    """
    if not files:
        return
    io = table.lake.io if table.lake.is_managed else table.java.io()
    try:
        io.deleteFiles(list(files))
    except Py4JJavaError as error:
        raise Retryable(f"table {table.name}: files could not be deleted: {java_cause(error)}") from None


def _below(table: Table) -> list[str]:
    return listed(table, f"{str(table.java.location()).rstrip('/')}/")


def _earlier_metadata(table: Table) -> set[str]:
    return {str(each.file()) for each in elements(table.java.operations().current().previousFiles())}


def _reached(table: Table) -> set[str]:
    """The current metadata file, and all files that it names for every snapshot."""
    io, found = table.java.io(), {_current(table)}
    for snapshot in elements(table.java.snapshots()):
        found.add(str(snapshot.manifestListLocation()))
        found |= {str(each.path()) for each in elements(snapshot.allManifests(io))}
    found |= {*kept_digests.files_of(table)}
    for each in (*elements(table.java.statisticsFiles()), *elements(table.java.partitionStatisticsFiles())):
        found.add(str(each.path()))
    rows = table.lake.spark.table(f"{table.name.quoted(CATALOG)}.all_files").select("file_path").distinct()
    return found | {row["file_path"] for row in rows.collect()}


def _current(table: Table) -> str:
    return str(table.java.operations().current().metadataFileLocation())


def _is_later(table: Table, file: str) -> bool:
    """True for metadata that may become current: a commit follows the newest one, and its number is greater."""
    found, newest = METADATA.fullmatch(file), METADATA.fullmatch(_current(table))
    if found is None or newest is None:
        return found is not None
    return int(found[1] or -1) > int(newest[1] or -1)


MANIFEST = "/manifest.json"
MARGIN: dict[object, timedelta] = {
    TimestampType: timedelta(0),
    TimestampNTZType: timedelta(days=1),
    DateType: timedelta(days=1),
}
"""How far outside its window an exported row may be: times without a zone are in the export's time zone."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """One delivery of one window of an export. `manifest` is the path of its manifest; its files are beside it."""

    manifest: str
    time_column: str
    start: datetime
    end: datetime


def deliveries(table: Table) -> list[Delivery]:
    found: list[Delivery] = []
    for path in listed(table, f"{table.lake.files}/{EXPORTS}"):
        if not path.endswith(MANIFEST):
            continue
        manifest = read_json(table.java.io(), path)
        export, window = manifest["export"], manifest["window"]
        if (export["database"], export["table"]) == (table.name.database, table.name.table):
            start, end = (datetime.fromisoformat(window[key]) for key in ("from", "to"))
            found.append(Delivery(path, export["time_column"], start, end))
    return found


def holding(found: Sequence[Delivery], rows: DataFrame) -> list[Delivery]:
    """Deliveries whose window contains a row's time, or whose time column is unusable now."""
    judged = [(each, kind_at(rows.schema, each.time_column)) for each in found]
    asked = [(each, MARGIN[type(kind)]) for each, kind in judged if type(kind) in MARGIN]
    unknown = [each for each, kind in judged if type(kind) not in MARGIN]
    if not asked:
        return unknown
    windows = []
    for n, (each, margin) in enumerate(asked):
        moment = at(each.time_column).cast("timestamp")
        within = (moment >= F.lit(each.start - margin)) & (moment < F.lit(each.end + margin))
        windows.append(F.max(within).alias(f"calve:window{n}"))
    [held] = rows.agg(*windows).collect()
    return unknown + [each for n, (each, _) in enumerate(asked) if held[n]]


def remove(table: Table, manifests: Iterable[str]) -> None:
    """Delete the files of deliveries, then their manifests. Raises Retryable: the object store failed."""
    for manifest in manifests:
        folder = manifest.removesuffix(MANIFEST) + "/"
        delete(table, [each for each in listed(table, folder) if each != manifest])
        delete(table, [manifest])


ORPHAN_AGE_S = 3 * 86_400.0
MOST_ORPHANS = 100_000
"""The most files that a run notes and the next run deletes."""


def sweep(upkept: CarriedCommit, *, age_s: float = ORPHAN_AGE_S) -> dict[str, int]:
    """Delete the files that the last run found and nothing names. Note the others for the next run.

    Returns the number of unnamed files `found` that the next run may delete, and of those `deleted`.

    Raises Retryable: the object store failed; some files may be gone.
    """
    table = upkept.table
    upkept.refresh()  # the action takes files newer than its metadata for orphans
    noted, found = set(_noted(table).get("files", ())), _orphans(table, age_s)
    gone = sorted(noted & found)
    upkept.refresh()
    if upkept.is_forgetting:
        return {"found": 0, "deleted": 0}
    delete(table, gone)
    faults.point("orphans.deleted", table.name.table)
    left = sorted(found - noted)[:MOST_ORPHANS]
    note = json.dumps({"at": int(time.time()), "files": left})
    with catalog_errors(f"table {table.name}, orphans"):
        write_text(table.java.io(), _note_of(table), note)
    faults.point("orphans.noted", table.name.table)
    return {"found": len(left), "deleted": len(gone)}


def looked_at(table: Table) -> float | None:
    """When a run last looked for orphans, in epoch seconds; None if never. Raises Retryable: the object store failed."""
    return _noted(table).get("at")


def _orphans(table: Table, age_s: float) -> set[str]:
    action = table.actions.deleteOrphanFiles(table.java).usePrefixListing(True)  # noqa: FBT003 Java knows no names
    action = action.olderThan(int((time.time() - age_s) * 1000))
    with catalog_errors(f"table {table.name}, orphans"):
        # Iceberg passes each file to a delete function. This one only collects the paths.
        result = action.deleteWith(table.jvm.java.util.stream.Stream.builder()).execute()
    return {str(each) for each in elements(result.orphanFileLocations())} - {_note_of(table)}


def _note_of(table: Table) -> str:
    return f"{str(table.java.location()).rstrip('/')}/metadata/{ORPHANS_NOTE}"


def _noted(table: Table) -> dict[str, Any]:
    """The note of the last run; empty if there is none."""
    io, place = table.java.io(), _note_of(table)
    with catalog_errors(f"table {table.name}, orphans"):
        # S3 denies an absent object to a role that may list only a part of its bucket, as in a shared one.
        return dict(read_json(io, place)) if io.listPrefix(place).iterator().hasNext() else {}
