"""The job as a program: exit codes, signals, the events on its standard output, and what it refuses to start without."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from calve.config.job import Job, Kafka, Table
from calve.names import TableName
from cli.conditions import Conditions
from cli.lake import load, open_catalog, state_of
from cli.spark import spark_environment
from glue_jobs.ingest import main
from glue_jobs.rounds.loop import TableLoop
from tests.integration.support.engine import DATABASE, TRADE, Engine, at, everything, until
from tests.integration.support.events import Event, assert_as_documented, documented
from tests.integration.support.running import run

_TRADE = json.loads(TRADE)
NOTE = {"name": "note", "type": ["null", "string"], "default": None}
TRADE_WITH_NOTE = json.dumps(_TRADE | {"fields": [*_TRADE["fields"], NOTE]})


@pytest.fixture
def signals() -> Iterator[None]:
    """The program takes signals for itself; here they are the test run's."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def drained(job: Job, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[Event]]:
    """Run the program in this process; its exit code and its events."""
    capsys.readouterr()
    code = main(["--JOB_NAME", "one of Glue's own", "--settings", job.to_json(), "--drain"])
    return code, [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def conditions(engine: Engine, *topics: str) -> list[tuple[str, str | None]]:
    """State and code of each table, as the commands read them."""
    [known], found = Conditions.of([engine.job()]), []
    for topic in topics:
        main = load(open_catalog(engine.job().lake), TableName(DATABASE, topic))
        condition = known.of_table(topic, state_of(main) if main else None)
        found.append((condition.state, condition.code))
    return found


@pytest.mark.usefixtures("signals")
def test_events_have_exactly_the_documented_keys_and_the_exit_code_tells_the_rest(
    engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    topic, unsupported = engine.topic(partitions=1), engine.topic(schema='"string"')
    engine.produce(topic, [{"id": 1, "side": "BUY", "price": 1}])
    engine.send(topic, b"no avro")
    engine.flush()
    good, bad = (Table(name=each, topic=each) for each in (topic, unsupported))

    code, events = drained(engine.job(good, bad), capsys)
    assert code == 1
    states = {f"{DATABASE}.{topic}": "running", f"{DATABASE}.{unsupported}": "suspended"}
    assert events[-1]["states"] == states
    assert conditions(engine, topic, unsupported) == [
        ("ended", None),
        ("refused", "schema_unsupported"),
    ]

    engine.register(topic, TRADE_WITH_NOTE)
    code, more = drained(engine.job(good), capsys)
    assert code == 0
    events += more

    locked = Kafka("127.0.0.1:1", auth="sasl_plain", secret="env:ABSENT")
    code, more = drained(engine.job(good, kafka=locked), capsys)
    assert code == 2
    assert "ABSENT" in more[-1]["reason"]
    assert conditions(engine, topic, unsupported) == [
        ("failed", "job_failed"),
        ("refused", "schema_unsupported"),
    ]
    events += more

    assert_as_documented(events)
    seen = {each["event"] for each in events}
    assert documented().keys() - seen == {
        "announcement.failed",
        "announcement.pending",
        "announcement.postponed",
        "backfill.completed",
        "move.completed",
        "release.completed",
        "table.adopted",
        "expectation.missed",
        "job.handed_over",
        "maintenance.done",
        "maintenance.due",
        "maintenance.failed",
        "maintenance.skipped",
        "redrive.completed",
        "forget.completed",
        "freshness.missed",
        "layout.changed",
        "layout.refused",
        "round.retried",
        "rows.emitted",
        "secret.changed",
        "secret.failed",
        "state.failed",
        "status.failed",
        "table.field_quarantined",
        "table.rolled_back",
        "table.switched",
        "tag.failed",
        "tombstones.emitted",
        "table.merged",
        "table.expired",
        "maintenance.postponed",
        "topic.refused",
        "topics.matched",
        "topics.failed",
        "rewind.completed",
    }


@pytest.mark.usefixtures("signals")
def test_settings_of_no_use_are_no_traceback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--settings-file", str(tmp_path / "absent.json")]) == 2
    assert main(["--settings", "{}"]) == 2
    assert [json.loads(line)["event"] for line in capsys.readouterr().out.splitlines()] == ["job.failed"] * 2


def test_a_stop_lets_the_round_under_way_finish(engine: Engine) -> None:
    topic = engine.topic(partitions=1)
    engine.produce(topic, 20)
    stop = threading.Event()
    loop = TableLoop(engine.target(topic), stop, drain=False)
    with at("stage.begin", lambda _: stop.set()):
        assert run(loop) == "running"
    assert engine.offsets(topic) == everything(20)


@contextmanager
def process(
    engine: Engine, job: Job, environment: dict[str, str], folder: Path
) -> Iterator[subprocess.Popen[str]]:
    """The program in a process of its own."""
    settings, log = folder / "job.json", folder / "log"
    settings.write_text(job.to_json())
    command = [sys.executable, "-m", "glue_jobs.ingest", "--settings-file", str(settings)]
    with (
        log.open("w") as errors,
        subprocess.Popen(
            command, cwd=engine.stack.root, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as started,
    ):
        try:
            yield started
        finally:
            started.kill()


def ended(started: subprocess.Popen[str]) -> tuple[int, Event]:
    """The exit code and the last event."""
    out, _ = started.communicate(timeout=120)
    return started.returncode, json.loads(out.splitlines()[-1])


@pytest.mark.full
def test_a_job_whose_jvm_was_killed_ends_and_says_so(engine: Engine, tmp_path: Path) -> None:
    environment = spark_environment(engine.stack, memory="1g", quick=True)
    topic = engine.topic(partitions=1)
    engine.produce(topic, 5)
    job = engine.job(Table(name=topic, topic=topic, freshness_s=1.0))
    with process(engine, job, environment, tmp_path) as started:
        assert started.stdout is not None
        for line in started.stdout:
            if json.loads(line)["event"] == "round.committed":
                break
        (jvm,) = subprocess.run(["pgrep", "-P", str(started.pid)], capture_output=True).stdout.split()
        os.kill(int(jvm), signal.SIGKILL)
        code, last = ended(started)
    assert code == 1
    assert (last["event"], last["reason"]) == ("job.failed", "Spark's JVM has ended")


@pytest.fixture
def config(engine: Engine, tmp_path: Path) -> Callable[..., Path]:
    """A calve.yaml whose tables lie where those of the engine lie."""

    def written(*topics: str, more: str = "") -> Path:
        file = tmp_path / "calve.yaml"
        tables = "".join(f"  {topic}: {{topic: {topic}}}\n" for topic in topics)
        file.write_text(f"name: {DATABASE}\nlake: {{prefix: {DATABASE}}}\ntables:\n{tables}{more}")
        return file

    return written


def calve_ingest(engine: Engine, config: Path, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [
            str(Path(sys.executable).with_name("calve")),
            "ingest",
            "-c",
            str(config),
            "--memory",
            "1g",
            *options,
        ],
        cwd=engine.stack.root,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.full
def test_ctrl_c_ends_the_command_in_order(engine: Engine, config: Callable[..., Path]) -> None:
    topic = engine.topic(partitions=1)
    engine.produce(topic, 20)
    with calve_ingest(engine, config(topic)) as command:
        until(lambda: engine.lake.load(engine.target(topic).name), seconds=120)
        command.send_signal(signal.SIGINT)
        _, told = command.communicate(timeout=120)
    assert command.returncode == 0, told
    assert "Traceback" not in told
    assert engine.offsets(topic) in ([], everything(20))


@pytest.mark.long
def test_the_spark_settings_of_a_job_hold_where_the_command_runs_it(
    engine: Engine, config: Callable[..., Path]
) -> None:
    unfit = config(engine.topic(), more="jobs: {main: {conf: {spark.task.cpus: 64}}}\n")
    with calve_ingest(engine, unfit, "--drain") as command:
        _, told = command.communicate(timeout=120)
    assert command.returncode == 2
    assert "Spark does not start: " in told
    assert "64" in told
    assert "check jobs.main.conf" in told


@pytest.mark.full
def test_a_suspended_table_is_named_and_ends_the_command_with_1(
    engine: Engine, config: Callable[..., Path]
) -> None:
    topic, unsupported = engine.topic(partitions=1), engine.topic(schema='"string"')
    engine.produce(topic, 20)
    with calve_ingest(engine, config(topic, unsupported), "--drain") as command:
        summary, told = command.communicate(timeout=120)
    assert command.returncode == 1, told
    assert f"table={DATABASE}.{unsupported}  state=refused  rows=0" in summary
    assert f"table={DATABASE}.{topic}  state=ended  rows=20" in summary
    assert "2 tables: ended, 1 of 2 tables stopped" in told
    assert re.search(rf"{DATABASE}\.{unsupported} +state=suspended +code=schema_unsupported", told), told
    assert engine.offsets(topic) == everything(20)


def test_a_configuration_of_no_use_ends_the_command_with_2(
    engine: Engine, config: Callable[..., Path]
) -> None:
    with calve_ingest(engine, config("trades", more="    colour: red\n")) as command:
        _, told = command.communicate(timeout=120)
    assert command.returncode == 2
    assert "Traceback" not in told
