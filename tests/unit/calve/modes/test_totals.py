import pytest

from calve.errors import Suspended
from calve.modes.aggregate import (
    Aggregate,
    Measure,
    Window,
    columns_of,
    kafka_column,
    require_same_columns,
    require_same_kind,
)
from calve.schema.columns import Json, field, list_of, struct, with_ids
from calve.schema.evolution import data_columns
from calve.table.summary import TOTALS

RECORDS = struct(
    field("userid", "string"),
    field("of", struct(field("shop", "int"))),
    field("price", "int"),
    field("rate", "decimal(10, 2)"),
    field("weight", "double"),
    field("at", "timestamptz"),
    field("tags", list_of("string")),
)
TRADES = Measure("trades", "count(*)")
HOURLY = Aggregate(
    ("of.shop", "userid", "rate"), (Measure("least", "min(price)"), TRADES), Window("at", 3_600_000)
)


def types(columns: Json) -> dict[str, Json]:
    return {each["name"]: each["type"] for each in columns["fields"]}


def test_a_row_is_a_group_with_its_window_and_its_measures() -> None:
    assert list(types(columns_of(RECORDS, HOURLY)).items()) == [
        *(("of_shop", "long"), ("userid", "string"), ("rate", "decimal(38, 2)")),
        *(("window_start", "timestamptz"), ("least", "long"), ("trades", "long")),
    ]


def test_a_row_says_which_record_changed_it_last_but_not_its_key() -> None:
    docs = {each["name"]: each["doc"] for each in kafka_column()["type"]["fields"]}
    assert docs["key"] == docs["headers"] == "null"
    assert docs["offset"] == "of the last record that changed the group"


@pytest.mark.parametrize(
    ("by", "window", "says"),
    [
        (("nothing",), None, "no column nothing"),
        (("weight",), None, "weight is a double"),
        (("tags",), None, "tags is a list"),
        (("of",), None, "one of these is a struct"),
        (("userid",), Window("price", 1000), "price is a int, and windows need"),
        (("userid",), Window("of", 1000), "of is a struct, and windows need"),
        (("userid",), Window("when", 1000), "no column when"),
    ],
)
def test_columns_that_tell_no_groups_apart_are_refused(
    by: tuple[str, ...], window: Window, says: str
) -> None:
    with pytest.raises(Suspended, match=says) as caught:
        columns_of(RECORDS, Aggregate(by, (TRADES,), window))
    assert caught.value.code == "key_unusable"


def test_windows_may_be_of_the_time_in_kafka() -> None:
    window = Window("_kafka.timestamp", 1000)
    assert "window_start" in types(columns_of(RECORDS, Aggregate(("userid",), (TRADES,), window)))


def held(records: Json, aggregate: Aggregate) -> Json:
    return with_ids(struct(*columns_of(records, aggregate)["fields"], kafka_column()))


def widened(name: str, kind: str) -> Json:
    fields = [each | {"type": kind} if each["name"] == name else each for each in RECORDS["fields"]]
    return struct(*fields, field("more", "string"))


def test_columns_that_are_widened_still_fit() -> None:
    table = held(RECORDS, HOURLY)
    require_same_columns("t", table, widened("price", "long"), HOURLY)
    require_same_columns("t", table, widened("rate", "decimal(20, 2)"), HOURLY)
    assert data_columns(table) == columns_of(widened("price", "long"), HOURLY)


def test_a_measure_of_another_type_suspends_the_table() -> None:
    with pytest.raises(Suspended, match=r"holds least as long; .* it is string now") as caught:
        require_same_columns("t", held(RECORDS, HOURLY), widened("price", "string"), HOURLY)
    assert caught.value.code == "measure_changed"


@pytest.mark.parametrize(
    ("properties", "aggregate", "says"),
    [
        ({TOTALS: "true"}, None, "was made for totals of groups of records, and is to hold records"),
        ({}, HOURLY, "was made for records, and is to hold totals"),
    ],
)
def test_a_table_of_totals_is_one_from_its_birth(
    properties: dict[str, str], aggregate: Aggregate | None, says: str
) -> None:
    with pytest.raises(Suspended, match=says) as caught:
        require_same_kind("t", properties, aggregate)
    assert caught.value.code == "mode_changed"
    require_same_kind("t", {TOTALS: "true"}, HOURLY)
    require_same_kind("t", {}, None)
