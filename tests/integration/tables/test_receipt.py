"""The receipt of a round, against the requests that pass a proxy before the object store and the catalog."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import takewhile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from calve.config.maintenance import Kind, Maintenance, RowRetention
from cli.main import app
from glue_jobs.maintenance import between_rounds
from glue_jobs.maintenance.between_rounds import LoopMaintenance
from glue_jobs.maintenance.tasks import Work
from glue_jobs.rounds.round import Round
from glue_jobs.table.open_table import Outcome, TableMemory
from glue_jobs.table.opening import Opener
from tests.integration.ingest.test_systems_down import MODES, begun, behind, more
from tests.integration.support.engine import DATABASE, Engine
from tests.integration.support.servers.aws_gate import AwsGate, is_glue
from tests.integration.support.servers.gate import Answer, Request

ROUNDS = 3
KINDS = [*MODES, "rejects"]


class CountingGate(AwsGate):
    """Counts what passes, by the names of `calve.metrics`."""

    def __init__(self, upstream: str) -> None:
        super().__init__(upstream)
        self.passed: Counter[str] = Counter()

    def answer(self, request: Request) -> Answer | None:
        kinds = {"PUT": "s3_puts", "GET": "s3_gets", "HEAD": "s3_gets"}
        kind = "catalog_calls" if is_glue(request) else kinds.get(request.method)
        if request.method == "POST" and "upload" in request.path:
            kind = "s3_puts"
        if kind:
            self.passed[kind] += 1
        return super().answer(request)


@pytest.fixture(scope="module")
def gate(engine: Engine) -> Iterator[CountingGate]:
    with CountingGate(engine.stack.aws_endpoint) as standing:
        yield standing


@pytest.mark.parametrize(
    "mode",
    [pytest.param(each, marks=pytest.mark.full if each != "append" else ()) for each in KINDS],
)
def test_a_receipt_has_the_requests_that_a_proxy_counts(
    gate: CountingGate, engine: Engine, mode: str
) -> None:
    counted = behind(gate, engine, attempts=4)
    topic, target = begun(counted, mode if mode in MODES else "append")
    memory, receipts = TableMemory(), []
    for _ in range(ROUNDS):
        gate.passed.clear()
        outcome = Round(target, memory).run()
        receipts.append((outcome.metrics, dict(gate.passed)))
        if mode == "rejects":
            engine.mixed(topic, 10, 3)
        else:
            more(counted, topic, mode, 10)
    known = receipts[2:] if mode == "rejects" else receipts  # the first dead letters make their table
    for told, passed in known:
        assert {name: told[name] for name in passed} == passed
        assert 0 < told["cpu_s"] < 60
    last = known[-1][0]
    of_data_alone = mode in ("append", "deduplicate")  # a round of nothing but duplicates keeps no file
    assert (last["bytes_written"] > last["file_bytes"]) != of_data_alone


def merge(engine: Engine, target: Opener, last: Outcome) -> None:
    LoopMaintenance(target).between(last, 60.0)


def maintain(kind: Kind, engine: Engine, target: Opener, _: Outcome) -> None:
    settings = replace(target.config, maintenance=Maintenance(rows=RowRetention("_kafka.timestamp", 0.001)))
    main = engine.lake.load(target.name)
    assert main is not None
    Work(settings, main, None).run(kind, lambda: False)


full = pytest.mark.full


@pytest.mark.long
@pytest.mark.parametrize(
    "do",
    [
        merge,
        pytest.param(partial(maintain, "compact"), marks=full, id="compact"),
        pytest.param(partial(maintain, "manifests"), marks=full, id="manifests"),
        pytest.param(partial(maintain, "rows"), marks=full, id="rows"),
    ],
)
def test_a_commit_that_is_no_round_has_a_receipt_too(
    gate: CountingGate, engine: Engine, monkeypatch: pytest.MonkeyPatch, do: Callable[..., None]
) -> None:
    monkeypatch.setattr(between_rounds, "MERGED_AT_ONCE", 4)
    counted = behind(gate, engine, attempts=4)
    topic, target = begun(counted)
    memory = TableMemory()
    for _ in range(6):
        last = Round(target, memory).run()
        more(counted, topic, "append", 10)
    head = engine.table(topic).head
    gate.passed.clear()
    do(counted, target, last)
    passed = dict(gate.passed)
    (made,) = takewhile(lambda each: each.id != head, engine.table(topic).ancestors())
    told = json.loads(made.summary["calve.metrics"])
    for name, least in (("s3_puts", 0.8), ("s3_gets", 0.8), ("catalog_calls", 0.6)):
        assert least * passed[name] <= told[name] <= passed[name] / least, (name, told, passed)
    assert 0 < told["cpu_s"] < 60
    assert told["bytes_written"] >= 0


@pytest.mark.full
def test_the_commit_that_merges_manifests_is_foreseen(gate: CountingGate, engine: Engine) -> None:
    counted = behind(gate, engine, attempts=4)
    topic, target = begun(counted, properties={"commit.manifest.min-count-to-merge": "3"})
    memory, puts = TableMemory(), set()
    for _ in range(ROUNDS):
        gate.passed.clear()
        told = Round(target, memory).run().metrics
        assert {name: told[name] for name in gate.passed} == gate.passed
        puts.add(told["s3_puts"])
        more(counted, topic, "append", 10)
    assert puts == {4, 5}


def test_cost_sums_the_receipts_of_a_table(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = engine.topic()
    engine.ingest(topic, 10)
    engine.ingest(topic, 20)
    monkeypatch.setattr("cli.config.current", lambda _: engine.stack)
    (file := tmp_path / "calve.yaml").write_text(
        f"name: {DATABASE}\ntables: {{{topic}: {{topic: {topic}}}}}\n"
    )
    answer = CliRunner().invoke(app, ["cost", "--measured", "--config", str(file), "--output", "json"])
    assert answer.exit_code == 0, answer.output
    (told,) = json.loads(answer.stdout)["measured"]
    assert (told["table"], told["commits"], told["records"], told["by"]) == (
        f"{DATABASE}.{topic}",
        2,
        30,
        "cpu",
    )
    assert (told["s3_puts"], told["s3_gets"], told["catalog_calls"]) == (8, 12, 16)
    assert told["cpu_s"] > 0
    assert told["usd_per_million"] > told["usd"] > 0
