"""How the decoded records of a table become its rows: the steps, the columns before them and those after them."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame, Observation

from calve.config.job import Aggregate, Mode
from calve.schema.columns import Json
from glue_jobs.table.counts import observe_rows
from glue_jobs.table.records import flattened, rows, with_keys
from glue_jobs.transform.chain import Chain
from glue_jobs.transform.types import conformed


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class RowPlan:
    """Equal to itself alone: engines keep what they have planned for it.

    source: the columns that records are decoded to. made: those that rows have after the steps. columns: those of the table,
    which of a table of totals are none of them.
    """

    source: Json
    made: Json
    chain: Chain
    columns: Json
    mode: Mode | None

    def records(self, decoded: DataFrame, *beside: str) -> DataFrame:
        """Each record as a row (`glue_jobs.transform.row_columns`), with what is asked for beside it (`flattened`)."""
        found = self.chain.of_records(flattened(decoded, self.source, *beside))
        return with_keys(found, self.mode.key) if self.mode and not self._of_rows else found

    def rows(self, frame: DataFrame) -> tuple[DataFrame, Observation | None]:
        """The rows of the table that the good ones of `records` make, and what counts them where a record may make several."""
        good = rows(frame)
        if not self.chain.explodes:
            return self._conformed(good), None
        made, observation = observe_rows(self.all_rows(good))
        return self._conformed(rows(made)), observation

    def all_rows(self, good: DataFrame) -> DataFrame:
        """The rows that records make, those among them that cannot be computed or are left out."""
        made = self.chain.of_rows(good)
        return with_keys(made, self.mode.key) if self.mode and self._of_rows else made

    @property
    def _of_rows(self) -> bool:
        """Whether the key is one of rows, of which a record may make several."""
        return self.chain.explodes and isinstance(self.mode, Aggregate)

    def _conformed(self, good: DataFrame) -> DataFrame:
        totals = isinstance(self.mode, Aggregate)
        return conformed(good, self.columns) if self.chain.steps and not totals else good
