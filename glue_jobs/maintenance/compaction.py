"""Compaction: rewrite small data files, and those with many deleted rows, as few files of the target size (ADR 31).

Iceberg plans the groups, each within one partition. A group is one commit, so an interrupted run keeps its finished groups.
Deleted rows are left out. The rows are written by `glue_jobs.iceberg.staging`, as all rows are.
Actions of Iceberg merge small manifests and position deletes. These do not change rows.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame

from calve.config.maintenance import HOLD_S, MANIFEST_BYTES
from calve.errors import Retryable
from calve.table.protocol import nearest_position
from calve.table.summary import HOLD, MAINTENANCE, RENAMED, has_position
from glue_jobs.iceberg.catalog import Table, catalog_errors
from glue_jobs.iceberg.commit_cost import CostMeter
from glue_jobs.iceberg.layout import clustered, sort_columns
from glue_jobs.iceberg.rewriting import (
    CarriedCommit,
    Group,
    data_manifests,
    merging_manifests,
    planned,
    replacement,
    write_rest,
)
from glue_jobs.iceberg.staging import Conflict
from glue_jobs.process import faults
from glue_jobs.process.java import java_class

GROUP_FILES = 4
"""The most files of target size per group, so that a group takes seconds."""
PLAN_S = 60.0
"""How long a plan is used. Iceberg validates a commit against the history since the plan, and that history expires."""
CONFLICTS = 2
OPTIONS = {"delete-ratio-threshold": "0.1", "delete-file-threshold": "5"}
"""Files are rewritten at any size if a tenth of their rows is deleted, or if they have five delete files."""


def compact(
    upkept: CarriedCommit,
    *,
    file_bytes: int,
    budget_bytes: int,
    stop: Callable[[], bool],
    group_files: int = GROUP_FILES,
    one_name: bool = False,
) -> Counter[str]:
    """Rewrite groups, most files first, until the budget is used; at least one. Raises Retryable: as `CarriedCommit.commit`.

    Returns the numbers of `files` removed, `bytes` in them, files added (`into`), and groups that others changed (`conflicts`).
    """
    done = Counter(dict.fromkeys(("files", "into", "bytes", "conflicts"), 0))
    while done["conflicts"] < CONFLICTS:
        upkept.refresh()
        until, head = time.monotonic() + PLAN_S, upkept.table.java.currentSnapshot()
        chosen = groups(upkept.table, file_bytes, group_files, one_name=one_name)
        if not chosen:
            break
        for group in chosen:
            if stop() or (done["bytes"] and done["bytes"] + group.size_bytes > budget_bytes):
                return done
            done.update(_rewrite(upkept, head, group))
            if time.monotonic() > until or done["conflicts"] >= CONFLICTS:
                break
    return done


def groups(
    table: Table, file_bytes: int, group_files: int = GROUP_FILES, *, one_name: bool = False
) -> list[Group]:
    """The groups worth rewriting, as of the last refresh, most files first. one_name: see `calve.config.maintenance.Maintenance`.

    None if the table has records of a topic that was made again: only their files tell its incarnations apart.
    """
    stood = nearest_position(table.ancestors())
    if table.head is None or stood is None or len(stood.offsets) != 1:
        return []
    sizes = {"target-file-size-bytes": file_bytes, "max-file-group-size-bytes": group_files * file_bytes}
    options = OPTIONS | {name: str(size) for name, size in sizes.items()}
    if one_name and (until := table.properties.get(RENAMED)):
        every = planned(table, options | {"rewrite-all": "true"})
        if found := [each for group in every if (each := _written_until(int(until), group, file_bytes))]:
            return found
    return sorted(planned(table, options), key=lambda each: -len(each.tasks))


def _written_until(sequence: int, group: Group, file_bytes: int) -> Group | None:
    """The files of a group that are not newer than a sequence number."""
    tasks = tuple(each for each in group.tasks if int(each.file().fileSequenceNumber()) <= sequence)
    size = sum(int(each.file().fileSizeInBytes()) for each in tasks)
    return replace(group, tasks=tasks, size_bytes=size, outputs=-(-size // file_bytes)) if tasks else None


def _rewrite(upkept: CarriedCommit, head: Any, group: Group) -> dict[str, int]:
    """`head`: the snapshot at which the group was planned. Deletes from its files since then are a conflict."""
    table, meter = upkept.table, CostMeter(upkept.table.lake)
    written = int(table.java.schema().schemaId())
    staged = write_rest(
        table, group.tasks, lambda rows: _laid_out(rows, table, group), split_bytes=group.split_bytes
    )
    faults.point("compact.staged", table.name.table)
    cost = meter.of_work(table, staged, read=len(group.tasks))

    def replacing() -> Any:
        if int(table.java.schema().schemaId()) != written:
            raise Conflict(
                "the schema has changed meanwhile: the new files may have the earlier name of a column"
            )
        return replacement(table, head, group.tasks, staged)

    if not upkept.commit("compact", replacing, cost, staged):
        return {"conflicts": 1}
    faults.point("compact.committed", table.name.table)
    return {"files": len(group.tasks), "into": len(staged.files), "bytes": group.size_bytes}


def _laid_out(rows: DataFrame, table: Table, group: Group) -> DataFrame:
    if any(int(each.file().specId()) != int(table.java.spec().specId()) for each in group.tasks):
        return clustered(rows, table, group.outputs)
    order = sort_columns(table)
    if not order:
        return rows
    spread = rows.coalesce(1) if group.outputs == 1 else rows.repartitionByRange(group.outputs, *order)
    return spread.sortWithinPartitions(*order)


REFUSED = (".ValidationException", ".CommitFailedException")


def rewrite_manifests(upkept: CarriedCommit) -> dict[str, int]:
    """Merge small manifests of data files; returns their number. It never blocks a round: Iceberg appends beside it.

    Raises Retryable: as `CarriedCommit.commit`.
    """
    upkept.refresh()
    table, meter = upkept.table, CostMeter(upkept.table.lake)
    small = [each for each in data_manifests(table) if int(each.length()) < MANIFEST_BYTES // 2]
    if len(small) < 2:
        return {"manifests": 0}
    done = upkept.commit("manifests", lambda: merging_manifests(table, small), meter.of_work(table))
    if done:
        faults.point("metadata.committed", table.name.table)
    return {"manifests": len(small) if done else 0}


def rewrite_deletes(upkept: CarriedCommit) -> int:
    """Merge position deletes of format 2, and drop those of removed files, by Iceberg's action; returns the number of files.

    In format 3 each data file has at most one delete vector, and compaction handles it. The action takes no validator.
    So forget requests are held meanwhile, and a second commit repeats the table's position.
    Raises Retryable: the catalog or the object store failed, or a forget request runs.
    """
    table = upkept.table
    current = table.java.operations().current()
    if int(current.formatVersion()) > 2 or not table.total("delete-files"):
        return 0
    meter = CostMeter(table.lake)
    table.set_properties({HOLD: str(time.time() + HOLD_S)})
    try:
        upkept.refresh()
        if upkept.is_forgetting:
            raise Retryable(f"table {table.name}: a person is being forgotten")
        action = table.actions.rewritePositionDeletes(table.java).snapshotProperty(MAINTENANCE, "deletes")
        with catalog_errors(f"table {table.name}, deletes"):
            try:
                gone = int(action.execute().rewrittenDeleteFilesCount())
            except Py4JJavaError as error:
                if not java_class(error).endswith(REFUSED):
                    raise
                gone = 0  # a round has written to the same files
    finally:
        table.refresh()
        table.set_properties({}, remove=[HOLD])
        table.refresh()
    head = next(table.ancestors(), None)
    if head is not None and not has_position(head.summary):
        upkept.commit("deletes", table.java.newAppend, meter.of_work(table, read=gone))
    return gone
