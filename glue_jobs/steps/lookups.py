"""The other tables of lookups, each as of its newest snapshot, in memory until there is a newer one."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame

from calve.errors import Retryable
from calve.names import TableName, quote
from calve.spark_conf import CATALOG
from calve.steps import LOOKED_UP, Lookup
from glue_jobs.lake import Lake, Table
from glue_jobs.steps.frame import unusable
from glue_jobs.steps.lookup import require_columns, require_unique

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
