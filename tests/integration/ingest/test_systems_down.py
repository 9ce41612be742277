"""A system goes away in the middle of a round, or its answer does: nothing is lost, nothing is doubled, and the loop goes on."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from calve.errors import CalveError, LostRace, Retryable
from calve.modes.aggregate import Aggregate, Measure
from calve.modes.upsert import Deduplicate
from glue_jobs.iceberg.catalog import Lake
from glue_jobs.process import faults
from glue_jobs.rounds.loop import TableLoop
from glue_jobs.rounds.loops import Loops
from glue_jobs.rounds.round import Round
from glue_jobs.table.open_table import Outcome, TableMemory
from glue_jobs.table.opening import Opener
from tests.debezium import envelope, event
from tests.integration.support.engine import TRADE, Engine, at, everything, trades
from tests.integration.support.events import assert_as_documented
from tests.integration.support.records.database import BY_ID as CHANGES_BY_ID
from tests.integration.support.records.keyed import BY_ID
from tests.integration.support.servers import outages
from tests.integration.support.servers.aws_gate import (
    FAULT,
    UNAVAILABLE,
    AwsGate,
    is_glue,
    is_store,
    is_table_update,
)
from tests.integration.support.servers.gate import Answer, Request

_TRADE = json.loads(TRADE)
NOTE = {"name": "note", "type": ["null", "string"], "default": None}
TRADE_WITH_NOTE = json.dumps(_TRADE | {"fields": [*_TRADE["fields"], NOTE]})
ONCE = {
    "commit.retry.num-retries": "0",
    "commit.status-check.num-retries": "0",
    "commit.status-check.min-wait-ms": "1",
}
"""Table properties by which Iceberg gives up at once, so that the engine's own answer is what is tested."""


MODES: dict[str, dict[str, Any]] = {
    "append": {},
    "upsert": {"upsert": BY_ID},
    "change_data": {"change_data": CHANGES_BY_ID},
    "deduplicate": {"deduplicate": Deduplicate(("id",))},
    "aggregate": {"aggregate": Aggregate(("id",), (Measure("n", "count(*)"),))},
}
"""Tables whose key is the number of a record."""


def kept(mode: str, *batches: int) -> list[tuple[int, int]]:
    """What `held` gives after batches of so many records, each numbered from 0 on."""
    ids = [number for count in batches for number in range(count)]
    if mode == "aggregate":
        return sorted(Counter(ids).items())
    places = [(0, offset) for offset in range(len(ids))]
    pairs = list(zip(ids, places, strict=True))
    if mode == "append":
        return places
    return sorted(dict(reversed(pairs) if mode == "deduplicate" else pairs).values())


def held(engine: Engine, topic: str, mode: str) -> list[tuple[int, int]]:
    """Where the rows are from; of totals each id with the number of its records."""
    if mode == "aggregate":
        return sorted((row["id"], row["n"]) for row in engine.rows(topic).collect())
    return engine.offsets(topic)


def more(engine: Engine, topic: str, mode: str, count: int) -> None:
    """A batch of records, numbered from 0 on."""
    rows = trades(count)
    engine.produce(topic, [event("c", after=row) for row in rows] if mode == "change_data" else rows)


@pytest.fixture(scope="module")
def gate(engine: Engine) -> Iterator[AwsGate]:
    with AwsGate(engine.stack.aws_endpoint) as standing:
        yield standing


def behind(gate: AwsGate, engine: Engine, *, attempts: int) -> Engine:
    """The engine with a catalog of its own, whose Glue and S3 are reached through the gate."""
    session = engine.spark.newSession()
    catalog = "spark.sql.catalog.lake"
    session.conf.set(f"{catalog}.glue.endpoint", gate.url)
    session.conf.set(f"{catalog}.s3.endpoint", gate.url)
    session.conf.set(f"{catalog}.s3.retry.num-retries", str(attempts - 1))
    session.conf.set(f"{catalog}.s3.retry.min-wait-ms", "10")
    system = engine.lake.jvm.java.lang.System
    system.setProperty("aws.maxAttempts", str(attempts))  # read when a client is made
    try:
        session.sql("SHOW TABLES IN lake.tests").collect()
    finally:
        system.clearProperty("aws.maxAttempts")
    return replace(engine, lake=Lake(session, "tests"))


@pytest.fixture(scope="module")
def gated(gate: AwsGate, engine: Engine) -> Engine:
    """AWS as its clients see it: they repeat what failed."""
    return behind(gate, engine, attempts=4)


@pytest.fixture(scope="module")
def impatient(gate: AwsGate, engine: Engine) -> Engine:
    """AWS through clients that never repeat a request."""
    return behind(gate, engine, attempts=1)


