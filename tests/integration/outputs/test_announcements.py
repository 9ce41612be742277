"""What others hear: a job on the real stack, with a queue behind a rule on the emulator's event bus."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from calve.config.job import Budget, Table
from calve.config.publishing import Announce
from calve.names import TableName
from calve.outputs.announcement import (
    COMMITTED,
    EVOLVED,
    EXPORT_CREATED,
    EXPORT_FAILED,
    OF_TABLES,
    OVER_BUDGET,
    SUSPENDED,
    pattern,
    table_of,
    with_alerts,
)
from cli.console import Console
from cli.embedded import aws
from cli.embedded.stack import Stack
from cli.run.jobs import run_deployed
from cli.spark import spark_environment
from glue_jobs.ingest import main
from glue_jobs.outputs import outbox
from tests.announcements import assert_as_documented
from tests.integration.support.engine import DATABASE, TRADE, Engine, at, until
from tests.integration.support.events import assert_as_documented as assert_log
from tests.integration.support.exporting import JOB as DEPLOYED_JOB
from tests.integration.support.exporting import NAME as DEPLOYMENT
from tests.integration.support.exporting import Deployment, canary_day

NOWHERE = "http://127.0.0.1:1"


@dataclass
class Heard:
    """Everything on the bus that a rule matches, for as long as the test runs."""

    sqs: Any
    queue: str
    messages: list[dict[str, Any]] = field(default_factory=list)
    raw: str = ""

    def look(self) -> list[dict[str, Any]]:
        while found := self.sqs.receive_message(QueueUrl=self.queue, MaxNumberOfMessages=10).get("Messages"):
            for each in found:
                self.raw += each["Body"]
                self.messages.append(json.loads(each["Body"]))
                self.sqs.delete_message(QueueUrl=self.queue, ReceiptHandle=each["ReceiptHandle"])
        for each in self.messages:
            assert_as_documented(each["detail-type"], each["detail"])
        return self.messages

    def of(self, table: str, *kinds: str) -> list[dict[str, Any]]:
        """Details about a table, in the order of arrival."""
        found = [each for each in self.look() if each["detail-type"] in (kinds or (COMMITTED,))]
        return [each["detail"] for each in found if table_of(each["detail"]) == TableName(DATABASE, table)]


@pytest.fixture
def hearing(stack: Stack) -> Iterator[Callable[[dict[str, Any]], Heard]]:
    """Makes a rule with a queue behind it."""
    events, sqs = (aws.client(each, stack.aws_endpoint) for each in ("events", "sqs"))
    made: list[tuple[str, str]] = []

    def rule(matched: dict[str, Any]) -> Heard:
        name = f"heard-{uuid.uuid4().hex[:8]}"
        queue, arn = aws.open_queue(name, stack.aws_endpoint)
        events.put_rule(Name=name, EventPattern=json.dumps(matched))
        events.put_targets(Rule=name, Targets=[{"Id": "q", "Arn": arn}])
        made.append((name, queue))
        return Heard(sqs, queue)

    yield rule
    for name, queue in made:
        events.remove_targets(Rule=name, Ids=["q"])
        events.delete_rule(Name=name)
        sqs.delete_queue(QueueUrl=queue)


@pytest.fixture
def heard(hearing: Callable[[dict[str, Any]], Heard]) -> Heard:
    return hearing(pattern("tests", *OF_TABLES))


@pytest.fixture
def signals() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def work(
    engine: Engine, capsys: pytest.CaptureFixture[str], signals: None
) -> Callable[..., list[dict[str, Any]]]:
    """Drain as a deployed job does, in this process; its log."""

    def drain(*tables: Table, announce: bool = True) -> list[dict[str, Any]]:
        capsys.readouterr()
        outbox._client.cache_clear()  # as in a process of its own
        more = ["--announce", "true"] if announce else []
        main(["--settings", engine.job(*tables).to_json(), "--drain", *more])
        told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert_log(told)
        return told

    return drain


def ids(details: list[dict[str, Any]]) -> list[int]:
    return [int(each["snapshot_id"]) for each in details]


def history(engine: Engine, topic: str) -> list[int]:
    """Main's snapshots, oldest first."""
    return [each.id for each in engine.table(topic).ancestors()][::-1]


def names(log: list[dict[str, Any]]) -> set[str]:
    return {each["event"] for each in log}


