"""Small data files, and those that many rows are deleted from, are written anew as few of the size that is wanted (ADR 31).

Iceberg plans which files go together, each group within one partition; a group is one commit, so that whatever ends the work
leaves what is done. Rows are read without those that were deleted, and written as `glue_jobs.iceberg.staging` writes all.
Small manifests become few, and position deletes are merged, by actions of Iceberg: nothing of the rows is touched.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame

from calve.config.maintenance import HOLD_S, MANIFEST_BYTES
from calve.errors import Retryable
from calve.table.protocol import nearest_position
from calve.table.summary import HOLD, MAINTENANCE, has_position
from glue_jobs.iceberg.carry_position import CarriedCommit
from glue_jobs.iceberg.catalog import Lake, Table, catalog_errors
from glue_jobs.iceberg.commit_cost import CostMeter
from glue_jobs.iceberg.layout import clustered, sort_columns
from glue_jobs.iceberg.rewriting import planned, replacement, write_anew
from glue_jobs.iceberg.staging import Conflict, discard
from glue_jobs.process import faults
from glue_jobs.process.java import elements, java_class

GROUP_FILES = 4
"""So many files of the wanted size come of a group at most: it is read and written within seconds."""
PLAN_S = 60.0
"""How long a plan is worked by: what Iceberg compares a commit with is the history since, which expires."""
CONFLICTS = 2
OPTIONS = {"delete-ratio-threshold": "0.1", "delete-file-threshold": "5"}
"""Files with so many deletes are rewritten, however large they are: a tenth of their rows, or by so many delete files."""


@dataclass(frozen=True, slots=True)
class Group:
    """Files of one partition that are written anew together; `outputs`: about so many come of them."""

    tasks: tuple[Any, ...]
    outputs: int
    split_bytes: int
    size_bytes: int


@dataclass(slots=True)
class Compacted:
    """Files that went and that came, and the bytes of those that went; `conflicts`: groups that others wrote to meanwhile."""

    files: int = 0
    made: int = 0
    size_bytes: int = 0
    conflicts: int = 0

    def __add__(self, other: Compacted) -> Compacted:
        return Compacted(
            self.files + other.files,
            self.made + other.made,
            self.size_bytes + other.size_bytes,
            self.conflicts + other.conflicts,
        )


def compact(
    lake: Lake,
    upkept: CarriedCommit,
    *,
    file_bytes: int,
    budget_bytes: int,
    stop: Callable[[], bool],
    group_files: int = GROUP_FILES,
) -> Compacted:
    """Rewrite groups, those of the most files first, until the budget is spent: one at least.

    Raises:
        Retryable: as `CarriedCommit.commit`.
    """
    done = Compacted()
    while done.conflicts < CONFLICTS:
        upkept.refresh()
        until = time.monotonic() + PLAN_S
        head, planned = (
            upkept.table.java.currentSnapshot(),
            groups(lake, upkept.table, file_bytes, group_files),
        )
        if not planned:
            break
        for group in planned:
            if stop() or (done.size_bytes and done.size_bytes + group.size_bytes > budget_bytes):
                return done
            _rewrite(lake, upkept, head, group, done)
            if time.monotonic() > until or done.conflicts >= CONFLICTS:
                break
    return done


def groups(lake: Lake, table: Table, file_bytes: int, group_files: int = GROUP_FILES) -> list[Group]:
    """What is worth rewriting of the table as of its last refresh, the most files first.

    Nothing of a table that holds records of a topic which was made again since: they are told apart by their files.
    """
    stood = nearest_position(table.ancestors())
    if table.head is None or stood is None or len(stood.offsets) != 1:
        return []
    sizes = {"target-file-size-bytes": file_bytes, "max-file-group-size-bytes": group_files * file_bytes}
    options = OPTIONS | {name: str(size) for name, size in sizes.items()}
    found = [
        Group(
            tuple(elements(each.fileScanTasks())),
            int(each.expectedOutputFiles()),
            int(each.inputSplitSize()),
            int(each.inputFilesSizeInBytes()),
        )
        for each in planned(lake, table, options)
    ]
    return sorted(found, key=lambda each: -len(each.tasks))


def _rewrite(lake: Lake, upkept: CarriedCommit, head: Any, group: Group, done: Compacted) -> None:
    """`head`: the snapshot that the group was planned at; whatever deletes from its files since then is a conflict."""
    table, meter = upkept.table, CostMeter(lake)
    staged = write_anew(
        lake, table, group.tasks, lambda rows: _laid_out(rows, table, group), split_bytes=group.split_bytes
    )
    faults.point("compact.staged", table.name.table)
    try:
        upkept.commit(
            "compact",
            lambda: replacement(lake, table, head, group.tasks, staged),
            meter.of_work(table, staged, read=len(group.tasks)),
        )
    except Conflict:
        discard(table, staged)
        done.conflicts += 1
        return
    faults.point("compact.committed", table.name.table)
    done.files += len(group.tasks)
    done.made += len(staged.files)
    done.size_bytes += group.size_bytes


def _laid_out(rows: DataFrame, table: Table, group: Group) -> DataFrame:
    """The rows in about as many tasks as files are to come of them, in the table's order."""
    if any(int(each.file().specId()) != int(table.java.spec().specId()) for each in group.tasks):
        return clustered(rows, table, group.outputs)
    order = sort_columns(table)
    if not order:
        return rows
    spread = rows.coalesce(1) if group.outputs == 1 else rows.repartitionByRange(group.outputs, *order)
    return spread.sortWithinPartitions(*order)


