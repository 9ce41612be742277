"""Rewrite data files without the rows to forget, and manifests without their entries for removed files (ADR 24)."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from calve.config.spark_conf import CATALOG
from calve.errors import CalveError
from calve.table.protocol import Commit
from calve.table.summary import POSITION_TAG
from glue_jobs.columns.expressions import OFFSET, PARTITION, TIMESTAMP, at
from glue_jobs.dead_letters.redriven import LETTER
from glue_jobs.iceberg.catalog import Lake, Table
from glue_jobs.iceberg.layout import clustered, tasks_for
from glue_jobs.iceberg.purge import delete, expire, files_of, unreachable
from glue_jobs.iceberg.rewriting import sets_of
from glue_jobs.iceberg.staging import NOTHING, Staged, commit, publish, rows_of, stage, whole
from glue_jobs.operations.persons import Person
from glue_jobs.process import faults
from glue_jobs.process.java import elements
from glue_jobs.table.open_table import OpenTable

FILE = "_file"

Narrow = Callable[[DataFrame], DataFrame]
Accept = Callable[[Iterator[Commit]], bool]
Said = Callable[[Staged], tuple[Mapping[str, str], Accept]]
"""The summary of the next commit, given its new files; and whether the commit is allowed on the table's current head."""


class Rewriting:
    """Removes rows from a table at its current head. Every commit is refused once the head has changed.

    gone: the rows to remove; kept: all others. Both keep the columns unchanged. `name`: the table name for fault
    points.
    """

    def __init__(self, lake: Lake, table: Table, *, gone: Narrow, kept: Narrow, name: str) -> None:
        self._lake = lake
        self._table = table
        self._head = table.head
        self._gone = gone
        self._kept = kept
        self._name = name

    @property
    def all_rows(self) -> DataFrame:
        """The table's rows, each with its `FILE`."""
        return self._lake.spark.table(self._table.name.quoted(CATALOG)).select("*", F.col(FILE))

    def files(self, of_rows: Iterable[str]) -> list[Any]:
        """Scan tasks of the data files at these paths, and of files whose rows to remove are already deleted by position."""
        tasks = list(elements(self._table.java.newScan().planFiles()))
        paths = {*of_rows}
        deleted_from = [each.file() for each in tasks if not each.deletes().isEmpty()]
        with rows_of(self._lake, self._table, whole(self._lake, self._table, deleted_from)) as rows:
            if rows is not None:
                # In format 3, rows read this way have no file column.
                named = rows.select("*", F.input_file_name().alias(FILE))
                found = self._gone(named).select(FILE).distinct().collect()
                paths |= {each[FILE] for each in found}
        return [each for each in tasks if str(each.file().location()) in paths]

    def replace(self, tasks: list[Any], said: Said, *, stage_id: str, cores: int) -> None:
        """Replace the files by their remaining rows, in one commit.

        Raises LostRace, Conflict, Ambiguous: as `glue_jobs.iceberg.staging.commit`.
        """
        table = self._table
        size = sum(each.file().fileSizeInBytes() for each in tasks)
        columns = [each["name"] for each in table.schema["fields"]]
        left = NOTHING
        with rows_of(self._lake, table, tasks) as rows:
            if rows is not None:
                rest = clustered(self._kept(rows).select(*columns), table, tasks_for(size, cores, cores))
                left = stage(self._lake, table, rest, stage_id)
        faults.point("forget.staged", self._name)
        replaced, deletes = sets_of(self._lake, tasks)
        update = table.java.newOverwrite().deleteFiles(replaced, deletes)
        for each in left.files:
            update = update.addFile(each)
        summary, accept = said(left)
        commit(table, update, summary, unmoved(self._head, accept))
        faults.point("forget.committed", self._name)


def fence(table: Table, summary: Mapping[str, str], accept: Accept) -> None:
    """Commit again with manifests that have no entries for removed files: their bounds are values of rows.

    Raises LostRace, Conflict, Ambiguous: as `glue_jobs.iceberg.staging.commit`.
    """
    head, here = table.java.currentSnapshot(), unmoved(table.head, accept)
    stale = table.jvm.java.util.ArrayList()
    for each in elements(head.dataManifests(table.java.io())) if head is not None else ():
        if each.hasDeletedFiles():
            stale.add(each)
    if stale.isEmpty():
        publish(table, NOTHING, summary, here)
        return
    # Guava's predicate: Iceberg calls it in its own threads, where py4j cannot call back.
    guava = table.jvm.com.google.common.base
    update = table.java.rewriteManifests().clusterBy(guava.Functions.constant(""))
    commit(table, update.rewriteIf(getattr(guava.Predicates, "in")(stale)), summary, here)