def test_every_commit_is_announced_whoever_made_it_and_a_rollback_too(
    engine: Engine, heard: Heard, work: Callable[..., Any]
) -> None:
    topic = engine.topic(partitions=1)
    table = Table(topic, topic)
    engine.mixed(topic, 20, bad=2)
    work(table)
    engine.compact(topic)
    engine.produce(topic, 5)
    work(table)
    found = heard.of(topic)
    assert set(ids(found)) == set(history(engine, topic))
    by_id = {int(each["snapshot_id"]): each for each in found}
    numbers = [by_id[each]["sequence_number"] for each in history(engine, topic)]
    assert numbers == sorted(set(numbers))
    first, second = (by_id[each] for each in history(engine, topic)[1:3])
    assert (first["rows"], first["dead_lettered"], first["records"]) == (
        {"appended": 20, "deleted": 0},
        2,
        22,
    )
    assert (second["operation"], second["rows"], second["round"]) == ("replace", None, None)
    assert {each["parent_id"] for each in found} == {
        None,
        *(str(each) for each in history(engine, topic)[:-1]),
    }

    head = engine.table(topic)
    assert by_id[history(engine, topic)[-1]]["table_uuid"] == head.found["table_uuid"]
    engine.rollback(topic, history(engine, topic)[1])
    before = len(found)
    work(table)
    assert ids(heard.of(topic)[before:])[-1] == history(engine, topic)[-1]


def test_a_job_that_was_not_told_to_announces_nothing(
    engine: Engine, heard: Heard, work: Callable[..., Any]
) -> None:
    topic = engine.topic(partitions=1)
    engine.produce(topic, 3)
    work(Table(topic, topic), announce=False)
    assert heard.of(topic, *OF_TABLES) == []


def test_columns_that_come_and_tables_that_stop_are_announced(
    engine: Engine, heard: Heard, work: Callable[..., Any]
) -> None:
    topic = engine.topic(partitions=1)
    engine.produce(topic, 3)
    work(Table(topic, topic))
    trade = json.loads(TRADE)
    trade["fields"].append({"name": "note", "type": ["null", "string"], "default": None})
    engine.register(topic, json.dumps(trade))
    engine.mixed(topic, 0, bad=5)
    work(Table(topic, topic, dead_letter_budget=Budget(share=0.0, records=1)))
    [evolved] = heard.of(topic, EVOLVED)
    assert evolved["changes"] == ["add note"]
    [suspended], [over] = heard.of(topic, SUSPENDED), heard.of(topic, OVER_BUDGET)
    assert (suspended["state"], suspended["code"]) == ("suspended", "rejects_over_budget")
    assert over == suspended


def test_what_was_sent_is_announced_again_and_says_so(
    engine: Engine, heard: Heard, work: Callable[..., Any]
) -> None:
    topic = engine.topic(partitions=1)
    table = Table(topic, topic)
    for _ in range(2):
        engine.produce(topic, 3)
        work(table)
    heard.look()
    heard.messages.clear()
    engine.produce(topic, 3)
    before = history(engine, topic)
    with at("stage.begin", lambda _: until(lambda: ids(heard.of(topic)) == before)):
        work(table)  # the round notes that all three are on the bus
    heard.look()
    heard.messages.clear()
    work(table)
    again = {each["snapshot_id"]: each["again"] for each in heard.of(topic)}
    assert [again[str(each)] for each in history(engine, topic)] == [True, True, True, False]


