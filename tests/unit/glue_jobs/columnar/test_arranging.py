"""Rows of a partition lie together, sorted as the table's sort order says."""

from __future__ import annotations

import datetime as dt
import json
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calve.schema.columns import Transform, field, struct
from glue_jobs.engines.columnar.arranging import arranged
from tests.unit.glue_jobs.columnar.layouts import layout

ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "a": st.none() | st.sampled_from(["x", "y", "žąsis", ""]),
            "b": st.none() | st.integers(-3, 3),
            "c": st.none() | st.floats(width=32),
            "s": st.fixed_dictionaries({"d": st.none() | st.binary(max_size=2)}),
        }
    ),
    min_size=1,
    max_size=50,
)
COLUMNS = struct(
    field("a", "string"), field("b", "int"), field("c", "double"), field("s", struct(field("d", "binary")))
)
TYPES = pa.schema(
    [("a", pa.string()), ("b", pa.int32()), ("c", pa.float64()), ("s", pa.struct([("d", pa.binary())]))]
)


def by(column: str, *, nulls_first: bool = True, descending: bool = False) -> tuple[Transform, bool]:
    return Transform(column, descending=descending), nulls_first


def sort_key(row: dict[str, Any]) -> Any:
    """c descending with nulls last, s.d ascending with nulls first, by Python's own sort."""
    c, d = row["c"], row["s"]["d"]
    greatest = c is not None and math.isnan(c)
    return (c is None, not greatest, 0 if c is None or greatest else -c), (d is not None, d or b"")


@given(ROWS, st.integers(1, 7))
def test_rows_are_in_their_partitions_and_in_order(held: list[Any], chunk: int) -> None:
    made = layout(
        COLUMNS,
        partition=(
            (1000, Transform("a")),
            (1001, Transform("b", "truncate", 2)),
            (1002, None),
        ),
        order=(by("c", descending=True, nulls_first=False), by("s.d")),
    )
    rows = pa.Table.from_pylist(held, schema=TYPES)
    rows = pa.Table.from_batches(rows.to_batches(max_chunksize=chunk))
    found = [(json.loads(partition or ""), part.to_pylist()) for partition, part in arranged(rows, made)]
    keys = [tuple(partition.values()) for partition, _ in found]
    assert len(set(keys)) == len(keys)
    assert sum(len(part) for _, part in found) == len(held)
    for partition, part in found:
        a, b = partition["1000"], partition["1001"]
        belonging = [r for r in held if r["a"] == a and (r["b"] if r["b"] is None else r["b"] // 2 * 2) == b]
        assert partition["1002"] is None
        assert [repr(sort_key(row)) for row in part] == [
            repr(sort_key(row)) for row in sorted(belonging, key=sort_key)
        ]


@given(ROWS)
def test_equal_rows_stay_in_the_order_of_their_offsets(held: list[Any]) -> None:
    made = layout(COLUMNS, partition=((1000, Transform("a")),), order=(by("b"),))
    rows = pa.Table.from_pylist(held, schema=TYPES).append_column("at", pa.array(range(len(held))))
    for _, part in arranged(rows, made):
        places = [(row["b"] is not None, row["b"] or 0, row["at"]) for row in part.to_pylist()]
        assert places == sorted(places)


def test_rows_of_a_partition_stay_in_the_order_of_their_offsets() -> None:
    made = layout(COLUMNS, partition=((1000, Transform("b")),))
    rows = pa.table({"b": pa.array([n * 7 % 5 for n in range(1_000)], pa.int32()), "at": range(1_000)})
    parts = [part.column("at").to_pylist() for _, part in arranged(rows, made)]
    assert len(parts) == 5
    assert all(part == sorted(part) for part in parts)


def test_rows_in_order_are_not_copied() -> None:
    rows = pa.table({"a": ["x", "y"], "b": pa.array([1, 2], pa.int32())})
    made = layout(COLUMNS, order=(by("b"),))
    ((partition, part),) = arranged(rows, made)
    assert partition is None
    assert part.column("a").chunk(0).buffers()[2].address == rows.column("a").chunk(0).buffers()[2].address


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (pa.scalar(True), True),
        (pa.scalar(-7), -7),
        (pa.scalar(Decimal("-0.10"), pa.decimal128(9, 2)), "-0.10"),
        (pa.scalar(Decimal("0E-10"), pa.decimal128(38, 10)), "0.0000000000"),
        (pa.scalar("žąsis"), "žąsis"),
        (pa.scalar(b"\x00\xff"), "00ff"),
        (pa.scalar(b"\x00\xff", pa.binary(2)), "00ff"),
        (pa.scalar(dt.date(1, 1, 1)), "0001-01-01"),
        (pa.scalar(2_932_897, pa.int32()).cast(pa.date32()), "+10000-01-01"),
        (pa.scalar(-719_529, pa.int32()).cast(pa.date32()), "-0001-12-31"),
        (pa.scalar(-1, pa.int64()).cast(pa.timestamp("us")), "1969-12-31T23:59:59.999999"),
        (pa.scalar(0, pa.int64()).cast(pa.timestamp("us", "UTC")), "1970-01-01T00:00:00.000000+00:00"),
        (pa.scalar(None, pa.string()), None),
        (pa.array([b"\xff"]).view(pa.string())[0], "\ufffd"),
    ],
)
def test_values_of_partitions_are_icebergs_json(value: pa.Scalar, text: Any) -> None:
    array = (
        pa.array([value.as_buffer().to_pybytes()]).view(pa.string())
        if text == "\ufffd"
        else pa.array([value])
    )
    made = layout(struct(field("x", "string")), partition=((1000, Transform("x")),))
    ((partition, _),) = arranged(pa.table({"x": array}), made)
    assert json.loads(partition or "") == {"1000": text}
