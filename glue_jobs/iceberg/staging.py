"""Write data files without a commit, then publish them with one validated Iceberg append (ADR 2).

Spark writes the files as Iceberg's compaction does: through a table registered under a stage id.
Its "commit" only hands over the data files.
`SparkTableCache` and `FileRewriteCoordinator` are internal classes of Iceberg. Only this module uses them;
`tests/integration/tables/test_staging.py` is its contract.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Self

from py4j.protocol import Py4JJavaError
from pyspark.errors import IllegalArgumentException
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from calve.errors import CalveError, LostRace, Retryable, Suspended
from calve.names import quote
from calve.schema.evolution import Change
from calve.table.digests import Sums
from calve.table.protocol import Commit
from glue_jobs.iceberg.catalog import Table, catalog_errors
from glue_jobs.iceberg.exposure import require_own_paths
from glue_jobs.process import faults
from glue_jobs.process.java import elements, java_class, java_message, method

FILE, POSITION = "_file", "_pos"
"""Iceberg's columns with the path of a row's data file, and the row's position in it."""
MOST_VALUES = 50
LONGEST = 64
"""The most characters of a reported value."""
HELD = 1_000
"""The number of values in a task's sketch."""


def _with_top_values(rows: DataFrame, column: str) -> tuple[DataFrame, Observation]:
    observation, text = Observation(), F.col(quote(column)).cast("string")
    told = F.when(F.length(text) <= LONGEST, text)
    top = F.call_function("approx_top_k", told, F.lit(MOST_VALUES + 2), F.lit(HELD))
    return rows.observe(observation, top.alias("top")), observation


def counts(column: str, top: Iterable[Any], rows: int) -> dict[str, Any]:
    """Counts as in `calve.metrics`: rows by value, and the number of other rows.

    Others have no value, a value that is too long, or one beyond the limit of values.
    """
    found = {item: int(number) for item, number in top}
    values = dict(sorted((item, number) for item, number in found.items() if item is not None))
    if len(values) > MOST_VALUES or sum(found.values()) != rows:
        values = {}
    return {"column": column, "values": values, "other": rows - sum(values.values())}


Validator = Callable[[Iterator[Commit]], bool]


@dataclass(frozen=True, slots=True)
class Staged:
    """Files that no snapshot contains yet. They may be committed again until a commit is known to have succeeded.

    `deletes`: position deletes of rows that the data files or tombstones replace.
    `counts`: the result of `counts`, if the table counts a column. `cpu_s`: CPU seconds of tasks that Spark does not
    report. `discarded`: the number of files that were written and deleted again, because no row of them stays.
    `sums`: of the rows, if the table's mode only adds rows.
    """

    files: tuple[Any, ...]
    rows: int
    size_bytes: int
    deletes: Deletes | None = None
    counts: Mapping[str, Any] | None = None
    cpu_s: float = 0.0
    discarded: int = 0
    sums: Sums | None = None

    @classmethod
    def of(cls, files: Iterable[Any]) -> Self:
        found = tuple(files)
        rows, size_bytes = sum(f.recordCount() for f in found), sum(f.fileSizeInBytes() for f in found)
        return cls(found, rows, size_bytes)

    def plus(self, others: Staged) -> Staged:
        """The same with more files of the same table.

        No value is counted if one part has too many. A part of more than `MOST_VALUES` rows without any value is taken for one.
        """
        found, both = Staged.of((*self.files, *others.files)), (self.counts, others.counts)
        added = None
        if self.counts is not None:
            values = sum((Counter(each["values"]) for each in both if each), Counter[Any]())
            unknown = sum(each["other"] for each in both if each)
            if any(not each["values"] and each["other"] > MOST_VALUES for each in both if each):
                values, unknown = Counter(), found.rows
            added = counts(
                self.counts["column"], [*values.items(), (None, unknown)], values.total() + unknown
            )
        return replace(self, files=found.files, rows=found.rows, size_bytes=found.size_bytes, counts=added)