def unmoved(head: int | None, accept: Accept) -> Accept:
    """Refuse if anybody has committed since `head`, or if `accept` refuses."""

    def here(ancestors: Iterator[Commit]) -> bool:
        first = next(ancestors, None)
        return first is not None and first.id == head and accept(chain([first], ancestors))

    return here


MOST = 1_000_000
"""No person has this many records: the request probably names a column such as a country."""

Place = tuple[Any, ...]
OF_ROWS = "partition int, offset long, timestamp_us long"
OF_LETTERS = "cluster_id string, topic_id string, partition int, offset long"
"""The columns that identify a record: in a row, and in a dead letter (`glue_jobs.dead_letters.redriven.LETTER`)."""


@dataclass(frozen=True, slots=True)
class Gone:
    """places: of each record. rows: their number. all: the rows. tasks: Iceberg scan tasks of the files that hold them."""

    places: Sequence[Place]
    rows: int
    all: DataFrame
    rewriting: Rewriting
    tasks: list[Any]


def gone_rows(opened: OpenTable, person: Person) -> Gone:
    """The person's rows in main. If one of several rows of a record matches, all of them are removed.

    Raises CalveError: there are too many.
    """
    told_by = {"partition": at(PARTITION), "offset": at(OFFSET), "timestamp_us": F.unix_micros(at(TIMESTAMP))}
    found = _gone(opened, opened.main, person.rows, person.others, told_by)
    if not opened.row_plan.chain.explodes:
        return found
    gone, kept = _at(opened, found.places, OF_ROWS, told_by)
    return _gone(opened, opened.main, gone, kept, told_by)


def gone_letters(opened: OpenTable, letters: Table, places: Sequence[Place]) -> Gone:
    """The dead letters at these places."""
    told_by = {name: F.col(name) for name in LETTER}
    gone, kept = _at(opened, places, OF_LETTERS, told_by)
    return _gone(opened, letters, gone, kept, told_by)


def _gone(opened: OpenTable, table: Table, gone: Narrow, kept: Narrow, told_by: Mapping[str, Column]) -> Gone:
    rewriting = Rewriting(opened.services.lake, table, gone=gone, kept=kept, name=opened.config.name)
    rows = gone(rewriting.all_rows)
    place = F.struct(*(column.alias(name) for name, column in told_by.items()))
    counted = rows.groupBy(F.col(FILE).alias("file"), place.alias("place")).agg(F.count("*").alias("rows"))
    found = counted.limit(MOST + 1).collect()
    if len(found) > MOST:
        raise CalveError(f"more than {MOST:,} records are told by that: it is no person's key")
    places = sorted({tuple(each["place"]) for each in found})
    tasks = rewriting.files({each["file"] for each in found})
    return Gone(places, sum(each["rows"] for each in found), rows, rewriting, tasks)


def _at(
    opened: OpenTable, places: Sequence[Place], kinds: str, told_by: Mapping[str, Column]
) -> tuple[Narrow, Narrow]:
    """Rows at these places, and all others."""
    listed = opened.services.lake.spark.createDataFrame(list(places), kinds)
    those = F.broadcast(listed.select(*(F.col(name).alias(f"calve:{name}") for name in told_by)))
    same = reduce(
        Column.__and__, (column.eqNullSafe(F.col(f"`calve:{name}`")) for name, column in told_by.items())
    )

    def narrow(how: str) -> Callable[[DataFrame], DataFrame]:
        return lambda rows: rows.join(those, same, how)

    return narrow("left_semi"), narrow("left_anti")


def purge(opened: OpenTable, table: Table, gone: Gone, said: Said, require_alone: Callable[[], None]) -> int:
    """Rewrite the files that hold rows to remove, and delete every file that becomes unreachable; returns their number.

    `require_alone` refuses if another job may be writing files that its own later commit needs.
    Raises LostRace, Conflict, Ambiguous: as `glue_jobs.iceberg.staging.commit`.
    """
    name = opened.config.name
    if gone.tasks:
        gone.rewriting.replace(gone.tasks, said, stage_id=uuid.uuid4().hex, cores=opened.services.cores)
    require_alone()
    files = files_of(opened.services.lake, table)
    fence(table, *said(NOTHING))
    faults.point("forget.fenced", name)
    if POSITION_TAG in table.refs() and table.head is not None:
        table.set_tag(POSITION_TAG, table.head)
    faults.point("forget.tagged", name)
    expire(table)
    faults.point("forget.expired", name)
    left_behind = unreachable(opened.services.lake, table, files)
    delete(table, left_behind)
    faults.point("forget.swept", name)
    return len(left_behind)
