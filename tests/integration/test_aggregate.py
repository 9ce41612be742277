"""Tables of totals of groups: what rounds make of them, against totals kept one record after the other."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pytest

from calve.job import Aggregate, Measure, Window
from tests.integration.engine import Engine
from tests.integration.proofs import assert_proved, proof

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
    masses = [Decimal(repr(each)).quantize(Decimal("0.001")) for each in kept("weight")]
    yield "sales", len(rows)
    yield "fees", len(kept("fee"))
    yield "fee", sum(kept("fee")) if kept("fee") else None
    yield "total", sum(exact) if exact else None
    yield "mass", sum(masses) if masses else None
    yield "least", min(kept("price"))
    yield "heaviest", max(kept("weight"), default=None)
    yield "last", max(kept("at"))


@pytest.mark.parametrize("mode", [totals(), HOURLY], ids=["for ever", "by the hour"])
def test_totals_are_those_of_all_records_so_far(engine: Engine, mode: Aggregate) -> None:
    sales, dice = Sales(engine, mode), random.Random(3)
    target = sales.target()
    for count in (40, 1, 60):
        sales.sell(count, dice)
        (outcome,) = engine.drain(target)
        assert sales.held() == sales.expected()
        assert outcome.ledger.applied == count
        assert outcome.ledger.rows_deleted <= outcome.ledger.rows_appended <= len(sales.expected())
    assert_proved(proof(engine, sales.topic))
