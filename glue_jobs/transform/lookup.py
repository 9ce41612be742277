"""The step `lookup`: columns of another table, of its row with the same key. The other table goes to every task as a whole.

Each is as of its newest snapshot, and stays in memory until there is a newer one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    IntegralType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from calve.config.spark_conf import CATALOG
from calve.config.steps import LOOKED_UP, Lookup
from calve.errors import Retryable, Suspended
from calve.names import TableName, field_problem, quote, quote_path
from glue_jobs.columns.helpers import REJECT
from glue_jobs.iceberg.catalog import Lake, Table
from glue_jobs.transform.row_columns import beside, data, is_live, type_at, type_of, unusable

MISSING = "lookup_missing"
FOUND = "calve:found"
COMPARABLE = (IntegralType, StringType, BinaryType, BooleanType, DateType, TimestampType, TimestampNTZType)
"""Types of keys; each is compared with its own kind alone, decimals also only where no digit is lost."""
MOST_DIGITS = 38


def run_lookup(frame: DataFrame, step: Lookup, table: DataFrame) -> DataFrame:
    """The new columns stand after the others: null where the table has no row of the key, or a part of the key is null.

    With `missing: reject` such records are rejected. In `table` no key stands twice, see `require_unique`.

    Raises:
        Suspended: `step_unusable`, where columns are missing, cannot be compared, or exist already.
    """
    _require_fit(frame, step, table.schema)
    keys = [f"calve:other:{n}" for n in range(len(step.on))]
    others = table.select(
        *(F.col(quote(other)).alias(key) for other, key in zip(step.on.values(), keys, strict=True)),
        F.struct(*(F.col(quote(other)).alias(new) for new, other in step.columns.items())).alias(FOUND),
    )
    same = [F.col(quote_path(path)) == F.col(key) for path, key in zip(step.on, keys, strict=True)]
    joined = frame.join(F.broadcast(others), on=reduce(Column.__and__, same), how="left")
    own = {name: F.col(name) for name in beside(frame)}
    if step.missing == "reject":
        reject = F.col(REJECT) if REJECT in frame.columns else F.lit(None).cast("string")
        lost = is_live(joined) & F.col(FOUND).isNull()
        own[REJECT] = F.coalesce(reject, F.when(lost, F.lit(MISSING)))
    return joined.select(
        *data(frame),
        *(F.col(FOUND)[new].alias(new) for new in step.columns),
        *(column.alias(name) for name, column in own.items()),
    )


def require_unique(table: DataFrame, columns: Sequence[str]) -> None:
    """Refuse a table in which a key stands twice: a record would become two rows. Keys with a null match nothing.

    Raises:
        Suspended: `lookup_ambiguous`.
    """
    keys = [F.col(quote(column)).alias(f"calve:other:{n}") for n, column in enumerate(columns)]
    each = table.select(*keys).dropna()
    if each.groupBy(*each.columns).count().where(F.col("count") > 1).limit(1).collect():
        raise Suspended(
            "lookup_ambiguous",
            f"several rows of the other table have the same {' and '.join(columns)}, so none of them can be told by it",
            fix="look up by columns that tell its rows apart, or remove the others",
        )


def require_columns(table: StructType, step: Lookup) -> None:
    """Refuse a step that names columns which the other table has not. Raises Suspended `step_unusable`."""
    for other in (*step.on.values(), *step.columns.values()):
        type_of(table, other, f"column of {step.table}")


def _require_fit(frame: DataFrame, step: Lookup, table: StructType) -> None:
    require_columns(table, step)
    record = StructType([field for field in frame.schema if field.name in data(frame)])
    for path, other in step.on.items():
        ours, theirs = type_at(record, path), type_of(table, other, f"column of {step.table}")
        if not _comparable(ours, theirs):
            raise unusable(
                f'"{path}" is {ours.simpleString()} and "{other}" of {step.table} {theirs.simpleString()}: '
                "keys are compared with their own kind alone, and only plain values are keys"
            )
    taken = {name.lower() for name in record.names}
    for new in step.columns:
        if problem := field_problem(new):
            raise unusable(problem)
        if new.lower() in taken:
            raise unusable(f'"{new}" is a column of the record already')
        taken.add(new.lower())


def _comparable(ours: DataType, theirs: DataType) -> bool:
    if isinstance(ours, DecimalType) and isinstance(theirs, DecimalType):
        whole = max(each.precision - each.scale for each in (ours, theirs))
        return whole + max(ours.scale, theirs.scale) <= MOST_DIGITS
    return any(isinstance(ours, kind) and isinstance(theirs, kind) for kind in COMPARABLE)


MOST_ROWS = 1_000_000
MOST_BYTES = 256_000_000
"""Those of the data files. The table is in the memory of the driver and of every executor at once."""


Place = tuple[str, tuple[str, ...], tuple[str, ...]]
"""A table, the columns of its key, and all columns that are needed of it."""


@dataclass(frozen=True, slots=True)
class Held:
    """Columns of a table in memory; snapshot: None of a table that never had one."""

    snapshot: int | None
    rows: DataFrame


class Lookups:
    """The other tables of one table's steps."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._held: dict[Place, Held] = {}
        self._tables: dict[str, Table] = {}

    def renew(self) -> None:
        """Look at the tables again; until then they stay what they are, since a round may read its records twice."""
        self._tables.clear()

    def noted(self) -> dict[str, str]:
        """What a round notes of the tables: the snapshot of each that was looked at, empty of one that never had any."""
        return {
            f"{LOOKED_UP}{name}": "" if table.head is None else str(table.head)
            for name, table in self._tables.items()
        }

    def table(self, step: Lookup) -> DataFrame:
        """What a step needs of its table, as of the newest snapshot when it was first asked for. In it no key stands twice.

        Raises:
            Retryable: there is no such table, or the catalog does not answer.
            Suspended: `step_unusable`, also where the table is too large, or `lookup_ambiguous`.
        """
        keys = tuple(step.on.values())
        place = step.table, keys, tuple(dict.fromkeys((*keys, *step.columns.values())))
        table, before = self._table(step.table), self._held.get(place)
        if before is None or before.snapshot != table.head:
            self._held[place] = self._hold(table, step, place)
            if before is not None:
                before.rows.unpersist()
        return self._held[place].rows

    def _hold(self, table: Table, step: Lookup, place: Place) -> Held:
        held = self._read(table, step, place[-1])
        try:
            require_unique(held.rows, place[1])
        except BaseException:
            held.rows.unpersist()
            raise
        return held

    def _table(self, name: str) -> Table:
        """As it was when a step of this round first asked for it."""
        if name not in self._tables:
            found = self._lake.load(TableName(*name.split(".")))
            if found is None:
                raise Retryable(f"there is no table {name}, in which a step looks up")
            self._tables[name] = found
        return self._tables[name]

    def _read(self, table: Table, step: Lookup, columns: tuple[str, ...]) -> Held:
        name, spark = table.name.quoted(CATALOG), self._lake.spark
        head = table.head
        if head is None:
            rows = spark.table(name).limit(0)
        else:
            _require_small(table, head)
            rows = spark.sql(f"SELECT * FROM {name} VERSION AS OF {head}")  # noqa: S608 checked, quoted; a number
        require_columns(rows.schema, step)
        return Held(head, rows.select(*map(quote, columns)).persist())


def _require_small(table: Table, head: int) -> None:
    """Refuse a table that no task could hold. Its snapshot says how large it is; one that does not is not read to find out."""
    commit = table.snapshot(head)
    summary = commit.summary if commit is not None else {}
    for figure, most, what in (
        ("total-records", MOST_ROWS, "rows"),
        ("total-files-size", MOST_BYTES, "bytes of files"),
    ):
        found = summary.get(figure)
        if found is None:
            raise unusable(f"the newest snapshot of {table.name} does not say how many {what} it has")
        if int(found) > most:
            raise unusable(
                f"{table.name} has {int(found):,} {what}; a table in which a step looks up may have {most:,}"
            )
