"""Dead letters that come back into tables by key: the table is what it would be, had their rounds not rejected them."""

from __future__ import annotations

import json
import random
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from calve.config.job import Budget
from calve.errors import Retryable
from calve.modes.aggregate import Aggregate, Measure
from calve.modes.upsert import ChangeData, Upsert
from calve.requests.redrive import Request, Result
from calve.table.summary import REDRIVE
from glue_jobs.index.records import records_of
from glue_jobs.modes.by_key import rule_of, stage_changed
from tests.debezium import envelope
from tests.integration.support.crashing import Died, dying
from tests.integration.support.engine import Engine, trades
from tests.integration.support.proofs import assert_proved, proof
from tests.integration.support.records.database import BY_LSN, BY_RECORD_KEY, Database
from tests.integration.support.records.versions import versioned
from tests.keyed import Keyed, Record

KEY = ("_kafka.key",)
PARTITIONS, KEYS = 3, 40
full = pytest.mark.full
NONE: set[Record] = set()
POINTS = ("redrive.staged", "redrive.marked", "redrive.held", "redrive.committed", "redrive.completed")


def redriven(
    engine: Engine, table: str, work: Callable[[], object], *, until: datetime | None = None
) -> Result:
    """until: only dead letters that were rejected before."""
    limit = until.isoformat() if until else None
    request = Request(uuid.uuid4().hex, "2026-01-01T00:00:00+00:00", until=limit)
    engine.table(table).set_properties({REDRIVE: request.to_json()})
    work()
    found = Result.of(engine.table(table).properties, request.id)
    assert found is not None
    assert found.problem is None
    return found