append_first = pytest.mark.parametrize(
    "mode", [pytest.param(each, marks=pytest.mark.full if each != "append" else ()) for each in MODES]
)
"""All modes; the long tests alone have others than the first."""


def begun(
    engine: Engine, mode: str = "append", properties: Mapping[str, str] = MappingProxyType({})
) -> tuple[str, Opener]:
    """A topic of one partition with 10 records in its table, and 10 more, of the same ids, that are not."""
    schema = envelope({each["name"]: each["type"] for each in _TRADE["fields"]})
    topic = engine.topic(partitions=1, schema=schema if mode == "change_data" else TRADE)
    more(engine, topic, mode, 10)
    target = engine.target(topic, **MODES[mode])
    engine.drain(target)
    if properties:
        listed = ", ".join(f"'{name}'='{value}'" for name, value in properties.items())
        engine.sql(f"ALTER TABLE {{t}} SET TBLPROPERTIES ({listed})", topic)
    more(engine, topic, mode, 10)
    return topic, target


@pytest.mark.long
def test_a_registry_that_is_down_stops_rounds_and_makes_no_dead_letters(engine: Engine) -> None:
    (topic, target), (other, other_target) = begun(engine), begun(engine)

    def ask_in_vain(_: str) -> None:
        engine.register(topic, TRADE_WITH_NOTE)
        engine.produce(topic, [{"id": 1, "side": "BUY", "price": 1, "note": "new"}])
        outages.stop(engine.stack, "registry")

    try:
        with at("plan.begin", ask_in_vain), pytest.raises(Retryable, match=r"registry at .* does not answer"):
            engine.round(target)  # it has read a schema id that it does not know
        with pytest.raises(Retryable, match=r"registry at .* does not answer"):
            engine.round(other_target)
    finally:
        outages.start(engine.stack, "registry")
    assert engine.offsets(topic) == everything(10)
    for each in (target, other_target):
        engine.drain(each)
    assert (engine.offsets(topic), engine.offsets(other)) == (everything(21), everything(20))
    assert engine.lake.load(target.name.dead_letters) is None


@pytest.mark.long
def test_a_broker_that_restarts_during_the_read_costs_no_record(engine: Engine) -> None:
    topic, target = begun(engine)
    restarts = threading.Thread(target=outages.restart, args=(engine.stack, "kafka"))

    def freeze(_: str) -> None:
        outages.pause(engine.stack, "kafka")
        restarts.start()

    try:
        with at("stage.begin", freeze):
            engine.round(target)
    except Retryable:
        pass  # the clients may sit the restart out, or not
    finally:
        restarts.join()
    engine.drain(target)
    assert engine.offsets(topic) == everything(20)


def test_an_object_store_that_refuses_for_a_moment_is_asked_again(gate: AwsGate, gated: Engine) -> None:
    topic, target = begun(gated)
    refused: list[Request] = []

    def thrice(request: Request) -> Answer:
        if len(refused) == 3:
            return gate.pass_on(request)
        refused.append(request)
        return UNAVAILABLE

    with gate.meanwhile(is_store, thrice):
        gated.round(target)
    assert len(refused) == 3
    assert gated.offsets(topic) == everything(20)


@pytest.mark.long
@pytest.mark.parametrize("point", ["stage.begin", "publish.begin"])
def test_an_object_store_that_is_down_stops_the_round_and_nothing_is_lost(
    gate: AwsGate, impatient: Engine, point: str
) -> None:
    topic, target = begun(impatient, properties=ONCE)
    with ExitStack() as outage:

        def begin(_: str) -> None:
            outage.enter_context(gate.meanwhile(is_store, lambda _: UNAVAILABLE))

        with at(point, begin), pytest.raises(Retryable, match="503"):
            impatient.round(target)
    assert impatient.offsets(topic) == everything(10)
    impatient.drain(target)
    assert impatient.offsets(topic) == everything(20)


@pytest.mark.parametrize("instead", [None, FAULT], ids=["no answer", "an error"])
def test_a_commit_whose_answer_is_lost_is_found_by_the_clients(
    gate: AwsGate, gated: Engine, instead: Answer | None
) -> None:
    topic, target = begun(gated)
    updates: list[int] = []

    def lose_the_first(request: Request) -> Answer | None:
        answer = gate.pass_on(request)
        updates.append(answer.status)
        return instead if len(updates) == 1 else answer

    with gate.meanwhile(is_table_update, lose_the_first):
        outcome = gated.round(target)
    assert updates[0] == 200
    assert outcome.ledger.applied == 10
    assert gated.offsets(topic) == everything(20)


