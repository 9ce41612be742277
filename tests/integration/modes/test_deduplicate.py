"""Tables that hold the first record of each key: what rounds make of them, against a reader of one record after the other."""

from __future__ import annotations

import json
import random
import time
import uuid
from dataclasses import dataclass, field
from typing import Any

import pytest

from calve.modes.upsert import Deduplicate
from calve.requests.redrive import Request
from calve.table.summary import REDRIVE
from tests.integration.modes.test_upsert import ORDERS, order
from tests.integration.support.crashing import broken
from tests.integration.support.engine import TRADE, Engine, everything, suspended, trades
from tests.integration.support.proofs import assert_proved, proof

BY_ID = Deduplicate(("id",))
WINDOW_MS = 5_000

Place = tuple[int, int]


@dataclass
class Events:
    """A topic of events with ids, some of them delivered again, to whichever partition, late or early."""

    engine: Engine
    window_ms: int | None = None
    topic: str = ""
    ends: list[int] = field(default_factory=lambda: [0, 0])
    rows: dict[int, list[int]] = field(default_factory=dict)
    kept: list[Place] = field(default_factory=list)
    round: list[tuple[int, Place, int]] = field(default_factory=list)
    began: int = field(default_factory=lambda: int(time.time() * 1000) - 3_600_000)

    def __post_init__(self) -> None:
        self.topic = self.topic or self.engine.topic(partitions=2)

    def send(self, event: int, *, partition: int, after_ms: int = 0) -> None:
        value = self.engine.encode(self.topic, trades(1, first=event)[0])
        self.engine.send(self.topic, value, partition=partition, at_ms=self.began + after_ms)
        self.round.append((event, (partition, self.ends[partition]), after_ms))
        self.ends[partition] += 1

    def scatter(self, dice: random.Random, count: int, *, events: int) -> None:
        for _ in range(count):
            self.send(dice.randrange(events), partition=dice.randrange(2), after_ms=dice.randrange(20_000))
        self.engine.flush()

    def read(self) -> int:
        """What one round makes of all that was sent since the last; the number of duplicates."""
        come_to: dict[tuple[int, int], int] = {}
        ranked = []
        for event, place, at in self.round:
            group = event, place[0]
            come_to[group] = max(come_to.get(group, 0), at)
            ranked.append((come_to[group], place, event, at))
        before = len(self.kept)
        for _, place, event, at in sorted(ranked):
            rows = self.rows.setdefault(event, [])
            if not any(self.window_ms is None or abs(at - row) < self.window_ms for row in rows):
                rows.append(at)
                self.kept.append(place)
        duplicates = len(self.round) - (len(self.kept) - before)
        self.round = []
        return duplicates

    def target(self, **settings: Any) -> Any:
        mode = Deduplicate(("id",), self.window_ms)
        return self.engine.target(self.topic, **({"deduplicate": mode} | settings))


@pytest.mark.parametrize("window_ms", [pytest.param(None, marks=pytest.mark.full), WINDOW_MS])
def test_the_first_record_of_each_key_is_its_row(engine: Engine, window_ms: int | None) -> None:
    events, dice = Events(engine, window_ms), random.Random(3)
    target = events.target()
    for ids in (20, 20, 40):
        events.scatter(dice, 50, events=ids)
        (outcome,) = engine.drain(target)
        duplicates = events.read()
        assert (outcome.ledger.deduplicated, outcome.ledger.applied) == (duplicates, 50 - duplicates)
        assert engine.offsets(events.topic) == sorted(events.kept)
    assert_proved(proof(engine, events.topic))


def test_what_is_delivered_again_after_a_rewind_changes_nothing(engine: Engine) -> None:
    events, dice = Events(engine), random.Random(5)
    events.scatter(dice, 40, events=15)
    engine.drain(events.target())
    events.read()
    engine.compact(events.topic)
    for _ in range(2):
        for event in range(15):
            events.send(event, partition=dice.randrange(2))
    engine.flush()
    (outcome,) = engine.drain(events.target())
    assert outcome.ledger.deduplicated == 30 - len({*range(15)} - {*events.rows})
    events.read()
    assert engine.offsets(events.topic) == sorted(events.kept)
    assert_proved(proof(engine, events.topic))


@pytest.mark.full
def test_a_composite_key_deep_in_the_value_that_is_renamed(engine: Engine) -> None:
    topic = engine.topic(partitions=1, schema=ORDERS)
    first = [order(1, 1, "a"), order(None, 1, "-"), order(2, 1, "b"), order(1, 2, "again")]
    engine.produce(topic, first)
    engine.drain(engine.target(topic, deduplicate=Deduplicate(("of",))))
    renamed = json.loads(ORDERS.replace('"of"', '"id"'))
    renamed["fields"][0]["aliases"] = ["of"]
    engine.register(topic, json.dumps(renamed))
    later = [order(2, 9, "again"), order(3, 9, "c")]
    engine.produce(topic, [{"id": each.pop("of"), **each} for each in later])
    engine.drain(engine.target(topic, deduplicate=Deduplicate(("id",))))
    assert sorted(row[0] for row in engine.rows(topic).select("note").collect()) == ["a", "b", "c"]
    assert engine.letters(topic).select("reason").collect() == [("null_key",)]
    assert_proved(proof(engine, topic))


