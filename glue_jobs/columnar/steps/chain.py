"""All steps of a table on columns of Arrow, as `glue_jobs.steps.chain` has them on rows of Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from calve.masking import Key
from calve.names import SYSTEM_COLUMN
from calve.steps import Value
from glue_jobs.columnar.steps.expressions import Expression, evaluate
from glue_jobs.columnar.steps.flatten import Explosion, Flattening
from glue_jobs.columnar.steps.mask import Masking
from glue_jobs.columnar.steps.rows import Mask, Rows, as_mask
from glue_jobs.columnar.types import conformed


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


@dataclass(frozen=True, slots=True)
class Routing:
    """As `calve.steps.Route`; the path of its column as the columns spell it."""

    path: tuple[str, ...]
    values: tuple[Value, ...]
    named: tuple[Value, ...]
    others: Literal["leave_out", "keep", "reject"]

    def run(self, rows: Rows) -> tuple[Rows, Mask, Mask]:
        """The rows, which of them are left out, and which are rejected."""
        value = rows.at(self.path)
        own, named = _is_one(value, self.values), _is_one(value, self.named)
        match self.others:
            case "leave_out":
                left_out, lost = ~own, np.zeros_like(own)
            case "keep":
                left_out, lost = named, np.zeros_like(own)
            case "reject":
                left_out, lost = named & ~own, ~named
        return rows, left_out, lost


def _is_one(value: pa.Array, values: Sequence[Value]) -> Mask:
    """A value that is null is none of them."""
    wanted = pa.array([each for each in values if _fits(each, value.type)], value.type)
    found: Mask = pc.is_in(value, value_set=wanted).to_numpy(zero_copy_only=False)
    return found


def _fits(value: Value, kind: pa.DataType) -> bool:
    """Whether a column of a type can hold the value."""
    if not pa.types.is_integer(kind):
        return True
    least: int = -(1 << kind.bit_width - 1)
    return least <= int(value) < -least


Columns = tuple[tuple[str, pa.DataType], ...]
Operation = Routing | Flattening | Masking | Condition | Computation


@dataclass(frozen=True, slots=True)
class Made:
    """What records have become. rows: the columns of the table, with `_kafka`. left_out: how many records a step has left out.
    rejected: places of the records that are rejects. made: rows, where a record may make several; of them `failed` cannot be
    computed, and `cut` are left out; neither is in `rows`.
    """

    rows: pa.Table
    left_out: int
    rejected: NDArray[np.int64]
    made: int | None = None
    failed: int = 0
    cut: int = 0


@dataclass(frozen=True, slots=True)
class Steps:
    """of_records: what is done to records. explosion: what makes several rows of them. of_rows: what is done to these. source:
    the columns that records are decoded to, as Spark has them. columns: those of the table.

    Holds no secret: the masking keys are given to `run`.
    """

    of_records: tuple[Operation, ...]
    explosion: Explosion | None
    of_rows: tuple[Operation, ...]
    source: Columns
    columns: Columns

    def run(self, batch: pa.Table | pa.RecordBatch, keys: Sequence[Key] = ()) -> Iterator[Made]:
        """What becomes of good records with the columns that they are decoded to, and `_kafka`: once, or in several parts.

        keys: `calve.masking.read_keys`, where the table masks.
        """
        rows, left_out, rejected = _run(self.of_records, _as(self.source, Rows.of(batch)), keys)
        if self.explosion is None:
            yield Made(self._table(rows), left_out, rejected)
            return
        for number, part in enumerate(self.explosion.run(rows)):
            made, cut, failed = _run(self.of_rows, part, keys)
            first = number == 0
            yield Made(
                self._table(made),
                left_out if first else 0,
                rejected if first else rejected[:0],
                len(part),
                len(failed),
                cut,
            )

    def _table(self, rows: Rows) -> pa.Table:
        return pa.table({**_as(self.columns, rows).columns, SYSTEM_COLUMN: rows.kafka})


def _as(columns: Columns, rows: Rows) -> Rows:
    """Rows with just these columns, of these types."""
    return rows.with_columns(
        {name: conformed(rows.columns.get(name), kind, len(rows)) for name, kind in columns}
    )


def _run(
    operations: Sequence[Operation], rows: Rows, keys: Sequence[Key]
) -> tuple[Rows, int, NDArray[np.int64]]:
    """The rows that are left, how many are left out, and the records of those that are rejected."""
    left_out, rejected = 0, [rows.record[:0]]
    for each in operations:
        match each:
            case Flattening():
                rows = each.run(rows)
            case Masking():
                rows = each.run(rows, keys)
            case Routing() | Condition() | Computation():
                made, cut, failed = each.run(rows)
                left_out += int(cut.sum())
                rejected.append(rows.record[failed])
                rows = made.where(~(cut | failed))
    return rows, left_out, np.concatenate(rejected)
