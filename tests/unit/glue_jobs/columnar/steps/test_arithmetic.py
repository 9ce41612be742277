"""Sums, products and quotients of columns, against those of Python's integers."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glue_jobs.columnar.steps.arithmetic import FAILING

EDGES = st.sampled_from([0, 1, -1, 2, 46_341, 3_037_000_500, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63)])


def remainder(left: int, right: int) -> int:
    return left - right * (abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1))


@pytest.mark.parametrize("kind", [pa.int32(), pa.int64()], ids=str)
@pytest.mark.parametrize(
    ("name", "exact"),
    [
        ("add", operator.add),
        ("subtract", operator.sub),
        ("multiply", operator.mul),
        ("remainder", remainder),
    ],
)
@given(data=st.data())
def test_a_value_is_exact_or_fails(
    data: st.DataObject, name: str, exact: Callable[[int, int], int], kind: pa.DataType
) -> None:
    least = -(2 ** (kind.bit_width - 1))
    numbers = (EDGES | st.integers(least, -least - 1)).filter(lambda n: least <= n < -least)
    pairs = data.draw(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=20))
    left, right = (np.array(each, np.int64) for each in zip(*pairs, strict=True))
    found, failed = FAILING[name](left, right, kind)
    for (one, other), value, fails in zip(pairs, found.tolist(), failed.tolist(), strict=True):
        wanted = None if name == "remainder" and other == 0 else exact(one, other)
        assert fails == (wanted is None or not least <= wanted < -least)
        assert fails or value == wanted


@given(st.lists(st.tuples(st.floats(), st.floats()), min_size=1, max_size=20))
def test_a_quotient_fails_for_zero_alone(pairs: list[tuple[float, float]]) -> None:
    left, right = (np.array(each, np.float64) for each in zip(*pairs, strict=True))
    found, failed = FAILING["divide"](left, right, pa.float64())
    for (one, other), value, fails in zip(pairs, found.tolist(), failed.tolist(), strict=True):
        assert fails == (other == 0)
        if not fails and math.isfinite(one) and abs(other) >= 1:
            assert value == one / other
