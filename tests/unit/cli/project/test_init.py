"""`calve init` writes a file that can be loaded, whatever the topics are called."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from calve.config.job import GlueRegistry, Kafka, Registry
from calve.errors import ConfigError
from calve.names import table_problem, topic_problem
from calve.schema.wire import Schema
from calve.settings import load, load_deployment
from calve.settings.resolving import StackDefaults
from cli.main import app
from cli.project.init import (
    Found,
    Source,
    configuration,
    deployment_name,
    described,
    table_names,
    with_samples,
    write,
)

STACK = StackDefaults(Kafka("127.0.0.1:1"), Registry("http://127.0.0.1:2"), "s3://lake")
EMBEDDED = Source("trading", None, None, "eu-west-1")
NAMED = Source(
    "trading",
    Kafka("b1:9096,b2:9096", "sasl_scram", "SCRAM-SHA-512", tls=True, secret="aws:trading/kafka"),
    Registry("https://registry.example/path", "aws:registry"),
    "eu-west-1",
)
FOUND = [
    Found("Orders.EU-1", 6, 12_000, ("id", "created_at"), ("created_at",)),
    Found("orders_eu_1", 1, 0, ("id",)),
    Found("notes", 3, 5, problem="the registry has no subject notes-value", bare=True),
]
CLICKS = [b'{"id": 1, "at": "2026-11-27T10:00:00Z", "rest": {}}', b'{"id": 2, "page": "/"}']


def written(tmp_path: Path, source: Source, found: list[Found]) -> Path:
    path = tmp_path / "calve.yaml"
    path.write_text(configuration(source, found), encoding="utf-8")
    return path


def test_the_file_is_loaded_on_the_embedded_stack(tmp_path: Path) -> None:
    (job,) = load(written(tmp_path, EMBEDDED, FOUND), stack=STACK)
    assert (job.name, job.kafka, job.lake.region) == ("trading", STACK.kafka, "eu-west-1")
    assert {table.name: table.topic for table in job.tables} == {
        "orders_eu_1": "Orders.EU-1",
        "orders_eu_1_2": "orders_eu_1",
    }


def test_the_file_is_deployed_where_servers_are_named(tmp_path: Path) -> None:
    settings = load_deployment(written(tmp_path, NAMED, FOUND)).jobs[0].settings
    assert (settings.kafka, settings.registry) == (NAMED.kafka, NAMED.registry)


def test_a_registry_of_glue_is_written_as_such(tmp_path: Path) -> None:
    source = replace(NAMED, registry=GlueRegistry("company", "eu-west-1"))
    assert load_deployment(written(tmp_path, source, FOUND)).jobs[0].settings.registry == source.registry


def test_what_the_file_suggests_can_be_used(tmp_path: Path) -> None:
    text = configuration(NAMED, FOUND[:1]).replace("    # event_time:", "    event_time:")
    head, _, export = text.partition("# exports:")
    uncommented = "\n".join(line.removeprefix("# ") for line in f"# exports:{export}".splitlines())
    path = tmp_path / "calve.yaml"
    path.write_text(head.replace("# alerts:", "alerts:") + uncommented, encoding="utf-8")
    found = load_deployment(path)
    assert [(each.table, each.time_column) for each in found.exports] == [("orders_eu_1", "created_at")]
    assert found.alerts.emails == ("ops@example.com",)


def test_topics_that_can_be_no_table_are_left_out_with_their_reason(tmp_path: Path) -> None:
    text = written(tmp_path, EMBEDDED, FOUND).read_text()
    assert (
        "  # topic notes: 3 partitions, 5 offsets\n  # left out: the registry has no subject notes-value"
        in text
    )
    assert "\n  notes:" not in text


def test_a_topic_without_a_schema_needs_a_file_and_three_lines_less_commented(tmp_path: Path) -> None:
    path = written(tmp_path, EMBEDDED, FOUND)
    text = path.read_text()
    assert "write the JSON Schema of its values into schemas/notes.json, and uncomment:" in text
    head, _, entry = text.partition("  # notes:")
    path.write_text(head + "  notes:" + entry.replace("  #   ", "    ", 2), encoding="utf-8")
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "notes.json").write_text(
        '{"type": "object", "properties": {"id": {"type": "integer"}}}'
    )
    (job,) = load(path, stack=STACK)
    [notes] = [table for table in job.tables if table.name == "notes"]
    assert (notes.topic, notes.value.format, notes.value.registered) == ("notes", "json", False)


def test_a_topic_of_json_gets_the_schema_of_its_records(tmp_path: Path) -> None:
    bare = described("clicks", 1, 2, None, None)
    clicks = with_samples(bare, CLICKS)
    assert (clicks.fields, clicks.times, clicks.sampled) == (("id", "at", "rest", "page"), ("at",), 2)
    assert clicks.inferred
    write({tmp_path / "schemas" / "clicks.json": clicks.inferred})
    (job,) = load(written(tmp_path, EMBEDDED, [clicks]), stack=STACK)
    [table] = job.tables
    assert (table.value.format, table.value.registered, table.value.rest) == ("json", False, "undeclared")
    assert with_samples(bare, [*CLICKS, b"no JSON"]) == bare
    assert bare.problem == "no registry is named, and its newest records are not objects of JSON"


def test_a_schema_that_exists_is_not_overwritten(tmp_path: Path) -> None:
    (mine := tmp_path / "clicks.json").write_text("mine")
    with pytest.raises(ConfigError, match=r"clicks\.json exists already"):
        write({tmp_path / "calve.yaml": "", mine: "theirs"})
    assert (mine.read_text(), (tmp_path / "calve.yaml").exists()) == ("mine", False)


@given(st.lists(st.from_regex(r"[A-Za-z0-9._-]{1,249}", fullmatch=True), unique=True, min_size=1, max_size=6))
def test_every_topic_gets_a_table_of_its_own(topics: list[str]) -> None:
    usable = [topic for topic in topics if topic_problem(topic) is None]
    names = table_names(usable)
    assert len(set(names.values())) == len(usable)
    assert [table_problem(name) for name in names.values() if table_problem(name)] == []


@given(st.from_regex(r"[A-Za-z0-9._-]{1,40}", fullmatch=True).filter(lambda topic: not topic_problem(topic)))
def test_a_topic_of_any_name_is_loaded(tmp_path_factory: pytest.TempPathFactory, topic: str) -> None:
    path = written(tmp_path_factory.mktemp("init"), EMBEDDED, [Found(topic, 1, 1, ("a",))])
    (job,) = load(path, stack=STACK)
    assert [table.topic for table in job.tables] == [topic]


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("trading", "trading"),
        ("My Lake_2", "my-lake-2"),
        ("2026-lake", "lake"),
        ("...", "calve"),
        ("x" * 50, "x" * 30),
    ],
)
def test_a_deployment_is_named_after_its_folder(folder: str, name: str) -> None:
    assert deployment_name(folder) == name


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        (None, "the registry has no subject t-value, and it has no records"),
        (("THRIFT", "x"), "THRIFT is not supported"),
        (("AVRO", '"string"'), "a table needs a record at the top"),
        (("JSON", '{"type": "string"}'), "a table needs an object with properties"),
        (
            ("AVRO", '{"type": "record", "name": "R", "fields": [{"name": "_kafka", "type": "int"}]}'),
            "_kafka: calve uses this name",
        ),
    ],
)
def test_a_topic_that_can_be_no_table_says_why(schema: tuple[str, str] | None, problem: str) -> None:
    newest = Schema(1, schema[1], schema[0]) if schema else None
    assert problem in (described("t", 1, 0, newest, "t-value").problem or "")


def test_fields_that_hold_times_are_found() -> None:
    kinds = {
        "id": "string",
        "at": {"type": "long", "logicalType": "timestamp-millis"},
        "maybe": ["null", {"type": "long", "logicalType": "timestamp-micros"}],
        "price": {"type": "bytes", "logicalType": "decimal", "precision": 9},
    }
    fields = [{"name": name, "type": kind} for name, kind in kinds.items()]
    schema = Schema(1, json.dumps({"type": "record", "name": "R", "fields": fields}))
    found = described("t", 2, 7, schema, "t-value")
    assert (found.fields, found.times, found.problem) == (tuple(kinds), ("at", "maybe"), None)


def test_a_file_that_exists_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "calve.yaml"
    path.write_text("name: mine")
    result = CliRunner().invoke(
        app, ["init", "-b", "127.0.0.1:1", "-r", "http://127.0.0.1:2", "-c", str(path)]
    )
    assert isinstance(result.exception, ConfigError)
    assert "exists already" in str(result.exception)
    assert "--config calve.mine.yaml" in str(result.exception)
    assert path.read_text() == "name: mine"
