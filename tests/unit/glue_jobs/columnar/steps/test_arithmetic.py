"""Sums, products and quotients of columns, against those of Python's integers."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from itertools import product

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glue_jobs.engines.columnar_steps import expressions

KINDS = (pa.int32(), pa.int64())
EDGES = (0, 1, -1, 2, 46_341, 3_037_000_500, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63))


def quotient(left: int, right: int) -> int:
    size = abs(left) // abs(right)
    return size if (left < 0) == (right < 0) else -size


def remainder(left: int, right: int) -> int:
    return left - right * quotient(left, right)


@pytest.mark.parametrize(
    ("name", "exact", "kind"),
    [
        *(("add", operator.add, kind) for kind in KINDS),
        *(("subtract", operator.sub, kind) for kind in KINDS),
        *(("multiply", operator.mul, kind) for kind in KINDS),
        *(("remainder", remainder, kind) for kind in KINDS),
        ("quotient", quotient, pa.int64()),
    ],
    ids=lambda each: each.__name__ if callable(each) else str(each),  # a function's own text has its address
)
@given(data=st.data())
def test_a_value_is_exact_or_fails(
    data: st.DataObject, name: str, exact: Callable[[int, int], int], kind: pa.DataType
) -> None:
    least = -(2 ** (kind.bit_width - 1))
    edges, numbers = [n for n in EDGES if least <= n < -least], st.integers(least, -least - 1)
    pairs = [*product(edges, edges), *data.draw(st.lists(st.tuples(numbers, numbers), max_size=20))]
    left, right = (np.array(each, np.int64) for each in zip(*pairs, strict=True))
    found, failed = getattr(expressions, name)(left, right, kind)
    for (one, other), value, fails in zip(pairs, found.tolist(), failed.tolist(), strict=True):
        nothing = name in ("remainder", "quotient") and other == 0
        wanted = None if nothing else exact(one, other)
        assert fails == (wanted is None or not least <= wanted < -least)
        assert fails or value == wanted


@given(st.lists(st.tuples(st.floats(), st.floats()), min_size=1, max_size=20))
def test_a_quotient_fails_for_zero_alone(pairs: list[tuple[float, float]]) -> None:
    left, right = (np.array(each, np.float64) for each in zip(*pairs, strict=True))
    found, failed = expressions.divide(left, right, pa.float64())
    for (one, other), value, fails in zip(pairs, found.tolist(), failed.tolist(), strict=True):
        assert fails == (other == 0)
        if not fails and math.isfinite(one) and abs(other) >= 1:
            assert value == one / other
