"""Delete files below a table's location that its metadata does not reach: those of old snapshots and of crashed jobs (ADR 24).

Files of a commit in progress must stay. So the files are listed first. Then `operations.forget` commits.
Every commit that started before it is refused. Only then the unreachable files of the list are deleted.
A metadata file belongs to a commit in progress only if its number is greater than the current one's.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DateType, TimestampNTZType, TimestampType

from calve.config.publishing import EXPORTS
from calve.config.spark_conf import CATALOG
from calve.errors import Retryable
from calve.names import TableName
from glue_jobs.columns.expressions import at, kind_at
from glue_jobs.iceberg.catalog import Lake, Table
from glue_jobs.process.java import elements, java_cause, read_json, strings

METADATA = re.compile(r"(?:.*/)?(?:(\d+)-)?[^/]*\.metadata\.json")


def files_of(lake: Lake, table: Table) -> set[str]:
    """The paths of all files below a table's location, and of files elsewhere that its metadata names."""
    return {*_below(table), *_reached(lake, table), *_earlier_metadata(table)}


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


def unreachable(lake: Lake, table: Table, files: Iterable[str]) -> list[str]:
    """The files that neither the table's metadata nor a commit in progress can reach."""
    reached = _reached(lake, table)
    return [each for each in files if each not in reached and not _is_later(table, each)]


def old_metadata(table: Table) -> list[str]:
    """Metadata files that are not the current one and never will be."""
    current = _current(table)
    files = {*filter(METADATA.fullmatch, _below(table)), *_earlier_metadata(table)}
    return [each for each in files if each != current and not _is_later(table, each)]


def delete(table: Table, files: Collection[str]) -> None:
    """Delete files; missing ones are no error. Raises Retryable: the object store failed; some may be gone."""
    if not files:
        return
    try:
        table.java.io().deleteFiles(list(files))
    except Py4JJavaError as error:
        raise Retryable(f"table {table.name}: files could not be deleted: {java_cause(error)}") from None


def _below(table: Table) -> list[str]:
    return listed(table, f"{str(table.java.location()).rstrip('/')}/")


def _earlier_metadata(table: Table) -> set[str]:
    return {str(each.file()) for each in elements(table.java.operations().current().previousFiles())}


def _reached(lake: Lake, table: Table) -> set[str]:
    """The current metadata file, and all files that it names for every snapshot."""
    io, found = table.java.io(), {_current(table)}
    for snapshot in elements(table.java.snapshots()):
        found.add(str(snapshot.manifestListLocation()))
        found |= {str(each.path()) for each in elements(snapshot.allManifests(io))}
    for each in (*elements(table.java.statisticsFiles()), *elements(table.java.partitionStatisticsFiles())):
        found.add(str(each.path()))
    rows = lake.spark.table(f"{table.name.quoted(CATALOG)}.all_files").select("file_path").distinct()
    return found | {row["file_path"] for row in rows.collect()}


def _current(table: Table) -> str:
    return str(table.java.operations().current().metadataFileLocation())


def _is_later(table: Table, file: str) -> bool:
    """True for metadata that may become current: a commit follows the newest one, and its number is greater."""
    number = _number(file)
    newest = _number(_current(table))
    return number is not None and (newest is None or number > newest)


def _number(file: str) -> int | None:
    """The number of a metadata file; -1 if it has none; None for other files."""
    found = METADATA.fullmatch(file)
    return None if found is None else int(found[1] or -1)


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


def deliveries(lake: Lake, table: Table) -> list[Delivery]:
    warehouse = lake.spark.conf.get(f"spark.sql.catalog.{CATALOG}.warehouse")
    manifests = (each for each in listed(table, f"{warehouse}/{EXPORTS}") if each.endswith(MANIFEST))
    found = (_delivery(path, read_json(table.java.io(), path), table.name) for path in manifests)
    return [each for each in found if each is not None]


def holding(found: Sequence[Delivery], rows: DataFrame) -> list[Delivery]:
    """Deliveries whose window contains a row's time, or whose time column is unusable now."""
    judged = [(each, kind_at(rows.schema, each.time_column)) for each in found]
    asked = [(each, MARGIN[type(kind)]) for each, kind in judged if type(kind) in MARGIN]
    unknown = [each for each, kind in judged if type(kind) not in MARGIN]
    if not asked:
        return unknown
    windows = (
        F.max(_within(each, margin)).alias(f"calve:window{n}") for n, (each, margin) in enumerate(asked)
    )
    [held] = rows.agg(*windows).collect()
    return unknown + [each for n, (each, _) in enumerate(asked) if held[n]]


def remove(table: Table, manifests: Iterable[str]) -> None:
    """Delete the files of deliveries, then their manifests. Raises Retryable: the object store failed."""
    for manifest in manifests:
        folder = manifest.removesuffix(MANIFEST) + "/"
        delete(table, [each for each in listed(table, folder) if each != manifest])
        delete(table, [manifest])


def _within(delivery: Delivery, margin: timedelta) -> Column:
    moment = at(delivery.time_column).cast("timestamp")
    return (moment >= F.lit(delivery.start - margin)) & (moment < F.lit(delivery.end + margin))


def _delivery(path: str, manifest: Any, name: TableName) -> Delivery | None:
    export, window = manifest["export"], manifest["window"]
    if (export["database"], export["table"]) != (name.database, name.table):
        return None
    start, end = (datetime.fromisoformat(window[key]) for key in ("from", "to"))
    return Delivery(path, export["time_column"], start, end)
