"""`calve init` against a real broker: a topic of JSON becomes a table without a registry."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest
from typer.testing import CliRunner

from calve.config.job import Kafka
from calve.names import TableName
from calve.settings import load
from calve.settings.resolving import StackDefaults
from cli.lake import load as load_table
from cli.lake import open_catalog, rows
from cli.main import app
from tests.integration.support.engine import DATABASE, Engine


@pytest.mark.long
def test_a_topic_of_json_without_a_schema_is_a_table_with_its_rows(engine: Engine, tmp_path: Path) -> None:
    topic, stack = f"clicks_{uuid.uuid4().hex[:8]}", engine.stack
    engine.create(topic)
    for n in range(5):
        engine.send(topic, json.dumps({"id": n, "at": "2026-11-27T10:00:00Z", "tags": ["a"]}).encode())
    engine.send(topic, None)
    engine.flush()

    config = tmp_path / "calve.yaml"
    result = CliRunner().invoke(app, ["init", "-b", stack.bootstrap_servers, "-c", str(config)])
    assert result.exit_code == 0, result.output
    assert f"inferred schemas/{topic}.json  records=5  fields=" in result.stderr
    assert config.read_text().startswith("# yaml-language-server: $schema=calve.schema.json\n")
    assert json.loads((tmp_path / "calve.schema.json").read_text())["title"] == "calve.yaml"

    defaults = StackDefaults(Kafka(stack.bootstrap_servers), None, "s3://lake", stack.region)
    [table] = [each for job in load(config, stack=defaults) for each in job.tables if each.topic == topic]
    engine.send(topic, b'{"id": 5, "new": {"x": 1}}')
    engine.flush()
    engine.drain(engine.target(topic, value=table.value))
    found = load_table(open_catalog(engine.job().lake), TableName(DATABASE, topic))
    assert found is not None
    assert rows(found) == 6
    types = {each.name: str(each.field_type) for each in found.schema().fields}
    assert (types["id"], types["at"], types["tags"], types["rest"]) == (
        "long",
        "timestamptz",
        "list<string>",
        "string",
    )