@dataclass(frozen=True, slots=True)
class Deletes:
    """Delete files for `rows` rows of the snapshot `base`, and for dead rows of the same commit's own files.

    The files in `replaced` are merged into them.
    `touched`: paths of the older data files they delete from. A position is invalid in a file that compaction has rewritten.
    So the deletes are published only while all these files exist.
    `again`: writes deletes of the same rows where these are now, if others have only rewritten files since `base`.
    """

    base: int | None
    files: tuple[Any, ...]
    replaced: tuple[Any, ...]
    touched: tuple[str, ...]
    rows: int
    again: Callable[[], Deletes | None]


NOTHING = Staged((), 0, 0)


class Ambiguous(CalveError):
    """The commit may or may not have been applied. Look for the round in the table first."""


class Conflict(Retryable):
    """Iceberg refused the commit: files it requires are gone, or others delete from them. Nothing was committed."""


def stage(table: Table, rows: DataFrame, stage_id: str, *, count_by: str | None = None) -> Staged:
    """Write `rows`, already clustered by the caller, as data files of `table`; main does not change.

    count_by: a column whose values are counted while Spark writes.
    Raises Retryable: the object store failed; nothing is committed, files already written are orphans.
    Raises Suspended: `foreign_path`: other people could read the files' location.
    """
    require_own_paths(table)
    coordinator = table.iceberg.spark.FileRewriteCoordinator.get()
    cache = _singleton(table, "SparkTableCache")
    cache.add(stage_id, table.java)
    rows, observed = _with_top_values(rows, count_by) if count_by else (rows, None)
    try:
        (
            rows.write.format("iceberg")
            .option("rewritten-file-scan-task-set-id", stage_id)
            .option("use-table-distribution-and-ordering", "false")
            .mode("append")
            .save(stage_id)
        )
        staged = Staged.of(elements(coordinator.fetchNewFiles(table.java, stage_id)))
    finally:
        coordinator.clearRewrite(table.java, stage_id)
        cache.remove(stage_id)
    if count_by and observed:
        top = observed.get["top"] if staged.rows else ()
        staged = replace(staged, counts=counts(count_by, top, staged.rows))
    return staged


@contextmanager
def added_rows(table: Table, snapshot_id: int) -> Iterator[DataFrame | None]:
    """The rows that a snapshot added, including rows deleted since; None if it added no files.

    Read them inside the block. Raises Suspended: `snapshot_lost`: it has expired.
    """
    snapshot = table.java.snapshot(snapshot_id)
    if snapshot is None:
        raise Suspended("snapshot_lost", f"snapshot {snapshot_id} of table {table.name} has expired")
    io = table.java.io()
    deletes = {str(each.referencedDataFile()): each for each in elements(snapshot.addedDeleteFiles(io))}
    with rows_of(table, whole(table, elements(snapshot.addedDataFiles(io)), deletes)) as rows:
        yield rows


def whole(table: Table, files: Iterable[Any], deletes: Mapping[str, Any] | None = None) -> list[Any]:
    """Scan tasks that read all rows of data files, except those that a file of `deletes` deletes, by the data file's location."""
    iceberg = table.iceberg
    schema = iceberg.SchemaParser.toJson(table.java.schema())
    gateway: Any = table.lake.spark.sparkContext._gateway

    def applied(path: str) -> Any:
        found = [deletes[path]] if deletes and path in deletes else []
        array = gateway.new_array(iceberg.DeleteFile, len(found))
        for place, each in enumerate(found):
            array[place] = each
        return array

    every = iceberg.expressions.ResidualEvaluator.unpartitioned(iceberg.expressions.Expressions.alwaysTrue())
    specs = table.java.specs()
    return [
        iceberg.BaseFileScanTask(
            file,
            applied(str(file.location())),
            schema,
            iceberg.PartitionSpecParser.toJson(specs.get(file.specId())),
            every,
        )
        for file in files
    ]


