"""The step that routes: which records are the table's, which are left out, and which are rejected."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from calve.config.steps import Route
from calve.errors import Suspended
from glue_jobs.columns.expressions import FILTERED, REJECT
from glue_jobs.transform.chain import run_route
from glue_jobs.transform.row_columns import data
from tests.integration.support.records.frames import by_offset, frame, outcome

TYPES: tuple[tuple[str | None, int], ...] = (
    ("order", 0),
    ("payment", 1),
    ("Order", 2),
    ("order ", 3),
    (None, 4),
)
OWN, NAMED = ("order",), ("order", "payment")


def test_a_table_that_leaves_all_others_out(spark: SparkSession) -> None:
    found = run_route(frame(spark, "type string, n int", *TYPES), Route("type", OWN, (), "leave_out"))
    assert outcome(found) == [("order", 0), *["filtered"] * 4]


def test_a_table_of_what_no_other_names(spark: SparkSession) -> None:
    found = run_route(frame(spark, "type string, n int", *TYPES), Route("type", (), NAMED, "keep"))
    assert outcome(found) == ["filtered", "filtered", ("Order", 2), ("order ", 3), (None, 4)]


def test_a_table_that_rejects_what_no_table_names(spark: SparkSession) -> None:
    found = run_route(frame(spark, "type string, n int", *TYPES), Route("type", OWN, NAMED, "reject"))
    assert outcome(found) == [("order", 0), "filtered", *["no_route"] * 3]


def test_records_that_have_their_fate_and_tombstones_are_left_as_they_are(spark: SparkSession) -> None:
    records = frame(
        spark,
        "type string",
        ("payment", "malformed", None, False, False),
        ("payment", None, None, True, False),
        (None, None, 3, False, False),
        (None, None, None, False, True),
        (None, None, None, False, False),
        reject="string",
        other="int",
        filtered="boolean",
        tombstone="boolean",
    )
    for others, fate in (
        ("leave_out", (None, True)),
        ("keep", (None, False)),
        ("reject", ("no_route", False)),
    ):
        found = by_offset(run_route(records, Route("type", OWN, NAMED, others)))  # type: ignore[arg-type]
        assert [(row[REJECT], row[FILTERED]) for row in found] == [
            ("malformed", False),
            (None, True),
            (None, False),
            (None, False),
            fate,
        ]


@pytest.mark.parametrize(
    ("schema", "rows", "own", "kept"),
    [
        ("head struct<of: long>", (((2**62,),), ((-1,),), ((0,),), (None,)), (2**62, -1), [0, 1]),
        ("head struct<of: int>", (((1,),), ((2,),)), (2, 2**62), [1]),
        ("head struct<of: boolean>", (((True,),), ((False,),), ((None,),)), (False,), [1]),
        ("head struct<of: string>", ((("1",),), (("true",),), (("",),)), ("true", ""), [1, 2]),
    ],
)
def test_values_deep_in_the_record_and_of_other_types(
    spark: SparkSession, schema: str, rows: tuple[Any, ...], own: tuple[Any, ...], kept: list[int]
) -> None:
    found = run_route(frame(spark, schema, *rows), Route("head.of", own, own, "reject"))
    assert data(found) == ["head"]
    assert [n for n, row in enumerate(by_offset(found)) if row[REJECT] is None] == kept


@pytest.mark.parametrize(
    ("route", "why"),
    [
        (Route("typ", OWN, (), "leave_out"), '"typ" is no column of the record; did you mean "type"?'),
        (Route("head.fo", OWN, (), "leave_out"), '"fo" is no column of the record; there are of'),
        (Route("type.of", OWN, (), "leave_out"), '"type" has no fields, so there is no "type.of"'),
        (Route("type", (5,), (), "leave_out"), '"type" is string, so 5 is no value of it'),
        (Route("number", (1,), (1, "x"), "reject"), '"number" is int, so "x" is no value of it'),
        (Route("number", (True,), (), "leave_out"), '"number" is int, so true is no value of it'),
        (
            Route("price", (1,), (), "leave_out"),
            '"price" is double, and records are routed by text, whole numbers and booleans alone',
        ),
        (Route("head", (1,), (), "leave_out"), '"head" is struct<of:int>, and records are routed by'),
    ],
)
def test_a_route_that_does_not_fit_is_refused(spark: SparkSession, route: Route, why: str) -> None:
    records = frame(spark, "type string, number int, price double, head struct<of: int>")
    with pytest.raises(Suspended) as refused:
        run_route(records, route)
    assert refused.value.code == "step_unusable"
    assert refused.value.message.startswith(why)
