"""What steps need beside the rows, and where a job has it from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from pyspark.sql import DataFrame

from calve.steps import Lookup
from glue_jobs.lake import Lake
from glue_jobs.steps.lookups import Lookups
from glue_jobs.steps.tokens import MaskingKeys


@dataclass(frozen=True, slots=True)
class Means:
    """keys: `glue_jobs.steps.tokens.key_frame`, as it is now. tables: rows of other tables, the same throughout a round. tags: of
    the fields of records, by path.
    """

    keys: Callable[[], DataFrame]
    tables: Callable[[Lookup], DataFrame]
    tags: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(slots=True)
class Supply:
    """The means of one table. database: where tables are that steps name without one. masking: None where nothing is masked."""

    lake: Lake
    database: str
    masking: MaskingKeys | None
    lookups: Lookups = field(init=False)

    def __post_init__(self) -> None:
        self.lookups = Lookups(self.lake)

    def means(self, tags: Mapping[str, tuple[str, ...]]) -> Means:
        return Means(self._keys, self._table, tags)

    def _keys(self) -> DataFrame:
        if self.masking is None:
            raise AssertionError("a table that masks was opened without its keys")
        return self.masking.frame

    def _table(self, step: Lookup) -> DataFrame:
        return self.lookups.table(replace(step, table=step.full_name(self.database)))
