"""A table is left without some rows, without its history, and without any file that its metadata does not reach (ADR 24)."""

from __future__ import annotations

import uuid
from collections.abc import Callable

from calve.position import POSITION_TAG
from glue_jobs import faults
from glue_jobs.forgetting.gone import Gone
from glue_jobs.forgetting.rewriting import Said, fence
from glue_jobs.forgetting.sweeping import delete, expire, files_of, unreachable
from glue_jobs.lake import Table
from glue_jobs.staging import NOTHING
from glue_jobs.target import Target


def purge(
    target: Target,
    table: Table,
    gone: Gone,
    said: Said,
    require_alone: Callable[[], None],
) -> int:
    """Write the files anew that hold what must go, and keep nothing but what comes of it; how many files were deleted.

    `require_alone` refuses where another job may write files at this moment that a later commit of its own would need.

    Raises:
        LostRace, Conflict, Ambiguous: as `glue_jobs.staging.commit`.
    """
    name = target.table.name
    if gone.tasks:
        gone.rewriting.replace(gone.tasks, said, stage_id=uuid.uuid4().hex, cores=target.cores)
    require_alone()
    files = files_of(target.lake, table)
    fence(table, *said(NOTHING))
    faults.point("forget.fenced", name)
    if POSITION_TAG in table.refs() and table.head is not None:
        table.set_tag(POSITION_TAG, table.head)
    faults.point("forget.tagged", name)
    expire(table)
    faults.point("forget.expired", name)
    left_behind = unreachable(target.lake, table, files)
    delete(table, left_behind)
    faults.point("forget.swept", name)
    return len(left_behind)
