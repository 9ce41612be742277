"""Tables whose records go through steps: what rounds make of them, and that every record has its fate."""

from __future__ import annotations

import json
from typing import Any

import pytest

from calve.config.steps import Filter, Flatten, Lookup, Sql
from calve.errors import Suspended
from calve.modes.aggregate import Aggregate, Measure
from calve.modes.upsert import Deduplicate, Upsert
from calve.requests.redrive import Request
from calve.table.position import Ledger
from calve.table.summary import REDRIVE
from tests.integration.support.engine import Engine, at, suspended

ITEM = {
    "type": "record",
    "name": "Item",
    "fields": [
        {"name": "sku", "type": "string"},
        {"name": "price", "type": ["null", "double"], "default": None},
    ],
}
CUSTOMER = {
    "type": "record",
    "name": "Customer",
    "fields": [{"name": "id", "type": "long"}, {"name": "email", "type": "string"}],
}
FIELDS: list[dict[str, Any]] = [
    {"name": "id", "type": "long"},
    {"name": "customer", "type": CUSTOMER},
    {"name": "items", "type": {"type": "array", "items": ITEM}},
]
FLAT = (Flatten(),)
ROWS = (Flatten(explode="items"),)


def schema(*further: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": "Sale", "fields": [*FIELDS, *further]})


def sale(number: int, *skus: str) -> dict[str, Any]:
    items = [{"sku": sku, "price": float(n)} for n, sku in enumerate(skus)]
    return {"id": number, "customer": {"id": number, "email": f"{number}@example.com"}, "items": items}


def ledger(engine: Engine, topic: str) -> Ledger:
    head = next(iter(engine.table(topic).ancestors()))
    return Ledger.from_json(head.summary["calve.ledger"])


def test_columns_are_those_that_the_steps_make(engine: Engine) -> None:
    topic = engine.topic(
        schema=schema({"name": "note", "type": ["null", "string"], "doc": "why", "default": None})
    )
    engine.produce(topic, [sale(1, "a"), sale(2)])
    engine.drain(engine.target(topic, steps=FLAT))
    rows = engine.rows(topic)
    assert rows.columns == ["id", "customer_id", "customer_email", "items", "note", "_kafka"]
    assert {row["customer_email"] for row in rows.collect()} == {"1@example.com", "2@example.com"}
    docs = {each["name"]: each.get("doc") for each in engine.table(topic).schema["fields"]}
    assert docs["note"] == "why"


def test_a_record_makes_a_row_of_each_item(engine: Engine) -> None:
    topic = engine.topic(schema=schema(), partitions=1)
    engine.produce(topic, [sale(1, "a", "b"), sale(2), sale(3, "c")])
    engine.drain(engine.target(topic, steps=ROWS))
    found = engine.rows(topic).select("id", "items_sku", "items_price", "_kafka.offset").collect()
    assert sorted(map(tuple, found), key=str) == [
        (1, "a", 0.0, 0),
        (1, "b", 1.0, 0),
        (2, None, None, 1),
        (3, "c", 0.0, 2),
    ]
    assert (told := ledger(engine, topic)).applied == 3
    assert told.rows_appended == 4


def test_a_later_version_adds_columns_behind_the_steps(engine: Engine) -> None:
    topic = engine.topic(schema=schema())
    engine.produce(topic, [sale(1)])
    target = engine.target(topic, steps=FLAT)
    engine.drain(target)
    more = json.loads(
        schema({"name": "ship", "type": ["null", CUSTOMER | {"name": "Ship"}], "default": None})
    )
    engine.register(topic, json.dumps(more))
    engine.produce(topic, [sale(2) | {"ship": {"id": 9, "email": "x@y"}}])
    engine.drain(target)
    found = engine.rows(topic).select("id", "ship_id", "ship_email").collect()
    assert sorted(map(tuple, found)) == [(1, None, None), (2, 9, "x@y")]


def test_steps_may_be_changed_where_the_table_can_hold_both(engine: Engine) -> None:
    tags = {"name": "tags", "type": {"type": "array", "items": "string"}}
    topic = engine.topic(schema=schema(tags), partitions=1)
    engine.produce(topic, [sale(1, "a") | {"tags": ["x"]}])
    engine.drain(engine.target(topic))
    engine.produce(topic, [sale(2, "b") | {"tags": []}])
    engine.drain(engine.target(topic, steps=FLAT))
    found = {row["id"]: row for row in engine.rows(topic).collect()}
    assert (found[1]["customer"]["id"], found[1]["customer_id"]) == (1, None)
    assert (found[2]["customer"], found[2]["customer_id"]) == (None, 2)
    with suspended("step_changed"):
        engine.drain(engine.target(topic, steps=(Flatten(explode="tags"),)))


def test_the_first_record_of_a_key_keeps_all_its_rows(engine: Engine) -> None:
    topic = engine.topic(schema=schema(), partitions=1)
    target = engine.target(topic, steps=ROWS, deduplicate=Deduplicate(("id",)))
    engine.produce(topic, [sale(1, "a", "b"), sale(1, "x", "y", "z"), sale(2, "c")])
    engine.drain(target)
    engine.produce(topic, [sale(2, "w"), sale(3, "d", "e")])
    engine.drain(target)
    found = sorted((row["id"], row["items_sku"]) for row in engine.rows(topic).collect())
    assert found == [(1, "a"), (1, "b"), (2, "c"), (3, "d"), (3, "e")]
    assert ledger(engine, topic).deduplicated == 1


def test_a_tombstone_deletes_the_row_behind_the_steps(engine: Engine) -> None:
    topic = engine.topic(schema=schema(), partitions=1)
    target = engine.target(topic, steps=FLAT, upsert=Upsert(("_kafka.key",), deletes=True))
    for number in (1, 2):
        engine.send(topic, engine.encode(topic, sale(number)), key=b"%d" % number)
    engine.flush()
    engine.drain(target)
    engine.send(topic, None, key=b"1")
    engine.send(topic, engine.encode(topic, sale(20)), key=b"2")
    engine.flush()
    engine.drain(target)
    assert [row["customer_id"] for row in engine.rows(topic).collect()] == [20]


@pytest.mark.full
def test_totals_of_the_rows_that_records_make(engine: Engine) -> None:
    topic = engine.topic(schema=schema())
    totals = Aggregate(("items_sku",), (Measure("sold", "count(*)"),))
    engine.produce(topic, [sale(1, "a", "b"), sale(2, "a"), sale(3)])
    engine.drain(engine.target(topic, steps=ROWS, aggregate=totals))
    found = engine.rows(topic).select("items_sku", "sold").collect()
    assert sorted(map(tuple, found)) == [("a", 2), ("b", 1)]
    assert engine.letters(topic).select("reason").collect()[0][0] == "null_key"
    assert (ledger(engine, topic).applied, ledger(engine, topic).dead_lettered) == (2, 1)


@pytest.mark.full
def test_dead_letters_come_back_through_the_steps(engine: Engine) -> None:
    topic = engine.topic(schema=schema(), partitions=1)
    other = engine.topic(schema=schema({"name": "note", "type": ["null", "string"], "default": None}))
    engine.produce(topic, [sale(1, "a")])
    engine.send(topic, engine.encode(other, sale(2, "b", "c") | {"note": "n"}))
    engine.flush()
    target = engine.target(topic, steps=ROWS)
    engine.drain(target)
    assert engine.letter_offsets(topic) == [(0, 1)]
    engine.register(topic, schema({"name": "note", "type": ["null", "string"], "default": None}))
    engine.table(topic).set_properties({REDRIVE: Request("r1", "now").to_json()})
    engine.drain(target)
    found = engine.rows(topic).select("id", "items_sku", "note").collect()
    assert sorted(map(tuple, found)) == [(1, "a", None), (2, "b", "n"), (2, "c", "n")]
    assert (ledger(engine, topic).redriven, ledger(engine, topic).rows_appended) == (1, 2)


def test_a_key_that_no_step_makes_suspends(engine: Engine) -> None:
    topic = engine.topic(schema=schema())
    with suspended("key_unusable"):
        engine.drain(engine.target(topic, steps=FLAT, deduplicate=Deduplicate(("customer.id",))))


def test_a_step_that_cannot_be_run_suspends_and_names_itself(engine: Engine) -> None:
    topic = engine.topic(schema=schema())
    with pytest.raises(Suspended, match=r"^steps\[0\]\.flatten: there is no column itms") as caught:
        engine.drain(engine.target(topic, steps=(Flatten(explode="itms"),)))
    assert caught.value.code == "step_unusable"


def test_what_a_step_leaves_out_is_counted(engine: Engine) -> None:
    topic = engine.topic(schema=schema(), partitions=1)
    engine.produce(topic, [sale(n) for n in range(10)])
    steps = (Flatten(), Filter("id >= 4"), Sql("select *, id * 2 as twice from source where id < 9"))
    engine.drain(engine.target(topic, steps=steps))
    rows = engine.rows(topic).select("id", "twice").collect()
    assert sorted(map(tuple, rows)) == [(n, 2 * n) for n in range(4, 9)]
    told = ledger(engine, topic)
    assert (told.applied, told.filtered, told.filtered_by_steps, told.rows_appended) == (5, 5, 5, 5)


@pytest.mark.long
def test_a_record_that_a_step_cannot_compute_is_a_dead_letter_and_comes_back(engine: Engine) -> None:
    topic = engine.topic(schema=schema(), partitions=1)
    engine.produce(topic, [sale(n) for n in range(3)])
    engine.drain(engine.target(topic, steps=(Sql("select *, 6 div (id - 1) as share from source"),)))
    assert engine.letters(topic).select("offset", "reason").collect() == [(1, "step_failed")]
    assert ledger(engine, topic).rejected == {"step_failed": 1}
    mended = (Sql("select *, try_divide(6, id - 1) as part from source"),)
    engine.table(topic).set_properties({REDRIVE: Request("r1", "now").to_json()})
    engine.drain(engine.target(topic, steps=mended))
    assert sorted(row["id"] for row in engine.rows(topic).collect()) == [0, 1, 2]


def test_a_record_one_of_whose_rows_cannot_be_computed_is_no_row_at_all(engine: Engine) -> None:
    topic = engine.topic(schema=schema(), partitions=2)
    engine.produce(topic, [sale(1, "1", "2"), sale(2, "3", "x", "4"), sale(3)], partition=0)
    engine.produce(topic, [sale(4, "y"), sale(5, "5")], partition=1)
    number = Sql(
        "select id, cast(items_sku as int) as sku from source where items_sku <> '2' or items_sku is null"
    )
    engine.drain(engine.target(topic, steps=(*ROWS, number)))
    found = engine.rows(topic).select("id", "sku").collect()
    assert sorted(map(tuple, found), key=str) == [(1, 1), (3, None), (5, 5)]
    assert engine.letter_offsets(topic) == [(0, 1), (1, 0)]
    told = ledger(engine, topic)
    assert (told.applied, told.dead_lettered, told.rows_appended, told.rows_filtered) == (3, 2, 3, 1)


@pytest.mark.long
def test_rows_get_columns_of_another_table(engine: Engine) -> None:
    topic, other = engine.topic(schema=schema(), partitions=1), engine.topic(schema=schema(), partitions=1)
    engine.produce(other, [sale(1, "known")])
    engine.drain(engine.target(other, steps=FLAT))
    engine.produce(topic, [sale(1), sale(2)])
    lookup = Lookup(other, {"customer_id": "id"}, {"email": "customer_email"}, "reject")
    target = engine.target(topic, steps=(*FLAT, lookup))
    engine.drain(target)
    assert [tuple(row) for row in engine.rows(topic).select("id", "email").collect()] == [
        (1, "1@example.com")
    ]
    assert engine.letters(topic).select("offset", "reason").collect() == [(1, "lookup_missing")]
    engine.produce(other, [sale(2)])
    engine.drain(engine.target(other, steps=FLAT))
    engine.table(topic).set_properties({REDRIVE: Request("r1", "now").to_json()})
    engine.drain(target)
    found = engine.rows(topic).select("id", "email").collect()
    assert sorted(map(tuple, found)) == [(1, "1@example.com"), (2, "2@example.com")]


@pytest.mark.full
def test_another_table_that_changes_during_a_round_counts_in_the_next(engine: Engine) -> None:
    topic, other = engine.topic(schema=schema(), partitions=1), engine.topic(schema=schema(), partitions=1)
    engine.drain(engine.target(other, steps=FLAT))
    engine.produce(topic, [sale(1)])
    engine.produce(other, [sale(1)])
    target = engine.target(
        topic, steps=(*FLAT, Lookup(other, {"id": "id"}, {"email": "customer_email"}, "reject"))
    )
    with at("stage.end", lambda _: engine.drain(engine.target(other, steps=FLAT))):
        engine.drain(target)
    assert engine.letter_offsets(topic) == [(0, 0)]
    engine.produce(topic, [sale(1)])
    engine.drain(target)
    assert engine.offsets(topic) == [(0, 1)]