REFUSED = (".ValidationException", ".CommitFailedException")


def rewrite_manifests(lake: Lake, upkept: CarriedCommit) -> int:
    """Merge the manifests of data files that are small; how many went. It never hinders a round: Iceberg appends beside it.

    Raises:
        Retryable: as `CarriedCommit.commit`.
    """
    upkept.refresh()
    table, meter = upkept.table, CostMeter(lake)
    head, small = table.java.currentSnapshot(), table.jvm.java.util.ArrayList()
    for each in elements(head.dataManifests(table.java.io())) if head is not None else ():
        if int(each.length()) < MANIFEST_BYTES // 2:
            small.add(each)
    if len(small) < 2:
        return 0
    # Guava's, since Iceberg asks in threads of its own, from which py4j calls nothing back.
    guava = table.jvm.com.google.common.base

    def update() -> Any:
        made = table.java.rewriteManifests().clusterBy(guava.Functions.constant(""))
        return made.rewriteIf(getattr(guava.Predicates, "in")(small))

    try:
        upkept.commit("manifests", update, meter.of_work(table))
    except Conflict:
        return 0
    faults.point("metadata.committed", table.name.table)
    return len(small)


def rewrite_deletes(lake: Lake, upkept: CarriedCommit) -> int:
    """Merge position deletes of format 2, and drop those of files that are gone, by Iceberg's action; how many files went.

    Of format 3 each data file has one vector of deletes at most, and compaction takes that along. The action takes no validator:
    nobody is forgotten while it is at work, and the commit behind it says where the table stands.

    Raises:
        Retryable: the catalog or the object store failed, or a person is being forgotten.
    """
    table = upkept.table
    current = table.java.operations().current()
    if int(current.formatVersion()) > 2 or not table.total("delete-files"):
        return 0
    meter = CostMeter(lake)
    table.set_properties({HOLD: str(time.time() + HOLD_S)})
    try:
        upkept.refresh()
        if upkept.is_forgetting:
            raise Retryable(f"table {table.name}: a person is being forgotten")
        actions = lake.jvm.org.apache.iceberg.spark.actions.SparkActions.get(lake.spark._jsparkSession)
        action = actions.rewritePositionDeletes(table.java).snapshotProperty(MAINTENANCE, "deletes")
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
