"""Renamed and widened columns: records of old and new schema ids in turn, in one table, proved value by value."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

from calve.config.job import Table
from calve.schema.columns import Transform
from calve.schema.evolution import Rule
from calve.schema.wire import Schema
from cli.embedded.aws import client
from cli.project.plan.fields_to_review import lines, proposed
from tests.integration.decode.test_evolution import any_schema
from tests.integration.support.engine import DATABASE, Engine, suspended
from tests.integration.support.proofs import assert_proved, proof
from tests.integration.support.records.avro_records import (
    Avro,
    Row,
    entries,
    logical,
    nullable,
    read,
    record,
    spark_rows,
)


def aliased(name: str, kind: Avro, *aliases: str) -> Avro:
    return {"name": name, "type": kind, "aliases": list(aliases)}


FIRST = record("Order", id="int", side="string", item=record("Item", sku="string", n="int"))
FIRST["fields"].append({"name": "lines", "type": {"type": "array", "items": record("Line", qty="int")}})
SECOND = {
    "type": "record",
    "name": "Order",
    "fields": [
        aliased("order_id", "long", "id"),
        aliased("direction", "string", "side"),
        aliased("article", record("Item", n="int") | {"aliases": ["Article"]}, "item"),
        {"name": "lines", "type": {"type": "array", "items": record("Line")}},
    ],
}
SECOND["fields"][2]["type"]["fields"].insert(0, aliased("code", "string", "sku"))
SECOND["fields"][3]["type"]["items"]["fields"] = [aliased("quantity", "int", "qty")]


def in_turn(engine: Engine, topic: str, versions: list[Avro], rows: list[Row]) -> None:
    """Produce rows, each written by the next version in turn."""
    for number, row in enumerate(rows):
        engine.register(topic, json.dumps(versions[number % len(versions)]))
        engine.produce(topic, [row])


def first(n: int) -> Row:
    m = n % 100
    return {"id": n, "side": f"s{m}", "item": {"sku": f"k{m}", "n": m}, "lines": [{"qty": m}]}


def second(n: int) -> Row:
    m = n % 100
    item = {"code": f"k{m}", "n": m}
    return {"order_id": n, "direction": f"s{m}", "article": item, "lines": [{"quantity": m}]}


def glue_columns(engine: Engine, topic: str) -> list[tuple[str, str, str]]:
    table = client("glue", engine.stack.aws_endpoint).get_table(DatabaseName=DATABASE, Name=topic)["Table"]
    found = table["StorageDescriptor"]["Columns"]
    return [(each["Name"], each["Type"], each.get("Comment", "")) for each in found]


def test_a_renamed_column_keeps_its_data_and_is_filled_by_both_names(engine: Engine) -> None:
    topic = engine.topic(partitions=1, schema=json.dumps(FIRST))
    engine.produce(topic, [first(0)])
    target = engine.target(
        topic,
        partition_by=(Transform("side"),),
        sort_by=(Transform("item.sku", descending=True),),
    )
    engine.drain(target)
    ids = field_ids(engine, topic)
    with any_schema(engine):
        in_turn(engine, topic, [SECOND, FIRST], [second(1), first(2), second(2**40), first(4)])
    (outcome,) = engine.drain(target)
    assert (outcome.ledger.applied, outcome.ledger.dead_lettered) == (4, 0)
    assert read(engine, topic) == [second(n) for n in (0, 1, 2, 2**40, 4)]
    assert field_ids(engine, topic) == {
        {"id": "order_id", "side": "direction", "item": "article"}.get(name, name): number
        for name, number in ids.items()
    }
    assert_proved(proof(engine, topic))
    found = glue_columns(engine, topic)
    assert [name for name, _, _ in found] == ["order_id", "direction", "article", "lines", "_kafka"]
    assert [kind for name, kind, _ in found if name in ("order_id", "article")] == [
        "bigint",
        "struct<code:string,n:int>",
    ]


def field_ids(engine: Engine, topic: str) -> dict[str, int]:
    return {each["name"]: each["id"] for each in engine.table(topic).schema["fields"]}


def test_a_table_made_from_all_versions_has_the_newest_names_from_the_start(engine: Engine) -> None:
    topic = engine.topic(partitions=1, schema=json.dumps(FIRST))
    engine.produce(topic, [first(0)])
    with any_schema(engine):
        in_turn(engine, topic, [SECOND, FIRST], [second(1), first(2)])
    engine.drain(engine.target(topic, partition_by=(Transform("order_id", "bucket", 4),)))
    assert read(engine, topic) == [second(n) for n in range(3)]
    assert [name for name, _, _ in glue_columns(engine, topic)] == [
        *("order_id", "direction", "article", "lines"),
        "_kafka",
    ]
    assert_proved(proof(engine, topic))


def test_an_exchange_of_names_makes_dead_letters_and_the_table_stays(engine: Engine) -> None:
    before = record("Pair", a="int", b="int")
    after = before | {"fields": [aliased("a", "int", "b"), aliased("b", "int", "a")]}
    topic = engine.topic(partitions=1, schema=json.dumps(before))
    with any_schema(engine):
        in_turn(engine, topic, [before, after], [{"a": 1, "b": 2}, {"a": 3, "b": 4}, {"a": 5, "b": 6}])
    (outcome,) = engine.drain(engine.target(topic))
    assert outcome.ledger.rejected == {"incompatible_schema": 1}
    assert read(engine, topic) == [{"a": 1, "b": 2}, {"a": 5, "b": 6}]
    assert_proved(proof(engine, topic))


def test_a_layout_by_a_name_that_no_column_has_suspends_by_name(engine: Engine) -> None:
    topic = engine.topic(partitions=1, schema=json.dumps(FIRST))
    with any_schema(engine):
        engine.register(topic, json.dumps(SECOND))
    for column in ("side", "item.code", "article.code.x", "nothing"):
        with suspended("layout_unknown_column"):
            engine.round(engine.target(topic, partition_by=(Transform(column),)))


def money(precision: int, *, kind: str = "bytes", size: int = 0) -> Avro:
    made = logical(kind, "decimal", precision=precision, scale=2)
    return made | ({"name": "Price", "size": size} if size else {})


def test_decimals_of_a_smaller_and_a_greater_precision_are_read_in_turn(engine: Engine) -> None:
    def schema(precision: int, size: int) -> Avro:
        return record(
            "Prices",
            plain=nullable(money(precision)),
            fixed=money(precision, kind="fixed", size=size),
            listed={"type": "array", "items": nullable(money(precision))},
        )

    narrow, middle, wide = schema(4, 2), schema(9, 4), schema(38, 16)
    topic = engine.topic(partitions=1, schema=json.dumps(narrow))
    engine.produce(topic, [prices("-99.99")])
    target = engine.target(topic)
    engine.drain(target)
    with any_schema(engine):
        largest = "9" * 36 + ".99"
        in_turn(
            engine,
            topic,
            [wide, narrow, middle],
            [prices(largest), prices("0.01"), prices("-9999999.99"), prices("-" + largest), prices("99.99")],
        )
    (outcome,) = engine.drain(target)
    assert outcome.ledger.dead_lettered == 0
    amounts = ["-99.99", largest, "0.01", "-9999999.99", "-" + largest, "99.99"]
    assert read(engine, topic) == [prices(each) for each in amounts]
    assert [kind for name, kind, _ in glue_columns(engine, topic) if name == "plain"] == ["decimal(38,2)"]
    assert_proved(proof(engine, topic))


def prices(amount: str) -> Row:
    value = Decimal(amount)
    return {"plain": value, "fixed": value, "listed": [value, None]}


def test_a_union_gains_types_and_what_older_versions_lack_is_null(engine: Engine) -> None:
    before = record("Growing", choice=["null", "string", "long"])
    after = record(
        "Growing",
        choice=["null", "long", "bytes", "string"],
        numbered=entries("MapEntry", "int", ["string", "long"]),
        other={"type": "array", "items": ["null", "int", "long"]},
    )
    topic = engine.topic(partitions=1, schema=json.dumps(before))
    more: Row = {"numbered": [{"key": 1, "value": "x"}, {"key": 2, "value": 5}], "other": [None, ("int", 3)]}
    rows: list[Row] = [
        {"choice": "a"},
        {"choice": b"b"} | more,
        {"choice": 1},
        {"choice": 2} | more,
        {"choice": None},
    ]
    with any_schema(engine):
        in_turn(engine, topic, [before, after], rows)
    (outcome,) = engine.drain(engine.target(topic))
    assert outcome.ledger.dead_lettered == 0
    lacking: Row = {"numbered": None, "other": None}
    found: Row = {
        "numbered": [(1, {"string": "x", "long": None}), (2, {"string": None, "long": 5})],
        "other": [None, {"int": 3, "long": None}],
    }
    nothing = dict.fromkeys(("string", "long", "bytes"))
    assert spark_rows(engine, topic) == [
        {"choice": nothing | {"string": "a"}} | lacking,
        {"choice": nothing | {"bytes": b"b"}} | found,
        {"choice": nothing | {"long": 1}} | lacking,
        {"choice": nothing | {"long": 2}} | found,
        {"choice": None} | lacking,
    ]
    assert_proved(proof(engine, topic))


def test_glue_says_what_the_table_says(engine: Engine) -> None:
    before: Any = record("Noted", a="int", b="float")
    before["fields"][0]["doc"] = "the a"
    after = json.loads(json.dumps(before))
    after["fields"][1]["type"] = "double"
    after["fields"].append({"name": "c", "type": nullable("string"), "default": None, "doc": "the c"})
    topic = engine.topic(partitions=1, schema=json.dumps(before))
    engine.produce(topic, [{"a": 1, "b": 0.5}])
    target = engine.target(topic)
    engine.drain(target)
    engine.register(topic, json.dumps(after))
    engine.produce(topic, [{"a": 1, "b": 0.5, "c": None}])
    engine.drain(target)
    assert glue_columns(engine, topic)[:2] == [("a", "int", "the a"), ("b", "double", "")]
    assert glue_columns(engine, topic)[3] == ("c", "string", "the c")


def test_a_plan_names_what_a_schema_would_change_and_changes_nothing(engine: Engine) -> None:
    topic = engine.topic(partitions=1, schema=json.dumps(FIRST))
    engine.produce(topic, [first(0)])
    engine.drain(engine.target(topic))
    before = engine.table(topic).schema
    jobs = [engine.job(Table(name=topic, topic=topic))]
    found = lines(proposed(jobs, topic, Schema(0, json.dumps(SECOND)))[0])
    assert [(each["kind"], each["path"]) for each in found] == [
        ("rename", "order_id"),
        ("rename", "direction"),
        ("rename", "article"),
        ("rename", "article.code"),
        ("rename", "lines[].quantity"),
        ("widen", "order_id"),
    ]
    [refused] = lines(proposed(jobs, topic, Schema(0, json.dumps(record("Order", id="string"))))[0])
    assert (refused["kind"], refused["path"], refused["rule"]) == (
        "reject",
        "id",
        Rule.UNSUPPORTED_TYPE_CHANGE,
    )
    assert engine.table(topic).schema == before
