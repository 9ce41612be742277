"""Lists that make rows of columns, part by part."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from glue_jobs.engines.columnar_steps.chain import MOST_BYTES, MOST_ROWS, exploded
from glue_jobs.engines.columnar_steps.expressions import Rows

LISTS = st.lists(st.none() | st.lists(st.none() | st.integers(0, 9), max_size=4), max_size=12)


def records(lists: list[list[int | None] | None], texts: list[str]) -> Rows:
    """The records as they lie within a longer batch."""
    kafka = pa.StructArray.from_arrays([pa.array(range(len(lists) + 1))], ["offset"])
    batch = pa.table(
        {
            "n": pa.array([[8], *lists], pa.list_(pa.int64())),
            "t": pa.array(["", *texts]),
            "_kafka": kafka,
        }
    )
    return Rows.of(batch.slice(1))


@given(LISTS)
def test_each_item_makes_a_row_and_no_items_make_one(lists: list[list[int | None] | None]) -> None:
    rows = records(lists, [str(n) for n in range(len(lists))])
    parts = list(exploded("n", rows))
    found = [
        row
        for each in parts
        for row in zip(each.columns["n"].to_pylist(), each.columns["t"].to_pylist(), strict=True)
    ]
    assert found == [(item, str(n)) for n, items in enumerate(lists) for item in items or [None]]
    assert [record for each in parts for record in each.record] == [int(text) for _, text in found]


def test_a_part_has_a_bounded_number_of_rows() -> None:
    parts = list(exploded("n", records([list(range(2 * MOST_ROWS + 1)), [1]], ["a", "b"])))
    assert [len(each) for each in parts] == [MOST_ROWS, MOST_ROWS, 2]


def test_a_part_has_a_bounded_number_of_bytes() -> None:
    text, items = "x" * (MOST_BYTES // 16), 40
    parts = list(exploded("n", records([[1], list(range(items)), None], ["a", text, "b"])))
    assert sum(len(each) for each in parts) == items + 2
    assert max(each.columns["t"].nbytes for each in parts) <= MOST_BYTES + len(text)
    assert len(parts) <= items // 15 + 1
    assert all(isinstance(each.record, np.ndarray) for each in parts)
