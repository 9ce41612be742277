"""Rewrite data files as fewer, larger ones, in one commit that moves no offset (ADR 30). Every caller uses this code.

Iceberg's planner chooses the files. calve makes the commit, because it must be refused if another round committed meanwhile.
A replaced file may hold rows that this commit does not know. Its summary repeats the table's position.
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
"""The cost of opening a file, in bytes to read and write."""
CHOSEN_FOR_SIZE = {"delete-ratio-threshold": "1.0", "max-file-size-bytes": str(2**62)}
"""Planner options: choose files only because they are small."""


@dataclass(frozen=True, slots=True)
class Group:
    """Files of one partition to merge, as Iceberg scan tasks."""

    tasks: tuple[Any, ...]
    size_bytes: int

    @property
    def cost(self) -> int:
        return self.size_bytes + OPEN_BYTES * len(self.tasks)

    def part(self, cost: int, *, least: int) -> Group:
        """As many files as `cost` allows, but at least `least`."""
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
    """The result of a rewrite."""

    snapshot: int
    before: int
    after: int
    bytes_before: int
    bytes_after: int


def groups(lake: Lake, table: Table, options: Mapping[str, str]) -> Iterator[Group]:
    """The groups that Iceberg's planner would merge at the table's head, by its bin-pack options; most files first.

    Files with deletes are not merged: a running round may be about to delete more of their rows.
    """
    for group in planned(lake, table, CHOSEN_FOR_SIZE | {"rewrite-job-order": "files-desc"} | dict(options)):
        tasks = tuple(each for each in elements(group.fileScanTasks()) if each.deletes().isEmpty())
        if len(tasks) > 1:
            yield Group(tasks, sum(each.file().fileSizeInBytes() for each in tasks))


def planned(lake: Lake, table: Table, options: Mapping[str, str]) -> Iterator[Any]:
    """The groups that Iceberg's planner makes at the table's head, by its bin-pack options."""
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
    """Rewrite the rows of all files of the groups as fewer files. said: the commit's summary, given the new files.

    The groups are of the table's last refresh. Row ids of format 3 stay.

    Raises:
        LostRace, Conflict, Ambiguous: as `glue_jobs.iceberg.staging.commit`; the new files may be left behind.
        Retryable: the object store failed.
        Suspended: `ledger_imbalance`: the number of rows would change; nothing was committed.
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
    """Write the remaining rows of the files; split_bytes: as in `rows_of`.

    Raises:
        Retryable: the object store failed.
        Suspended: `ledger_imbalance`: the number of rows would change.
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
    """An Iceberg update that replaces the files of the scan tasks, as of `head`, by staged files."""
    update = table.java.newRewrite().validateFromSnapshot(int(head.snapshotId()))
    for files in sets_of(lake, tasks):
        for each in elements(files):
            update = update.deleteFile(each)
    for each in staged.files:
        update = update.addFile(each)
    return update.dataSequenceNumber(int(head.sequenceNumber()))


def sets_of(lake: Lake, tasks: Iterable[Any]) -> tuple[Any, Any]:
    """The data files of scan tasks, and the delete files that apply to only one of them."""
    util = lake.jvm.org.apache.iceberg.util
    files, deletes = util.DataFileSet.create(), util.DeleteFileSet.create()
    for task in tasks:
        files.add(task.file())
        for each in elements(task.deletes()):
            if util.ContentFileUtil.isFileScoped(each):
                deletes.add(each)
    return files, deletes