@dataclass
class Topic:
    """Records of few keys in any partition, with any timestamp. Some have a schema that is registered only by `fix`."""

    engine: Engine
    mode: Upsert
    dice: random.Random
    name: str = ""
    ends: list[int] = field(default_factory=lambda: [0] * PARTITIONS)
    early: set[Record] = field(default_factory=set)
    began_ms: int = field(default_factory=lambda: time.time_ns() // 1_000_000)

    def __post_init__(self) -> None:
        self.name = self.engine.topic(partitions=PARTITIONS)
        self.later = versioned()
        self.missing = 1 + self.engine.register(f"{self.name}-probe", versioned("Probe"))

    def fix(self) -> None:
        assert self.engine.register(self.name, self.later) == self.missing

    def produce(self, count: int) -> list[Record]:
        """One in four is a dead letter until `fix`, and one in five of the others a tombstone."""
        made = []
        for _ in range(count):
            key, partition, rank = (self.dice.randrange(each) for each in (KEYS, PARTITIONS, 5))
            row = self.engine.encode(self.name, trades(1)[0] | {"price": rank, "side": "abcde"[rank]})
            early = self.dice.random() < 0.25
            deletes = not early and self.mode.deletes and self.dice.random() < 0.2
            value = None if deletes else b"\0" + self.missing.to_bytes(4, "big") + row[5:] if early else row
            at_ms = self.began_ms + self.dice.randrange(200)
            self.engine.send(self.name, value, key=f"user {key}".encode(), partition=partition, at_ms=at_ms)
            order = None if deletes or self.mode.order_by is None else rank
            made.append(Record(key, partition, self.ends[partition], at_ms, order, deletes))
            self.early |= {made[-1]} if early else set()
            self.ends[partition] += 1
        self.engine.flush()
        return made

    def work(self) -> None:
        target = self.engine.target(self.name, upsert=self.mode, dead_letter_budget=Budget(records=5_000))
        self.engine.drain(target)

    def redrive(self, until: datetime | None = None) -> Result:
        return redriven(self.engine, self.name, self.work, until=until)

    def rows(self) -> set[tuple[int, int]]:
        return set(self.engine.offsets(self.name))


@pytest.mark.parametrize(
    "mode",
    [
        pytest.param(Upsert(KEY, deletes=True), id="upsert", marks=pytest.mark.long),
        pytest.param(Upsert(KEY, order_by="price", deletes=True), id="by number", marks=pytest.mark.long),
        pytest.param(Upsert(KEY, order_by="side", deletes=True), id="by text", marks=full),
        pytest.param(Upsert(KEY), id="without tombstones", marks=full),
    ],
)
def test_dead_letters_lose_to_later_records_of_their_keys(engine: Engine, mode: Upsert) -> None:
    """The first request leaves some dead letters out. They do not count."""
    topic, rounds = Topic(engine, mode, random.Random(28)), []
    for _ in range(3):
        rounds.append(topic.produce(60))
        topic.work()
    topic.fix()
    rejected = sorted(row[0] for row in engine.letters(topic.name).select("rejected_at").distinct().collect())
    left_out = topic.early.intersection(rounds[-1])
    found = topic.redrive(until=rejected[-1].astimezone(UTC))
    assert found.selected == found.redriven + found.overtaken == len(topic.early - left_out)
    assert min(found.redriven, found.overtaken) > 0
    assert topic.rows() == expected(rounds, left_out)
    assert topic.redrive().selected == len(left_out)
    assert topic.rows() == expected(rounds)
    assert topic.redrive().selected == 0
    if mode.order_by is None:  # else the order of a key's tombstones in several partitions is not verifiable
        assert_proved(proof(engine, topic.name))
    rounds.append(topic.produce(60))
    topic.work()
    assert topic.rows() == expected(rounds)


def expected(rounds: list[list[Record]], left_out: set[Record] = NONE) -> set[tuple[int, int]]:
    """The places of the rows of a table that has read these rounds without some of their records."""
    table = Keyed(newest=True)
    for batch in rounds:
        table.read([each for each in batch if each not in left_out])
    return {(each.partition, each.offset) for each in table.kept}


@pytest.mark.parametrize(
    "points",
    [pytest.param(("redrive.committed",), marks=pytest.mark.long), pytest.param(POINTS, marks=full)],
    ids=["critical", "all"],
)
def test_a_redrive_that_died_is_finished_by_the_next_job(engine: Engine, points: tuple[str, ...]) -> None:
    mode = Upsert(KEY, deletes=True)
    for point in points:
        topic, rounds = Topic(engine, mode, random.Random(29)), []
        for _ in range(2):
            rounds.append(topic.produce(40))
            topic.work()
        topic.fix()
        with dying(point), pytest.raises(Died):
            topic.redrive()
        topic.work()
        assert topic.rows() == expected(rounds), point
        assert topic.redrive().selected == 0, point
        assert_proved(proof(engine, topic.name))


@pytest.mark.long
def test_a_dead_letter_whose_record_has_expired_stays_one(engine: Engine) -> None:
    """A tombstone of its key may have expired, too."""
    topic = Topic(engine, Upsert(KEY, deletes=True), random.Random(30))
    made = topic.produce(60)
    topic.work()
    topic.fix()
    engine.expire(topic.name, 20)
    gone = engine.letters(topic.name).where("partition = 0 and offset < 20").count()
    assert gone > 0
    assert topic.redrive().refused == {"offsets_expired": gone}
    found = engine.letters(topic.name).where("redriven is null").select("partition", "offset").collect()
    open_ = {each for each in made if (each.partition, each.offset) in {tuple(row) for row in found}}
    assert len(open_) == gone
    assert topic.rows() == expected([made], open_)


@pytest.mark.long
def test_records_that_were_compacted_away_meanwhile_delete_no_rows(engine: Engine) -> None:
    topic = Topic(engine, Upsert(KEY, deletes=True), random.Random(34))
    topic.produce(20)
    topic.work()
    table = engine.target(topic.name, upsert=topic.mode).open()
    records = engine.rows(topic.name)
    chosen = records_of(records, rule_of(table))
    gone = chosen._replace(offset=chosen.offset + 1_000)
    with pytest.raises(Retryable, match="compacted"):
        stage_changed(table, records, gone, 1, "s")


class EarlyDatabase(Database):
    """Some events of rows have a schema that is registered only by `fix`; `early`: or all events, or none."""

    dice: random.Random
    missing: int | None = None
    early: bool | None = None

    def start(self, dice: random.Random) -> None:
        self.dice = dice
        self.later = json.dumps(json.loads(envelope(self.columns)) | {"doc": uuid.uuid4().hex})
        self.missing = 1 + self.engine.register(f"{self.topic}-probe", versioned("Probe"))
        self.engine.register(self.topic, envelope(self.columns))

    def fix(self) -> None:
        assert self.engine.register(self.topic, self.later) == self.missing
        self.missing = None

    def _encode(self, op: str, before: Any = None, after: Any = None) -> bytes:
        value = super()._encode(op, before, after)
        early = self.early if self.early is not None else op != "t" and self.dice.random() < 0.3
        if self.missing is None or not early:
            return value
        return b"\0" + self.missing.to_bytes(4, "big") + value[5:]

    def work(self, mode: ChangeData) -> None:
        self.engine.drain(self.target(mode, dead_letter_budget=Budget(records=5_000)))


@pytest.mark.long
@pytest.mark.parametrize("mode", [BY_RECORD_KEY, pytest.param(BY_LSN, marks=full)], ids=["key", "lsn"])
@pytest.mark.parametrize("complete", [True, pytest.param(False, marks=full)], ids=["complete", "lacking"])
def test_change_events_come_back(engine: Engine, mode: ChangeData, complete: bool) -> None:
    """Where updates lack values, dead letters of their keys stay: the values would come from the row before."""
    database, dice = EarlyDatabase(engine), random.Random(31)
    database.start(dice)
    for number, changes in enumerate((40, 40, 40, 8)):
        for _ in range(changes):
            database.rewrite(dice) if complete else database.churn(dice, 1)
        if number == 2:
            engine.flush()
            time.sleep(0.01)
            database.truncate()
            time.sleep(0.01)
        engine.flush()
        database.work(mode)
    database.fix()
    found = redriven(engine, database.topic, lambda: database.work(mode))
    if complete:
        assert min(found.redriven, found.overtaken) > 0
        assert (found.refused, database.kept()) == ({}, database.expected())
    else:
        assert set(found.refused) == {"lacks_values"}
    assert_proved(proof(engine, database.topic))


@full
def test_a_truncation_that_was_a_dead_letter_stays_one(engine: Engine) -> None:
    database = EarlyDatabase(engine)
    database.start(random.Random(33))
    for key, database.early in ((1, False), (2, True)):
        database.insert(key)
    expected = database.expected()
    database.truncate()
    engine.flush()
    database.work(BY_RECORD_KEY)
    database.fix()
    found = redriven(engine, database.topic, lambda: database.work(BY_RECORD_KEY))
    assert (found.redriven, found.refused) == (1, {"no_row": 1})
    assert database.kept() == expected
    assert_proved(proof(engine, database.topic))


@pytest.mark.long
def test_totals_take_dead_letters_in_once(engine: Engine) -> None:
    mode = Aggregate(("side",), (Measure("records", "count(*)"), Measure("total", "sum(price)")))
    topic = Topic(engine, Upsert(KEY), random.Random(32))

    def work() -> None:
        settings: dict[str, Any] = {"aggregate": mode, "dead_letter_budget": Budget(records=5_000)}
        engine.drain(engine.target(topic.name, **settings))

    made = []
    for fixed in (False, False, True):
        if fixed:
            topic.fix()
            found = redriven(engine, topic.name, work)
            assert (found.selected, found.refused) == (found.redriven, {})
            assert redriven(engine, topic.name, work).selected == 0
        made += topic.produce(60)
        work()
        if not fixed:
            assert sum(row["records"] for row in engine.rows(topic.name).collect()) < len(made)
    assert sum(row["records"] for row in engine.rows(topic.name).collect()) == len(made)
    assert_proved(proof(engine, topic.name))
