"""`calve status` beside a real table: what it says with Kafka and without, what it calls in AWS, and how fast it is."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from botocore.client import BaseClient

from calve.config.job import Budget, Job, Kafka, Table
from calve.names import TableName
from cli.conditions import Conditions
from cli.lake import LISTED, Tables, open_catalog, rows
from cli.look.health import TableStatus, Urgency
from cli.look.status.overview import Overview, look
from cli.look.status.survey import Survey, facts_of
from cli.look.tables import facts
from glue_jobs.ingest import main
from glue_jobs.rounds.loop import TableLoop
from tests.integration.support.engine import DATABASE, Engine
from tests.integration.support.running import run, supplied
from tests.integration.support.servers.aws_gate import AwsGate, is_glue, is_store
from tests.integration.support.servers.gate import Answer, Request
from tests.operator_calls import METADATA_ENDS, STATUS

DENIED = Answer(403, {"Content-Type": "application/xml"}, b"<Error><Code>AccessDenied</Code></Error>")
PATIENCE_S = 5.0
"""Beyond what the catalog takes: nobody waits for longer for a Kafka that does not answer."""


@dataclass
class Shop:
    """A table with an open dead letter, and a record that it lacks; `file`: its configuration."""

    name: str
    file: Path

    def look(self, *only: str) -> Overview:
        return look(self.file, None, only)


@pytest.fixture
def shop(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    topic = engine.topic()
    engine.produce(topic, 5)
    engine.send(topic, b"no record", partition=0)
    engine.flush()
    drained(engine, topic)
    engine.produce(topic, 3)
    monkeypatch.setattr("cli.config.current", lambda _: engine.stack)
    (file := tmp_path / "calve.yaml").write_text(
        f"name: {DATABASE}\ntables: {{{topic}: {{topic: {topic}, freshness: 1h}}}}\n"
    )
    return Shop(topic, file)


def drained(engine: Engine, topic: str) -> None:
    target = engine.target(topic, dead_letter_budget=Budget(records=10))
    assert run(TableLoop(target, threading.Event(), drain=True)) == "running"


@contextmanager
def silent_kafka() -> Iterator[str]:
    """A server that takes connections and never answers, as one does that a network keeps from us."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def many(engine: Engine, shop: Shop) -> Job:
    """A job of many tables: the first does not exist, the eighth has a dead letter, and all others are as the shop's."""
    job = engine.job(*(Table(f"{shop.name}_{n}", shop.name) for n in range(LISTED)))
    catalog = open_catalog(job.lake)
    place = catalog.load_table((DATABASE, shop.name)).metadata_location
    for each in job.tables[1:]:
        catalog.register_table((DATABASE, each.name), place)
    letters = TableName(DATABASE, shop.name).dead_letters.table
    catalog.register_table(
        (DATABASE, job.table_name(job.tables[7]).dead_letters.table),
        catalog.load_table((DATABASE, letters)).metadata_location,
    )
    return job


def statuses(job: Job, *only: str) -> list[TableStatus]:
    """Without the cluster."""
    return Survey(facts_of([job], Tables(open_catalog(job.lake)), None, only)).statuses()


def test_many_tables_are_listed_at_once_and_each_is_one_file_to_read(
    engine: Engine, shop: Shop, many: Job
) -> None:
    """Of tables without dead letters no manifest is read; otherwise they look as one by one."""
    read: list[str] = []

    def noted(request: Request) -> bool:
        if is_store(request) and request.method == "GET":
            read.append(unquote(request.path.partition("?")[0]))
        return False

    with AwsGate(engine.stack.aws_endpoint) as gate, gate.meanwhile(noted, gate.pass_on):
        job = replace(many, lake=replace(many.lake, endpoint=gate.url))
        found = statuses(job)
    of_main = [path for path in read if f"/{shop.name}/" in path]
    assert len(of_main) == len(many.tables) - 1
    assert all(path.endswith(".metadata.json") for path in of_main)
    letters = [path for path in read if path not in of_main]
    assert len([path for path in letters if path.endswith(".metadata.json")]) == 1

    assert [each.name for each in found] == [each.name for each in many.tables]
    assert (found[0].state, found[0].rows) == ("pending", 0)
    for n in (1, 7):
        (one,) = statuses(many, many.tables[n].name)
        assert one.rows == 5
        assert sum(one.dead_letters.values()) == (n == 7)
        assert replace(found[n], commit_age_s=None) == replace(one, commit_age_s=None)


@pytest.mark.long
def test_a_database_with_very_many_tables_of_others_is_not_listed_to_its_end(
    engine: Engine, many: Job
) -> None:
    pages: list[Request] = []

    def others(request: Request) -> Answer:
        pages.append(request)
        return Answer(
            200,
            {"Content-Type": "application/x-amz-json-1.1"},
            f'{{"TableList": [], "NextToken": "{len(pages)}"}}'.encode(),
        )

    with AwsGate(engine.stack.aws_endpoint) as gate:
        job = replace(many, lake=replace(many.lake, endpoint=gate.url))
        with gate.meanwhile(lambda request: is_glue(request, "GetTables"), others):
            found = statuses(job)
    assert len(pages) == 4
    assert [each.rows for each in found] == [0] + [5] * (len(many.tables) - 1)
    assert sum(found[7].dead_letters.values()) == 1


