"""Topics by regular expression: a job that keeps those that match, also those that appear while it runs."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from calve.config.job import Entry, Job, Start, Table
from calve.errors import Fatal, Retryable
from glue_jobs.ingest import run
from glue_jobs.kafka.cluster import Cluster
from glue_jobs.rounds.loops import Discovery
from tests.integration.support.engine import DATABASE, TRADE, Engine, everything, suspended, until
from tests.integration.support.events import Event, assert_as_documented
from tests.integration.support.proofs import assert_proved, proof


@dataclass
class Shop:
    """Topics of one prefix, and the jobs that keep them, one after the other, in threads of this process."""

    engine: Engine
    capsys: pytest.CaptureFixture[str]
    prefix: str = field(default_factory=lambda: f"s{uuid.uuid4().hex[:10]}")
    start: Start = field(default_factory=Start)
    named: tuple[Table, ...] = ()
    events: list[Event] = field(default_factory=list)

    def topic(self, name: str, records: int = 0, *, registered: bool = True) -> str:
        topic = f"{self.prefix}.{name}"
        self.engine.create(topic, partitions=2)
        if registered:
            self.engine.register(topic, TRADE)
        if records:
            self.engine.produce(topic, records, partition=0)
        return topic

    def table(self, name: str) -> str:
        return f"{self.prefix}_{name}"

    @property
    def job(self) -> Job:
        pattern = Table(f"{self.prefix}_{{1}}", rf"{self.prefix}\.(.*)", freshness_s=1.0, start=self.start)
        entries = tuple(Entry(each.name, each.topic) for each in self.named)
        return self.engine.job(
            *self.named,
            patterns=(pattern,),
            entries=(*entries, Entry(pattern.name, pattern.topic, pattern=True)),
        )

    @contextmanager
    def running(self) -> Iterator[None]:
        stop, failed = threading.Event(), list[BaseException]()

        def body() -> None:
            try:
                run(self.job, drain=False, stop=stop)
            except BaseException as error:  # noqa: BLE001 the test must see it
                failed.append(error)

        thread = threading.Thread(target=body)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(60)
            self.listen()
        assert not thread.is_alive(), "the job did not end"
        assert not failed, failed

    def drain(self) -> dict[str, str]:
        states = run(self.job, drain=True, stop=threading.Event())
        self.listen()
        return {str(name): state for name, state in states.items()}

    def listen(self) -> list[Event]:
        self.events += [json.loads(line) for line in self.capsys.readouterr().out.splitlines()]
        return self.events

    def said(self, name: str) -> list[Event]:
        return [each for each in self.listen() if each["event"] == name]

    def holds(self, name: str, *counts: int) -> bool:
        committed = [
            each for each in self.said("round.committed") if each["table"].endswith(self.table(name))
        ]
        return bool(sum(each["records"] for each in committed) >= sum(counts))


@pytest.fixture
def shop(engine: Engine, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.setattr("glue_jobs.rounds.loops.EVERY_S", 0.5)
    return Shop(engine, capsys)


@pytest.mark.long
def test_topics_that_match_are_kept_and_so_is_one_that_appears_while_the_job_runs(shop: Shop) -> None:
    """A topic that clashes is told, others go on; a new job continues each table; verify proves all of them."""
    orders, users = shop.topic("orders", 30), shop.topic("users", 20)
    people = shop.topic("people", 7)
    shop.named = (Table(shop.table("mine"), people, freshness_s=1.0),)
    clashing = [shop.topic("a-b", 5), shop.topic("a_b", 5)]
    with shop.running():
        until(lambda: shop.holds("orders", 30) and shop.holds("users", 20), seconds=120)
        refunds = shop.topic("refunds", 25)
        until(lambda: shop.holds("refunds", 25), seconds=60)
        shop.engine.produce(refunds, 10, partition=1)
        until(lambda: shop.holds("refunds", 25, 10), seconds=60)
    told = shop.said("topic.refused")
    assert {each["topic"] for each in told} == set(clashing)
    assert [each["count"] for each in shop.said("topics.matched")] == [2, 3]
    assert shop.said("topics.matched")[1]["tables"] == [f"{DATABASE}.{shop.table('refunds')}"]

    shop.engine.produce(orders, 12, partition=1)
    shop.engine.produce(users, 3, partition=0)
    late = shop.topic("late", 4)
    assert shop.drain() == {
        f"{DATABASE}.{shop.table(name)}": "running" for name in ("mine", "orders", "users", "refunds", "late")
    }
    tables = {
        "orders": everything(30, 12),
        "users": everything(23),
        "refunds": everything(25, 10),
        "late": everything(4),
        "mine": everything(7),
    }
    for name, offsets in tables.items():
        assert shop.engine.offsets(shop.table(name)) == offsets
        assert_proved(proof(shop.engine, shop.table(name)))
    made_for = shop.engine.table(shop.table("late")).properties["calve.topic"]
    assert made_for == late
    for table in ("people", "a_b"):
        assert shop.engine.lake.load(shop.engine.target(people, table=shop.table(table)).name) is None
    assert_as_documented(shop.events)


def test_the_older_of_two_topics_with_one_name_keeps_its_table(shop: Shop) -> None:
    kept = shop.topic("a_b", 5)
    shop.drain()
    clashing = shop.topic("a-b", 5)
    shop.engine.produce(kept, 5, partition=1)
    shop.drain()
    assert shop.engine.offsets(shop.table("a_b")) == everything(5, 5)
    assert [each["topic"] for each in shop.said("topic.refused")] == [clashing]


def test_a_table_is_never_given_to_another_topic(shop: Shop) -> None:
    """Whose topic is gone, and whose name a new topic comes to: it is left as it is, though it may go on after data loss."""
    gone = shop.topic("a_b", 5)
    shop.drain()
    shop.engine.delete(gone)
    other = shop.topic("a-b", 9)
    target = shop.engine.target(
        other, table=shop.table("a_b"), pattern=shop.job.patterns[0].name, on_data_loss="continue"
    )
    with suspended("other_topic"):
        shop.engine.round(target)
    assert shop.drain() == {f"{DATABASE}.{shop.table('a_b')}": "suspended"}
    assert shop.engine.offsets(shop.table("a_b")) == everything(5)


def test_latest_leaves_out_what_was_there_and_nothing_of_a_topic_that_appears(shop: Shop) -> None:
    shop.start = Start("latest")
    old = shop.topic("old", 6)
    with shop.running():
        until(
            lambda: shop.engine.lake.load(shop.engine.target(old, table=shop.table("old")).name), seconds=120
        )
        unregistered = shop.topic("new", registered=False)
        until(lambda: len(shop.said("topics.matched")) == 2)
    shop.engine.register(unregistered, TRADE)
    shop.engine.produce(unregistered, 8, partition=0)
    shop.engine.produce(old, 2, partition=1)
    shop.drain()
    assert shop.engine.offsets(shop.table("old")) == [(1, 0), (1, 1)]
    assert shop.engine.offsets(shop.table("new")) == everything(8)


def test_a_job_of_patterns_alone_waits_for_its_first_topic(shop: Shop) -> None:
    with shop.running():
        until(lambda: shop.said("job.started"), seconds=60)
        shop.topic("first", 3)
        until(lambda: shop.holds("first", 3), seconds=60)
    assert shop.said("job.started")[0]["tables"] == []


@pytest.mark.full
def test_tables_go_on_while_topics_cannot_be_listed(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    topic, down, listed = shop.topic("orders", 3), threading.Event(), Cluster.names

    def names(cluster: Cluster) -> list[str]:
        if down.is_set():
            raise Retryable("Kafka does not answer")
        return listed(cluster)

    monkeypatch.setattr(Cluster, "names", names)
    with shop.running():
        until(lambda: shop.holds("orders", 3), seconds=60)
        down.set()
        until(lambda: shop.said("topics.failed"))
        shop.engine.produce(topic, 4, partition=1)
        until(lambda: shop.holds("orders", 3, 4), seconds=60)
        down.clear()
        shop.topic("later", 2)
        until(lambda: shop.holds("later", 2), seconds=60)
    assert len(shop.said("topics.failed")) == 1
    assert_as_documented(shop.events)


def test_an_error_of_the_search_ends_the_job_and_says_so(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: Discovery) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Discovery, "look", broken)
    with pytest.raises(Fatal, match="the search for topics ended: ZeroDivisionError"):
        shop.drain()


def calve(shop: Shop, config: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(Path(sys.executable).with_name("calve")), *words, "-c", str(config)],
        cwd=shop.engine.stack.root,
        capture_output=True,
        text=True,
        timeout=180,
    )


@pytest.mark.full
def test_commands_take_each_table_by_its_name(shop: Shop, tmp_path: Path) -> None:
    orders, gone, clashing = shop.topic("orders", 8), shop.topic("gone", 2), shop.topic("x__dead_letters", 1)
    config = tmp_path / "calve.yaml"
    config.write_text(
        f"name: {DATABASE}\nlake: {{prefix: {DATABASE}}}\n"
        f"tables:\n  '{shop.prefix}_{{1}}': {{topics: '{shop.prefix}\\.([a-z_]+)'}}\n"
    )
    done = calve(shop, config, "ingest", "--drain", "--memory", "1g")
    assert done.returncode == 0, done.stderr
    assert f"topic={clashing}" in done.stderr
    shop.engine.delete(gone)

    status = json.loads(calve(shop, config, "status", "-o", "json").stdout)
    assert [(each["topic"], each["lag_records"]) for each in status["tables"]] == [(gone, None), (orders, 0)]
    assert status["tables"][0]["reason"] == f"topic {gone} does not exist"
    assert [each["topic"] for each in status["not_kept"]] == [clashing]

    proved = calve(shop, config, "verify", shop.table("orders"))
    assert proved.returncode == 0, proved.stdout + proved.stderr
    listed = json.loads(calve(shop, config, "tables", "-o", "json").stdout)["tables"]
    assert [(each["table"], each["rows"]) for each in listed] == [
        (f"{DATABASE}.{shop.table('gone')}", 2),
        (f"{DATABASE}.{shop.table('orders')}", 8),
    ]
    letters = calve(shop, config, "dead-letters", "list", shop.table("gone"))
    assert (letters.returncode, "has no dead letters" in letters.stdout) == (0, True), letters
    absent = calve(shop, config, "verify", shop.table("order"))
    assert (absent.returncode, f'Did you mean "{shop.table("orders")}"?' in absent.stderr) == (2, True)

    plan = calve(shop, config, "plan", "-o", "json")
    changes = {
        each["name"]: each for each in json.loads(plan.stdout)["changes"] if each["section"] == "tables"
    }
    assert changes[shop.table("orders")]["kind"] == "="
    assert changes[f"{shop.prefix}_{{1}}"]["note"].endswith("2 tables")
    assert clashing in changes[f"{shop.prefix}_{{1}}"]["undecided"][0]
