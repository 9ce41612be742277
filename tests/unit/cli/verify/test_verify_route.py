"""Routes as verification follows them, on explicit rows."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from calve.config.steps import Route
from cli.verify.columns import places_of
from cli.verify.formats.fields import LEFT_OUT
from cli.verify.steps.lookup import routed

KAFKA = pa.struct([("partition", pa.int32()), ("offset", pa.int64())])
OWN, NAMED = ("order",), ("order", "payment")
TYPES = ["order", "payment", "Order", None]


def fates(values: list[Any], kind: Any, route: Route, *, tombstones: bool = False) -> list[str | None]:
    """Of each value why it makes no row; None: it makes one. The column is a struct's, and the places are 0, 1, 2 ..."""
    rows = pa.RecordBatch.from_arrays(
        [
            pa.array([None if each is None else {"Of": each} for each in values], pa.struct([("Of", kind)])),
            pa.array([{"partition": 0, "offset": n} for n in range(len(values))], KAFKA),
        ],
        names=["head", "_kafka"],
    )
    made, lost = routed(rows, route, tombstones=tombstones)
    told: list[tuple[int, str | None]] = [(place, None) for place in places_of(made).to_pylist()]
    told += lost.items()
    assert sorted(place for place, _ in told) == list(range(len(values)))
    return [fate for _, fate in sorted(told, key=lambda each: each[0])]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_each_record_has_the_fate_that_its_table_gives_it(kind: Any) -> None:
    leaving = fates(TYPES, kind, Route("head.of", OWN, (), "leave_out"))
    assert leaving == [None, LEFT_OUT, LEFT_OUT, LEFT_OUT]
    assert fates(TYPES, kind, Route("head.of", (), NAMED, "keep")) == [LEFT_OUT, LEFT_OUT, None, None]
    rejecting = fates(TYPES, kind, Route("Head.oF", OWN, NAMED, "reject"))
    assert rejecting == [None, LEFT_OUT, "no_route", "no_route"]
    assert fates(TYPES, kind, Route("head.of", (), (), "keep")) == [None] * 4


@pytest.mark.parametrize(
    ("values", "kind", "own"),
    [([1, 2, None], pa.int32(), (1, 2**40)), ([True, False, None], pa.bool_(), (True,))],
)
def test_numbers_and_booleans(values: list[Any], kind: Any, own: tuple[Any, ...]) -> None:
    assert fates(values, kind, Route("head.of", own, own, "reject")) == [None, "no_route", "no_route"]


def test_tombstones_are_every_tables() -> None:
    found = fates([None], pa.string(), Route("head.of", OWN, NAMED, "reject"), tombstones=True)
    assert found == [None]
