"""Stored exports of a table, as the manifests below `exports/` tell of them: those that may hold rows are deleted (ADR 24)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DateType, TimestampNTZType, TimestampType

from calve.export import EXPORTS
from calve.names import TableName
from calve.spark_conf import CATALOG
from glue_jobs.forgetting.sweeping import delete, listed
from glue_jobs.keys import at, kind_at
from glue_jobs.lake import Lake, Table

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
    found = (_delivery(path, _read(table, path), table.name) for path in manifests)
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


def _read(table: Table, path: str) -> Any:
    stream = table.java.io().newInputFile(path).newStream()
    try:
        return json.loads(bytes(stream.readAllBytes()))
    finally:
        stream.close()
