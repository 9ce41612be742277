"""Which topics an expression keeps, what their tables are named, and what is said of those that are no table."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from calve.config.job import Entry, Job, Kafka, Lake, Start, Table
from calve.config.topics import (
    Expansion,
    expand,
    expression_problem,
    literal_prefix,
    naming_problem,
    table_name,
)


def job(*entries: Entry, own: tuple[str, ...] = (), start: Start = Start()) -> Job:  # noqa: B008
    patterns = tuple(
        Table(each.name, each.topic, freshness_s=5.0, start=start)
        for each in entries
        if each.pattern and (not own or each.name in own)
    )
    return Job("t", "main", Kafka("b:1"), None, Lake("t", "s3://x"), (), patterns=patterns, entries=entries)


def shop(name: str = "shop_{1}", topics: str = r"shop\.(.*)", **more: str) -> Entry:
    return Entry(name, topics, pattern=True, **more)


def made(found: Expansion) -> dict[str, str]:
    return {each.topic: each.name for each in found.tables}


def of(*entries: Entry, topics: list[str], kept: Mapping[str, str] | None = None) -> Expansion:
    return expand(job(*entries), topics, (kept or {}).get)


def test_each_topic_that_matches_as_a_whole_is_a_table_of_its_own() -> None:
    found = of(shop(), topics=["shop.orders", "shop.users", "my.shop.orders", "shop"])
    assert made(found) == {"shop.orders": "shop_orders", "shop.users": "shop_users"}
    assert not found.not_kept
    assert {(each.freshness_s, each.pattern) for each in found.tables} == {(5.0, "shop_{1}")}


@pytest.mark.parametrize(
    ("name", "expression", "topic", "table"),
    [
        ("{topic}", ".*", "Shop.Orders-v2", "shop_orders_v2"),
        ("{2}_of_{1}", r"(\w+)\.(\w+)", "lt.orders", "orders_of_lt"),
        ("x{1}", "a(b)?", "a", "x"),
        ("raw_{1}", r"db\.(.*)", "db._.orders..", "raw_orders"),
        ("t{1}{1}", "(a)", "a", "taa"),
    ],
)
def test_a_table_is_named_after_the_topic_or_groups_of_it(
    name: str, expression: str, topic: str, table: str
) -> None:
    match = re.fullmatch(expression, topic)
    assert match is not None
    assert table_name(name, match) == table


def test_topics_of_kafka_of_the_registry_and_outputs_are_nobodys() -> None:
    emits = Entry("clean", "sales", output="sales_clean")
    topics = ["__consumer_offsets", "_schemas", "sales_clean", "sales", "refunds", "_private"]
    found = of(shop("t_{topic}", ".*"), emits, topics=topics)
    assert made(found) == {"refunds": "t_refunds", "_private": "t_private"}
    assert not found.not_kept


def test_an_entry_that_names_a_topic_wins_and_then_the_first_pattern() -> None:
    entries = (
        shop("a_{topic}", "shop.*"),
        shop("b_{topic}", ".*"),
        Entry("mine", "shop.users"),
    )
    found = of(*entries, topics=["shop.users", "shop.orders", "other"])
    assert made(found) == {"shop.orders": "a_shop_orders", "other": "b_other"}


def test_patterns_of_other_jobs_are_respected_and_their_problems_left_to_them() -> None:
    entries = (shop("a_{1}", r"a\.(.*)"), shop("{1}", r"[ab]\.(.*)"))
    there = ["a.x", "b.x", "b.-"]
    assert made(expand(job(*entries, own=("{1}",)), there, lambda _: None)) == {"b.x": "x"}
    assert expand(job(*entries, own=("a_{1}",)), there, lambda _: None).not_kept == ()


@pytest.mark.parametrize(
    ("topics", "reason"),
    [
        (["shop.-"], '"" is not a table name'),
        (["shop." + "x" * 210], "is not a table name"),
        (["shop.orders__dead_letters"], "reserved for dead letters"),
        (["shop.users"], 'its table would be "users", which calve.yaml keeps from topic people'),
    ],
)
def test_a_topic_without_a_usable_name_is_told_with_its_cure_and_others_go_on(
    topics: list[str], reason: str
) -> None:
    found = of(shop("{1}"), Entry("users", "people"), topics=[*topics, "shop.good"])
    assert made(found) == {"shop.good": "good"}
    (told,) = found.not_kept
    assert reason in told.reason
    assert (told.topic, told.entry) == (topics[0], "{1}")
    assert told.fix == f"in calve.yaml, give it a table of its own: `NAME: {{topic: {topics[0]}}}`"


def test_of_two_topics_with_one_name_neither_is_kept_unless_the_table_says_whose_it_is() -> None:
    topics = ["shop.a-b", "shop.a_b", "shop.c"]
    found = of(shop(), topics=topics)
    assert made(found) == {"shop.c": "shop_c"}
    assert [(each.topic, each.reason) for each in found.not_kept] == [
        ("shop.a-b", 'its table would be "shop_a_b", and so would that of shop.a_b'),
        ("shop.a_b", 'its table would be "shop_a_b", and so would that of shop.a-b'),
    ]
    found = of(shop(), topics=topics, kept={"shop_a_b": "shop.a_b"})
    assert made(found) == {"shop.a_b": "shop_a_b", "shop.c": "shop_c"}
    assert [each.topic for each in found.not_kept] == ["shop.a-b"]


def test_tables_are_asked_for_their_topic_only_where_two_would_have_one_name() -> None:
    asked: list[str] = []

    def keeper(table: str) -> str | None:
        asked.append(table)
        return None

    expand(job(shop("{1}")), ["shop.a", "shop.-", "shop.."], keeper)
    assert asked == []


@pytest.mark.parametrize(
    "text",
    ["orders", r"orders\.(.*)", "(?:a|b).*", "(?i)a", "a(?!b).*", "(?<=a)b|a.", r"a\(?P", "[a-z]++x"],
)
def test_expressions_that_java_and_python_read_alike_can_be_used(text: str) -> None:
    assert expression_problem(text) is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("(", "is not a regular expression"),
        ("*.orders", "is not a regular expression"),
        (r"\p{Lower}+", "is not a regular expression"),
        ("[a-z&&[^b]]", "is not a regular expression"),
        ("(?P<name>a)", "Java and Python do not read alike"),
        ("(?<name>a)", "Java and Python do not read alike"),
        ("(a)?(?(1)b|c)", "Java and Python do not read alike"),
        ("a{99999999999}", "is not a regular expression"),
    ],
)
def test_other_expressions_are_refused(text: str, problem: str) -> None:
    assert problem in (expression_problem(text) or "")


@pytest.mark.parametrize("name", ["{topic}", "a_{1}", "{1}_{2}"])
def test_names_with_placeholders_name_tables(name: str) -> None:
    assert naming_problem(name, 2) is None


@pytest.mark.parametrize(
    "name", ["plain", "{0}", "{name}", "A_{1}", "{1}.x", "_{1}", "{1}__dead_letters", "{"]
)
def test_other_names_name_no_tables(name: str) -> None:
    assert "names no tables" in (naming_problem(name) or "")


def test_a_group_that_the_expression_has_not_is_named() -> None:
    assert naming_problem("{1}_{3}", 2) == '"{1}_{3}" asks for group 3, and the expression has 2'


@pytest.mark.parametrize(
    ("expression", "prefix"),
    [
        (r"orders\.(eu|us)\..*", "orders."),
        ("orders", "orders"),
        ("orders*", "order"),
        (r"a\.?b", "a"),
        ("ab{0}c", "a"),
        ("a+b", "a"),
        ("a|b", ""),
        ("(a|b)c", ""),
        (r"a\|b", "a"),
        ("a[|]b", "a"),
        (".*", ""),
        ("(?i)abc", ""),
    ],
)
def test_what_every_topic_begins_with(expression: str, prefix: str) -> None:
    assert literal_prefix(expression) == prefix


def test_settings_travel_as_plain_values() -> None:
    written = job(shop(), Entry("mine", "shop.users", output="out"), start=Start("latest"))
    assert Job.from_json(written.to_json()) == written
