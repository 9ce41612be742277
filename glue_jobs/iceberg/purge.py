"""Files below a table's location that its metadata does not reach are deleted: those of its earlier snapshots, and what jobs that
died have left (ADR 24).

What may be a commit under way must stay. So files are listed first; then a commit is made that whoever has begun before it loses
against (`rewriting.fence`); and then those of the list go that nothing reaches. A metadata file is one of a commit
under way only if its number is greater than the current one's.
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

METADATA = re.compile(r"(?:(\d+)-)?[^/]*\.metadata\.json")


def files_of(lake: Lake, table: Table) -> set[str]:
    """The paths of all files below a table's location, and of those that its metadata names elsewhere."""
    return {*_below(table), *_reached(lake, table), *_earlier_metadata(table)}


def rewritten_by_others(table: Table, since_ms: int) -> bool:
    """True where a snapshot since then is a compaction, or the like, by another engine: what it writes next may be there already,
    in files that no snapshot names yet.
    """
    return any(
        str(each.operation()) == "replace"
        and int(each.timestampMillis()) >= since_ms
        and not any(name.startswith("calve.") for name in strings(table.jvm, each.summary()))
        for each in elements(table.java.snapshots())
    )


def listed(table: Table, prefix: str) -> list[str]:
    """The paths of all files below a prefix of the lake."""
    return [str(each.location()) for each in elements(table.java.io().listPrefix(prefix))]


def expire(table: Table) -> None:
    """Leave the table no snapshot but main's head."""
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
    """Those of the files that the table's metadata does not reach, and that no commit under way can."""
    reached = _reached(lake, table)
    return [each for each in files if each not in reached and not _is_later(table, each)]


def old_metadata(table: Table) -> list[str]:
    """Metadata files that are not the current one, and will never be."""
    current = _current(table)
    below = (each for each in _below(table) if METADATA.fullmatch(_name(each)))
    files = {*below, *_earlier_metadata(table)}
    return [each for each in files if each != current and not _is_later(table, each)]


def delete(table: Table, files: Collection[str]) -> None:
    """Delete files; those that are gone already are no error.

    Raises:
        Retryable: the object store failed; some may be gone.
    """
    if not files:
        return
    listed_ = table.jvm.java.util.ArrayList()
    for each in files:
        listed_.add(each)
    try:
        table.java.io().deleteFiles(listed_)
    except Py4JJavaError as error:
        raise Retryable(f"table {table.name}: files could not be deleted: {java_cause(error)}") from None


def _below(table: Table) -> list[str]:
    return listed(table, f"{str(table.java.location()).rstrip('/')}/")


def _earlier_metadata(table: Table) -> set[str]:
    return {str(each.file()) for each in elements(_metadata(table).previousFiles())}


def _reached(lake: Lake, table: Table) -> set[str]:
    """The current metadata, and all that it names of every snapshot."""
    io, found = table.java.io(), {_current(table)}
    for snapshot in elements(table.java.snapshots()):
        found.add(str(snapshot.manifestListLocation()))
        found |= {str(each.path()) for each in elements(snapshot.allManifests(io))}
    for each in (*elements(table.java.statisticsFiles()), *elements(table.java.partitionStatisticsFiles())):
        found.add(str(each.path()))
    rows = lake.spark.table(f"{table.name.quoted(CATALOG)}.all_files").select("file_path").distinct()
    return found | {row["file_path"] for row in rows.collect()}


def _current(table: Table) -> str:
    return str(_metadata(table).metadataFileLocation())


def _metadata(table: Table) -> Any:
    return table.java.operations().current()


def _is_later(table: Table, file: str) -> bool:
    """True for metadata that may become the current one: a commit is made on the newest alone, and its number is the next."""
    number = _number(file)
    newest = _number(_current(table))
    return number is not None and (newest is None or number > newest)


def _number(file: str) -> int | None:
    """The number of a metadata file; of one without a number -1; None of other files."""
    found = METADATA.fullmatch(_name(file))
    return None if found is None else int(found[1] or -1)


def _name(file: str) -> str:
    return file.rpartition("/")[2]


MANIFEST = "/manifest.json"
MARGIN: dict[object, timedelta] = {
    TimestampType: timedelta(0),
    TimestampNTZType: timedelta(days=1),
    DateType: timedelta(days=1),
}
"""How far from its window a row may be that an export has taken into it: times without a zone are those of the export's."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """One delivery of one window of an export; `manifest` is the path of what tells of it, beside which its files are."""

    manifest: str
    time_column: str
    start: datetime
    end: datetime


def deliveries(lake: Lake, table: Table) -> list[Delivery]:
    """All deliveries of the table's exports that are stored."""
    warehouse = lake.spark.conf.get(f"spark.sql.catalog.{CATALOG}.warehouse")
    manifests = (each for each in listed(table, f"{warehouse}/{EXPORTS}") if each.endswith(MANIFEST))
    found = (_delivery(path, read_json(table.java.io(), path), table.name) for path in manifests)
    return [each for each in found if each is not None]


def holding(found: Sequence[Delivery], rows: DataFrame) -> list[Delivery]:
    """Those whose window holds the time of a row, or whose column of times cannot be looked at any more."""
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
    """Delete the files of deliveries, and then what tells of them.

    Raises:
        Retryable: the object store failed.
    """
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
