"""Data files are written anew as fewer and larger ones, by one commit that moves nothing (ADR 30): the one way, whoever asks.

Iceberg's own planner says which files are worth it; the commit is calve's, because it must be refused where another round was
published meanwhile: a replaced file may hold rows that this commit knows nothing of, and its summary says where the table stands.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from calve.errors import Suspended
from calve.table.protocol import Commit
from glue_jobs.iceberg.catalog import Lake, Table
from glue_jobs.iceberg.layout import clustered, tasks_for
from glue_jobs.iceberg.staging import Staged, commit, discard, rows_of, stage
from glue_jobs.process import faults
from glue_jobs.process.java import elements

Accept = Callable[[Iterator[Commit]], bool]

OPEN_BYTES = 256_000
"""A file costs as much to open as so many bytes to read and write."""
CHOSEN_FOR_SIZE = {"delete-ratio-threshold": "1.0", "max-file-size-bytes": str(2**62)}
"""Options of the planner: files are chosen for being small alone."""


@dataclass(frozen=True, slots=True)
class Group:
    """Files of one partition that are to be merged, as Iceberg's scan tasks."""

    tasks: tuple[Any, ...]
    size_bytes: int

    @property
    def cost(self) -> int:
        return self.size_bytes + OPEN_BYTES * len(self.tasks)

    def part(self, cost: int, *, least: int) -> Group:
        """As many of the files as cost no more, but at least so many."""
        chosen: list[Any] = []
        size = 0
        for task in self.tasks:
            more = int(task.file().fileSizeInBytes())
            if len(chosen) >= least and size + more + OPEN_BYTES * (len(chosen) + 1) > cost:
                break
            chosen.append(task)
            size += more
        return Group(tuple(chosen), size)


@dataclass(frozen=True, slots=True)
class Rewritten:
    """What became of the files."""

    snapshot: int
    before: int
    after: int
    bytes_before: int
    bytes_after: int


def groups(lake: Lake, table: Table, options: Mapping[str, str]) -> Iterator[Group]:
    """What Iceberg's planner would merge at the table's head, by its options for bin-packing; those with most files first.

    Files that rows are deleted from stay as they are: a round that is under way may be about to delete more of them.
    """
    for group in planned(lake, table, CHOSEN_FOR_SIZE | {"rewrite-job-order": "files-desc"} | dict(options)):
        tasks = tuple(each for each in elements(group.fileScanTasks()) if each.deletes().isEmpty())
        if len(tasks) > 1:
            yield Group(tasks, sum(each.file().fileSizeInBytes() for each in tasks))


def planned(lake: Lake, table: Table, options: Mapping[str, str]) -> Iterator[Any]:
    """The groups that Iceberg's planner makes of the table's head, by its options for bin-packing."""
    planner = lake.jvm.org.apache.iceberg.actions.BinPackRewriteFilePlanner(table.java)
    chosen = lake.jvm.java.util.HashMap()
    for key, value in options.items():
        chosen.put(key, value)
    planner.init(chosen)
    return elements(planner.plan().groups())


def rewrite(
    lake: Lake,
    table: Table,
    chosen: list[Group],
    said: Callable[[Staged], Mapping[str, str]],
    accept: Accept,
    *,
    cores: int,
    name: str,
) -> Rewritten:
    """Put the rows of all files of the groups into as few files as are worth writing. said: the commit's summary, given these.

    The groups are of the table as of its last refresh. Row ids of format 3 stay as they are.

    Raises:
        LostRace, Conflict, Ambiguous: as `glue_jobs.iceberg.staging.commit`; the new files may be left behind.
        Retryable: the object store failed.
        Suspended: `ledger_imbalance`: there would be other rows than before; nothing was committed.
    """
    tasks = [task for group in chosen for task in group.tasks]
    size, head = sum(group.size_bytes for group in chosen), table.java.currentSnapshot()
    staged = write_anew(
        lake, table, tasks, lambda rows: clustered(rows, table, tasks_for(size, cores, cores))
    )
    faults.point("merge.staged", name)
    snapshot = commit(table, replacement(lake, table, head, tasks, staged), said(staged), accept)
    faults.point("merge.committed", name)
    return Rewritten(snapshot, len(tasks), len(staged.files), size, staged.size_bytes)


def write_anew(
    lake: Lake,
    table: Table,
    tasks: Sequence[Any],
    laid_out: Callable[[DataFrame], DataFrame],
    *,
    split_bytes: int | None = None,
) -> Staged:
    """Write the rows that are left of the files; split_bytes: see `rows_of`.

    Raises:
        Retryable: the object store failed.
        Suspended: `ledger_imbalance`: these would be other rows than before.
    """
    with rows_of(lake, table, tasks, split_bytes=split_bytes) as rows:
        if rows is None:
            raise ValueError("there is nothing to rewrite")
        staged = stage(lake, table, laid_out(rows), uuid.uuid4().hex)
    held = sum(int(each.file().recordCount()) for each in tasks)
    deleted = any(not each.deletes().isEmpty() for each in tasks)
    if staged.rows > held or (staged.rows < held and not deleted):
        discard(table, staged)
        text = f"{held} rows were to be written anew, {staged.rows} were"
        raise Suspended("ledger_imbalance", f"table {table.name} was left as it was: {text}")
    return staged


def replacement(lake: Lake, table: Table, head: Any, tasks: Iterable[Any], staged: Staged) -> Any:
    """Iceberg's update that puts staged files in the place of those of the scan tasks, as they were at `head`."""
    update = table.java.newRewrite().validateFromSnapshot(int(head.snapshotId()))
    for files in sets_of(lake, tasks):
        for each in elements(files):
            update = update.deleteFile(each)
    for each in staged.files:
        update = update.addFile(each)
    return update.dataSequenceNumber(int(head.sequenceNumber()))


def sets_of(lake: Lake, tasks: Iterable[Any]) -> tuple[Any, Any]:
    """The data files of scan tasks, and the delete files that delete from one of them alone."""
    util = lake.jvm.org.apache.iceberg.util
    files, deletes = util.DataFileSet.create(), util.DeleteFileSet.create()
    for task in tasks:
        files.add(task.file())
        for each in elements(task.deletes()):
            if util.ContentFileUtil.isFileScoped(each):
                deletes.add(each)
    return files, deletes
