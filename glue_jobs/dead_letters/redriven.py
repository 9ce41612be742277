"""Marks of redriven dead letters: their rows are rewritten in one validated commit.

Whole files are replaced. Position deletes would need their own writer, and not every reader supports equality deletes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from calve.config.spark_conf import CATALOG
from calve.errors import Retryable
from calve.names import SYSTEM_COLUMN
from calve.schema.columns import LATER, REDRIVEN
from calve.table.position import DeadLetterRound
from glue_jobs.iceberg.catalog import Lake, Table
from glue_jobs.iceberg.rewriting import overwriting, unmoved, write_rest
from glue_jobs.iceberg.staging import FILE, NOTHING, Staged, Validator, commit
from glue_jobs.process import faults
from glue_jobs.process.java import elements

DEAD_LETTER = ("cluster_id", "topic_id", "partition", "offset")
"""The columns that identify a dead letter."""
RECORD = ("topic", "partition", "offset", "timestamp", "timestamp_type", "key")
"""The columns of a table row that identify its record. No two records share all of them, though no incarnation is named."""
WITHOUT_KEY = RECORD[:-1]
"""The same without the key, which cannot be compared if the table hashes it or the dead letters encrypt it.

A record of another incarnation matches only with the same partition, offset and timestamp.
"""


class RedrivenMarks:
    """The column `redriven` of a dead-letter table, as of its last refresh. `main` names the table it belongs to."""

    def __init__(self, lake: Lake, table: Table, main: str) -> None:
        self._lake = lake
        self._table = table
        self._main = main

    def of(self, rounds: AbstractSet[str]) -> bool:
        """True if any dead letters are marked by one of these rounds."""
        return bool(rounds and self._rows().where(F.col(REDRIVEN).isin(*rounds)).limit(1).collect())

    def counts(self) -> dict[str, int]:
        """Redrive -> the number of dead letters marked by it."""
        marked = self._rows().where(F.col(REDRIVEN).isNotNull()).groupBy(REDRIVEN).count()
        return {row[REDRIVEN]: row["count"] for row in marked.collect()}

    def without_rows(self, marked: AbstractSet[str], main: DataFrame) -> AbstractSet[str]:
        """Redrives that a rollback of main removed: main holds none of their records. Otherwise it would hold all."""
        if not marked:
            return marked
        dead_letters = self._rows().where(F.col(REDRIVEN).isNotNull())
        held = record_of(main, WITHOUT_KEY)
        found = by_record(dead_letters, held, "left_semi", WITHOUT_KEY).select(REDRIVEN).distinct()
        return marked - {row[REDRIVEN] for row in found.collect()}

    def place(
        self, named: DeadLetterRound, marked: Staged, summary: dict[str, str], accept: Validator
    ) -> None:
        """Replace the dead letters of a redrive by the marked ones on its branch.

        Raises:
            LostRace, Ambiguous: as `glue_jobs.iceberg.staging.commit`.
            Retryable: the branch's snapshot is gone.
        """
        if self._table.snapshot(named.snapshot) is None:
            raise Retryable(f"the marks of redrive {named.round} are gone from {self._table.name}")
        keys = self._rows(named.snapshot).where(F.col(REDRIVEN) == named.round).select(*DEAD_LETTER)
        touched = self._rows().join(keys, [*DEAD_LETTER], "left_semi")

        def left(rows: DataFrame) -> DataFrame:
            return rows.join(keys, [*DEAD_LETTER], "left_anti")

        self._rewrite(touched, left, marked, summary, accept)

    def withdraw(self, rounds: AbstractSet[str], summary: dict[str, str], accept: Validator) -> None:
        """Delete the dead letters of these rounds, and remove the marks of the redrives among them.

        Raises LostRace, Ambiguous: as `glue_jobs.iceberg.staging.commit`.
        """
        marked = F.col(REDRIVEN).isin(*rounds)
        touched = self._rows().where(F.col("round").isin(*rounds) | marked)
        opened = F.when(~marked, F.col(REDRIVEN))

        def left(rows: DataFrame) -> DataFrame:
            return rows.where(~F.col("round").isin(*rounds)).withColumn(REDRIVEN, opened)

        self._rewrite(touched, left, NOTHING, summary, accept)

    def _rewrite(
        self,
        touched: DataFrame,
        left: Callable[[DataFrame], DataFrame],
        added: Staged,
        summary: dict[str, str],
        accept: Validator,
    ) -> None:
        table, head = self._table, self._table.head
        paths = {row[FILE] for row in touched.select(FILE).distinct().collect()}
        files = elements(table.java.newScan().useSnapshot(head).planFiles())
        tasks = [each for each in files if str(each.file().location()) in paths]
        columns = [each["name"] for each in table.schema["fields"]]
        rest = write_rest(
            self._lake, table, tasks, lambda rows: left(rows).select(*columns).coalesce(1), gone=None
        )
        faults.point("dead_letters.rewritten", self._main)
        update = overwriting(self._lake, table, tasks, added, rest)
        commit(table, update, summary, unmoved(head, accept))

    def _rows(self, snapshot: int | None = None) -> DataFrame:
        return rows_at(self._lake, self._table, snapshot or self._table.head)


def rows_at(lake: Lake, table: Table, snapshot: int | None) -> DataFrame:
    """All rows of a dead-letter table at a snapshot, each with its `_file`. Older tables lack `LATER` columns."""
    found = lake.spark.read.option("versionAsOf", str(snapshot)).table(table.name.quoted(CATALOG))
    lacking = {name: F.lit(None).cast("string") for name in LATER if name not in found.columns}
    return found.select("*", F.col(FILE)).withColumns(lacking)


def record_of(rows: DataFrame, names: Sequence[str] = RECORD) -> DataFrame:
    """The columns by which a table's rows identify their records."""
    return rows.select(*(F.col(SYSTEM_COLUMN)[name].alias(name) for name in names))


def by_record(
    these: DataFrame, those: DataFrame, how: str, identified_by: Sequence[str] = RECORD
) -> DataFrame:
    """Join by columns that identify records in both frames. Null keys match each other."""
    others = those.select(*(F.col(name).alias(f"other_{name}") for name in identified_by))
    same = [F.col(name).eqNullSafe(F.col(f"other_{name}")) for name in identified_by]
    return these.join(others, same, how)
