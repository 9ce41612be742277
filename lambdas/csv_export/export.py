"""One run of an export: the window that is due, then earlier windows again, for late rows.

The table must hold everything that arrived in the topic before the window's end. Its commits say up to when it was read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Self, cast
from zoneinfo import ZoneInfo

from pyiceberg.table import Table

from calve.config.job import Catalog
from calve.config.publishing import Export
from calve.secrets import catalog_credential
from calve.stored import from_plain
from calve.table.protocol import Commit, complete_until
from lambdas.csv_export.delivery import Delivery, Folder, Lake, Outcome
from lambdas.csv_export.window import ExportFailed, Period, explicit, previous


@dataclass(frozen=True, slots=True)
class Environment:
    """The function's variables. `aws_endpoint_url`: only of an emulator. boto3 reads it by itself, PyIceberg does not.

    catalog: what holds the tables, as JSON of `calve.config.job.Catalog`; None: Glue.
    """

    calve_name: str
    lake_bucket: str
    exports_prefix: str
    schedule_group: str
    scheduler_role_arn: str
    function_arn: str
    idempotency_table: str
    aws_region: str
    aws_endpoint_url: str | None = None
    catalog: str | None = None

    def catalog_properties(self) -> dict[str, str]:
        """PyIceberg's settings: the catalog, and Arrow's own S3 client for the files. Raises: as `read_secret`."""
        properties = {"s3.region": self.aws_region, "py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO"}
        if self.aws_endpoint_url:
            properties["s3.endpoint"] = self.aws_endpoint_url
        if self.catalog is None:
            glue = {"glue.endpoint": self.aws_endpoint_url} if self.aws_endpoint_url else {}
            return properties | {"type": "glue", "glue.region": self.aws_region} | glue
        catalog = from_plain(cast("type[Catalog]", Catalog), json.loads(self.catalog))
        return properties | {"type": "rest"} | catalog.properties | catalog_credential(catalog.secret)


ASK_AGAIN = timedelta(minutes=5)


def ingested_until(table: Table) -> datetime | None:
    """The time up to which the table is complete; None if unknown."""

    def commits() -> Iterator[Commit]:
        snapshot = table.current_snapshot()
        while snapshot is not None:
            summary = snapshot.summary.additional_properties if snapshot.summary else {}
            parent = snapshot.parent_snapshot_id
            yield Commit(snapshot.snapshot_id, parent, summary)
            snapshot = table.snapshot_by_id(parent) if parent is not None else None

    seconds = complete_until(commits(), table.properties)
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


@dataclass(frozen=True, slots=True)
class Order:
    """The request of a run: an export and its window, by the scheduled time or named by an operator."""

    export: Export
    scheduled_at: datetime
    period: Period
    explicit: bool

    @classmethod
    def of(cls, export: Export, scheduled_at: datetime, bounds: dict[str, str] | None) -> Self:
        zone = ZoneInfo(export.time_zone)
        period = explicit(bounds, zone) if bounds else previous(export.window, scheduled_at, zone)
        return cls(export, scheduled_at, period, explicit=bounds is not None)

    def earlier(self) -> list[Period]:
        """The windows to check again; none if an operator named the window."""
        if self.explicit:
            return []
        zone, again = self.period.zone, self.export.recheck_windows
        return [previous(self.export.window, self.scheduled_at, zone, back) for back in range(1, again + 1)]


def run(order: Order, lake: Lake, wait: Callable[[datetime], None]) -> Iterator[Outcome]:
    """The outcome of each window, as soon as it is known. `wait` gets the time to run the same order again."""
    try:
        table = lake.table(order.export)
        until = ingested_until(table) if table else None
        deadline = order.scheduled_at + timedelta(seconds=order.export.wait_s)
        complete = until is not None and until >= order.period.end
        if not complete and lake.now() < deadline:
            again_at = min(lake.now() + ASK_AGAIN, deadline)
            wait(again_at)
            yield Outcome("waiting", order.period, complete=False, again_at=again_at)
            return
        if table is None:
            raise ExportFailed(
                "missing_table",
                f"there is no table {order.export.source}",
                fix=f"correct exports.{order.export.name}, or start the job that keeps the table",
            )
        delivery = Delivery(replace(order.export, database=table.name()[0]), lake, table, until)
        yield delivery.due(order.period, complete=complete)
    except ExportFailed as failure:
        yield Outcome("failed", order.period, complete=False, failure=failure)
        return
    for period in order.earlier():  # rows of theirs may have come since
        try:
            outcome = delivery.again(period)
        except ExportFailed as failure:
            outcome = Outcome("failed", period, complete=False, failure=failure)
        if outcome is not None:
            yield outcome


def delivered(order: Order, lake: Lake) -> bool:
    """Whether the due window has a file that was written since it was due."""
    newest = Folder(lake, order.export, order.period).newest()
    return newest is not None and datetime.fromisoformat(newest[1]["created_at"]) >= order.scheduled_at
