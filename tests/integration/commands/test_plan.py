"""What `calve plan` says of topics, schemas and columns, asked of a real broker and registry."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from cli.main import app
from tests.debezium import around
from tests.integration.support.engine import Engine

SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "Trade",
        "fields": [
            {"name": "trade_id", "type": "long"},
            {"name": "symbol", "type": "string"},
            {"name": "price", "type": "double"},
            {"name": "side", "type": "string"},
            {"name": "trade_time", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        ],
    }
)
CONFIG = """\
name: NAME
tables:
  good:
    topic: TOPIC
    event_time: trade_time
    upsert: {key: [trade_id]}
  "{topic}_copy":
    topics: 'TOPIC\\.copies\\..*'
  "{topic}_none":
    topics: 'TOPIC\\.none\\..*'
exports:
  weekly: {table: good, columns: [symbol, price], filter: price > 0, schedule: rate(7 days), recipients: [a@example.com]}
"""


@pytest.fixture
def config(engine: Engine, tmp_path: Path) -> Path:
    topic = engine.topic(schema=SCHEMA, partitions=1)
    for copy in ("one", "two"):
        engine.create(f"{topic}.copies.{copy}", partitions=1)
        engine.register(f"{topic}.copies.{copy}", SCHEMA)
    path = tmp_path / "calve.yaml"
    path.write_text(CONFIG.replace("NAME", f"plan-{topic[-6:]}").replace("TOPIC", topic))
    return path


def plan(config: Path, *options: str) -> Result:
    return CliRunner().invoke(app, ["plan", "--config", str(config), *options])


@pytest.mark.parametrize(
    ("cleanup", "entry", "path", "reason"),
    [
        ("delete", "{topic: NEW, start: {offsets: {0: 7}}}", "tables.new.start", "does not hold the start offsets {0: 7}"),
        ("delete", "{topic: NEW, start: {offsets: {0: 0}}}", None, ""),
        ("compact", "{topic: NEW, change_data: {deletes: keep, key: [trade_id]}}", "tables.new.change_data", "is compacted"),
    ],
)  # fmt: skip
def test_a_topic_that_the_job_would_refuse_is_a_problem(
    engine: Engine, config: Path, cleanup: str, entry: str, path: str | None, reason: str
) -> None:
    topic = f"t{os.urandom(4).hex()}"
    engine.create(topic, partitions=1, config={"cleanup.policy": cleanup})
    schema = around(json.loads(SCHEMA)) if cleanup == "compact" else json.loads(SCHEMA)
    engine.register(topic, json.dumps(schema))
    new = f"  new: {entry.replace('NEW', topic)}\n"
    config.write_text(config.read_text().replace("exports:", f"{new}exports:"))
    problems = told(config)[1]["problems"]
    assert [each["path"] for each in problems] == ([path] if path else [])
    assert all(reason in each["reason"] for each in problems)


def told(config: Path, *options: str) -> tuple[int, Any]:
    done = plan(config, *options, "--output", "json")
    return done.exit_code, json.loads(done.stdout)


def test_what_can_work_exits_with_0_and_an_expression_without_topics_is_a_warning(config: Path) -> None:
    code, document = told(config)
    assert (code, document["problems"]) == (0, [])
    (warning,) = document["warnings"]
    assert (warning["place"], warning["path"]) == (f"{config}:10", 'tables."{topic}_none".topics')
    assert told(config, "--detailed-exitcode")[0] == 3
    text = plan(config).stdout
    assert "2 tables" in text
    assert text.splitlines()[-1] == "6 new"  # database, job, three tables, export


def test_every_problem_is_a_line_before_the_counts_and_the_exit_code_is_1(config: Path) -> None:
    wrong = (
        config.read_text()
        .replace("event_time: trade_time", "event_time: trade_tim")
        .replace("trade_id]", "userid]")
        .replace("columns: [symbol, price]", "columns: [symbol, prize]")
        .replace("filter: price > 0", "filter: side == 'BUY' and pric > 0")
    )
    config.write_text(wrong.replace("exports:", "  gone: {topic: gone}\nexports:"))
    done = plan(config)
    *lines, counts = done.stdout.splitlines()
    assert done.exit_code == 1
    problems = [line.split("  ", 3)[1:] for line in lines if line.startswith("problem")]
    assert [(place.rpartition(":")[2], path) for place, path, _ in problems] == [
        ("5", "tables.good.event_time"),
        ("6", "tables.good.upsert.key"),
        ("11", "tables.gone.topic"),
        ("13", "exports.weekly.columns[1]"),
        ("13", "exports.weekly.filter"),
    ]
    assert "did you mean trade_time?" in problems[0][2]
    assert counts == "5 problems: this cannot work. 7 new"
    code, document = told(config, "--detailed-exitcode")
    assert (code, [each["path"] for each in document["problems"]]) == (1, [path for _, path, _ in problems])
    code, document = told(config, "--offline")
    assert (code, document["problems"]) == (0, [])
    assert "--offline" in document["skipped"][0]
