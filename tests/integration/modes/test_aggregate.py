"""Tables of totals of groups: what rounds make of them, against totals kept one record after the other."""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import functions as F

from calve.config.job import Source
from calve.modes.aggregate import Aggregate, Measure, Window
from calve.modes.upsert import Deduplicate
from cli.run.datagen.plan import Plan, blocks
from cli.run.datagen.produce import rows
from cli.verify.findings import Verification
from tests.integration.support.crashing import broken
from tests.integration.support.engine import Engine, suspended
from tests.integration.support.proofs import assert_proved, proof
from tests.integration.support.records.trades import Trades

DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}
MOMENT = {"type": "long", "logicalType": "timestamp-millis"}
SALE = {
    "type": "record",
    "name": "Sale",
    "fields": [
        {
            "name": "shop",
            "type": {"type": "record", "name": "Shop", "fields": [{"name": "id", "type": "int"}]},
        },
        {"name": "side", "type": ["null", "string"]},
        {"name": "price", "type": DECIMAL},
        {"name": "weight", "type": ["null", "double"]},
        {"name": "quantity", "type": "int"},
        {"name": "fee", "type": ["null", "long"]},
        {"name": "at", "type": ["null", MOMENT]},
    ],
}
MEASURES = {
    "sales": "count(*)",
    "fees": "count(fee)",
    "fee": "sum(fee)",
    "total": "sum(price * quantity - fee)",
    "mass": "sum(cast(weight as decimal(18, 3)))",
    "least": "min(price)",
    "heaviest": "max(weight)",
    "last": "max(at)",
}
BY = ("shop.id", "side")
HOUR_MS = 3_600_000
full = pytest.mark.full
EPOCH_MS = 1_790_000_000_000 // HOUR_MS * HOUR_MS


def totals(window: Window | None = None, *, by: tuple[str, ...] = BY, **measures: str) -> Aggregate:
    return Aggregate(by, tuple(Measure(*each) for each in (measures or MEASURES).items()), window)


HOURLY = totals(Window("at", HOUR_MS))


