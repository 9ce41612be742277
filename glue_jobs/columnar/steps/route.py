"""Which records of a topic that tables share are this one's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from calve.steps import Value
from glue_jobs.columnar.steps.rows import Mask, Rows


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
