"""Transforms of whole columns are those that PyIceberg computes value by value."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg import transforms, types

from calve.schema.columns import Transform
from glue_jobs.engines.columnar.arranging import applied

PYICEBERG: dict[str, Any] = {
    "identity": transforms.IdentityTransform,
    "year": transforms.YearTransform,
    "month": transforms.MonthTransform,
    "day": transforms.DayTransform,
    "hour": transforms.HourTransform,
    "bucket": transforms.BucketTransform,
    "truncate": transforms.TruncateTransform,
}
MOMENTS = st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999)
KINDS: dict[str, tuple[pa.DataType, types.IcebergType, st.SearchStrategy[Any], tuple[str, ...]]] = {
    "int": (
        pa.int32(),
        types.IntegerType(),
        st.integers(-(2**31) + 2**20, 2**31 - 1),
        ("bucket", "truncate"),
    ),
    "long": (pa.int64(), types.LongType(), st.integers(-(2**62), 2**62), ("bucket", "truncate")),
    "date": (
        pa.date32(),
        types.DateType(),
        st.integers(-719_162, 2_932_896),
        ("bucket", "year", "month", "day"),
    ),
    "timestamp": (
        pa.timestamp("us"),
        types.TimestampType(),
        MOMENTS,
        ("bucket", "year", "month", "day", "hour"),
    ),
    "timestamptz": (
        pa.timestamp("us", "UTC"),
        types.TimestamptzType(),
        MOMENTS,
        ("bucket", "year", "month", "day", "hour"),
    ),
    "string": (pa.string(), types.StringType(), st.text(), ("bucket", "truncate")),
    "binary": (pa.binary(), types.BinaryType(), st.binary(), ("bucket", "truncate")),
    "fixed": (pa.binary(5), types.FixedType(5), st.binary(min_size=5, max_size=5), ("bucket",)),
    "price": (
        pa.decimal128(9, 2),
        types.DecimalType(9, 2),
        st.integers(-(10**9) + 1, 10**9 - 1).map(lambda n: Decimal(n).scaleb(-2)),
        ("bucket", "truncate"),
    ),
    "large": (
        pa.decimal128(38, 10),
        types.DecimalType(38, 10),
        st.integers(-(10**37) + 1, 10**37 - 1).map(
            lambda n: Decimal((n < 0, tuple(map(int, str(abs(n)))), -10))
        ),
        ("bucket", "truncate"),
    ),
}
CASES = [(kind, name) for kind, (*_, names) in KINDS.items() for name in names]


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_a_column_is_transformed_as_its_values_are(kind: str, name: str) -> None:
    arrow, iceberg, strategy, _ = KINDS[kind]

    @given(st.lists(st.none() | strategy, min_size=2, max_size=40), st.integers(1, 2**20))
    def check(values: list[Any], argument: int) -> None:
        argument = argument % 1000 + 1 if name == "truncate" and kind in ("string", "binary") else argument
        arguments = (argument,) if name in ("bucket", "truncate") else ()
        held = _array(values, arrow)
        # A slice that does not begin with the array's buffers.
        found = applied(Transform("x", name, *arguments), held.slice(1))  # type: ignore[arg-type]
        function = PYICEBERG[name](*arguments).transform(iceberg)
        assert [_number(each) for each in found.to_pylist()] == [function(each) for each in values[1:]]

    check()


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Dates and times are given as numbers."""
    if not pa.types.is_temporal(kind):
        return pa.array(values, kind)
    return pa.array(values, pa.int32() if pa.types.is_date(kind) else pa.int64()).cast(kind)


def _number(value: Any) -> Any:
    return (value - dt.date(1970, 1, 1)).days if isinstance(value, dt.date) else value


@pytest.mark.parametrize(
    ("value", "bucket"),
    [
        (pa.scalar(34, pa.int32()), 2017239379),
        (pa.scalar(34, pa.int64()), 2017239379),
        (pa.scalar(Decimal("14.20"), pa.decimal128(9, 2)), -500754589),
        (pa.scalar(17486, pa.int32()).cast(pa.date32()), -653330422),
        (pa.scalar(dt.datetime(2017, 11, 16, 22, 31, 8)), -2047944441),  # noqa: DTZ001
        (pa.scalar("iceberg"), 1210000089),
        (pa.scalar(b"\x00\x01\x02\x03"), -188683207),
    ],
)
def test_hashes_are_those_of_the_specification(value: pa.Scalar, bucket: int) -> None:
    """Appendix B of Iceberg's specification."""
    found = applied(Transform("x", "bucket", 2**30), pa.array([value]))
    assert found.to_pylist() == [(bucket & 0x7FFFFFFF) % 2**30]


def test_moments_beyond_pythons_years_have_theirs() -> None:
    held = pa.array([-(2**63) + 1, 2**63 - 1], pa.int64()).cast(pa.timestamp("us"))
    assert applied(Transform("x", "year"), held).to_pylist() == [-292_278, 292_277]