@append_first
def test_a_commit_that_iceberg_cannot_find_is_found_by_its_round(
    gate: AwsGate, impatient: Engine, mode: str
) -> None:
    """The answer is lost, and so is that of Iceberg's own look at the table; then AWS is back."""
    topic, target = begun(impatient, mode, properties=ONCE)
    lost: list[str] = []

    def lose_two(request: Request) -> Answer | None:
        answer = gate.pass_on(request)
        if lost == [] and not is_table_update(request):
            return answer
        lost.append(request.headers["X-Amz-Target"])
        return None if len(lost) <= 2 else answer

    with gate.meanwhile(is_glue, lose_two):
        outcome = impatient.round(target)
    assert lost[:2] == ["AWSGlue.UpdateTable", "AWSGlue.GetTable"]
    assert outcome.ledger.consumed == 10
    assert held(impatient, topic, mode) == kept(mode, 10, 10)


@append_first
def test_a_commit_that_nobody_can_find_is_what_the_next_round_starts_from(
    gate: AwsGate, impatient: Engine, mode: str
) -> None:
    topic, target = begun(impatient, mode, properties=ONCE)
    updates: list[int] = []

    def gone_from_the_update_on(request: Request) -> Answer | None:
        if is_table_update(request):
            updates.append(gate.pass_on(request).status)
        return None if updates else gate.pass_on(request)

    with gate.meanwhile(is_glue, gone_from_the_update_on), pytest.raises(Retryable):
        impatient.round(target)
    assert updates == [200]
    assert held(impatient, topic, mode) == kept(mode, 10, 10)
    more(impatient, topic, mode, 5)
    impatient.drain(target)
    assert held(impatient, topic, mode) == kept(mode, 10, 10, 5)


@append_first
def test_a_commit_that_arrives_late_stops_the_round_that_reads_the_same_offsets(
    gate: AwsGate, impatient: Engine, mode: str
) -> None:
    topic, target = begun(impatient, mode, properties=ONCE)
    held_up: list[Request] = []
    with gate.meanwhile(is_table_update, held_up.append), pytest.raises(Retryable):
        impatient.round(target)
    assert held(impatient, topic, mode) == kept(mode, 10)

    def arrive(_: str) -> None:
        assert gate.pass_on(held_up[0]).status == 200

    with at("publish.begin", arrive), pytest.raises(LostRace):
        impatient.round(target)
    assert held(impatient, topic, mode) == kept(mode, 10, 10)
    assert impatient.round(target).snapshot is None


def test_a_catalog_that_goes_away_after_the_last_commit_ends_no_loop(
    gate: AwsGate, impatient: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    topic, target = begun(impatient, properties=ONCE)
    with ExitStack() as outage:

        def begin(_: str) -> None:
            outage.enter_context(gate.meanwhile(is_table_update, lambda _: FAULT))

        with at("release.end", begin):
            loops = Loops(threading.Event())
            loops.start(TableLoop(target, threading.Event(), drain=True))
            assert loops.wait() == {str(target.name): "running"}
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["event"] for each in events][-2:] == ["state.failed", "tag.failed"]
    assert_as_documented(events)
    assert impatient.offsets(topic) == everything(20)


@append_first
def test_the_slower_of_two_writers_stops_and_says_why(engine: Engine, mode: str) -> None:
    topic, slow = begun(engine, mode)
    fast = engine.target(topic, **MODES[mode])
    published: list[Outcome] = []
    with (
        at("publish.begin", lambda _: published.extend(engine.drain(fast))),
        pytest.raises(LostRace, match=f"{topic}: another writer published first"),
    ):
        engine.round(slow)
    assert published[0].ledger.consumed == 10
    assert held(engine, topic, mode) == kept(mode, 10, 10)


@append_first
def test_of_two_writers_at_the_same_moment_exactly_one_publishes(engine: Engine, mode: str) -> None:
    topic, one = begun(engine, mode)
    writers = (one, engine.target(topic, **MODES[mode]))
    waves = 2
    for wave in range(waves):
        outcomes = at_once(writers)
        assert sorted(type(each).__name__ for each in outcomes) == ["LostRace", "Outcome"], wave
        more(engine, topic, mode, 10)
    engine.drain(one)
    assert held(engine, topic, mode) == kept(mode, *[10] * (waves + 2))


def at_once(targets: tuple[Opener, ...]) -> list[Outcome | Exception]:
    """A round of every target in a thread of its own; none publishes before all have staged."""
    staged = threading.Barrier(len(targets), timeout=60)
    ended: list[Outcome | Exception] = []

    def run(target: Opener) -> None:
        target.services.lake.enter_thread(target.name.table)
        try:
            ended.append(Round(target, TableMemory()).run())
        except CalveError as error:
            ended.append(error)

    def meet(_: str) -> None:
        staged.wait()

    faults.handlers["publish.begin"] = meet
    try:
        threads = [threading.Thread(target=run, args=(target,)) for target in targets]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        del faults.handlers["publish.begin"]
    return ended
