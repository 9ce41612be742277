"""The steps `filter` and `sql`: a condition on rows, and columns that are computed of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from glue_jobs.columnar.steps.expressions import Expression, evaluate
from glue_jobs.columnar.steps.rows import Mask, Rows, as_mask


@dataclass(frozen=True, slots=True)
class Condition:
    """What `filter`, or WHERE, asks of rows."""

    expression: Expression

    def run(self, rows: Rows) -> tuple[Rows, Mask, Mask]:
        """The rows, those of which the condition is not true, and those on which it fails."""
        found = evaluate(self.expression, rows)
        failed = np.zeros(len(rows), np.bool_) if found.failed is None else found.failed
        return rows, ~as_mask(found.array(len(rows))) & ~failed, failed


@dataclass(frozen=True, slots=True)
class Computation:
    """A select list."""

    columns: tuple[tuple[str, Expression], ...]

    def run(self, rows: Rows) -> tuple[Rows, Mask, Mask]:
        """Rows of the columns, of which none is left out, and those on which one of the columns fails."""
        found = {name: evaluate(each, rows) for name, each in self.columns}
        nothing = np.zeros(len(rows), np.bool_)
        failures = [nothing, *(each.failed for each in found.values() if each.failed is not None)]
        made = rows.with_columns({name: each.array(len(rows)) for name, each in found.items()})
        return made, nothing, np.logical_or.reduce(failures)
