"""Names from outside are checked against a whitelist and quoted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calve.names import (
    TableName,
    database_for_cluster,
    field_problem,
    quote,
    schedule_name,
    table_problem,
    topic_problem,
)


@pytest.mark.parametrize("name", ["stock_trades", "2026", "a", "a" * 200])
def test_plain_names_are_table_names(name: str) -> None:
    assert table_problem(name) is None


@pytest.mark.parametrize("name", ["", "Trades", "a-b", "a.b", "_a", "a" * 201, "a`b", "a b", "ä", "a\n"])
def test_other_names_are_no_table_names(name: str) -> None:
    assert "is not a table name" in str(table_problem(name))


def test_the_name_of_a_dead_letter_table_is_reserved() -> None:
    assert "reserved" in str(table_problem(TableName("trading", "trades").dead_letters.table))


@pytest.mark.parametrize("name", ["stock_trades", "Stock.Trades-v2", "a" * 249])
def test_kafkas_names_are_topic_names(name: str) -> None:
    assert topic_problem(name) is None


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "a" * 250, "a\n"])
def test_what_kafka_refuses_is_no_topic_name(name: str) -> None:
    assert "is not a topic name" in str(topic_problem(name))


@pytest.mark.parametrize("path", ["price", "order.created_at", "_id", "a._kafka"])
def test_dotted_paths_are_field_paths(path: str) -> None:
    assert field_problem(path) is None


@pytest.mark.parametrize("path", ["", "a.", ".a", "a..b", "1a", "a b", "a`"])
def test_broken_paths_are_no_field_paths(path: str) -> None:
    assert "is not a field path" in str(field_problem(path))


@pytest.mark.parametrize("path", ["_kafka", "_kafka.offset", "_KAFKA"])
def test_the_system_column_is_reserved_in_any_case(path: str) -> None:
    assert "is reserved" in str(field_problem(path))


@given(st.text("`ab.- ä€\n\\"))
def test_a_quoted_name_is_one_identifier(name: str) -> None:
    quoted = quote(name)
    assert quoted[0] == quoted[-1] == "`"
    assert quoted[1:-1].replace("``", "") == name.replace("`", "")
    assert quoted[1:-1].count("`") == 2 * name.count("`")


def test_a_table_is_quoted_part_by_part() -> None:
    assert TableName("my-db", "trades").quoted("glue") == "`glue`.`my-db`.`trades`"


def test_a_clusters_database_is_lower_case() -> None:
    assert database_for_cluster("MkU3OEVBNTcwNTJENDM2Qg") == "mku3oevbntcwntjendm2qg"


def test_a_schedule_has_its_name_or_a_part_of_it_and_a_hash() -> None:
    assert schedule_name("n" * 64) == "n" * 64
    long, other = schedule_name("n" * 65), schedule_name("n" * 66)
    assert len(long) == len(other) == 64
    assert long[:55] == other[:55] == "n" * 55
    assert long != other