@pytest.mark.long
def test_a_bus_that_is_down_holds_up_no_round_and_hears_of_all_later(
    engine: Engine, heard: Heard, work: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = engine.topic(partitions=1)
    engine.produce(topic, 10)
    with monkeypatch.context() as down:
        down.setenv("AWS_ENDPOINT_URL_EVENTBRIDGE", NOWHERE)
        log = work(Table(topic, topic))
    assert engine.rows(topic).count() == 10
    assert log[-1]["states"] == {f"{DATABASE}.{topic}": "running"}
    assert names(log) >= {"round.committed", "announcement.failed", "announcement.pending"}
    assert heard.of(topic) == []
    work(Table(topic, topic))
    assert ids(heard.of(topic)) == history(engine, topic)
    assert {each["again"] for each in heard.of(topic)} == {False}


def killed(engine: Engine, table: Table, folder: Path, fault: str) -> None:
    """The job in a process of its own, killed at a point."""
    settings = folder / "job.json"
    settings.write_text(engine.job(table).to_json())
    command = [sys.executable, "-m", "glue_jobs.ingest", "--settings-file", str(settings), "--drain"]
    environment = spark_environment(engine.stack, memory="1g", quick=True)
    done = subprocess.run(
        [*command, "--announce", "true"],
        cwd=engine.stack.root,
        env=environment | {"CALVE_FAULT": fault},
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr[-2000:]


@pytest.mark.full
def test_a_job_that_dies_between_commit_and_sending_is_made_up_for(
    engine: Engine, heard: Heard, work: Callable[..., Any], tmp_path: Path
) -> None:
    topic = engine.topic(partitions=1)
    table = Table(topic, topic)
    engine.produce(topic, 10)
    killed(engine, table, tmp_path, "publish.committed")
    committed = history(engine, topic)[-1]
    assert committed not in ids(heard.of(topic))
    work(table)
    [found] = [each for each in heard.of(topic) if int(each["snapshot_id"]) == committed]
    assert (found["rows"]["appended"], found["again"]) == (10, False)


def test_a_rule_hears_of_a_counted_value_once(
    engine: Engine, hearing: Callable[[dict[str, Any]], Heard], work: Callable[..., Any]
) -> None:
    topic = engine.topic(partitions=1)
    table = Table(topic, topic, announce=Announce("side", ("BUY",)))
    alert = hearing(with_alerts("tests"))
    engine.produce(topic, [{"id": 1, "side": "BUY", "price": 1}])
    work(table)
    engine.produce(topic, [{"id": 2, "side": "HOLD", "price": 1}])
    work(table)
    [first, *more] = alert.of(topic)
    assert first["counts"]["values"] == {"BUY": 1}
    assert first["alert"] == "side BUY"
    assert {each["snapshot_id"] for each in more} <= {first["snapshot_id"]}
    alert.messages.clear()
    work(table)
    work(table)
    assert alert.of(topic) == []


def test_no_event_holds_a_value_a_key_or_a_header(
    engine: Engine, heard: Heard, work: Callable[..., Any]
) -> None:
    planted = [f"planted{uuid.uuid4().hex}" for _ in range(4)]
    topic = engine.topic(partitions=1)
    value = engine.encode(topic, {"id": 1, "side": planted[0], "price": 77_777_771})
    for each in (value, b"\x01" + planted[1].encode(), value[:-1]):
        headers: list[tuple[str, str | bytes | None]] = [("h", planted[3])]
        engine.producer.produce(topic, each, key=planted[2], headers=headers)
    engine.flush()
    work(Table(topic, topic, announce=Announce("price")))
    work(Table(topic, topic, on_error="suspend"))
    engine.send(topic, b"\x01" + planted[1].encode())
    engine.flush()
    work(Table(topic, topic, on_error="suspend"))
    assert heard.of(topic, SUSPENDED)
    assert heard.of(topic)[1]["counts"]["values"] == {"77777771": 1}, "control: a declared column is told"
    for text in planted:
        assert text not in heard.raw


@pytest.mark.full
def test_the_deployed_job_announces(
    stack: Stack, weekly: Deployment, hearing: Callable[[dict[str, Any]], Heard]
) -> None:
    found = hearing(pattern(DEPLOYMENT, COMMITTED))
    assert run_deployed(stack, DEPLOYED_JOB, Console(), drain=True, quick=True) == 0
    until(found.look)
    assert {each["detail"]["deployment"] for each in found.messages} == {DEPLOYMENT}
    assert {each["source"] for each in found.messages} == {"calve"}


def test_exports_are_announced_with_their_files_and_without_what_they_hold(
    weekly: Deployment, hearing: Callable[[dict[str, Any]], Heard]
) -> None:
    found = hearing(pattern(DEPLOYMENT, EXPORT_CREATED, EXPORT_FAILED))
    long_ago = canary_day() - timedelta(days=9)
    assert weekly.run("weekly_trades", long_ago)["status"] == "written"
    weekly.run("absent_trades", long_ago)
    until(lambda: len(found.look()) >= 2)
    by_kind = {each["detail-type"]: each["detail"] for each in found.messages}
    created, failed = by_kind[EXPORT_CREATED], by_kind[EXPORT_FAILED]
    files = weekly.files()
    assert created["manifest"] in files
    assert {each["key"]: each["size_bytes"] for each in created["files"]} == {
        each["key"]: len(files[each["key"]]) for each in created["files"]
    }
    assert "analyst" not in json.dumps(created)
    assert (failed["export"]["name"], failed["final"]) == ("absent_trades", True)
