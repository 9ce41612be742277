"""`calve plan --schema`: what a candidate would do to a table, path by path."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer.testing

from calve.decoding.decode_plan import first_columns, proposal
from calve.errors import ConfigError
from calve.schema.evolution import Rule
from calve.schema.wire import Schema
from cli.console import Branch
from cli.main import app
from cli.project.plan.fields_to_review import lines, read_candidate, tree


def schema(number: int, *fields: tuple[Any, ...]) -> Schema:
    named = [{"name": n, "type": t, "aliases": list(aliases)} for n, t, *aliases in fields]
    return Schema(number, json.dumps({"type": "record", "name": "R", "fields": named}))


def line(kind: str, path: str, note: str) -> dict[str, str | None]:
    return {"kind": kind, "path": path, "note": note, "rule": None}


INNER = {"type": "record", "name": "I", "fields": [{"name": "x", "type": "int"}]}
WIDER = {"type": "record", "name": "I", "fields": [{"name": "x", "type": "long"}]}
FIRST = schema(
    1, ("id", "int"), ("a", "string"), ("inner", {"type": "array", "items": INNER}), ("old", "int")
)


def test_what_would_be_added_widened_renamed_and_left_is_named_by_path() -> None:
    candidate = schema(
        0, ("id", "int"), ("b", "string", "a"), ("inner", {"type": "array", "items": WIDER}), ("new", INNER)
    )
    found = lines(proposal(first_columns([FIRST], "t-value"), [FIRST], candidate))
    assert found == [
        line("rename", "b", "rename of a"),
        line("widen", "inner[].x", "widen to long"),
        line("add", "new", "add struct"),
        line("unfilled", "old", "stays, and this version does not fill it"),
    ]
    assert [each.mark for each in tree("t", found).below] == ["~", "~", "+", "-"]


def test_a_proto_file_is_a_candidate_that_renames_by_number(tmp_path: Path) -> None:
    file = tmp_path / "next.proto"
    file.write_text(
        'syntax = "proto3"; message A { int64 b = 1; repeated In c = 2; message In { bool y = 2; } }'
    )
    first = Schema(
        1,
        'syntax = "proto3"; message A { int32 a = 1; repeated In c = 2; message In { bool x = 1; } }',
        "PROTOBUF",
    )
    found = lines(proposal(first_columns([first], "t-value"), [first], read_candidate(file)))
    assert found == [
        line("rename", "b", "rename of a"),
        line("widen", "b", "widen to long"),
        line("add", "c[].y", "add boolean"),
        line("unfilled", "c[].x", "stays, and this version does not fill it"),
    ]


def test_what_is_refused_is_named_by_path_and_rule() -> None:
    candidate = schema(0, ("id", "string"))
    [found] = lines(proposal(first_columns([FIRST], "t-value"), [FIRST], candidate))
    assert (found["kind"], found["path"], found["rule"]) == ("reject", "id", Rule.UNSUPPORTED_TYPE_CHANGE)
    below = tree("t", [found]).below[0]
    assert (below.mark, below.text) == ("-", "id")
    assert "UNSUPPORTED_TYPE_CHANGE" in below.note


def test_for_a_table_that_does_not_exist_yet_every_column_is_new() -> None:
    found = lines(proposal(None, [], schema(0, ("id", "int"), ("a", "string"))))
    assert [(each["kind"], each["path"]) for each in found] == [("add", "id"), ("add", "a")]


def test_a_schema_that_changes_nothing_says_so() -> None:
    found = proposal(first_columns([FIRST], "t-value"), [FIRST], FIRST)
    assert tree("t", lines(found)) == Branch("t", below=[Branch("nothing changes", "=")])


def test_a_file_that_is_no_schema_is_named(tmp_path: Path) -> None:
    for name in ("schema.txt", "absent.avsc"):
        with pytest.raises(ConfigError, match=name):
            read_candidate(tmp_path / name)


def test_table_and_schema_go_together() -> None:
    result = typer.testing.CliRunner().invoke(app, ["plan", "--table", "t"])
    assert isinstance(result.exception, ConfigError)
