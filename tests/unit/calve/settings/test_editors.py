"""Editors refuse typical mistakes in calve.yaml by its JSON Schema; `conftest.py` shows that they accept all valid files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jsonschema import Draft7Validator
from jsonschema.exceptions import best_match

from calve.settings import document
from calve.settings.model import json_schema
from tests.descriptions import descriptions
from tests.unit.calve.settings.conftest import CHECKER

ROOT = Path(__file__).parents[4]


def refused(tmp_path: Path, text: str) -> str | None:
    """The place that an editor underlines."""
    (path := tmp_path / "calve.yaml").write_text(text)
    values = document.read(path, fix_if_missing="").values
    found = best_match(CHECKER.iter_errors(values))
    return found.json_path if found else None


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("name: t", "$"),
        ("tables: {a: {topic: a}}", "$"),
        ("name: t\ntables: {}", "$.tables"),
        ("name: t\ntables: {a: {topic: a}}\nkafak: {}", "$"),
        ("name: t\ntables: {a: {topik: a}}", "$.tables.a"),
        ("name: t\ntables: {a: {topic: 7}}", "$.tables.a.topic"),
        ("name: t\ntables: {a: {topic: a, freshness: 60}}", "$.tables.a.freshness"),
        ("name: t\ntables: {a: {topic: a, freshness: 5 min}}", "$.tables.a.freshness"),
        ("name: t\ntables: {a: {topic: a, flush_size: 5MO}}", "$.tables.a.flush_size"),
        ("name: t\ntables: {a: {topic: a, on_error: ignore}}", "$.tables.a.on_error"),
        ("name: t\ntables: {a: {topic: a, value: {format: xml}}}", "$.tables.a.value.format"),
        ("name: t\ntables: {a: {topic: a, steps: [unfold]}}", "$.tables.a.steps[0]"),
        ("name: t\ntables: {a: {topic: a, start: now}}", "$.tables.a.start"),
        ("name: t\ntables: [a]", "$.tables"),
        ("name: t\ntables: {a: {topic: a}}\njobs: {main: {worker: G.3X}}", "$.jobs.main.worker"),
    ],
)
def test_an_editor_underlines_a_mistake_where_it_is(tmp_path: Path, text: str, place: str) -> None:
    assert refused(tmp_path, "name: t\ntables: {a: {topic: a}}") is None
    assert refused(tmp_path, text) == place


def test_a_key_without_a_value_is_as_if_it_were_absent(tmp_path: Path) -> None:
    assert (
        refused(tmp_path, "name: t\nlake:\ndefaults: {freshness: }\ntables: {a: {topic: a, value: }}") is None
    )


def test_an_editor_shows_what_the_page_says_of_each_key() -> None:
    file = ROOT / "calve" / "settings" / "descriptions.json"
    assert json.loads(file.read_text()) == descriptions(), f"python -m tests.descriptions > {file}"
    schema = json_schema()
    shown = schema["$defs"]["ExportSection"]["properties"]
    assert shown["window"]["description"] == (
        "`previous_day`, `previous_week` (from Monday) or `previous_month`. Default: `previous_week`."
    )
    assert schema["properties"]["tables"]["description"] == (
        "One topic kept as one table; its key is the table's name."
    )
    undescribed = [
        (name, key)
        for name, section in schema["$defs"].items()
        for key, each in section.get("properties", {}).items()
        if "description" not in each
    ]
    assert undescribed == []


def test_the_schema_is_plain_json_of_its_dialect() -> None:
    schema = json_schema()
    Draft7Validator.check_schema(schema)
    assert "prefixItems" not in json.dumps(schema)
    assert not [name for name in schema["$defs"] if not name.endswith(("Section", "Options"))], (
        "a parsed value has got into the schema: its validator lacks `json_schema_input_type`"
    )
