"""What a sketch has counted is told only where it is exact, and of few values."""

import pytest

from glue_jobs.iceberg.staging import MOST_VALUES, counts


def test_what_adds_up_is_told_and_what_has_no_value_is_among_the_others():
    found = counts("side", [("SELL", 2), ("BUY", 5), (None, 3)], 10)
    assert found == {"column": "side", "values": {"BUY": 5, "SELL": 2}, "other": 3}
    assert list(found["values"]) == ["BUY", "SELL"]


@pytest.mark.parametrize("rows", [9, 11])
def test_what_does_not_add_up_is_not_told(rows):
    assert counts("side", [("SELL", 5), ("BUY", 5)], rows) == {"column": "side", "values": {}, "other": rows}


def test_what_has_too_many_values_is_not_told():
    for values, told in ((MOST_VALUES, MOST_VALUES), (MOST_VALUES + 1, 0)):
        assert len(counts("c", [(str(n), 1) for n in range(values)], values)["values"]) == told


def test_no_rows_are_no_values():
    assert counts("c", (), 0) == {"column": "c", "values": {}, "other": 0}