def test_a_listing_and_a_file_are_read_once_for_the_topic_and_the_state_of_a_table(
    engine: Engine, shop: Shop, many: Job
) -> None:
    asked: list[str] = []

    def noted(request: Request) -> bool:
        if is_store(request) and request.method == "GET":
            asked.append("file")
        if is_glue(request, "GetTable"):  # also GetTables
            asked.append("catalog")
        return False

    names = [many.table_name(each) for each in many.tables]
    with AwsGate(engine.stack.aws_endpoint) as gate, gate.meanwhile(noted, gate.pass_on):
        tables = Tables(open_catalog(replace(many.lake, endpoint=gate.url)))
        listed = tables.names(DATABASE)
        pages = len(asked)
        tables.expect(names)
        assert tables.topic(names[1]) == shop.name
        found = tables.read(names[1])
        assert (tables.topic(names[0]), tables.read(names[0])) == (None, None)
    assert {each.table for each in names[1:]} <= set(listed)
    assert asked == ["catalog"] * pages + ["file"]
    assert found is not None
    assert rows(found) == 5


def test_the_topic_is_asked_where_it_can_be(shop: Shop) -> None:
    found = shop.look()
    (table,) = found.tables
    assert (table.rows, table.lag_records, table.lag_source) == (5, 3, "kafka")
    assert table.lag_s is not None
    assert 0 <= table.lag_s < 3600
    assert sum(table.dead_letters.values()) == 1
    assert table.files > 0
    assert table.bytes > 0
    assert [each.what.split(":")[0] for each in found.troubles] == ["1 dead letters"]


def test_without_kafka_it_says_what_the_job_reported_and_does_not_hang(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.look()  # imports, and the first connections to the emulator
    with silent_kafka() as servers:
        supplied(monkeypatch, kafka=Kafka(servers))
        began = time.monotonic()
        found = shop.look()
        took = time.monotonic() - began
    (table,) = found.tables
    assert (table.lag_records, table.lag_source) == (0, "job")
    assert table.lag_as_of is not None
    (problem,) = found.problems
    assert "does not answer" in problem.message
    assert took < 2 * PATIENCE_S


def test_one_table_comes_with_its_rounds_and_states(shop: Shop) -> None:
    document = json.loads(json.dumps(shop.look(shop.name).document, default=str))
    newest, *_ = document["history"]["snapshots"]
    assert newest["ledger"]["applied"] == 5
    assert newest["metrics"]["lag_records"] == 0
    assert [each["state"] for each in document["history"]["states"]] == ["running"]


def test_a_refused_table_and_a_drained_one_are_told_apart_and_each_has_its_next_command(
    shop: Shop, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = engine.topic(schema='"string"')
    job = engine.job(Table(shop.name, shop.name), Table(refused, refused))
    with monkeypatch.context() as patch:
        patch.setattr("signal.signal", lambda *_: None)
        assert main(["--settings", job.to_json(), "--drain"]) == 1
    shop.file.write_text(
        f"name: {DATABASE}\ntables: {{{shop.name}: {{topic: {shop.name}}}, {refused}: {{topic: {refused}}}}}\n"
    )
    supplied(monkeypatch, warehouse=job.lake.warehouse)
    found = shop.look()
    assert [each.state for each in found.tables] == ["ended", "refused"]
    stopped, _ = found.troubles
    assert (stopped.where, stopped.urgency) == (refused, Urgency.STOPPED)
    assert "schema_unsupported" in stopped.what
    assert (stopped.fix or "").endswith("then start the job: calve ingest")
    catalog = open_catalog(job.lake)
    listed, _ = facts(Tables(catalog), TableName(DATABASE, refused), *Conditions.of([job]))
    assert (listed.state, listed.fix) == ("refused", stopped.fix)


def test_it_calls_nothing_that_an_operator_may_not_call_and_reads_no_row(
    shop: Shop, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Objects other than metadata are refused, as the policy does: dead letters are counted all the same."""
    called: set[str] = set()
    passed_on = BaseClient._make_api_call

    def noted(client: BaseClient, operation: str, arguments: dict[str, Any]) -> Any:
        called.add(f"{client.meta.service_model.endpoint_prefix}:{operation}")
        return passed_on(client, operation, arguments)

    refused: list[str] = []

    def is_row(request: Request) -> bool:
        path = unquote(request.path.partition("?")[0])
        is_metadata = ("/metadata/" in path and path.endswith(METADATA_ENDS)) or "/_calve/status/" in path
        return is_store(request) and path.count("/") > 2 and not is_metadata

    def refuse(request: Request) -> Answer:
        refused.append(request.path)
        return DENIED

    with AwsGate(engine.stack.aws_endpoint) as gate:
        supplied(monkeypatch, endpoint=gate.url)
        monkeypatch.setattr(BaseClient, "_make_api_call", noted)
        with gate.meanwhile(is_row, refuse):
            (table,) = shop.look(shop.name).tables
    assert called <= set(STATUS)
    assert refused
    assert table.dead_letters == {"any": 1}
    assert table.rows == 5
