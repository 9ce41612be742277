"""Does the table hold everything that arrived in the topic before a window's end? The engine says up to when it has read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pyiceberg.table import Table

from calve.protocol import Commit, complete_until

ASK_AGAIN = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Complete:
    """Nothing that arrived before the window's end is missing."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Not yet; look again at `at`."""

    at: datetime


@dataclass(frozen=True, slots=True)
class Incomplete:
    """The time to wait is over."""


Decision = Complete | Wait | Incomplete


def ingested_until(table: Table) -> datetime | None:
    """Up to when the table has everything; None where nothing says so."""
    seconds = complete_until(_ancestors(table), table.properties)
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def decide(until: datetime | None, end: datetime, now: datetime, deadline: datetime) -> Decision:
    """Whether to write a window that ends at `end`; `deadline` is when waiting ends."""
    if until is not None and until >= end:
        return Complete()
    if now >= deadline:
        return Incomplete()
    return Wait(min(now + ASK_AGAIN, deadline))


def _ancestors(table: Table) -> Iterator[Commit]:
    snapshot = table.current_snapshot()
    while snapshot is not None:
        summary = snapshot.summary.additional_properties if snapshot.summary else {}
        yield Commit(snapshot.snapshot_id, snapshot.parent_snapshot_id, summary)
        parent = snapshot.parent_snapshot_id
        snapshot = table.snapshot_by_id(parent) if parent is not None else None
