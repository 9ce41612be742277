"""Columns that calve.yaml names are held against the columns that there are."""

import pytest

from calve.config.job import Table
from calve.config.publishing import Emit
from calve.errors import Suspended
from calve.rounds.column_rules import (
    layout_problems,
    require_age,
    require_countable,
    require_emit_key,
)
from calve.schema.columns import KAFKA, Transform, field, list_of, struct

COLUMNS = struct(
    field("side", "string"),
    field("price", "decimal(9, 2)"),
    field("weight", "double"),
    field("tags", list_of("string")),
    field("day", "date"),
    field("shop", struct(field("opened_at", "timestamptz"))),
    KAFKA,
)


@pytest.mark.parametrize(
    ("column", "why"),
    [("colour", "no column colour"), ("price", "neither"), ("tags", "neither"), ("side", "masked")],
)
def test_what_cannot_be_counted_by_is_named(column: str, why: str) -> None:
    with pytest.raises(Suspended, match=why) as caught:
        require_countable("d.t", column, COLUMNS, {"side"})
    assert (caught.value.code, caught.value.at) == ("count_unusable", ("announce", "count_by"))


def test_a_text_that_is_not_masked_is_counted_by() -> None:
    require_countable("d.t", "side", COLUMNS, set())


@pytest.mark.parametrize(
    "term",
    [
        Transform("side"),
        Transform("price", "truncate", 10),
        Transform("price", "bucket", 4),
        Transform("day", "month"),
        Transform("shop.opened_at", "hour"),
        Transform("_kafka.timestamp", "day"),
        Transform("weight", descending=True),
    ],
)
def test_what_iceberg_takes_is_no_problem(term: Transform) -> None:
    assert list(layout_problems(Table("t", "t", partition_by=(term,), sort_by=(term,)), "d.t", COLUMNS)) == []


@pytest.mark.parametrize(
    ("term", "code", "why"),
    [
        (Transform("prize"), "layout_unknown_column", "no column prize; did you mean price?"),
        (Transform("shop.opened"), "layout_unknown_column", "did you mean shop.opened_at?"),
        (Transform("side", "day"), "layout_unusable", r"laid out by day\(side\): side is a string"),
        (Transform("day", "hour"), "layout_unusable", "day is a date"),
        (Transform("weight", "bucket", 4), "layout_unusable", "weight is a double"),
        (Transform("day", "truncate", 4), "layout_unusable", "day is a date"),
        (Transform("tags"), "layout_unusable", "tags is a list"),
        (Transform("shop", "day"), "layout_unusable", "shop is a struct"),
    ],
)
def test_every_term_that_iceberg_refuses_is_named_with_its_place(
    term: Transform, code: str, why: str
) -> None:
    table = Table("t", "t", partition_by=(Transform("side"), term), sort_by=(term,))
    found = list(layout_problems(table, "d.t", COLUMNS))
    assert [(each.code, each.at) for each in found] == [
        (code, ("partition_by", "1")),
        (code, ("sort_by", "0")),
    ]
    with pytest.raises(Suspended, match=why):
        raise found[0]


def test_the_key_of_an_output_topic_is_a_column() -> None:
    require_emit_key(Emit("out", key=("side",)), COLUMNS)
    with pytest.raises(Suspended, match="no column sides; did you mean side") as caught:
        require_emit_key(Emit("out", key=("side", "sides")), COLUMNS)
    assert (caught.value.code, caught.value.at) == ("emit_unusable", ("emit", "key"))


def test_rows_are_old_by_a_time() -> None:
    for column in ("day", "shop.opened_at", "_kafka.timestamp"):
        require_age("d.t", column, COLUMNS)
    for column, why in (("side", "neither a timestamp nor a date"), ("days", "did you mean day")):
        with pytest.raises(Suspended, match=why) as caught:
            require_age("d.t", column, COLUMNS)
        assert caught.value.at == ("maintenance", "rows", "column")
