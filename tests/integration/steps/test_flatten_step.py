"""Structs, lists and maps as columns, on explicit rows."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from calve.config.steps import Flatten
from calve.errors import Suspended
from glue_jobs.transform.chain import Chain, StepResources

ORDER = (
    "id int, customer struct<name: string, address: struct<city: string, zip: string>>,"
    " items array<struct<sku: string, price: double, maker: struct<name: string>>>, labels map<string, string>,"
    " _kafka struct<partition: int, offset: bigint>"
)
CUSTOMER = {"name": "Ada", "address": {"city": "Turin", "zip": "10100"}}
ITEMS = [
    {"sku": "a", "price": 1.5, "maker": {"name": "Acme"}},
    {"sku": "b", "price": None, "maker": None},
]


def order(number: int, **values: Any) -> dict[str, Any]:
    row = {"id": number, "customer": CUSTOMER, "items": ITEMS, "labels": {"color": "red", "size": "xl"}}
    return row | values | {"_kafka": {"partition": 0, "offset": number}}


def orders(spark: SparkSession, *rows: dict[str, Any]) -> DataFrame:
    return spark.createDataFrame(list(rows), ORDER)


def run(frame: DataFrame, *steps: Flatten, stay: frozenset[str] = frozenset()) -> DataFrame:
    chain = Chain(steps, StepResources(lambda _: frame, lambda _: frame), stay)
    return chain.of_rows(chain.of_records(frame))


def values(frame: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in frame.drop("_kafka").collect()]


def test_structs_become_columns_at_any_depth(spark: SparkSession) -> None:
    half = {"name": "Bob", "address": None}
    frame = orders(spark, order(1), order(2, customer=None), order(3, customer=half))
    found = run(frame, Flatten())
    assert found.columns == [
        "id",
        "customer_name",
        "customer_address_city",
        "customer_address_zip",
        "items",
        "labels",
        "_kafka",
    ]
    told = [
        (r["customer_name"], r["customer_address_city"], r["customer_address_zip"]) for r in values(found)
    ]
    assert told == [("Ada", "Turin", "10100"), (None, None, None), ("Bob", None, None)]
    assert values(found)[0]["items"] == ITEMS


def test_a_separator_of_ones_own(spark: SparkSession) -> None:
    assert "customer__address__zip" in run(orders(spark, order(1)), Flatten("__")).columns


def test_each_item_of_a_list_makes_a_row(spark: SparkSession) -> None:
    frame = orders(spark, order(1), order(2, items=[]), order(3, items=None), order(4, items=[None]))
    found = run(frame, Flatten(explode="items"))
    told = [(r["id"], r["items_sku"], r["items_price"], r["items_maker_name"]) for r in values(found)]
    nothing = [(number, None, None, None) for number in (2, 3, 4)]
    assert told == [(1, "a", 1.5, "Acme"), (1, "b", None, None), *nothing]
    assert [row["_kafka"]["offset"] for row in found.collect()] == [1, 1, 2, 3, 4]


def test_a_list_inside_a_struct_makes_rows(spark: SparkSession) -> None:
    frame = spark.sql(
        "select 1 as id, named_struct('items', array(named_struct('sku', 'a', 'tags', map('k', 'v', 'l', 'w'))), 'no', 7) as o,"
        " named_struct('partition', 0) as _kafka"
    )
    found = run(frame, Flatten(explode="o.items", maps={"o.items.tags": ("k",)}))
    assert values(found) == [
        {"id": 1, "o_items_sku": "a", "o_items_tags": {"l": "w"}, "o_items_tags_k": "v", "o_no": 7}
    ]


def test_a_list_of_plain_values_makes_rows(spark: SparkSession) -> None:
    frame = spark.sql("select array(3, null, 5) as n, named_struct('partition', 0) as _kafka")
    assert values(run(frame, Flatten(explode="n"))) == [{"n": 3}, {"n": None}, {"n": 5}]


def test_keys_of_a_map_become_columns_and_the_others_stay(spark: SparkSession) -> None:
    frame = orders(
        spark, order(1), order(2, labels={}), order(3, labels=None), order(4, labels={"size": None})
    )
    found = run(frame, Flatten(maps={"labels": ("size", "weight")}))
    told = [(r["labels"], r["labels_size"], r["labels_weight"]) for r in values(found)]
    assert told == [({"color": "red"}, "xl", None), ({}, None, None), (None, None, None), ({}, None, None)]


def test_what_tells_a_deletion_stays_a_struct(spark: SparkSession) -> None:
    found = run(orders(spark, order(1)), Flatten(), stay=frozenset({"customer"}))
    assert found.columns[:2] == ["id", "customer"]


@pytest.mark.parametrize(
    ("select", "step", "why"),
    [
        (
            "named_struct('b', 1) as a, 2 as A_B",
            Flatten(),
            "steps[0].flatten: a.b and A_B would both be the column A_B: use another `separator`",
        ),
        (
            "array(1) as items",
            Flatten(explode="item"),
            "steps[0].flatten: there is no column item to explode; did you mean items?",
        ),
        (
            "1 as items",
            Flatten(explode="items"),
            "steps[0].flatten: items is a int, and only a list can be exploded",
        ),
        (
            "map(1, 2) as m",
            Flatten(maps={"m": ("k",)}),
            "steps[0].flatten: m is no map with keys of text",
        ),
    ],
)
def test_what_cannot_be_flattened_says_why(spark: SparkSession, select: str, step: Flatten, why: str) -> None:
    frame = spark.sql(f"select {select}, named_struct('partition', 0) as _kafka")
    with pytest.raises(Suspended) as caught:
        run(frame, step)
    assert (caught.value.code, caught.value.message) == ("step_unusable", why)
