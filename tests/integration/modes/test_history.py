"""Tables that hold every version of each row: what rounds make of them, against a fold of all records at once."""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, NamedTuple

import pytest

from calve.config.steps import Filter
from calve.modes.history import History
from calve.requests import forget
from calve.table.summary import FORGET
from glue_jobs.engines.choice import RowEngine
from glue_jobs.index import table_index
from glue_jobs.modes import history
from tests.integration.modes.test_changes_agree import reasons
from tests.integration.requests.test_redrive_by_key import redriven
from tests.integration.support.engine import Engine
from tests.integration.support.proofs import assert_proved, proof
from tests.integration.support.records.database import Database

BY_RECORD_KEY = History(("_kafka.key",), deletes=True, bucketed=True)
BY_MADE = History(("_kafka.key",), by="made", deletes=True, bucketed=True)
FIRST_MS = 1_760_000_000_000
ACCOUNT = json.dumps(
    {
        "type": "record",
        "name": "Account",
        "fields": [
            {"name": "price", "type": "long"},
            {"name": "made", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        ],
    }
)


class Sent(NamedTuple):
    """A record; without a price it is a tombstone."""

    key: bytes
    partition: int
    offset: int
    at: int
    price: int | None
    early: bool = False
    """Its schema is not registered yet."""


class Version(NamedTuple):
    key: bytes
    begin: int
    end: int | None
    is_current: bool
    deleted: bool
    price: int | None


@dataclass
class Accounts:
    """A topic of accounts. Each record has a time, that need not follow from its offset: `made`, and that of Kafka."""

    engine: Engine
    partitions: int = 2
    topic: str = ""
    sent: list[Sent] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.topic = self.engine.topic(partitions=self.partitions, schema=ACCOUNT)

    def put(
        self, key: bytes, at: int, price: int | None, partition: int | None = None, unknown: int = 0
    ) -> None:
        partition = sum(key) % self.partitions if partition is None else partition
        offset = sum(each.partition == partition for each in self.sent)
        at += FIRST_MS
        value = None if price is None else self.engine.encode(self.topic, {"price": price, "made": at})
        if value is not None and unknown:
            value = value[:1] + unknown.to_bytes(4, "big") + value[5:] + b"\0"
        self.engine.send(self.topic, value, key=key, partition=partition, at_ms=at)
        self.sent.append(Sent(key, partition, offset, at, price, early=value is not None and unknown > 0))

    def scramble(self, dice: random.Random, count: int, *, keys: int, late: float, unknown: int = 0) -> None:
        """late: the share of the records whose time is any before. unknown: id of a schema that some of the records have."""
        now = max((each.at for each in self.sent), default=FIRST_MS) - FIRST_MS
        for number in range(count):
            key = f"account-{dice.randrange(keys)}".encode()
            at = dice.randrange(now + 1) if dice.random() < late else now + number // 2
            moved = dice.randrange(self.partitions) if dice.random() < late / 3 else None
            schema = unknown if dice.random() < 0.2 else 0
            self.put(key, at, None if dice.random() < 0.2 else len(self.sent), moved, schema)
        self.engine.flush()

    def held(self) -> list[Version]:
        columns = "_kafka.key", "_history.*", "price"
        rows = self.engine.rows(self.topic).select(*columns).collect()
        return sorted((_version(*row) for row in rows), key=str)

    def target(self, mode: History = BY_RECORD_KEY, **settings: Any) -> Any:
        return self.engine.target(self.topic, history=mode, **settings)


def _version(key: Any, begin: datetime, end: datetime | None, *others: Any) -> Version:
    return Version(bytes(key), _ms(begin), None if end is None else _ms(end), *others)


def _ms(moment: datetime) -> int:
    return round(moment.replace(tzinfo=UTC).timestamp() * 1000)


def folded(sent: Iterable[Sent], mode: History) -> list[Version]:
    found = []
    for key, group in groupby(sorted(sent), key=lambda each: each.key):
        line, reached = [], dict.fromkeys(range(10), 0)
        for each in group:
            at = each.at
            if mode.by is None:
                at = reached[each.partition] = max(at, reached[each.partition])
            line.append(each._replace(at=at))
        line.sort(key=lambda each: (each.at, each.partition, each.offset))
        for each, after in zip(line, [*line[1:], None], strict=True):
            end = each.at if each.price is None else after and after.at
            found.append(Version(key, each.at, end, end is None, each.price is None, each.price))
    return sorted(found, key=str)


@pytest.fixture(params=["columnar", pytest.param("too large", marks=pytest.mark.long)])
def made_by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The columnar engine, or that of rows because the driver has no room for the versions."""
    by_rows, made = RowEngine.stage, []

    def stage(*given: Any) -> Any:
        made.append("rows")
        return by_rows(*given)

    if request.param == "too large":
        monkeypatch.setattr(history, "MOST_BYTES", 0)
    else:
        monkeypatch.setattr(table_index, "_rows_at", None)  # Arrow reads the rows that may change
    monkeypatch.setattr(RowEngine, "stage", stage)
    yield str(request.param)
    assert bool(made) == (request.param == "too large")


@pytest.mark.parametrize(
    ("made_by", "mode"),
    [
        pytest.param("columnar", BY_RECORD_KEY, id="columnar-by offset"),
        pytest.param("columnar", BY_MADE, id="columnar-by a column"),
        pytest.param("too large", BY_RECORD_KEY, id="too large-by offset", marks=pytest.mark.full),
        pytest.param("too large", BY_MADE, id="too large-by a column", marks=pytest.mark.long),
    ],
    indirect=["made_by"],
)
def test_the_table_has_every_version_of_each_row_whatever_rounds_read_them(
    engine: Engine, made_by: str, mode: History
) -> None:
    """Records come late, and keys move to another partition."""
    accounts, dice = Accounts(engine), random.Random(made_by)
    target = accounts.target(mode, format_version=2 if made_by == "columnar" else 3)
    for keys, late in ((20, 0.0), (3, 0.5), (10, 0.5)):
        accounts.scramble(dice, 60, keys=keys, late=late)
        (outcome,) = engine.drain(target)
        assert outcome.ledger.applied == 60
        assert accounts.held() == folded(accounts.sent, mode)
        assert_proved(proof(engine, accounts.topic))
    engine.compact(accounts.topic)
    accounts.scramble(dice, 60, keys=10, late=0.5)
    engine.drain(target)
    assert accounts.held() == folded(accounts.sent, mode)
    assert_proved(proof(engine, accounts.topic))


OF_CHANGES = History(("_kafka.key",), changes=True, bucketed=True)
NOT_SEVEN = Filter("name IS NULL OR name NOT LIKE '%7'")


@pytest.mark.parametrize(
    ("made_by", "steps"),
    [
        pytest.param("columnar", (), id="columnar-all rows"),
        pytest.param("columnar", (NOT_SEVEN,), id="columnar-a filter"),
        pytest.param("too large", (), id="too large-all rows", marks=pytest.mark.full),
        pytest.param("too large", (NOT_SEVEN,), id="too large-a filter", marks=pytest.mark.long),
    ],
    indirect=["made_by"],
)
def test_the_current_versions_are_the_rows_of_the_database(
    engine: Engine, made_by: str, steps: tuple[Filter, ...]
) -> None:
    """Rows are deleted. Without a filter keys change, and updates lack values, which are those of the version before."""
    database, dice = Database(engine), random.Random(31)
    target = engine.target(database.topic, history=OF_CHANGES, steps=steps)
    for _ in range(3):
        for _ in range(60):
            database.rewrite(dice) if steps else database.churn(dice, 1)
        database.message()
        engine.drain(target)
        rows = engine.rows(database.topic).where("_history.is_current").collect()
        current = {row["id"]: {name: row[name] for name in database.columns} for row in rows}
        assert len(current) == len(rows)
        wanted = {key: row for key, row in database.rows.items() if not (steps and row["name"].endswith("7"))}
        assert current == wanted
    events = sum(key != b"" and value is not None for _, key, value in database.log)
    assert engine.rows(database.topic).count() == events, "each event about a row is a version"
    assert_proved(proof(engine, database.topic, steps=steps))


def test_a_truncation_is_a_dead_letter(engine: Engine, made_by: str) -> None:
    database = Database(engine, partitions=1)
    target = engine.target(database.topic, history=OF_CHANGES)
    database.insert(1)
    database.truncate()
    database.insert(2)
    engine.flush()
    engine.drain(target)
    assert reasons(engine, database.topic) == [(0, 1, "truncation")]
    assert engine.rows(database.topic).count() == 2
    assert_proved(proof(engine, database.topic))


@pytest.mark.long
@pytest.mark.parametrize("mode", [BY_RECORD_KEY, BY_MADE], ids=["by offset", "by a column"])
def test_records_that_come_back_go_between_the_others(engine: Engine, mode: History) -> None:
    """Dead letters whose schema was unknown. Versions after them in their partition may begin later by them."""
    accounts, dice = Accounts(engine), random.Random(32)
    missing = 1 + engine.register(f"{accounts.topic}-probe", ACCOUNT.replace("Account", "Probe"))
    target = accounts.target(mode)
    for _ in range(3):
        accounts.scramble(dice, 60, keys=8, late=0.4, unknown=missing)
        engine.drain(target)
    assert accounts.held() == folded([each for each in accounts.sent if not each.early], mode)
    later = json.loads(ACCOUNT)
    later["fields"].append({"name": "note", "type": "string", "default": ""})
    assert engine.register(accounts.topic, json.dumps(later)) == missing
    found = redriven(engine, accounts.topic, lambda: engine.drain(accounts.target(mode)))
    assert found.redriven == sum(each.early for each in accounts.sent) > 10
    assert accounts.held() == folded(accounts.sent, mode)
    assert_proved(proof(engine, accounts.topic))


def test_forgetting_a_version_changes_no_other(engine: Engine) -> None:
    accounts = Accounts(engine, partitions=1)
    target = accounts.target(BY_MADE)
    for at, price in ((10, 1), (30, 2), (50, 3)):
        accounts.put(b"a", at, price)
    engine.flush()
    engine.drain(target)
    request = forget.Request(uuid.uuid4().hex, "2026-01-01T00:00:00+00:00", (forget.Condition("price", "2"),))
    engine.table(accounts.topic).set_properties({FORGET: request.to_json()})
    engine.drain(target)
    left = [each for each in folded(accounts.sent, BY_MADE) if each.price != 2]
    assert accounts.held() == left
    accounts.put(b"a", 40, 4)
    accounts.put(b"a", 20, 5)
    engine.flush()
    engine.drain(target)
    assert accounts.held() == [each for each in folded(accounts.sent, BY_MADE) if each.price != 2]
    assert_proved(proof(engine, accounts.topic))
