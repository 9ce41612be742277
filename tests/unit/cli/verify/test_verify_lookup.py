"""What `verify` makes of a lookup by itself: keys of one kind, several of them, nulls, and what another table has not."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from calve.config.steps import Lookup
from cli.verify.steps.lookup import looked_up

KAFKA = pa.struct([("partition", pa.int32()), ("offset", pa.int64())])


def rows(**columns: Any) -> pa.RecordBatch:
    """Rows with these columns, at the offsets from 0 on."""
    size = len(next(iter(columns.values())))
    kafka = pa.array([{"partition": 0, "offset": n} for n in range(size)], KAFKA)
    return pa.RecordBatch.from_pydict({**columns, "_kafka": kafka})


def found(batch: pa.RecordBatch, step: Lookup, other: pa.Table, *, tombstones: bool = False) -> Any:
    """The rows, if every record of the batch has one."""
    made, lost = looked_up(batch, step, other, tombstones=tombstones)
    assert lost == {}
    assert made.num_rows == batch.num_rows
    return made


def test_rows_keep_their_order_and_get_what_has_their_key() -> None:
    other = pa.table({"id": pa.array([3, 1, 2], pa.int64()), "Name": ["c", "a", "b"]})
    step = Lookup("t", {"product": "ID"}, {"title": "name"})
    made = found(rows(product=pa.array([2, 9, None, 1, 2], pa.int32())), step, other)
    assert made["title"].to_pylist() == ["b", None, None, "a", "b"]


def test_a_record_whose_key_is_not_there_fails_where_it_must_be() -> None:
    other = pa.table({"id": [1], "name": ["a"]})
    step = Lookup("t", {"id": "id"}, {"name": "name"}, "reject")
    made, lost = looked_up(rows(id=[1, 2, None]), step, other, tombstones=False)
    assert made["name"].to_pylist() == ["a"]
    assert lost == {1: "lookup_missing", 2: "lookup_missing"}


def test_tombstones_are_never_refused() -> None:
    other = pa.table({"id": [1], "name": ["a"]})
    step = Lookup("t", {"id": "id"}, {"name": "name"}, "reject")
    made = found(rows(id=[1, 2]), step, other, tombstones=True)
    assert made["name"].to_pylist() == ["a", None]


def test_all_parts_of_a_key_count_and_a_null_is_no_key() -> None:
    other = pa.table({"a": [1, 1, None], "b": ["x", "y", "x"], "n": [10, 20, 30]})
    step = Lookup("t", {"a": "a", "of.b": "b"}, {"n": "n"})
    batch = rows(a=[1, 1, None, 1], of=pa.array([{"b": "y"}, {"b": "x"}, {"b": "x"}, None]))
    assert found(batch, step, other)["n"].to_pylist() == [20, 10, None, None]


def test_nested_columns_are_found_too() -> None:
    other = pa.table({"id": [1, 2], "tags": [["x"], None], "of": [{"deep": {"n": 1}}, {"deep": None}]})
    step = Lookup("t", {"id": "id"}, {"tags": "tags", "of": "of"})
    made = found(rows(id=[2, 1, 3]), step, other)
    assert made["tags"].to_pylist() == [None, ["x"], None]
    assert made["of"].to_pylist() == [{"deep": None}, {"deep": {"n": 1}}, None]


AT = datetime(2026, 1, 2, tzinfo=UTC)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (pa.array([Decimal("1.50")], pa.decimal128(5, 2)), pa.array([Decimal("1.5")], pa.decimal128(30, 1))),
        (pa.array(["k"], pa.string()), pa.array(["k"], pa.large_string())),
        (pa.array([b"12"], pa.binary()), pa.array([b"12"], pa.binary(2))),
        (pa.array([True]), pa.array([True])),
        (pa.array([date(2026, 1, 2)]), pa.array([date(2026, 1, 2)])),
        (pa.array([AT], pa.timestamp("us", "UTC")), pa.array([AT], pa.timestamp("us", "UTC"))),
        (pa.array([7], pa.int32()), pa.array([7], pa.int64())),
    ],
    ids=lambda each: str(each.type),
)
def test_a_key_is_compared_with_its_own_kind(ours: Any, theirs: Any) -> None:
    other = pa.table({"k": theirs, "n": [1]})
    made = found(rows(k=ours), Lookup("t", {"k": "k"}, {"n": "n"}), other)
    assert made["n"].to_pylist() == [1]


def test_another_table_without_rows_has_no_key() -> None:
    other = pa.table({"k": pa.array([], pa.int64()), "n": pa.array([], pa.int32())})
    made = found(rows(k=[1, 2]), Lookup("t", {"k": "k"}, {"n": "n"}), other)
    assert made["n"].to_pylist() == [None, None]
    assert made.schema.field("n").type == pa.int32()
