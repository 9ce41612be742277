"""Groups and their measures equal an independent computation, whatever the order of the rows."""

from __future__ import annotations

import math
from collections import defaultdict
from fractions import Fraction

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calve.config.publishing import Measure
from lambdas.csv_export import aggregate
from lambdas.csv_export.aggregate import Aggregation
from lambdas.csv_export.window import ExportFailed
from tests.unit.lambdas.csv_export.lake import export

WHAT = export(
    group_by=("g",),
    measures=(
        Measure("rows", "count"),
        Measure("some", "count", "f"),
        Measure("whole", "sum", "i"),
        Measure("real", "sum", "f"),
        Measure("least", "min", "t"),
        Measure("most", "max", "i"),
    ),
)
INTEGERS = st.integers(-(2**63), 2**63 - 1) | st.none()
FLOATS = st.floats() | st.none()
ROWS = st.lists(
    st.tuples(st.sampled_from(["a", "b", "", None]), INTEGERS, FLOATS, st.text(max_size=2) | st.none())
)


def batches(rows: list[tuple], size: int = 3) -> list[pa.RecordBatch]:
    kinds = {"g": pa.string(), "i": pa.int64(), "f": pa.float64(), "t": pa.string()}
    text = [
        tuple(v.encode("utf-8", "replace").decode() if isinstance(v, str) else v for v in r) for r in rows
    ]
    columns = {name: pa.array([row[i] for row in text], kind) for i, (name, kind) in enumerate(kinds.items())}
    whole = pa.record_batch(columns)
    return [whole.slice(start, size) for start in range(0, len(rows), size)]


def aggregated(rows: list[tuple]) -> list[tuple]:
    aggregation = Aggregation(WHAT)
    for batch in batches(rows):
        aggregation.add(batch)
    return [tuple(row.values()) for batch in aggregation.batches(2) for row in batch.to_pylist()]


def total(values: list[float]) -> float | None:
    if not values:
        return None
    special = sum(value for value in values if not math.isfinite(value))
    if not math.isfinite(special):
        return special
    try:
        return float(sum(map(Fraction, values)))
    except OverflowError:
        return math.copysign(math.inf, 1 if sum(map(Fraction, values)) > 0 else -1)


@given(ROWS)
def test_measures_are_exact(rows: list[tuple]) -> None:
    groups = defaultdict(list)
    for row in rows:
        groups[row[0]].append(row[1:])
    expected = []
    for key in sorted(groups, key=lambda k: (k is None, k or "")):
        whole, real, text = (
            [v for v in column if v is not None] for column in zip(*groups[key], strict=True)
        )
        bounds = min(text, default=None), max(whole, default=None)
        expected.append(
            (key, len(groups[key]), len(real), sum(whole) if whole else None, total(real), *bounds)
        )
    assert repr([_plain(row) for row in aggregated(rows)]) == repr([_plain(row) for row in expected])


def _plain(row: tuple) -> tuple:
    """Decimals as integers, and a zero without its sign."""
    return (
        *row[:3],
        None if row[3] is None else int(row[3]),
        row[4] if row[4] is None else row[4] + 0.0,
        *row[5:],
    )


@given(ROWS, st.randoms(use_true_random=False))
def test_the_result_does_not_depend_on_the_order_of_rows(rows: list[tuple], chance) -> None:
    shuffled = rows.copy()
    chance.shuffle(shuffled)
    assert repr(aggregated(rows)) == repr(aggregated(shuffled))


@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False, min_value=-1e300, max_value=1e300), min_size=1)
)
def test_a_sum_of_floats_is_rounded_once(values: list[float]) -> None:
    integers, powers = aggregate.split_numbers(pa.array(values, pa.float64()))
    assert aggregate.total(zip(integers.to_pylist(), powers.to_pylist(), strict=True)) == math.fsum(values)


def test_too_many_groups_are_refused() -> None:
    aggregation = Aggregation(WHAT, state_bytes=100_000)
    rows = [(str(i), 1, 0.5, "x") for i in range(3000)]
    (batch,) = batches(rows, 3000)
    with pytest.raises(ExportFailed, match="there are more than") as refused:
        aggregation.add(batch)
    assert refused.value.kind == "too_many_groups"


def test_many_rows_of_few_groups_are_not() -> None:
    aggregation = Aggregation(WHAT, state_bytes=100_000)
    for batch in batches([(str(i % 9), 1, 0.5, "x") for i in range(6000)], 500):
        aggregation.add(batch)
    assert sum(batch.num_rows for batch in aggregation.batches(100)) == 9
