"""As Spark's sketch tells them (`glue_jobs.iceberg.staging`), whatever tasks the rows were in."""

import pyarrow as pa
import pytest

from glue_jobs.engines.columnar.tasks import values_of, values_together
from glue_jobs.iceberg.staging import LONGEST, MOST_VALUES


def of(*values: object, kind: pa.DataType | None = None) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(values, kind)])


@pytest.mark.parametrize(
    ("column", "told"),
    [
        (of("BUY", None, "SELL", "BUY"), {"BUY": 2, "SELL": 1, None: 1}),
        (of(True, False, True), {"true": 2, "false": 1, None: 0}),
        (of(-7, 7, None, kind=pa.int64()), {"-7": 1, "7": 1, None: 1}),
        (of("é" * LONGEST, "é" * (LONGEST + 1)), {"é" * LONGEST: 1, None: 1}),
        (of(kind=pa.string()), {None: 0}),
        (of("BUY", None).dictionary_encode(), {"BUY": 1, None: 1}),
    ],
)
def test_rows_are_told_by_the_text_of_their_value(
    column: pa.ChunkedArray, told: dict[str | None, int]
) -> None:
    assert values_of(column) == told


def test_too_many_values_are_not_told() -> None:
    most = of(*map(str, range(MOST_VALUES)), None)
    assert len(values_of(most) or ()) == MOST_VALUES + 1
    assert values_of(of(*map(str, range(MOST_VALUES + 1)))) is None
    assert values_together([values_of(most), values_of(of("another"))]) is None
    assert values_together([values_of(of("a", "b")), None]) is None


def test_what_is_no_text_is_not_told() -> None:
    assert values_of(pa.chunked_array([pa.array([b"\xff"]).view(pa.string())])) is None


def test_tasks_add_up() -> None:
    found = values_together([values_of(of("a", None)), {}, values_of(of("a", "b"))])
    assert found == {"a": 2, "b": 1, None: 1}