@contextmanager
def rows_of(
    table: Table, scan_tasks: Iterable[Any], *, split_bytes: int | None = None, with_places: bool = False
) -> Iterator[DataFrame | None]:
    """The rows of Iceberg scan tasks, to be read inside the block; None if there are no tasks.

    split_bytes: file bytes per Spark task. with_places: `FILE` and `POSITION` can be selected. A table of format 3 has the
    columns of row lineage, beside which Spark resolves neither: with places, its rows are those of all files.
    """
    tasks = list(scan_tasks)
    if not tasks:
        yield None
        return
    group, cache = uuid.uuid4().hex, _singleton(table, "SparkTableCache")
    sets = _singleton(table, "ScanTaskSetManager")
    cache.add(group, table.java)
    sets.stageTasks(table.java, group, tasks)
    try:
        reader = table.lake.spark.read.format("iceberg").option("scan-task-set-id", group)
        if split_bytes is not None:
            reader = reader.option("split-size", split_bytes).option("file-open-cost", 0)
        if not with_places or table.format_version < 3:
            yield reader.load(group)
            return
        yield table.rows
        now = table.lake.load(table.name)  # after the reading: Spark may have read a newer snapshot
        if now is None or now.head != table.head:
            raise Retryable(f"table {table.name} changed while its keys were read")
    finally:
        sets.removeTasks(table.java, group)
        cache.remove(group)


def discard(table: Table, staged: Staged) -> None:
    """Delete staged files that no commit contains, nor ever will."""
    for each in (*staged.files, *(staged.deletes.files if staged.deletes else ())):
        table.java.io().deleteFile(each.location())


def publish(
    table: Table,
    staged: Staged,
    summary: Mapping[str, str],
    validator: Validator,
    *,
    branch: str | None = None,
) -> int:
    """Add the staged files in one snapshot, if `validator` accepts the ancestry of each head that is tried; returns its id.

    Raises LostRace: the validator refused; nothing was committed.
    Raises Ambiguous: the answer was lost; the commit may have been applied, or may still be.
    Raises Conflict: a file with rows to delete was rewritten meanwhile, or another writer deletes from it.
    """
    if staged.deletes is not None:
        return commit(table, _replacing(table, staged, staged.deletes), summary, validator)
    append = table.java.newAppend()
    for each in staged.files:
        append = append.appendFile(each)
    return commit(table, append.toBranch(branch) if branch else append, summary, validator, branch=branch)


def _replacing(table: Table, staged: Staged, deletes: Deletes) -> Any:
    """Rows and deletes as one update. It is valid only if nobody else has changed the same data files."""
    update = table.java.newRowDelta()
    if deletes.base is not None:
        update = update.validateFromSnapshot(deletes.base)
    update = update.validateDataFilesExist([*deletes.touched]).validateDeletedFiles()
    for each in staged.files:
        update = update.addRows(each)
    for each in deletes.files:
        update = update.addDeletes(each)
    for each in deletes.replaced:
        update = update.removeDeletes(each)
    return update


def commit(
    table: Table, update: Any, summary: Mapping[str, str], validator: Validator, *, branch: str | None = None
) -> int:
    """Commit any Iceberg snapshot update in the way of `publish`. Raises LostRace, Ambiguous, Conflict: as `publish`."""
    with _guarded(table, validator) as guard:
        _prepared(update, summary, guard).commit()
    with catalog_errors(
        f"table {table.name}"
    ):  # Iceberg has refreshed it, unless the catalog failed just then
        table.committed()
        return int(table.java.snapshot(branch or "main").snapshotId())


def begin(table: Table, summary: Mapping[str, str]) -> None:
    """Give a table its first, empty snapshot if `Lake.create` did not, unless another job was faster.

    Raises Retryable: the answer was lost, or the catalog does not answer.
    """
    if table.head is not None:
        return
    faults.point("table.bare", table.name.table)
    try:
        commit(table, table.java.newFastAppend(), summary, lambda ancestors: next(ancestors, None) is None)
    except LostRace:
        table.refresh()
    except Ambiguous as error:
        raise Retryable(error.message) from None


