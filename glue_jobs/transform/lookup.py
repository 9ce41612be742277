"""The step `lookup`: add columns from the row of another table with the same key. Spark broadcasts the other table.

The table is used at its newest snapshot and stays in memory until there is a newer one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from calve.config.spark_conf import CATALOG
from calve.config.steps import LOOKED_UP, Lookup
from calve.errors import Retryable, Suspended
from calve.names import TableName, field_problem, quote, quote_path
from glue_jobs.iceberg.catalog import Lake, Table
from glue_jobs.transform.row_columns import (
    data,
    is_live,
    record,
    rejecting,
    remade,
    type_at,
    type_of,
    unusable,
)

MISSING = "lookup_missing"
FOUND = "calve:found"
COMPARABLE = (
    T.IntegralType,
    T.StringType,
    T.BinaryType,
    T.BooleanType,
    T.DateType,
    T.TimestampType,
    T.TimestampNTZType,
)
"""Key types. A key compares only with its own kind; decimals only where no digit is lost."""
MOST_DIGITS = 38


def run_lookup(frame: DataFrame, step: Lookup, table: DataFrame) -> DataFrame:
    """Add the columns after the others. They are null if the table has no such key, or if a part of the key is null.

    With `missing: reject` such records are rejected. Keys in `table` are unique, see `require_unique`.
    Raises Suspended: `step_unusable`: columns are missing, cannot be compared, or exist already.
    """
    _require_fit(frame, step, table.schema)
    frame = rejecting(frame, [path.split(".")[0] for path in step.on])
    keys = [f"calve:other:{n}" for n in range(len(step.on))]
    others = table.select(
        *(F.col(quote(other)).alias(key) for other, key in zip(step.on.values(), keys, strict=True)),
        F.struct(*(F.col(quote(other)).alias(new) for new, other in step.columns.items())).alias(FOUND),
    )
    same = [F.col(quote_path(path)) == F.col(key) for path, key in zip(step.on, keys, strict=True)]
    joined = frame.join(F.broadcast(others), on=reduce(Column.__and__, same), how="left")
    lost = F.when(is_live(joined) & F.col(FOUND).isNull(), F.lit(MISSING))
    columns = [*map(F.col, data(frame)), *(F.col(FOUND)[new].alias(new) for new in step.columns)]
    return remade(frame, joined, columns, reject=lost if step.missing == "reject" else None)


def require_unique(table: DataFrame, columns: Sequence[str]) -> None:
    """Refuse a table with duplicate keys: a record would become two rows. Keys with a null match nothing.

    Raises Suspended: `lookup_ambiguous`.
    """
    keys = [F.col(quote(column)).alias(f"calve:other:{n}") for n, column in enumerate(columns)]
    each = table.select(*keys).dropna()
    if each.groupBy(*each.columns).count().where(F.col("count") > 1).limit(1).collect():
        raise Suspended(
            "lookup_ambiguous",
            f"several rows of the other table have the same {' and '.join(columns)}, so the step cannot choose one",
            fix="look up by columns that identify its rows, or remove the duplicates",
        )


def require_columns(table: T.StructType, step: Lookup) -> None:
    """Refuse a step with columns that the other table lacks. Raises Suspended `step_unusable`."""
    for other in (*step.on.values(), *step.columns.values()):
        type_of(table, other, f"column of {step.table}")


def _require_fit(frame: DataFrame, step: Lookup, table: T.StructType) -> None:
    require_columns(table, step)
    own = record(frame)
    for path, other in step.on.items():
        ours, theirs = type_at(own, path), type_of(table, other, f"column of {step.table}")
        if not _comparable(ours, theirs):
            raise unusable(
                f'"{path}" is {ours.simpleString()} and "{other}" of {step.table} {theirs.simpleString()}: '
                "keys are compared with their own kind alone, and only plain values are keys"
            )
    taken = {name.lower() for name in own.names}
    for new in step.columns:
        if problem := field_problem(new):
            raise unusable(problem)
        if new.lower() in taken:
            raise unusable(f'"{new}" is a column of the record already')
        taken.add(new.lower())


def _comparable(ours: T.DataType, theirs: T.DataType) -> bool:
    if isinstance(ours, T.DecimalType) and isinstance(theirs, T.DecimalType):
        whole = max(each.precision - each.scale for each in (ours, theirs))
        return whole + max(ours.scale, theirs.scale) <= MOST_DIGITS
    return any(isinstance(ours, kind) and isinstance(theirs, kind) for kind in COMPARABLE)


MOST_ROWS = 1_000_000
MOST_BYTES = 256_000_000
"""The limit of the data files' size. The driver and every executor hold the table in memory."""

Place = tuple[str, tuple[str, ...], tuple[str, ...]]
"""A table, the columns of its key, and all needed columns."""


class Lookups:
    """The lookup tables of one table's steps."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._held: dict[Place, tuple[int | None, DataFrame]] = {}  # with the snapshot, if there was one
        self._tables: dict[str, Table] = {}

    def renew(self) -> None:
        """Forget the loaded tables. Until then they stay the same, because a round may read its records twice."""
        self._tables.clear()

    def noted(self) -> dict[str, str]:
        """The snapshot of each table that was used, for the round's summary; empty for a table that never had one."""
        return {
            f"{LOOKED_UP}{name}": "" if table.head is None else str(table.head)
            for name, table in self._tables.items()
        }

    def table(self, step: Lookup) -> DataFrame:
        """The needed columns of a step's table, at its newest snapshot of the round's first use. Keys are unique.

        Raises Retryable: the table does not exist, or the catalog does not answer. Suspended: `step_unusable`, also if the
        table is too large; or `lookup_ambiguous`.
        """
        keys = tuple(step.on.values())
        place = step.table, keys, tuple(dict.fromkeys((*keys, *step.columns.values())))
        if step.table not in self._tables:
            found = self._lake.load(TableName(*step.table.split(".")))
            if found is None:
                raise Retryable(f"there is no table {step.table}, in which a step looks up")
            self._tables[step.table] = found
        table, before = self._tables[step.table], self._held.get(place)
        if before is None or before[0] != table.head:
            self._held[place] = table.head, self._rows(table, step, place)
            if before is not None:
                before[1].unpersist()
        return self._held[place][1]

    def _rows(self, table: Table, step: Lookup, place: Place) -> DataFrame:
        name, head, spark = table.name.quoted(CATALOG), table.head, self._lake.spark
        if head is None:
            every = spark.table(name).limit(0)
        else:
            _require_small(table, head)
            every = spark.sql(f"SELECT * FROM {name} VERSION AS OF {head}")  # noqa: S608 checked, quoted; a number
        require_columns(every.schema, step)
        rows = every.select(*map(quote, place[-1])).persist()
        try:
            require_unique(rows, place[1])
        except BaseException:
            rows.unpersist()
            raise
        return rows


def _require_small(table: Table, head: int) -> None:
    """Refuse a table too large for memory, by its snapshot's summary. A table whose summary lacks the size is refused unread."""
    commit = table.snapshot(head)
    summary = commit.summary if commit is not None else {}
    limits = ("total-records", MOST_ROWS, "rows"), ("total-files-size", MOST_BYTES, "bytes of files")
    for figure, most, what in limits:
        found = summary.get(figure)
        if found is None:
            raise unusable(f"the newest snapshot of {table.name} does not say how many {what} it has")
        if int(found) > most:
            raise unusable(
                f"{table.name} has {int(found):,} {what}; a table in which a step looks up may have {most:,}"
            )
