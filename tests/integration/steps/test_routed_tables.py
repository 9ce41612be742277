"""One topic to many tables by a value of its records: each is in just one of them, or among the dead letters of one."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from calve.config.steps import Flatten, Route, Step
from calve.errors import Suspended
from calve.modes.upsert import Upsert
from calve.names import TableName
from calve.requests.redrive import Request, Result
from calve.settings import load
from calve.settings.resolving import StackDefaults
from calve.table.position import Ledger
from calve.table.summary import REDRIVE
from tests.integration.support.engine import DATABASE, Engine
from tests.integration.support.proofs import assert_proved, proof

EVENT = {
    "type": "record",
    "name": "Event",
    "fields": [{"name": "id", "type": "long"}, {"name": "type", "type": ["null", "string"]}],
}
ORDERS, PAYMENTS, OTHERS = "value: order", "value: [payment, refund]", "otherwise: true"


class Tables:
    """Tables of one topic, each named by what it holds; calve.yaml says which routes they have."""

    def __init__(self, engine: Engine, file: Path, **settings: Any) -> None:
        self.engine = engine
        self.file = file
        self.settings = settings
        self.topic = engine.topic(schema=json.dumps(EVENT), partitions=1)
        self.sent = 0
        self.steps: dict[str, tuple[Step, ...]] = {}

    def send(self, *types: str | None) -> None:
        """Records with these types; their ids are their offsets."""
        self.engine.produce(self.topic, [{"id": self.sent + n, "type": each} for n, each in enumerate(types)])
        self.sent += len(types)

    def name(self, holds: str) -> str:
        return f"{self.topic}_{holds}"

    def drain(self, **routes: str) -> None:
        self.steps = self._steps(routes)
        for holds, steps in self.steps.items():
            self.engine.drain(
                self.engine.target(self.topic, table=self.name(holds), steps=steps, **self.settings)
            )

    def _steps(self, routes: dict[str, str]) -> dict[str, tuple[Step, ...]]:
        tables = [
            f"  {name}: {{topic: {self.topic}, route: {{column: type, {each}}}}}"
            for name, each in routes.items()
        ]
        self.file.write_text("\n".join(["name: t", "tables:", *tables]), encoding="utf-8")
        given = self.engine.job()
        [job] = load(self.file, stack=StackDefaults(given.kafka, given.registry, given.lake.warehouse))
        return {table.name: table.steps for table in job.tables}

    def redrive(self, holds: str, **routes: str) -> Result:
        """Ask for all open letters of one table, and drain all."""
        request = Request(uuid.uuid4().hex, "now")
        self.engine.table(self.name(holds)).set_properties({REDRIVE: request.to_json()})
        self.drain(**routes)
        found = Result.of(self.engine.table(self.name(holds)).properties, request.id)
        assert found
        return found

    def rows(self, holds: str) -> list[int]:
        """The offsets of its records."""
        return [offset for _, offset in self.engine.offsets(self.name(holds))]

    def letters(self, holds: str) -> list[tuple[int, str]]:
        """Offset and reason of the letters that are open; none where no record was ever rejected."""
        if self.engine.lake.load(TableName(DATABASE, self.name(holds)).dead_letters) is None:
            return []
        found = self.engine.letters(self.name(holds)).where("redriven is null")
        return sorted((row[0], row[1]) for row in found.select("offset", "reason").collect())

    def ledger(self, holds: str) -> Ledger:
        head = next(iter(self.engine.table(self.name(holds)).ancestors()))
        return Ledger.from_json(head.summary["calve.ledger"])

    def prove(self) -> None:
        """`calve verify` says the same of all tables that were drained last."""
        for holds, steps in self.steps.items():
            assert_proved(proof(self.engine, self.name(holds), steps=steps))

    def fates(self, *tables: str) -> Counter[int]:
        """How often each record is in one of these tables, or an open letter of one."""
        found = Counter(offset for each in tables for offset in self.rows(each))
        return found + Counter(offset for each in tables for offset, _ in self.letters(each))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "calve.yaml"


@pytest.mark.long
def test_every_record_is_in_one_of_the_tables(engine: Engine, file: Path) -> None:
    tables = Tables(engine, file)
    tables.send("order", "payment", None, "gift", "Order", "refund")
    tables.drain(orders=ORDERS, payments=PAYMENTS, others=OTHERS)
    tables.send("order", None, "payment")
    tables.drain(orders=ORDERS, payments=PAYMENTS, others=OTHERS)
    assert tables.rows("orders") == [0, 6]
    assert tables.rows("payments") == [1, 5, 8]
    assert tables.rows("others") == [2, 3, 4, 7]
    for each in ("orders", "payments", "others"):
        told = tables.ledger(each)
        assert (told.consumed, told.applied, told.filtered_by_steps) == (3, 1, 2)
        assert (told.filtered, told.dead_lettered) == (2, 0)
    tables.prove()


@pytest.mark.full
def test_what_no_table_names_is_a_dead_letter_of_the_first_alone(engine: Engine, file: Path) -> None:
    tables = Tables(engine, file)
    tables.send("order", "payment", None, "gift", "Order", "refund")
    tables.drain(payments=PAYMENTS, orders=ORDERS)
    assert (tables.rows("payments"), tables.rows("orders")) == ([1, 5], [0])
    assert tables.letters("payments") == [(2, "no_route"), (3, "no_route"), (4, "no_route")]
    assert tables.letters("orders") == []
    assert (tables.ledger("payments").rejected, tables.ledger("payments").filtered) == ({"no_route": 3}, 1)
    assert (tables.ledger("orders").rejected, tables.ledger("orders").filtered) == ({}, 5)
    tables.prove()


@pytest.mark.full
def test_a_value_that_is_named_later_comes_back_by_a_redrive(engine: Engine, file: Path) -> None:
    tables = Tables(engine, file)
    tables.send("order", "gift", None, "payment", "gift")
    tables.drain(orders=ORDERS, payments=PAYMENTS)
    named = {"orders": "value: [order, gift]", "payments": PAYMENTS}
    tables.send("gift")
    answer = tables.redrive("orders", **named)
    assert (answer.selected, answer.redriven, answer.refused) == (3, 2, {"no_route": 1})
    assert (tables.rows("orders"), tables.rows("payments")) == ([0, 1, 4, 5], [3])
    assert tables.letters("orders") == [(2, "no_route")]
    again = tables.redrive("orders", **named)
    assert (again.selected, again.redriven) == (1, 0)
    assert tables.fates("orders", "payments") == Counter(range(6))


@pytest.mark.full
def test_letters_whose_value_another_table_names_stay_until_a_table_has_them(
    engine: Engine, file: Path
) -> None:
    tables = Tables(engine, file)
    tables.send("order", "gift", None, "payment")
    tables.drain(orders=ORDERS, payments=PAYMENTS)
    tables.send("gift")
    named = {"orders": ORDERS, "payments": "value: [payment, gift]"}
    answer = tables.redrive("orders", **named)
    assert (answer.redriven, answer.refused) == (0, {"filtered": 1, "no_route": 1})
    assert tables.rows("payments") == [3, 4]
    assert tables.fates("orders", "payments") == Counter(range(5))
    *_, first = engine.table(tables.name("payments")).ancestors()
    engine.rollback(tables.name("payments"), first.id)
    tables.drain(**named)
    assert (tables.rows("payments"), tables.rows("orders")) == ([1, 3, 4], [0])


def test_a_record_that_cannot_be_decoded_is_a_dead_letter_of_each(engine: Engine, file: Path) -> None:
    tables = Tables(engine, file)
    tables.send("order")
    engine.send(tables.topic, b"\x01no magic byte")
    engine.flush()
    tables.drain(orders=ORDERS, others=OTHERS)
    assert tables.letters("orders") == tables.letters("others") == [(1, "bad_magic")]
    assert (tables.rows("orders"), tables.rows("others")) == ([0], [])


@pytest.mark.full
def test_tombstones_reach_every_table(engine: Engine, file: Path) -> None:
    tables = Tables(engine, file, upsert=Upsert(("_kafka.key",), deletes=True))
    kinds = ("order", "payment", "order", "payment")
    for number, kind in enumerate(kinds):
        engine.send(
            tables.topic, engine.encode(tables.topic, {"id": number, "type": kind}), key=b"%d" % number
        )
    engine.flush()
    tables.drain(orders=ORDERS, payments=PAYMENTS)
    assert (tables.rows("orders"), tables.rows("payments")) == ([0, 2], [1, 3])
    for key in (b"0", b"1"):
        engine.send(tables.topic, None, key=key)
    engine.flush()
    tables.drain(orders=ORDERS, payments=PAYMENTS)
    assert (tables.rows("orders"), tables.rows("payments")) == ([2], [3])
    tables.prove()


def test_a_route_or_step_that_cannot_be_run_is_named_as_calve_yaml_has_it(engine: Engine) -> None:
    topic = engine.topic(schema=json.dumps(EVENT))
    with pytest.raises(Suspended, match=r'^route: "typ" is no column of the record; did you mean "type"\?'):
        engine.drain(engine.target(topic, steps=(Route("typ", ("x",), (), "leave_out"),)))
    route = Route("type", ("x",), (), "leave_out")
    with pytest.raises(Suspended, match=r"^steps\[0\]\.flatten: there is no column itms"):
        engine.drain(engine.target(topic, steps=(route, Flatten(explode="itms"))))