def test_by_the_record_key_where_nothing_else_is_said(engine: Engine) -> None:
    topic = engine.topic(partitions=1)
    for key in (b"a", b"a", None, b""):
        engine.send(topic, engine.encode(topic, trades(1)[0]), key=key, partition=0)
    engine.send(topic, None, key=b"b", partition=0)
    engine.flush()
    (outcome,) = engine.drain(engine.target(topic, deduplicate=Deduplicate(("_kafka.key",))))
    assert engine.offsets(topic) == [(0, 0), (0, 3)]
    assert outcome.ledger.rejected == {"null_key": 1, "null_value": 1}
    assert_proved(proof(engine, topic))


def test_events_of_a_topic_that_was_made_again_are_known(engine: Engine) -> None:
    events = Events(engine)
    events.send(1, partition=0)
    engine.flush()
    engine.drain(events.target())
    engine.recreate(events.topic, partitions=2)
    events.send(1, partition=0)
    events.send(2, partition=0)
    engine.flush()
    (outcome,) = engine.drain(events.target(on_data_loss="continue"))
    assert (outcome.ledger.applied, outcome.ledger.deduplicated) == (1, 1)
    assert proof(engine, events.topic).findings == ()


def test_a_round_reads_no_file_that_its_window_does_not_reach(engine: Engine) -> None:
    """Also with an index that knows nothing yet. Each round adds a file and a manifest."""
    events, gets = Events(engine, WINDOW_MS), []
    for number in range(4):
        events.send(7, partition=0, after_ms=100 * WINDOW_MS * number)
        engine.flush()
        events.read()
        (outcome,) = engine.drain(events.target())
        assert outcome.ledger.rows_appended == 1
        gets.append(outcome.metrics["s3_gets"])
    assert gets[3] - gets[2] == gets[2] - gets[1] == 1


def test_a_mode_or_a_window_that_changed_suspends_the_table(engine: Engine) -> None:
    events = Events(engine)
    events.send(1, partition=0)
    engine.flush()
    engine.drain(events.target())
    for changed in (None, Deduplicate(("id",), WINDOW_MS), Deduplicate(("side",))):
        with suspended("mode_changed"):
            engine.drain(events.target(deduplicate=changed))


@pytest.mark.full
def test_after_a_rollback_the_same_records_make_the_same_table(engine: Engine) -> None:
    events, dice = Events(engine), random.Random(7)
    target = events.target()
    heads = []
    for _ in range(3):
        events.scatter(dice, 30, events=20)
        heads.append(engine.drain(target)[-1].snapshot)
        events.read()
    assert heads[1] is not None
    engine.rollback(events.topic, heads[1])
    engine.drain(events.target())
    assert engine.offsets(events.topic) == sorted(events.kept)
    assert_proved(proof(engine, events.topic))


@pytest.mark.full
def test_a_letter_that_comes_back_is_a_row_only_where_its_event_has_none(engine: Engine) -> None:
    """Letters of three events: one that has a row by then, one that has none, and that one again."""
    topic = engine.topic(partitions=1)
    later = json.loads(TRADE)
    later["fields"].append({"name": "venue", "type": ["null", "string"], "default": None})
    unknown = 1 + engine.register(f"{topic}-x", json.dumps(json.loads(TRADE) | {"doc": uuid.uuid4().hex}))
    for event in (1, 2, 2):
        value = engine.encode(topic, trades(1, first=event)[0])
        engine.send(topic, b"\0" + unknown.to_bytes(4, "big") + value[5:] + b"\0", partition=0)
    engine.produce(topic, trades(1, first=1), partition=0)
    engine.drain(engine.target(topic, deduplicate=BY_ID))
    assert engine.letter_offsets(topic) == everything(3)
    assert engine.register(topic, json.dumps(later)) == unknown
    request = Request(uuid.uuid4().hex, "2026-01-01T00:00:00+00:00")
    engine.table(topic).set_properties({REDRIVE: request.to_json()})
    engine.drain(engine.target(topic, deduplicate=BY_ID))
    assert engine.offsets(topic) == [(0, 1), (0, 3)]
    assert engine.letters(topic).where("redriven IS NULL").count() == 0
    assert_proved(proof(engine, topic))


@pytest.mark.long
def test_verify_finds_rows_too_many_and_too_few(engine: Engine) -> None:
    events = Events(engine)
    for event in (1, 2, 1, 3):
        events.send(event, partition=0)
    engine.send(events.topic, broken("bad_magic", b"\0", 0), partition=0)
    engine.flush()
    engine.drain(events.target())
    first = engine.rows(events.topic).where("id = 1").localCheckpoint()
    engine.sql("DELETE FROM {t} WHERE id = 1", events.topic)
    missing = proof(engine, events.topic)
    assert {each.check for each in missing.findings} == {"coverage", "totals"}
    assert [each.offsets for each in missing.findings if each.check == "coverage"] == [((0, 1), (2, 3))]
    for _ in range(2):
        first.writeTo(f"lake.tests.{events.topic}").append()
    doubled = proof(engine, events.topic)
    assert {"keys", "coverage", "totals"} == {each.check for each in doubled.findings}
