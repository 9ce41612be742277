"""Snapshots of a table that no job is keeping expire: where one is, its own loop has done it already (ADR 30)."""

from __future__ import annotations

import time

from calve import job
from calve.announcement import sent_to
from calve.emitting import Emitted
from calve.maintenance import snapshots_to_keep
from glue_jobs import faults
from glue_jobs.maintaining.carrying import Upkept
from glue_jobs.upkeep import needed


def expire(upkept: Upkept, settings: job.Table) -> int:
    """Expire what the settings do not keep and nobody needs still; the number of snapshots that went.

    Raises:
        Retryable: the catalog or the object store failed.
    """
    upkept.refresh()
    table = upkept.table
    line = list(table.ancestors())
    emitted = Emitted.of(table.properties) if settings.emit else None
    kept = snapshots_to_keep(
        [time.time() - each.committed_at for each in line],
        needed(line, emitted, sent_to(line)),
        settings.maintenance,
    )
    if kept == len(line):
        return 0
    gone = table.expire(kept, line[kept - 1].committed_at)
    faults.point("maintenance.expired", table.name.table)
    return gone
