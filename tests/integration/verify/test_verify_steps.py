"""`verify` against tables whose records go through steps: what rounds made of them is proved, and any damage is found."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from calve.config.job import Budget, Source
from calve.config.steps import Filter, Flatten, Lookup, Sql, Step
from calve.modes.aggregate import Aggregate, Measure
from calve.modes.upsert import Deduplicate, Upsert
from cli.verify.findings import Verification
from tests.integration.support.engine import Engine, trades
from tests.integration.support.proofs import assert_proved, proof

MAKER = {"type": "record", "name": "Maker", "fields": [{"name": "name", "type": "string"}]}
ITEM = {
    "type": "record",
    "name": "Item",
    "fields": [
        {"name": "sku", "type": ["null", "string"], "default": None},
        {"name": "price", "type": ["null", "double"], "default": None},
        {"name": "maker", "type": ["null", MAKER], "default": None},
        {"name": "tags", "type": {"type": "map", "values": "string"}},
    ],
}
CART = {
    "type": "record",
    "name": "Cart",
    "fields": [
        {"name": "items", "type": ["null", {"type": "array", "items": ITEM}], "default": None},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}
FIELDS: list[dict[str, Any]] = [
    {"name": "id", "type": "int"},
    {"name": "cart", "type": ["null", CART], "default": None},
    {"name": "labels", "type": {"type": "map", "values": "int"}},
]
FLAT = (Flatten("__", maps={"labels": ("red", "none")}),)
ROWS = (Flatten(explode="cart.items", maps={"cart.items.tags": ("k",)}),)


def schema(*further: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": "Sale", "fields": [*FIELDS, *further]})


def sale(number: int, *skus: str | None, **values: Any) -> dict[str, Any]:
    """A sale of items; of each second one nothing else is known."""
    items: list[dict[str, Any]] = [
        {"sku": sku, "price": None, "maker": None, "tags": {}}
        if n % 2
        else {"sku": sku, "price": n + 0.5, "maker": {"name": "Acme"}, "tags": {"k": "v", "l": f"{number}"}}
        for n, sku in enumerate(skus)
    ]
    cart = {"items": items, "note": f"note {number}"}
    return {"id": number, "cart": cart, "labels": {"red": 1, "blue": number}} | values


SALES = [
    sale(1, "a", "b", "a"),
    sale(2),
    sale(3, cart=None, labels={}),
    sale(4, cart={"items": None, "note": None}),
    sale(5, "c"),
]


def sold(engine: Engine, steps: tuple[Step, ...], *further: dict[str, Any], **settings: Any) -> str:
    """A topic of sales in a table; `further` ones are read by a second round."""
    topic = engine.topic(schema=schema(), partitions=1)
    target = engine.target(topic, steps=steps, **settings)
    for each in (SALES, further):
        engine.produce(topic, list(each))
        engine.drain(target)
    return topic


def figures(found: Verification, check: str) -> dict[str, int | str]:
    return next(each.figures for each in found.checks if each.name == check)


PLACE = ("topic", "partition", "offset", "timestamp", "timestamp_type", "key", "headers", "schema_id")


@dataclass
class Damage:
    """Does something to a table, and takes it back."""

    engine: Engine
    topic: str
    steps: tuple[Step, ...]

    def told(self, statement: str) -> list[tuple[str, str, tuple[str, ...]]]:
        """What is found then, and where, but for the totals, which any change of the number of rows upsets."""
        whole = self.engine.table(self.topic).head
        assert whole is not None
        self.engine.sql(statement, self.topic)
        told = proof(self.engine, self.topic, steps=self.steps).findings
        self.engine.rollback(self.topic, whole)
        return [(each.message, each.where, each.columns) for each in told if each.check != "totals"]


def test_structs_and_maps_as_columns_are_proved_also_when_a_version_adds_some(engine: Engine) -> None:
    topic = sold(engine, FLAT)
    engine.register(
        topic, schema({"name": "maker", "type": ["null", MAKER | {"name": "Late"}], "default": None})
    )
    engine.produce(topic, [sale(6, "d") | {"maker": {"name": "Acme"}}])
    engine.drain(engine.target(topic, steps=FLAT))
    assert "maker__name" in engine.rows(topic).columns
    assert_proved(proof(engine, topic, steps=FLAT))


@pytest.mark.full
def test_rows_of_items_are_proved_and_each_damage_of_one_is_found(engine: Engine) -> None:
    topic = sold(engine, ROWS, sale(6, "d", None, None))
    found = proof(engine, topic, steps=ROWS)
    assert_proved(found)
    assert figures(found, "coverage") == {
        "offsets": 6,
        "records": 6,
        "rows": 10,
        "dead_letters": 0,
        "gaps": 0,
    }
    assert figures(found, "totals") == {"rows": 10, "rows_appended": 10}
    damaged = Damage(engine, topic, ROWS).told
    fewer, more = (f"records with {word} rows in the table than they make" for word in ("fewer", "more"))
    first = "partition 0 offset 0"
    assert damaged("DELETE FROM {t} WHERE id = 1 AND cart_items_sku = 'b'") == [(fewer, first, ())]
    assert damaged("INSERT INTO {t} SELECT * FROM {t} WHERE id = 1 AND cart_items_sku = 'b'") == [
        (more, first, ())
    ]
    changed = damaged("UPDATE {t} SET cart_items_price = 9 WHERE id = 1 AND cart_items_price = 2.5")
    assert changed == [("rows that are not what was produced", first, ("cart_items_price",))]
    [(message, where, _)] = damaged("DELETE FROM {t} WHERE id = 2")
    assert message.startswith("records in neither the table nor the dead letters")
    assert where == "partition 0 offset 1"
    [(message, where, columns)] = damaged("INSERT INTO {t} SELECT * FROM {t} WHERE id = 5")
    assert (message, where, columns) == (
        "records more than once in the table",
        "partition 0 offset 4",
        (),
    )


def test_the_first_record_of_each_key_with_all_its_rows_is_proved(engine: Engine) -> None:
    once = Deduplicate(("id",))
    topic = sold(engine, ROWS, sale(1, "x", "y"), sale(6, "d", "e"), sale(6, "f"), deduplicate=once)
    found = proof(engine, topic, steps=ROWS)
    assert_proved(found)
    assert figures(found, "keys") == {"keys": 6}
    assert figures(found, "coverage")["deduplicated"] == 2
    engine.sql("INSERT INTO {t} SELECT * FROM {t} WHERE id = 6", topic)
    [finding] = [each for each in proof(engine, topic, steps=ROWS).findings if each.check != "totals"]
    assert finding.message == "records with more rows in the table than they make"


@pytest.mark.full
def test_totals_of_the_rows_of_items_are_proved(engine: Engine) -> None:
    totals = Aggregate(
        ("cart_items_sku",),
        (Measure("sold", "count(*)"), Measure("paid", "sum(cast(cart_items_price as decimal(18, 1)))")),
    )
    topic = sold(engine, ROWS, sale(6, "d", None, "d"), sale(7, "a"), aggregate=totals)
    found = proof(engine, topic, steps=ROWS)
    assert_proved(found)
    assert figures(found, "dead letters") == {"compared": 4, "null_key": 4}
    assert figures(found, "groups") == {"groups": 3, "records": 3}
    assert figures(found, "coverage")["added_up"] == 3
    engine.sql("UPDATE {t} SET sold = sold + 1 WHERE cart_items_sku = 'a'", topic)
    [finding] = proof(engine, topic, steps=ROWS).findings
    assert finding.columns == ("sold",)


KEY = json.dumps({"type": "record", "name": "Key", "fields": [{"name": "id", "type": "int"}]})


@pytest.mark.parametrize(
    ("key", "steps", "deleted"),
    [
        pytest.param("_kafka.key", FLAT, 1, marks=pytest.mark.long),
        pytest.param("key", FLAT, 1, marks=pytest.mark.long),
        ("key", (Sql("select key, id, 1 / id as share, labels from source where id <> 3"), *FLAT), 2),
    ],
)
def test_rows_that_tombstones_delete_are_proved_behind_the_steps(
    engine: Engine, key: str, steps: tuple[Step, ...], deleted: int
) -> None:
    """A record that WHERE leaves out deletes as a tombstone does."""
    source = Source(format="avro", prefix="none", schema=KEY, column="key") if key == "key" else None
    topic = engine.topic(schema=schema(), partitions=1)
    target = engine.target(topic, steps=steps, key=source, upsert=Upsert((key,), deletes=True))
    for number in (1, 2, 3, 4):
        engine.send(topic, engine.encode(topic, sale(number, "a")), key=bytes([2 * number]))
    engine.flush()
    engine.drain(target)
    engine.send(topic, None, key=b"\x02")
    engine.send(topic, engine.encode(topic, sale(20)), key=b"\x04")
    engine.flush()
    engine.drain(target)
    found = proof(engine, topic, key=source, steps=steps)
    assert_proved(found)
    assert figures(found, "keys")["deleted"] == deleted


@pytest.mark.full
def test_what_a_query_makes_and_leaves_out_is_proved_and_each_damage_of_it_is_found(engine: Engine) -> None:
    steps = (Sql("select *, price * 1000000 as micros from source where price <> 7"), Filter("side = 'BUY'"))
    topic = engine.topic(partitions=1)
    engine.produce(topic, trades(20))
    engine.produce(topic, [{"id": 20, "side": "BUY", "price": 2**31 - 1}])
    engine.drain(engine.target(topic, steps=steps))
    found = proof(engine, topic, steps=steps)
    assert_proved(found)
    assert figures(found, "coverage") == {
        "offsets": 21,
        "records": 21,
        "rows": 9,
        "dead_letters": 1,
        "left out": 11,
        "gaps": 0,
    }
    assert figures(found, "left out") == {"records": 11}
    damage = Damage(engine, topic, steps)
    planted = ", ".join(f"'{name}', _kafka.{name}" for name in PLACE).replace("_kafka.offset", "7L")
    plant = (
        f"INSERT INTO {{t}} SELECT id, side, price, micros, named_struct({planted}) FROM {{t}} WHERE id = 1"
    )
    none = "rows of records that are no rows: a step leaves them out"
    assert damage.told(plant) == [(none, "partition 0 offset 7", ())]
    changed = damage.told("UPDATE {t} SET micros = micros + 1 WHERE id = 5")
    assert changed == [("rows that are not what was produced", "partition 0 offset 5", ("micros",))]
    [(message, where, _)] = damage.told("DELETE FROM {t} WHERE id = 9")
    assert message.startswith("records in neither the table nor the dead letters")
    assert where == "partition 0 offset 9"


def test_skipped_records_on_which_a_query_fails_are_found_among_the_others(engine: Engine) -> None:
    steps = (Sql("select id, 12 / (price - 5) as share from source"),)
    topic = engine.topic(partitions=1)
    engine.produce(topic, 20)
    engine.drain(engine.target(topic, steps=steps, on_error="skip", dead_letter_budget=Budget(records=9)))
    found = proof(engine, topic, steps=steps)
    assert_proved(found)
    assert figures(found, "skipped") == {"records": 1, "step_failed": 1}


CUT = (*ROWS, Sql("select *, cart_items_price * 2 as twice from source"), Filter("cart_items_sku <> 'b'"))


def test_what_is_left_out_behind_a_list_is_a_row_of_its_record(engine: Engine) -> None:
    topic = sold(engine, CUT, sale(6, "b"), sale(7, "b", "d"))
    found = proof(engine, topic, steps=CUT)
    assert_proved(found)
    assert figures(found, "coverage")["rows"] == 4
    assert figures(found, "coverage")["without rows"] == 4
    damage = Damage(engine, topic, CUT)
    planted = ", ".join(f"'{name}', _kafka.{name}" for name in PLACE).replace("_kafka.offset", "5L")
    names = ", ".join(name for name in engine.rows(topic).columns if name != "_kafka")
    plant = f"INSERT INTO {{t}} SELECT {names}, named_struct({planted}) FROM {{t}} WHERE id = 5"
    assert damage.told(plant) == [("rows of records that make none", "partition 0 offset 5", ())]


@pytest.mark.full
def test_duplicates_without_rows_are_never_called_proved(engine: Engine) -> None:
    topic = sold(engine, CUT, sale(6, "b"), sale(6, "b"), sale(1, "x"), deduplicate=Deduplicate(("id",)))
    found = proof(engine, topic, steps=CUT)
    assert found.findings == ()
    [open_] = [each for each in found.checks if each.state == "not verifiable"]
    assert (open_.name, open_.figures["records"]) == ("duplicates", 1)


def test_rounds_that_knew_other_schemas_are_proved_with_those(engine: Engine) -> None:
    first = schema({"name": "note", "type": "int"})
    topic = engine.topic(schema=first, partitions=1)
    target = engine.target(topic, steps=(Flatten(),))
    engine.produce(topic, [sale(1, "a", note=1)])
    engine.drain(target)
    engine.register(topic, schema({"name": "remark", "aliases": ["note"], "type": "long"}))
    engine.produce(topic, [sale(2, "a", remark=2**40)])
    engine.drain(target)
    found = {row["id"]: (row["note"], row["remark"]) for row in engine.rows(topic).collect()}
    assert found == {1: (1, None), 2: (None, 2**40)}
    assert_proved(proof(engine, topic, steps=(Flatten(),)))


def test_what_other_steps_have_made_is_never_called_proved(engine: Engine) -> None:
    topic = sold(engine, ())
    engine.produce(topic, [sale(6, "d")])
    engine.drain(engine.target(topic, steps=FLAT))
    found = proof(engine, topic, steps=FLAT)
    assert found.findings == ()
    [open_] = [each for each in found.checks if each.state == "not verifiable"]
    assert (open_.name, open_.figures["offsets"]) == ("earlier schema", 5)
    assert [each.rows for each in found.digests] == [1]
    assert proof(engine, topic).findings == ()


@pytest.mark.full
def test_what_was_looked_up_is_proved_by_the_snapshots_that_rounds_have_seen(engine: Engine) -> None:
    other = engine.topic(partitions=1)
    prices = engine.target(other)
    engine.produce(other, trades(4))
    engine.drain(prices)
    steps = (Lookup(other, {"id": "id"}, {"known_price": "price"}, "reject"),)
    topic = engine.topic(schema=schema(), partitions=1)
    target = engine.target(topic, steps=steps)
    engine.produce(topic, SALES)
    engine.drain(target)
    engine.sql("UPDATE {t} SET price = price + 1000 WHERE id < 3", other)
    engine.produce(topic, SALES)
    engine.drain(target)
    found = proof(engine, topic, steps=steps)
    assert_proved(found)
    assert figures(found, "dead letters")["lookup_missing"] == 4
    damaged = Damage(engine, topic, steps).told
    later = engine.rows(topic).where("_kafka.offset > 4 and id = 1").first()
    assert later is not None
    changed = damaged("UPDATE {t} SET known_price = known_price - 1000 WHERE id = 1 AND _kafka.offset > 4")
    where = f"partition 0 offset {later['_kafka']['offset']}"
    assert changed == [("rows that are not what was produced", where, ("known_price",))]
    engine.expire_history(other)
    unproved = {
        each.name for each in proof(engine, topic, steps=steps).checks if each.state == "not verifiable"
    }
    assert unproved == {"earlier schema"}
