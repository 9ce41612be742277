"""How decoded records become rows: the steps, and the columns before and after them."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame, Observation

from calve.modes.mode import Mode
from calve.schema.columns import Json
from glue_jobs.table.counts import observe_rows
from glue_jobs.table.records import flattened, rows, with_keys
from glue_jobs.transform.chain import Chain
from glue_jobs.transform.types import conformed


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class RowPlan:
    """Equal only to itself: engines cache their plans by it.

    source: the columns that records are decoded to. made: the columns of rows after the steps.
    columns: the columns of the table. An aggregate table has columns of its own.
    """

    source: Json
    made: Json
    chain: Chain
    columns: Json
    mode: Mode

    def records(self, decoded: DataFrame, *beside: str) -> DataFrame:
        """Each record as a row (`glue_jobs.transform.row_columns`), with the columns named in `beside` (`flattened`)."""
        found = self.chain.of_records(flattened(decoded, self.source, *beside))
        return with_keys(found, self.mode.key) if self.mode.key and not self._of_rows else found

    def rows(self, frame: DataFrame) -> tuple[DataFrame, Observation | None]:
        """The table rows of the good `records`, and an observation that counts them if a record may make several."""
        good = rows(frame)
        if not self.chain.explodes:
            return self._conformed(good), None
        made, observation = observe_rows(self.all_rows(good))
        return self._conformed(rows(made)), observation

    def all_rows(self, good: DataFrame) -> DataFrame:
        """All rows that records make, including failed and filtered ones."""
        made = self.chain.of_rows(good)
        return with_keys(made, self.mode.key) if self._of_rows else made

    @property
    def _of_rows(self) -> bool:
        """Whether the key belongs to rows, and a record may make several."""
        return self.chain.explodes and self.mode.groups_rows

    def _conformed(self, good: DataFrame) -> DataFrame:
        return conformed(good, self.columns) if self.chain.steps and not self.mode.groups_rows else good
