from decimal import Decimal
from math import isnan, nan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calve.modes.measures import Arithmetic, ColumnAt, Expression, Number, parse
from cli.verify.keyed.aggregate import measure, same


@pytest.mark.parametrize(
    ("text", "record", "value"),
    [
        ("count(*)", {}, True),
        ("count(side)", {"side": None}, None),
        ("sum(price * quantity)", {"price": 3, "quantity": -(2**63)}, Decimal(-3 * 2**63)),
        ("sum(a - (b - c) * 1.50)", {"a": 1, "b": 2, "c": Decimal("0.5")}, Decimal("-1.250")),
        ("sum(0 - of.shop)", {"of.shop": 7}, Decimal(-7)),
        ("sum(a + b)", {"a": 1, "b": None}, None),
        ("sum(cast(p as decimal(18, 4)))", {"p": 0.00005}, Decimal("0.0001")),
        ("sum(cast(p as decimal(18, 4)))", {"p": -0.00005}, Decimal("-0.0001")),
        ("sum(cast(p as decimal(18, 0)))", {"p": Decimal("2.5")}, Decimal(3)),
        ("sum(cast(p as decimal(18, 0)))", {"p": -2.5}, Decimal(-3)),
        ("sum(cast(p as decimal(18, 2)))", {"p": 1.005}, Decimal("1.00")),
        ("sum(cast(p as decimal(18, 2)))", {"p": 19.99}, Decimal("19.99")),
        ("sum(cast(p as decimal(18, 0)))", {"p": 2.0**53 + 2}, Decimal(2**53 + 2)),
        ("sum(class + in.from)", {"class": 1, "in.from": 2}, Decimal(3)),
        ("max(_kafka.timestamp)", {"_kafka.timestamp": 5}, 5),
    ],
)
def test_a_measure_of_a_record(text: str, record: dict[str, Any], value: Any) -> None:
    found = measure("m", text)
    assert found.value(record) == value
    assert set(found.paths) == record.keys()


def folded(text: str, values: list[Any]) -> Any:
    found = measure("m", text)
    so_far = found.start
    for each in values:
        so_far = found.added(so_far, found.value({"x": each}))
    return so_far


def test_totals_leave_nulls_out_as_sql_does() -> None:
    assert [folded(f"{each}(x)", [None, 3, 5, None]) for each in ("count", "sum", "min", "max")] == [
        2,
        8,
        3,
        5,
    ]
    assert [folded(f"{each}(x)", [None]) for each in ("count", "sum", "min", "max")] == [0, None, None, None]
    assert folded("count(*)", [None, 1]) == 2
    assert folded("sum(x)", [10**37] * 9) == 9 * 10**37


def test_nan_is_the_greatest_and_equal_to_itself() -> None:
    assert isnan(folded("max(x)", [1.0, nan, 2.0]))
    assert folded("min(x)", [nan, 1.0]) == 1.0
    assert same(nan, nan)
    assert same(0.0, -0.0)
    assert not same(nan, None)
    assert not same(0, None)


TREES = st.recursive(
    st.sampled_from(["a", "b"]).map(ColumnAt) | st.integers(0, 999).map(lambda each: Number(str(each))),
    lambda inner: st.builds(Arithmetic, st.sampled_from("+-*"), inner, inner),
    max_leaves=10,
)


def value_of(tree: Expression, record: dict[str, int]) -> int:
    match tree:
        case ColumnAt(path):
            return record[path]
        case Number(text):
            return int(text)
        case Arithmetic(sign, left, right):
            one, other = value_of(left, record), value_of(right, record)
            return {"+": one + other, "-": one - other, "*": one * other}[sign]
    raise AssertionError


@given(TREES, st.integers(-(2**63), 2**63), st.integers(-9, 9))
def test_python_reads_a_text_as_the_job_does(tree: Expression, a: int, b: int) -> None:
    text = str(parse(f"sum({tree})"))
    assert measure("m", text).value({"a": a, "b": b}) == value_of(tree, {"a": a, "b": b})
