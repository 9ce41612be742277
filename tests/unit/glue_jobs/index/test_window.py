"""Records of a key that lie a window apart, against a reader of one record after the other."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from glue_jobs.index.decision import KeyRule, starts
from glue_jobs.index.window import apart, in_order
from tests import keyed
from tests.keyed import Record
from tests.unit.glue_jobs.index.test_decision import arrays, only

WINDOW = 4
TIMES = st.integers(-20, 20)


@st.composite
def batches(draw: st.DrawFn) -> list[Record]:
    ends = [0, 0, 0]
    records = []
    for key, partition, at in draw(
        st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), TIMES), max_size=40)
    ):
        records.append(Record(key, partition, ends[partition], at, None, deletes=False))
        ends[partition] += 1
    return draw(st.permutations(records))


@given(records=batches(), held=st.lists(st.tuples(st.integers(0, 3), TIMES), max_size=10))
def test_a_record_stays_if_no_row_of_its_key_is_near(
    records: list[Record], held: list[tuple[int, int]]
) -> None:
    every = arrays(records)
    order = in_order(every)
    ordered = every.take(order)
    firsts = np.flatnonzero(starts((ordered.high, ordered.low)))
    numbers = {2 * int(ordered.high[n]) + int(ordered.low[n]): place for place, n in enumerate(firsts)}
    known = [(numbers[key], at) for key, at in held if key in numbers]
    keys, times = (np.array([each[side] for each in known], np.int64) for side in (0, 1))
    kept = np.zeros(len(records), bool)
    kept[order] = apart(ordered, keys, times, WINDOW)
    rows = {key: [at for each, at in held if each == key] for key in range(4)}
    assert set(only(records, kept)) == keyed.apart(records, rows, WINDOW)


@given(records=batches())
def test_a_task_drops_none(records: list[Record]) -> None:
    """Whether a record is near a row depends on the table."""
    assert KeyRule(("id",), newest=False, window_ms=WINDOW).kept_in_part(arrays(records)).all()