def leave(
    table: Table,
    summary: Mapping[str, str],
    validator: Validator,
    *,
    properties: Iterable[str],
    tags: Iterable[str],
) -> int:
    """Commit an empty snapshot and remove properties and tags, all at once; returns its id. Raises as `publish`."""
    with _guarded(table, validator) as guard:
        transaction = table.java.newTransaction()
        _prepared(transaction.newFastAppend(), summary, guard).commit()
        update = transaction.updateProperties()
        for name in properties:
            update.remove(name)
        update.commit()
        refs = transaction.manageSnapshots()
        for name in tags:
            refs.removeTag(name)
        refs.commit()
        transaction.commitTransaction()
    with catalog_errors(f"table {table.name}"):
        table.java.refresh()
        table.committed()
        return table.refs()["main"]


def take(
    table: Table,
    summary: Mapping[str, str],
    validator: Validator,
    *,
    columns: Iterable[Change],
    optional: Iterable[str],
    properties: Mapping[str, str],
    remove: Iterable[str],
) -> int:
    """Commit an empty snapshot, columns and properties, all at once; returns its id. Raises as `publish`.

    optional: paths of required columns that become optional; no column identifies a row afterwards.
    """
    with _guarded(table, validator) as guard:
        transaction = table.java.newTransaction()
        update = transaction.updateSchema().setIdentifierFields(table.lake.strings())
        for path in optional:
            update.makeColumnOptional(path)
        table.change(update, columns)
        update.commit()
        changed = transaction.updateProperties()
        for name, value in properties.items():
            changed.set(name, value)
        for name in remove:
            changed.remove(name)
        changed.commit()
        _prepared(transaction.newFastAppend(), summary, guard).commit()
        transaction.commitTransaction()
    with catalog_errors(f"table {table.name}"):
        table.java.refresh()
        table.committed()
        return table.refs()["main"]


def _prepared(update: Any, summary: Mapping[str, str], guard: _Guard) -> Any:
    for key, value in summary.items():
        update = update.set(key, value)
    return update.validateWith(guard)


@contextmanager
def _guarded(table: Table, validator: Validator) -> Iterator[_Guard]:
    guard = _Guard(table, validator)
    try:
        yield guard
    except Py4JJavaError as error:
        if guard.error is not None:
            raise guard.error from None
        if guard.refused:
            why = "another writer published first, or main was rolled back"
            raise LostRace(f"table {table.name}: {why}") from None
        if java_class(error).endswith(".ValidationException"):
            raise Conflict(f"table {table.name}: {java_message(error)}") from None
        raise Ambiguous(f"table {table.name}: {java_class(error)}: {java_message(error)}") from None
    except (
        IllegalArgumentException
    ):  # PySpark's class for Java's: Iceberg raises it before it writes anything
        raise Conflict(f"table {table.name}: the snapshot that rows are deleted from has expired") from None
    finally:
        guard.end()


class _Guard:
    """Iceberg's `SnapshotAncestryValidator` in Python. The JVM calls it at every commit attempt, with the table refreshed.

    It must define `errorMessage`, because py4j does not see Java's default.
    It must not raise: Java would see a Py4JException, which hides the refusal.
    """

    def __init__(self, table: Table, accept: Validator) -> None:
        self._table = table
        self._accept = accept
        self.refused = False
        self.error: Exception | None = None

    def validate(self, ancestors: Any) -> bool:
        self._table.refreshed()
        try:
            self.refused = not self._accept(map(self._table.commit_of, elements(ancestors)))
        except Exception as error:  # noqa: BLE001 kept, and raised again on the Python side
            self.error, self.refused = error, True
        return not self.refused

    def end(self) -> None:
        """Drop the table and its metadata. py4j keeps the guard until the JVM's garbage collector runs."""
        del self._table, self._accept

    def errorMessage(self) -> str:
        return "calve: the table has moved on since this round began"

    class Java:
        implements = ("org.apache.iceberg.SnapshotAncestryValidator",)


def _singleton(table: Table, name: str) -> Any:
    """Call `SparkTableCache.get()` by reflection: the overload `get(String)` hides it from py4j."""
    gateway: Any = table.lake.spark.sparkContext._gateway
    get = method(gateway, f"org.apache.iceberg.spark.{name}", "get")
    return get.invoke(None, gateway.new_array(gateway.jvm.java.lang.Object, 0))
