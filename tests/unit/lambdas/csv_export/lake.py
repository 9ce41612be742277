"""A lake for the tests of the export: a Glue catalog and an S3 by moto, the tables' files in a folder."""

from __future__ import annotations

import csv
import gzip
import io
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import Table

from calve.config.publishing import Export
from lambdas.csv_export.delivery import Lake, Outcome
from lambdas.csv_export.export import Order, run

BUCKET = "lake"
MONDAY = datetime(2026, 11, 16, 6, tzinfo=UTC)
"""When the runs of the tests were scheduled: their window is the week from the 9th to the 16th."""


def at(day: int, hour: int = 12, month: int = 11) -> datetime:
    return datetime(2026, month, day, hour, tzinfo=UTC)


COMPLETE = at(20)


def export(**changes: Any) -> Export:
    settings: dict[str, Any] = {
        "name": "weekly",
        "database": "trading",
        "table": "trades",
        "time_column": "at",
        "schedule": "cron(0 6 ? * MON *)",
        "recipients": ("analyst@example.com",),
    }
    return Export(**(settings | changes))


@dataclass
class World:
    """Everything that a run sees; times and refusals can be set."""

    folder: Path
    catalog: Catalog
    s3: Any
    now: datetime = MONDAY
    remaining_s: float = 900.0
    run_id: str = "run1"
    waits: list[datetime] = field(default_factory=list)
    databases: tuple[str, ...] = ()

    def lake(self) -> Lake:
        return Lake(
            catalog=self.catalog,
            databases=lambda: self.databases,
            s3=self.s3,
            bucket=BUCKET,
            prefix="exports/",
            run=self.run_id,
            now=lambda: self.now,
            remaining_s=lambda: self.remaining_s,
        )

    def table(self, rows: pa.Table, name: str = "trades") -> Table:
        return self.catalog.create_table(
            f"trading.{name}", rows.schema, location=f"{self.folder.as_uri()}/{name}"
        )

    def append(
        self, rows: pa.Table, complete_until: datetime | None = COMPLETE, name: str = "trades"
    ) -> Table:
        table = self.catalog.load_table(f"trading.{name}")
        metrics = {"complete_until": complete_until.timestamp()} if complete_until else {}
        commit = {"calve.to": "{}", "calve.round": f"round-{len(table.snapshots())}"}
        table.append(rows.cast(table.schema().as_arrow()), commit | {"calve.metrics": json.dumps(metrics)})
        return table

    def made(self, rows: pa.Table, complete_until: datetime | None = COMPLETE) -> Table:
        self.table(rows)
        return self.append(rows, complete_until)

    def run(
        self, what: Export, window: dict[str, str] | None = None, when: datetime = MONDAY
    ) -> list[Outcome]:
        return list(run(Order.of(what, when, window), self.lake(), self.waits.append))

    def objects(self) -> list[str]:
        return [each["Key"] for each in self.s3.list_objects_v2(Bucket=BUCKET).get("Contents", [])]

    def bytes(self, key: str) -> bytes:
        body: bytes = self.s3.get_object(Bucket=BUCKET, Key=key)["Body"].read()
        return gzip.decompress(body) if key.endswith(".gz") else body

    def rows(self, key: str, delimiter: str = ",") -> list[list[str]]:
        text = self.bytes(key).decode("utf-8-sig")
        return list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True))

    def manifest(self, outcome: Outcome) -> dict[str, Any]:
        assert outcome.manifest, outcome
        read: dict[str, Any] = json.loads(self.bytes(outcome.manifest))
        return read


def world(folder: Path) -> World:
    """A fresh one; to be made inside moto's `mock_aws`."""
    s3 = boto3.client("s3", region_name="us-east-1")
    s3.create_bucket(Bucket=BUCKET)
    catalog = load_catalog("glue", type="glue", **{"glue.region": "us-east-1", "warehouse": folder.as_uri()})
    catalog.create_namespace("trading")
    return World(folder, catalog, s3)


def trades(*times: datetime, first: int = 0) -> pa.Table:
    """One row for each time: an id, the time, a text."""
    ids = range(first, first + len(times))
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "at": pa.array(times, pa.timestamp("us", "UTC")),
            "side": pa.array(["BUY" if i % 2 else "SELL" for i in ids]),
        }
    )
