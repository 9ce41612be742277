"""How `route` is written in calve.yaml, and what the routes of a topic make of each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from calve.config.job import Job
from calve.config.steps import Filter, Route
from tests.unit.calve.calve_yaml import jobs, refused

NAMED = ("order", "payment", "refund")


def routes(tmp_path: Path, tables: str, above: str = "") -> dict[str, Route]:
    return {
        table.name: each
        for job in jobs(tmp_path, tables, above)
        for table in job.tables
        for each in table.steps
        if isinstance(each, Route)
    }


TWO = """
  orders:   {topic: events, route: {column: type, value: order}}
  payments: {topic: events, route: {column: type, value: [payment, refund]}}
"""
OTHERS = "  others:   {topic: events, route: {column: type, otherwise: true}}\n"


def test_one_table_has_what_the_others_do_not_name(tmp_path: Path) -> None:
    assert routes(tmp_path, TWO + OTHERS) == {
        "orders": Route("type", ("order",), (), "leave_out"),
        "payments": Route("type", ("payment", "refund"), (), "leave_out"),
        "others": Route("type", (), NAMED, "keep"),
    }


def test_where_none_has_it_the_first_table_rejects_it(tmp_path: Path) -> None:
    assert routes(tmp_path, TWO) == {
        "orders": Route("type", ("order",), NAMED, "reject"),
        "payments": Route("type", ("payment", "refund"), (), "leave_out"),
    }


def test_tables_without_a_route_and_other_topics_have_nothing_to_do_with_it(tmp_path: Path) -> None:
    apart = """
  all:    {topic: events}
  audit:  {topic: events, value: {subject: com.acme.Audit}, route: {column: of, value: 1}}
  clicks: {topic: clicks, route: {column: button, value: true}}
"""
    assert routes(tmp_path, apart + TWO) == {
        "audit": Route("of", (1,), (1,), "reject"),
        "clicks": Route("button", (True,), (True,), "reject"),
        "orders": Route("type", ("order",), NAMED, "reject"),
        "payments": Route("type", ("payment", "refund"), (), "leave_out"),
    }


def test_tables_of_several_jobs_are_seen_together(tmp_path: Path) -> None:
    tables = """
  payments: {topic: events, job: b, route: {column: type, value: [payment, refund]}}
  orders:   {topic: events, job: a, route: {column: type, value: order}}
"""
    found = routes(tmp_path, tables, "jobs: {a: {}, b: {}}\n")
    assert found["payments"] == Route("type", ("payment", "refund"), ("payment", "refund", "order"), "reject")
    assert found["orders"] == Route("type", ("order",), (), "leave_out")


def test_a_route_comes_before_the_steps_and_travels_as_plain_values(tmp_path: Path) -> None:
    tables = "  a: {topic: t, route: {column: head.id, value: [1, -2]}, steps: [filter: x > 0]}\n"
    (job,) = jobs(tmp_path, tables)
    assert job.tables[0].steps == (Route("head.id", (1, -2), (1, -2), "reject"), Filter("x > 0"))
    assert Job.from_json(job.to_json()) == job


def test_values_mean_what_they_say(tmp_path: Path) -> None:
    """In YAML `on` is text, and in Python `1 == True`."""
    for written, meant in (("on", "on"), ('"1"', "1"), ("1", 1), ("true", True), ('""', "")):
        found = routes(tmp_path, f"  a: {{topic: t, route: {{column: c, value: {written}}}}}\n")
        (value,) = found["a"].values
        assert (type(value), value) == (type(meant), meant)


NOTHING = "names no records. Add `value:`, or `otherwise: true`"
NO_VALUE = "is not a value of a route. Use text, a whole number, true or false"
NULL = "null cannot be named. Remove it; the table with `otherwise: true` has records without a value"
TOO_LARGE = f"{2**63} is too large for a whole number of a record. Remove it"
KINDS = "true is true or false, and 1 of table a is a whole number. Write all values in the type of the column, text in quotes"
RESERVED = '"_kafka.key" is reserved: _kafka holds topic, partition, offset and the other facts of the record'


@pytest.mark.parametrize(
    ("route", "problem"),
    [
        ("{value: x}", ".column is missing. Add `column:`"),
        ("{column: c}", f" {NOTHING}"),
        ("{column: c, otherwise: false}", f" {NOTHING}"),
        (
            "{column: c, value: x, otherwise: true}",
            ".otherwise cannot be used together with `value`. Remove one of the two",
        ),
        ("{column: c, value: []}", ".value is empty. Name a value, or remove it and use `otherwise: true`"),
        ("{column: c, value: [x, null]}", f".value[1] {NULL}"),
        ("{column: c, value: 1.5}", f".value {NO_VALUE}"),
        ("{column: c, value: [{x: 1}]}", f".value[0] {NO_VALUE}"),
        (f"{{column: c, value: {2**63}}}", f".value {TOO_LARGE}"),
        ("{column: c, value: [x, y, x]}", '.value[2] "x" is named twice. Remove one of the two'),
        ("{column: c, value: [1, true]}", f".value[1] {KINDS}"),
        ("{column: _kafka.key, value: x}", f".column {RESERVED}"),
        ("{column: c, vlaue: x, value: x}", '.vlaue is not a known key. Did you mean "value"?'),
        ("order", " must be a mapping"),
    ],
)
def test_what_cannot_be_used_is_named_with_its_cure(tmp_path: Path, route: str, problem: str) -> None:
    assert refused(tmp_path, f"  a: {{topic: t, route: {route}}}\n") == [f"tables.a.route{problem}"]


def test_all_problems_between_routes_are_listed_at_once(tmp_path: Path) -> None:
    tables = """
  a: {topic: t, route: {column: kind, value: [x, y]}}
  b: {topic: t, route: {column: type, value: [z, y]}}
  c: {topic: t, route: {column: kind, otherwise: true}}
  d: {topic: t, route: {column: kind, value: 5}}
  e: {topic: t, route: {column: kind, otherwise: true}}
"""
    assert refused(tmp_path, tables) == [
        'tables.b.route.column "type" is not "kind", the column of table a. Route a topic by one column',
        'tables.b.route.value[1] "y" is named by table a, too. Remove one of the two',
        'tables.d.route.value 5 is a whole number, and "x" of table a is text. Write all values in the type of the column, '
        "text in quotes",
        "tables.e.route.otherwise is already set for table c, which reads the same records. Name values instead",
    ]
