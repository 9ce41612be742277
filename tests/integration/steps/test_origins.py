"""The origins of columns: by the steps' names and types, and by experiment, in which a field's value changes."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from calve.config.masking_keys import Key, hashing
from calve.config.steps import Expect, Filter, Flatten, Lookup, Mask, Route, Rule, Sql, Step
from calve.modes.aggregate import Aggregate, Measure, Window
from calve.outputs.origins import Origin, Origins, Trace
from calve.table.summary import ORIGINS
from glue_jobs.columns.expressions import FILTERED, REJECT
from glue_jobs.columns.tokens import key_frame
from glue_jobs.table.opening import Opener
from glue_jobs.transform.chain import Chain, StepResources
from glue_jobs.transform.origins import of_groups
from glue_jobs.transform.types import iceberg_columns
from tests.integration.support.both_engines import KAFKA
from tests.integration.support.engine import Engine

RECORD = (
    "id int, kind string, price double, quantity int, labels map<string, string>,"
    " customer struct<name: string, email: string, address: struct<city: string, zip: string>>,"
    f" items array<struct<sku: string, note: string>>, _kafka {KAFKA}"
)
VALUES: dict[str, Any] = {
    "id": 7,
    "kind": "sale",
    "price": 2.5,
    "quantity": 4,
    "labels": {"color": "red", "size": "xl"},
    "customer": {"name": "Ada", "email": "ada@example.com", "address": {"city": "Turin", "zip": "10100"}},
    "items": [{"sku": "a", "note": "fragile"}],
}
SHOPS = "shop_id int, region string, owner string"
KEY = Key("first", 0, b"k" * 32)


def chain_of(spark: SparkSession, *steps: Step) -> Chain:
    shops = spark.createDataFrame([(7, "north", "Eve"), (8, "south", "Bob")], SHOPS)
    means = StepResources(
        lambda by: key_frame(spark, hashing([KEY], by)),
        lambda step: shops.select(*step.on.values(), *step.columns.values()),
        {"customer.name": ("PII",)},
    )
    return Chain(steps, means)


def frame_of(spark: SparkSession, values: dict[str, Any]) -> DataFrame:
    kafka = {"topic": "t", "partition": 0, "offset": 0, "timestamp": None, "timestamp_type": 0, "key": b"k"}
    return spark.createDataFrame([values | {"_kafka": kafka | {"headers": [], "schema_id": 1}}], RECORD)


def traced(spark: SparkSession, *steps: Step) -> Trace:
    source = iceberg_columns(frame_of(spark, VALUES).drop("_kafka").schema)
    return chain_of(spark, *steps).origins(spark, source)


def shown(origins: Sequence[Origin]) -> str:
    return ", ".join(f"{each.table or ''}{each.field}={each.how}" for each in origins)


FLAT = Flatten(explode="items", maps={"labels": ("color",)})
MASKED = Mask(
    {"customer.email": Rule("hash"), "customer.address.zip": Rule("null"), "price": Rule("generalise", 1)}
)
BY_TAG = Mask({}, {"PII": Rule("drop")})
LOOKED_UP = Lookup("db.shops", {"id": "shop_id"}, {"region": "region"})
SELECTED = Sql(
    "SELECT id, customer.address.city AS city, price * quantity AS total, upper(kind) AS what, customer,"
    " concat(customer.name, kind) AS both, 1 AS one FROM source WHERE quantity > 0 AND customer.name <> ''"
)


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ((), {"id": "id=same", "customer": "customer=same", "items": "items=same"}),
        (
            (FLAT,),
            {
                "customer_address_city": "customer.address.city=same",
                "items_sku": "items.sku=same",
                "labels": "labels=computed",
                "labels_color": "labels=computed",
            },
        ),
        (
            (MASKED,),
            {
                "price": "price=masked",
                "customer": "customer=same, customer.email=masked",
                "customer.email": "customer.email=masked",
                "customer.address.zip": "",
                "customer.address.city": "customer.address.city=same",
            },
        ),
        (
            (MASKED, BY_TAG, FLAT),
            {"customer_email": "customer.email=masked", "customer_address_zip": "", "id": "id=same"},
        ),
        (
            (Mask({"items.note": Rule("hash")}), Flatten(), Flatten(explode="items")),
            {"items_note": "items.note=masked", "items_sku": "items.sku=same"},
        ),
        (
            (SELECTED,),
            {
                "id": "id=same",
                "city": "customer.address.city=same",
                "total": "price=computed, quantity=computed",
                "what": "kind=computed",
                "customer.email": "customer.email=same",
                "both": "customer.name=computed, kind=computed",
                "one": "",
            },
        ),
        (
            (MASKED, SELECTED),
            {"total": "price=masked, quantity=computed", "customer.email": "customer.email=masked"},
        ),
        ((LOOKED_UP,), {"region": "db.shopsregion=same, id=joined", "id": "id=same"}),
        ((Mask({"id": Rule("generalise", 1)}), LOOKED_UP), {"region": "db.shopsregion=same, id=joined"}),
        (
            (LOOKED_UP, Sql("SELECT upper(region) AS region FROM source")),
            {"region": "id=joined, db.shopsregion=computed"},
        ),
    ],
)
def test_each_column_names_its_fields(
    spark: SparkSession, steps: tuple[Step, ...], expected: dict[str, str]
) -> None:
    trace = traced(spark, *steps)
    found = {path: sorted(shown(trace.at(path)).split(", ")) for path in expected}
    assert found == {path: sorted(each.split(", ")) for path, each in expected.items()}


def test_conditions_are_the_origins_of_rows(spark: SparkSession) -> None:
    conditions = (
        Route("kind", ("sale",), ("sale",), "leave_out"),
        Filter("quantity > 1"),
        SELECTED,
        Expect("city is not null", drop=True),
    )
    rows = traced(spark, *conditions).rows
    assert shown(rows) == "kind=same, quantity=same, customer.name=same, customer.address.city=same"


def test_totals_are_aggregated_and_groups_are_their_columns(spark: SparkSession) -> None:
    measures = (Measure("records", "count(*)"), Measure("sum", "sum(price * quantity)"))
    aggregate = Aggregate(("customer.address.city",), measures, Window("_kafka.timestamp", 60_000))
    columns = of_groups(traced(spark), aggregate).columns
    assert {name: shown(found) for name, found in columns.items()} == {
        "customer_address_city": "customer.address.city=same",
        "window_start": "",
        "records": "",
        "sum": "price=aggregated, quantity=aggregated",
    }


def test_the_job_notes_origins_and_again_for_new_columns(engine: Engine) -> None:
    schema = {"type": "record", "name": "Sale", "fields": [{"name": "id", "type": "long"}]}
    topic = engine.topic(partitions=1, schema=json.dumps(schema))

    def noted(job: Opener) -> Origins:
        engine.drain(job)
        return Origins.from_json(engine.table(topic).properties[ORIGINS])

    engine.produce(topic, [{"id": 1}])
    job = engine.target(topic, lineage=True)
    before = noted(job)
    broker = engine.stack.bootstrap_servers
    assert (before.topic, before.broker, before.fields) == (topic, broker, {"id": "long"})
    assert before.columns == {"id": (Origin("id"),)}
    schema["fields"] = [*schema["fields"], {"name": "note", "type": ["null", "string"], "default": None}]
    engine.register(topic, json.dumps(schema))
    engine.produce(topic, [{"id": 2, "note": "n"}])
    assert noted(job).columns == {"id": (Origin("id"),), "note": (Origin("note"),)}
    steps = (Sql("SELECT id, concat(note, id) AS note FROM source"),)
    assert noted(engine.target(topic, lineage=True, steps=steps)).columns["note"] == (
        Origin("id", "computed"),
        Origin("note", "computed"),
    )


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """The path of each field in a value, and its container and key there."""
    for key, each in list(value.items()):
        here = f"{path}.{key}".lstrip(".")
        match each:
            case dict() if path != "" or key != "labels":
                yield from leaves(each, here)
            case [dict() as item]:
                yield from leaves(item, here)
            case _:
                yield here, value, key


def changed(path: str) -> dict[str, Any]:
    """The record with another value in one field."""
    values = copy.deepcopy(VALUES)
    for here, container, key in list(leaves(values)):
        if here == path:
            old = container[key]
            other = {"color": "blue", "size": "s"} if isinstance(old, dict) else "other"
            container[key] = other if isinstance(old, dict | str) else old + 1
    return values


@pytest.mark.long
@pytest.mark.parametrize(
    ("steps", "unmoved"),
    [
        ((FLAT, Sql("SELECT *, price + quantity AS total FROM source")), set()),
        ((MASKED, SELECTED, LOOKED_UP), {"one"}),
        (
            (Filter("quantity < 5"), BY_TAG, Mask({"price": Rule("generalise", 1)}), FLAT),
            {"quantity"},
        ),
        ((Route("kind", ("sale",), ("sale",), "reject"), Expect("price > 3")), {"kind", "price"}),
    ],
)
def test_only_an_origin_changes_a_column_or_its_row(
    spark: SparkSession, steps: tuple[Step, ...], unmoved: set[str]
) -> None:
    trace, chain = traced(spark, *steps), chain_of(spark, *steps)
    source = iceberg_columns(frame_of(spark, VALUES).drop("_kafka").schema)
    names = [each["name"] for each in chain.columns(spark, source)["fields"]]

    def made(values: dict[str, Any]) -> tuple[list[Any], list[Any]]:
        found = chain.of_rows(chain.of_records(frame_of(spark, values)))
        fate = [name for name in (REJECT, FILTERED) if name in found.columns]
        (row,) = found.select(*names, *fate).collect()
        return [row[name] for name in names], [row[name] for name in fate]

    before, fate = made(VALUES)
    moved = set()
    for path, _, _ in leaves(VALUES):
        after, other_fate = made(changed(path))
        if other_fate != fate:
            assert comes_from(trace.rows, path), f"{path} decides about the row"
        else:
            found = {name for name, one, other in zip(names, before, after, strict=True) if one != other}
            strangers = [name for name in found if not comes_from(trace.at(name), path)]
            assert not strangers, f"{path} changes {strangers}"
            moved |= found
    assert set(names) - moved == unmoved


def comes_from(origins: Sequence[Origin], path: str) -> bool:
    """Whether a field, or a struct around it, is among the origins."""
    return any(path == each.field or path.startswith(f"{each.field}.") for each in origins)
