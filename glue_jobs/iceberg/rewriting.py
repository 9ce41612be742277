"""Rewrite data files and manifests, in commits that are not rounds (ADR 30, ADR 31). Every caller uses this code.

Iceberg's planner chooses the files. calve makes the commit, because it must be refused if another round committed meanwhile.
A replaced file may hold rows that this commit does not know. Each summary repeats the table's position, so that no round
loses against the commit.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from pyspark.sql import DataFrame

from calve.config.maintenance import Kind
from calve.errors import LostRace, Retryable, Suspended
from calve.table.protocol import Commit, position_commit
from calve.table.summary import (
    FORGET,
    FORGET_LEFT,
    FORGOTTEN,
    MAINTENANCE,
    ROUND,
    WORK,
    carried_position,
    round_of,
)
from glue_jobs.iceberg.catalog import Table
from glue_jobs.iceberg.staging import (
    NOTHING,
    Ambiguous,
    Conflict,
    Staged,
    Validator,
    commit,
    discard,
    rows_of,
    stage,
)
from glue_jobs.process.java import elements

OPEN_BYTES = 256_000
"""The cost of opening a file, in bytes to read and write."""


@dataclass(frozen=True, slots=True)
class Group:
    """Files of one partition to rewrite together, as Iceberg scan tasks. outputs: the expected number of new files."""

    tasks: tuple[Any, ...]
    size_bytes: int
    outputs: int = 1
    split_bytes: int | None = None

    @property
    def cost(self) -> int:
        return self.size_bytes + OPEN_BYTES * len(self.tasks)

    def part(self, cost: int, *, least: int) -> Group:
        chosen: list[Any] = []
        size = 0
        for task in self.tasks:
            more = int(task.file().fileSizeInBytes())
            if len(chosen) >= least and size + more + OPEN_BYTES * (len(chosen) + 1) > cost:
                break
            chosen.append(task)
            size += more
        return Group(tuple(chosen), size)


def planned(table: Table, options: Mapping[str, str]) -> Iterator[Group]:
    """The groups that Iceberg's planner makes at the table's head, by its bin-pack options."""
    planner = table.iceberg.actions.BinPackRewriteFilePlanner(table.java)
    planner.init(dict(options))
    for each in elements(planner.plan().groups()):
        yield Group(
            tuple(elements(each.fileScanTasks())),
            int(each.inputFilesSizeInBytes()),
            int(each.expectedOutputFiles()),
            int(each.inputSplitSize()),
        )


def write_rest(
    table: Table,
    tasks: Sequence[Any],
    rest: Callable[[DataFrame], DataFrame],
    *,
    gone: int | None = 0,
    split_bytes: int | None = None,
) -> Staged:
    """Write what `rest` keeps of the rows of scan tasks, laid out: all but `gone` rows (None: unknown).

    split_bytes: as in `rows_of`.
    Raises Retryable: the object store failed.
    Raises Suspended: `ledger_imbalance`: the number of rows would change; nothing is left behind.
    """
    with rows_of(table, tasks, split_bytes=split_bytes) as rows:
        staged = NOTHING if rows is None else stage(table, rest(rows), uuid.uuid4().hex)
    if gone is None:
        return staged
    expected = sum(int(each.file().recordCount()) for each in tasks) - gone
    deleted = any(not each.deletes().isEmpty() for each in tasks)
    if staged.rows > expected or (staged.rows < expected and not deleted):
        discard(table, staged)
        text = f"{expected} rows had to be rewritten, but {staged.rows} were"
        raise Suspended("ledger_imbalance", f"table {table.name} is unchanged: {text}")
    return staged


def replacement(table: Table, head: Any, tasks: Iterable[Any], staged: Staged) -> Any:
    """An Iceberg update that replaces the files of the scan tasks, as of `head`, by staged files with the same rows."""
    update = table.java.newRewrite().validateFromSnapshot(int(head.snapshotId()))
    for files in _sets_of(table, tasks):
        for each in elements(files):
            update = update.deleteFile(each)
    for each in staged.files:
        update = update.addFile(each)
    return update.dataSequenceNumber(int(head.sequenceNumber()))


def overwriting(table: Table, tasks: Iterable[Any], *staged: Staged) -> Any:
    """An Iceberg update that replaces the files of the scan tasks by staged files with other rows."""
    update = table.java.newOverwrite().deleteFiles(*_sets_of(table, tasks))
    for each in chain.from_iterable(made.files for made in staged):
        update = update.addFile(each)
    return update


def _sets_of(table: Table, tasks: Iterable[Any]) -> tuple[Any, Any]:
    """The data files of scan tasks, and the delete files that apply to only one of them."""
    util, tasks = table.iceberg.util, list(tasks)
    deletes = (each for task in tasks for each in elements(task.deletes()))
    scoped = [each for each in deletes if util.ContentFileUtil.isFileScoped(each)]
    return util.DataFileSet.of([task.file() for task in tasks]), util.DeleteFileSet.of(scoped)


def merging_manifests(table: Table, chosen: Sequence[Any]) -> Any:
    # Guava's predicate: Iceberg calls it in its own threads, where py4j cannot call back.
    guava = table.jvm.com.google.common.base
    update = table.java.rewriteManifests().clusterBy(guava.Functions.constant(""))
    return update.rewriteIf(getattr(guava.Predicates, "in")(list(chosen)))


def data_manifests(table: Table) -> list[Any]:
    head = table.java.currentSnapshot()
    return [] if head is None else list(elements(head.dataManifests(table.java.io())))


def unmoved(head: int | None, accept: Validator) -> Validator:
    """Refuse if anybody has committed since `head`, or if `accept` refuses."""

    def here(ancestors: Iterator[Commit]) -> bool:
        first = next(ancestors, None)
        return first is not None and first.id == head and accept(chain([first], ancestors))

    return here


ATTEMPTS = 10
"""More than the rounds that can commit in the milliseconds between a look at the table and this commit."""


class CarriedCommit:
    """A table under maintenance: `main` itself or its dead letters. Maintenance skips it during a forget request.

    A forget request deletes every file that no snapshot names (`glue_jobs.iceberg.purge`).
    So files written before it must not be committed after it: the table's forget audit must not change during the work.
    """

    def __init__(self, table: Table, main: Table) -> None:
        self.table = table
        self._main = main
        self._audit = main.properties.get(FORGOTTEN)

    @property
    def is_forgetting(self) -> bool:
        """Whether a forget request runs, or has run since the work began, as of the last refresh."""
        found = self._main.properties
        asked = not found.keys().isdisjoint((FORGET, FORGET_LEFT))
        return asked or found.get(FORGOTTEN) != self._audit

    def refresh(self) -> None:
        self.table.refresh()
        if self._main is not self.table:
            self._main.refresh()

    def commit(
        self,
        kind: Kind,
        update: Callable[[], Any],
        cost: Mapping[str, Any],
        *staged: Staged,
        said: Callable[[Commit], Mapping[str, str]] = lambda _: {},
    ) -> bool:
        """Commit `update`, which is built again for each attempt. cost: the cost of the work.

        False: others have changed the files. Nothing was committed, and the new files, `staged`, are deleted.
        said: more summary entries, given the commit with the table's position.
        Raises Retryable: the history has no position, a forget request runs, or the commit's result is unknown.
        """
        work = uuid.uuid4().hex
        failure = ""
        for _ in range(ATTEMPTS):
            self.refresh()
            if any(each.summary.get(WORK) == work for each in self.table.ancestors()):
                return True
            stood = position_commit(self.table.ancestors())
            if stood is None or self.is_forgetting:
                why = "a person is being forgotten" if stood else "its history has no position"
                raise Retryable(f"table {self.table.name}: {why}")
            summary = carried_position(stood.summary, cost) | {MAINTENANCE: kind, WORK: work, **said(stood)}
            try:
                commit(self.table, update(), summary, self._unmoved(summary[ROUND]))
            except Conflict:
                for each in staged:
                    discard(self.table, each)
                return False
            except (LostRace, Ambiguous) as error:
                failure = error.message
            else:
                return True
        raise Retryable(failure)

    def _unmoved(self, round_id: str) -> Validator:
        def accept(ancestors: Iterator[Commit]) -> bool:
            if self._main is not self.table:
                self._main.refresh()
            stood = position_commit(ancestors)
            return stood is not None and round_of(stood.summary) == round_id and not self.is_forgetting

        return accept