@dataclass
class Sales:
    """A topic of sales, and the totals of all that were sent."""

    engine: Engine
    mode: Aggregate = field(default_factory=totals)
    topic: str = ""
    sent: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.topic = self.topic or self.engine.topic(partitions=2, schema=json.dumps(SALE))

    def sell(self, count: int, dice: random.Random, *, shops: int = 3, **fixed: Any) -> None:
        rows = [sale(dice, shops) | fixed for _ in range(count)]
        for row in rows:
            self.engine.send(self.topic, self.engine.encode(self.topic, row), partition=dice.randrange(2))
        self.engine.flush()
        self.sent += rows

    def target(self, **settings: Any) -> Any:
        return self.engine.target(self.topic, **({"aggregate": self.mode} | settings))

    def expected(self) -> dict[tuple[Any, ...], dict[str, Any]]:
        groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for row in self.sent:
            key: tuple[Any, ...] = (row["shop"]["id"], row["side"])
            if self.mode.window:
                key = (*key, row["at"] // HOUR_MS * HOUR_MS)
            if None not in key:
                groups.setdefault(key, []).append(row)
        return {key: dict(added_up(rows)) for key, rows in groups.items()}

    def held(self) -> dict[tuple[Any, ...], dict[str, Any]]:
        """What the table has; a group that it has twice is an error."""
        window = ["unix_millis(window_start) AS window"] if self.mode.window else []
        rows = self.engine.rows(self.topic)
        found = rows.selectExpr(
            "shop_id",
            "side",
            *window,
            *(name for name in MEASURES if name != "last"),
            "unix_millis(last) AS last",
        )
        keys = 3 if self.mode.window else 2
        held = {
            tuple(row)[:keys]: dict(zip(MEASURES, tuple(row)[keys:], strict=True)) for row in found.collect()
        }
        assert len(held) == rows.count(), "a group has several rows"
        return held


def sale(dice: random.Random, shops: int) -> dict[str, Any]:
    return {
        "shop": {"id": dice.randrange(shops)},
        "side": dice.choice(["BUY", "SELL"]),
        "price": Decimal(dice.randrange(-(10**9), 10**9)) / 100,
        "weight": dice.choice([None, dice.uniform(-1e6, 1e6)]),
        "quantity": dice.randrange(-(2**31), 2**31),
        "fee": dice.choice([None, dice.randrange(-(10**6), 10**6)]),
        "at": EPOCH_MS + dice.randrange(-HOUR_MS, HOUR_MS),
    }


def added_up(rows: list[dict[str, Any]]) -> Iterator[tuple[str, Any]]:
    def kept(name: str) -> list[Any]:
        return [row[name] for row in rows if row[name] is not None]

    exact = [row["price"] * row["quantity"] - row["fee"] for row in rows if row["fee"] is not None]
    masses = [Decimal(round(each * 1000)) / 1000 for each in kept("weight")]
    yield "sales", len(rows)
    yield "fees", len(kept("fee"))
    yield "fee", sum(kept("fee")) if kept("fee") else None
    yield "total", sum(exact) if exact else None
    yield "mass", sum(masses) if masses else None
    yield "least", min(kept("price"))
    yield "heaviest", max(kept("weight"), default=None)
    yield "last", max(kept("at"))


@pytest.mark.parametrize("version", [pytest.param(2, marks=pytest.mark.long), pytest.param(3, marks=full)])
@pytest.mark.parametrize(
    "mode", [pytest.param(totals(), marks=full, id="for ever"), pytest.param(HOURLY, id="by the hour")]
)
def test_totals_are_those_of_all_records_so_far(engine: Engine, mode: Aggregate, version: int) -> None:
    sales, dice = Sales(engine, mode), random.Random(version)
    target = sales.target(format_version=version)
    for count in (40, 1, 60):
        sales.sell(count, dice)
        (outcome,) = engine.drain(target)
        assert sales.held() == sales.expected()
        assert outcome.ledger.applied == count
        assert outcome.ledger.rows_deleted <= outcome.ledger.rows_appended <= len(sales.expected())
    assert_proved(proof(engine, sales.topic))
    engine.compact(sales.topic)
    sales.sell(30, dice, at=EPOCH_MS - 24 * HOUR_MS)  # so late that the window has long passed
    engine.drain(sales.target())
    assert sales.held() == sales.expected()
    assert_proved(proof(engine, sales.topic))


@pytest.mark.long
def test_a_record_without_a_group_or_a_time_is_a_dead_letter(engine: Engine) -> None:
    sales, dice = Sales(engine, HOURLY), random.Random(5)
    sales.sell(20, dice)
    sales.sell(2, dice, side=None)
    sales.sell(3, dice, at=None)
    engine.send(sales.topic, broken("bad_magic", b"\0", 0), partition=0)
    engine.send(sales.topic, None, partition=1)
    engine.flush()
    (outcome,) = engine.drain(sales.target())
    assert outcome.ledger.rejected == {"null_key": 5, "truncated": 1, "null_value": 1}
    assert outcome.ledger.applied == 20
    sales.sent = [row for row in sales.sent if row["side"] and row["at"]]
    assert sales.held() == sales.expected()
    assert_proved(proof(engine, sales.topic))


@pytest.mark.full
def test_what_is_read_again_after_a_rollback_is_added_once(engine: Engine) -> None:
    sales, dice = Sales(engine), random.Random(7)
    heads = []
    for _ in range(3):
        sales.sell(30, dice)
        heads.append(engine.drain(sales.target())[-1].snapshot)
    assert heads[0] is not None
    engine.rollback(sales.topic, heads[0])
    engine.drain(sales.target())
    assert sales.held() == sales.expected()
    assert_proved(proof(engine, sales.topic))


@pytest.mark.full
def test_the_same_records_in_another_order_and_other_rounds_come_to_the_same(engine: Engine) -> None:
    one, other, dice = Sales(engine), Sales(engine), random.Random(9)
    one.sell(80, dice)
    engine.drain(one.target())
    again = list(one.sent)
    dice.shuffle(again)
    for part in (again[:50], again[50:]):
        for row in part:
            engine.send(other.topic, engine.encode(other.topic, row), partition=dice.randrange(2))
        engine.flush()
        engine.drain(other.target())
    assert one.held() == other.held()


@pytest.mark.long
@pytest.mark.parametrize(
    ("measure", "large"),
    [
        ("sum(fee)", [{"fee": 2**62}, {"fee": 2**62}]),
        ("sum(fee * quantity)", [{"fee": 2**62, "quantity": 2}]),
        pytest.param("sum(fee * fee - fee * fee)", [{"fee": 2**40}], marks=full),
        pytest.param("min(cast(weight as decimal(5, 2)))", [{"weight": 1000.0}], marks=full),
        pytest.param("count(cast(weight as decimal(5, 2)))", [{"weight": float("nan")}], marks=full),
        pytest.param("sum(cast(price as decimal(38, 28)))", [{"price": Decimal(9 * 10**9)}] * 2, marks=full),
    ],
)
def test_a_total_that_is_too_large_suspends_the_table_before_it_is_published(
    engine: Engine, measure: str, large: list[dict[str, Any]]
) -> None:
    sales, dice = Sales(engine, totals(total=measure, n="count(*)")), random.Random(11)
    small: dict[str, Any] = {"fee": 1, "quantity": 1, "weight": 1.0, "price": Decimal(1)}
    sales.sell(1, dice, shops=1, side="BUY", **small)
    engine.drain(sales.target())
    before = engine.rows(sales.topic).collect()
    for row in large:
        sales.sell(1, dice, shops=1, side="BUY", **(small | row))
    with suspended("measure_overflow"):
        engine.drain(sales.target())
    assert engine.rows(sales.topic).collect() == before
    assert_proved(proof(engine, sales.topic))


def test_a_moment_that_is_no_windows_suspends_the_table(engine: Engine) -> None:
    sales, dice = Sales(engine, HOURLY), random.Random(13)
    sales.sell(1, dice, at=-(2**63) // 1000 + 1)
    with suspended("measure_overflow"):
        engine.drain(sales.target())


@pytest.mark.long
def test_schemas_may_grow_and_widen_what_is_added_up(engine: Engine) -> None:
    sales, dice = Sales(engine), random.Random(15)
    sales.sell(20, dice)
    engine.drain(sales.target())
    wider = json.loads(json.dumps(SALE).replace('"quantity", "type": "int"', '"quantity", "type": "long"'))
    wider["fields"][0]["type"]["fields"][0]["type"] = "long"
    wider["fields"].append({"name": "note", "type": ["null", "string"], "default": None})
    engine.register(sales.topic, json.dumps(wider))
    sales.sell(20, dice, quantity=2**40)
    engine.drain(sales.target())
    assert sales.held() == sales.expected()
    assert "note" not in engine.rows(sales.topic).columns
    assert_proved(proof(engine, sales.topic))


def test_a_column_that_is_renamed_suspends_the_table(engine: Engine) -> None:
    sales, dice = Sales(engine), random.Random(17)
    sales.sell(5, dice)
    engine.drain(sales.target())
    renamed = json.loads(json.dumps(SALE).replace('"fee"', '"cost"'))
    next(each for each in renamed["fields"] if each["name"] == "cost")["aliases"] = ["fee"]
    engine.register(sales.topic, json.dumps(renamed))
    sales.sent = []
    engine.send(sales.topic, engine.encode(sales.topic, sale(dice, 3) | {"cost": 1}), partition=0)
    engine.flush()
    with suspended("measure_unusable"):
        engine.drain(sales.target())


def test_other_settings_suspend_the_table_as_it_is(engine: Engine) -> None:
    sales, dice = Sales(engine), random.Random(19)
    sales.sell(5, dice)
    engine.drain(sales.target())
    columns = engine.rows(sales.topic).schema
    for changed in (HOURLY, totals(by=("side",)), totals(sales="count(*)"), None):
        with suspended("mode_changed"):
            engine.drain(sales.target(aggregate=changed))
    with suspended("mode_changed"):
        engine.drain(engine.target(sales.topic, deduplicate=Deduplicate(("side",))))
    assert engine.rows(sales.topic).schema == columns
    plain = engine.topic(schema=json.dumps(SALE))
    engine.drain(engine.target(plain))
    with suspended("mode_changed"):
        engine.drain(engine.target(plain, aggregate=totals()))


@pytest.mark.parametrize(
    ("mode", "code"),
    [
        (totals(n="sum(weight)"), "measure_unusable"),
        (totals(n="max(nothing)"), "measure_unusable"),
        (totals(by=("weight",)), "key_unusable"),
        (totals(Window("fee", 1000)), "key_unusable"),
    ],
)
def test_a_table_that_cannot_be_made_says_why(engine: Engine, mode: Aggregate, code: str) -> None:
    with suspended(code):
        engine.drain(Sales(engine, mode).target())


@pytest.mark.full
def test_totals_of_a_topic_that_was_made_again_go_on(engine: Engine) -> None:
    sales, dice = Sales(engine), random.Random(23)
    sales.sell(20, dice)
    engine.drain(sales.target())
    engine.recreate(sales.topic, partitions=2)
    sales.sell(20, dice)
    engine.drain(sales.target(on_data_loss="continue"))
    assert sales.held() == sales.expected()
    found = proof(engine, sales.topic)
    assert found.findings == ()
    assert unproved(found) == {"groups"}


def unproved(found: Verification) -> set[str]:
    return {each.name for each in found.checks if each.state == "not verifiable"}


def test_verify_never_calls_totals_proved_of_which_kafka_has_let_records_go(engine: Engine) -> None:
    sales, dice = Sales(engine), random.Random(25)
    sales.sell(20, dice)
    engine.drain(sales.target())
    engine.expire(sales.topic, 1)
    found = proof(engine, sales.topic)
    assert found.findings == ()
    assert unproved(found) == {"groups", "expired"}


@pytest.mark.long
def test_verify_finds_totals_that_are_wrong(engine: Engine) -> None:
    sales, dice = Sales(engine), random.Random(27)
    sales.sell(40, dice)
    engine.drain(sales.target())
    first = engine.rows(sales.topic).where("shop_id = 1 AND side = 'BUY'").localCheckpoint()
    place = first.select("_kafka.partition", "_kafka.offset").collect()[0]
    engine.sql("UPDATE {t} SET fee = fee + 1 WHERE shop_id = 1 AND side = 'BUY'", sales.topic)
    (wrong,) = proof(engine, sales.topic).findings
    assert (wrong.check, wrong.columns) == ("groups", ("fee",))
    assert (wrong.partition, wrong.offsets) == (place[0], ((place[1], place[1] + 1),))
    engine.sql("DELETE FROM {t} WHERE shop_id = 1 AND side = 'BUY'", sales.topic)
    assert {each.check for each in proof(engine, sales.topic).findings} == {"groups", "totals"}
    for _ in range(2):
        first.writeTo(f"lake.tests.{sales.topic}").append()
    texts = {each.message for each in proof(engine, sales.topic).findings if each.check == "groups"}
    assert texts == {"rows with the group of another row"}
    engine.sql("DELETE FROM {t} WHERE shop_id = 1 AND side = 'BUY'", sales.topic)
    first.selectExpr("99L AS shop_id", *first.columns[1:]).writeTo(f"lake.tests.{sales.topic}").append()
    texts = {each.message for each in proof(engine, sales.topic).findings if each.check == "groups"}
    assert {"rows of groups without a record"} < texts


def test_the_record_key_may_be_a_group_and_its_time_a_window(engine: Engine) -> None:
    mode = totals(
        Window("_kafka.timestamp", 60_000), by=("account",), n="count(*)", newest="max(_kafka.offset)"
    )
    key = Source(format="string", prefix="none", column="account")
    topic = engine.topic(partitions=1, schema=json.dumps(SALE))
    dice, began = random.Random(29), EPOCH_MS
    for number, account in enumerate((b"a", b"b", b"a", None, b"a")):
        value = engine.encode(topic, sale(dice, 3))
        engine.send(topic, value, key=account, partition=0, at_ms=began + 30_000 * number)
    engine.flush()
    (outcome,) = engine.drain(engine.target(topic, aggregate=mode, key=key))
    assert outcome.ledger.rejected == {"null_key": 1}
    found = engine.rows(topic).selectExpr(
        "account", "unix_millis(window_start)", "n", "newest", "_kafka.offset", "_kafka.key"
    )
    assert sorted(map(tuple, found.collect())) == [
        *(("a", began, 1, 0, 0, None), ("a", began + 60_000, 1, 2, 2, None)),
        *(("a", began + 120_000, 1, 4, 4, None), ("b", began, 1, 1, 1, None)),
    ]
    assert_proved(proof(engine, topic, key=key))


@full
@pytest.mark.parametrize("window", [None, Window("_kafka.timestamp", 60_000)])
def test_trades_of_datagen_by_user_side_and_symbol(engine: Engine, window: Window | None) -> None:
    topic = f"t{uuid.uuid4().hex[:12]}"
    trades = Trades(engine.stack, topic)
    trades.create()
    ended = datetime.now(UTC)
    trades.produce(ended - timedelta(minutes=5), ended, 500)
    mode = totals(window, by=("userid", "side", "symbol"), total="sum(price * quantity)", trades="count(*)")
    engine.drain(engine.target(topic, aggregate=mode))
    plan = Plan(topic, 500)
    sent = [row for block in blocks(plan) for row in rows(plan, block)]
    expected: dict[tuple[str, ...], tuple[int, int]] = {}
    for row in sent:
        group = (row["userid"], row["side"], row["symbol"])
        total, count = expected.get(group, (0, 0))
        expected[group] = (total + row["price"] * row["quantity"], count + 1)
    summed = engine.rows(topic).groupBy("userid", "side", "symbol").agg(F.sum("total"), F.sum("trades"))
    assert {tuple(row)[:3]: tuple(row)[3:] for row in summed.collect()} == expected
    assert_proved(proof(engine, topic))
