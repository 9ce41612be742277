"""`calve capture` on a real broker and registry: records masked into a folder, and replayed without either."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema

from calve.config.job import Source, Table
from calve.config.steps import Filter, Flatten, Route, Sql
from calve.errors import CalveError, ConfigError
from calve.modes.upsert import ChangeData
from calve.schema.inference import Infer
from cli.project.capture.command import captured
from cli.project.capture.folder import Capture
from cli.project.preview import Outcome, changes, replayed
from tests.integration.support.engine import Engine
from tests.protobuf_classes import message_class

PERSON = json.dumps(
    {
        "type": "record",
        "name": "Person",
        "fields": [
            {"name": "name", "type": "string"},
            {"name": "born", "type": ["null", {"type": "int", "logicalType": "date"}], "default": None},
            {"name": "cards", "type": {"type": "array", "items": "string"}},
            {"name": "status", "type": "string"},
        ],
    }
)
SECRETS = ("Lovelace", "4111-1111", "ada@example.org")


def person(name: str = "Ada Lovelace", status: str = "paid", *cards: str) -> dict[str, Any]:
    return {"name": name, "born": None, "cards": list(cards or ["4111-1111"]), "status": status}


def kept(engine: Engine, table: Table, tmp_path: Path, to: int, *keep: str) -> tuple[Capture, Outcome]:
    """The capture of partition 0, as it is in its folder, and what a replay makes of it. Nothing secret is in the folder."""
    found = captured(engine.spark, engine.job(table), table, {0: (0, to)}, keep)
    folder = tmp_path / "captures" / table.name
    found.write(folder)
    for file in (each for each in folder.rglob("*") if each.is_file()):
        assert not [each for each in SECRETS if each in file.read_text()], file
    again = Capture.read(folder)
    assert again == found
    nowhere = engine.job(table, registry=None)
    return again, replayed(engine.spark, nowhere, table, again)


def test_good_and_bad_records_keep_their_fates(engine: Engine, tmp_path: Path) -> None:
    topic = engine.topic(schema=PERSON, partitions=1)
    good = engine.encode(topic, person())
    engine.send(topic, good, key=b"ada@example.org")
    for bad in (
        good[:-3],
        b"\x01" + good[1:],
        b"\x00\x00\x0f\x42\x40" + good[5:],
        b"",
        good + b"4111-1111",
        None,
    ):
        engine.send(topic, bad)
    engine.produce(topic, [person("Eve", "open"), person("Ada Lovelace", "paid", "1", "2")])
    table = Table("capture", topic, steps=(Filter("status = 'paid'"), Flatten(explode="cards")))
    found, made = kept(engine, table, tmp_path, 9)
    assert found.fates == (
        "1 row", "malformed", "bad_magic", "unknown_schema_id", "truncated", "trailing_bytes", "null_value", "left out", "2 rows",
    )  # fmt: skip
    assert changes(found.expected, made.fates) == []
    rows = made.preview.shown
    assert [(row["offset"], row["status"]) for row in rows] == [(0, "paid"), (8, "paid"), (8, "paid")]
    assert rows[0]["name"] == rows[1]["name"]
    assert re.fullmatch("[A-Z][a-z]{2} [A-Z][a-z]{7}", rows[0]["name"])
    assert [len(found.records[n].value or b"") for n in (0, 1)] == [len(good), len(good) - 3]


def test_a_record_is_dead_before_a_fix_and_a_row_after_it(engine: Engine, tmp_path: Path) -> None:
    topic = engine.topic(schema=PERSON, partitions=1)
    engine.produce(topic, [person(), person("Ada Lovelace", "none")])
    query = "SELECT name, {} AS cards FROM source"
    broken = Table("capture", topic, steps=(Sql(query.format("cast(cards[0] AS int)")),))
    found, _ = kept(engine, broken, tmp_path, 2)
    assert found.fates == ("step_failed", "step_failed")
    fixed = Table("capture", topic, steps=(Sql(query.format("cards[0]")),))
    after = replayed(engine.spark, engine.job(fixed), fixed, found)
    assert [each["now"] for each in changes(found.expected, after.fates)] == ["1 row", "1 row"]


@pytest.mark.long
def test_what_decides_must_be_kept(engine: Engine, tmp_path: Path) -> None:
    topic = engine.topic(schema=PERSON, partitions=1)
    engine.produce(topic, [person("7"), person("Ada Lovelace")])
    table = Table(
        "capture", topic, steps=(Filter("length(status) = 4 AND born IS NULL AND name LIKE '%Love%'"),)
    )
    found, made = kept(engine, table, tmp_path, 2)
    assert [each["record"] for each in changes(found.expected, made.fates)] == ["0:1"]
    kept_name = captured(engine.spark, engine.job(table), table, {0: (0, 2)}, ["name"])
    assert b"Ada Lovelace" in (kept_name.records[1].value or b"")
    assert b"4111-1111" not in (kept_name.records[1].value or b"")
    assert not changes(kept_name.expected, replayed(engine.spark, engine.job(table), table, kept_name).fates)


@pytest.mark.long
def test_protobuf_keys_and_headers(engine: Engine, tmp_path: Path) -> None:
    topic = engine.topic(schema=PERSON, partitions=1)
    text = 'syntax = "proto3"; message Key { int64 id = 1; }'
    text += " message Sale { string by = 1; repeated int32 of = 2; double at = 3; }"
    number = engine.registry.register_schema(f"{topic}-other", Schema(text, "PROTOBUF"))
    frame = b"\x00" + number.to_bytes(4, "big")
    sale = message_class(text, "Sale")(by="Lovelace", of=[1, 22, 333], at=4.25).SerializeToString()
    key = message_class(text, "Key")(id=4711).SerializeToString()
    headers: Any = [
        ("trace", b"ada@example.org"),
        ("empty", None),
        ("content-type", b"application/x-protobuf"),
    ]
    engine.producer.produce(topic, frame + b"\x02\x02" + sale, key=frame + b"\x00" + key, headers=headers)
    engine.producer.produce(topic, frame + b"\x02\x02" + sale[:4], key=b"4111-1111")
    engine.flush()
    value = Source(subject=f"{topic}-other", message="Sale")
    table = Table("capture", topic, value=value, key=Source(subject=f"{topic}-other", message="Key"))
    found, made = kept(engine, table, tmp_path, 2)
    assert found.fates[0] == "1 row"
    assert found.fates[1] != "1 row"
    assert changes(found.expected, made.fates) == []
    [row] = made.preview.shown
    assert [len(str(each)) for each in row["of"]] == [1, 2, 3]
    assert 1000 <= row["key"]["id"] < 10_000
    assert found.records[0].headers[1:] == (("empty", None), ("content-type", b"application/x-protobuf"))


@pytest.mark.long
def test_json_of_every_kind(engine: Engine, tmp_path: Path) -> None:
    topic = engine.topic(schema=PERSON, partitions=1)
    for each in (
        b'{"at": "2024-05-06T07:08:09Z", "by": "Lovelace", "count": 12, "more": {"mail": "ada@example.org"}}',
        b'{"at": "2024-05-06T07:08:09Z", "count": 9223372036854775808}',
        b'{"at": "yesterday", "by": "Lovelace"}',
        b'{"by": "Lovel',
        b'{"kind": "b", "by": "Lovelace"}',
    ):
        engine.send(topic, each)
    engine.flush()
    properties = {
        "at": {"type": "string", "format": "date-time"},
        "by": {"type": "string"},
        "count": {"type": "integer"},
    }
    schema = json.dumps({"type": "object", "properties": properties | {"kind": {"type": "string"}}})
    route = Route("kind", ("a",), ("a", "b"), "keep")
    for n, value in enumerate(
        (Source(format="json", schema=schema, rest="rest"), Source(format="json", rest="rest", infer=Infer()))
    ):
        table = Table(f"capture{n}", topic, value=value, steps=() if n else (route,))
        found, made = kept(engine, table, tmp_path, 5)
        assert found.fates[0] == "1 row"
        assert found.fates[3] == "malformed"
        assert changes(found.expected, made.fates) == []
        if not n:
            assert found.fates[1:] == ("malformed", "malformed", "malformed", "left out")


@pytest.mark.long
def test_changes_of_a_database(engine: Engine, tmp_path: Path) -> None:
    topic = engine.topic(schema=PERSON, partitions=1)
    row = {
        "type": "object",
        "title": "Value",
        "properties": {"id": {"type": "integer"}, "name": {"type": "string"}},
    }
    source = {"type": "object", "properties": {"ts_ms": {"type": "integer"}, "lsn": {"type": "integer"}}}
    event = {"before": row, "after": row, "op": {"type": "string"}, "source": source}
    schema = json.dumps({"type": "object", "properties": event})
    for op, before, after in (
        ("c", None, "Lovelace"),
        ("u", "Lovelace", "King"),
        ("d", "King", None),
        ("z", None, None),
    ):
        rows = {"before": before and {"id": 12, "name": before}, "after": after and {"id": 12, "name": after}}
        engine.send(
            topic, json.dumps(rows | {"op": op, "source": {"ts_ms": 1700000000000, "lsn": 5}}).encode()
        )
    engine.flush()
    table = Table(
        "capture", topic, value=Source(format="json", schema=schema), change_data=ChangeData(("id",))
    )
    found, made = kept(engine, table, tmp_path, 4)
    assert found.fates == ("1 row", "1 row", "1 row", "bad_change")
    assert changes(found.expected, made.fates) == []
    assert b'"lsn": 5' in (found.records[0].value or b"")


def test_offsets_that_the_topic_does_not_hold(engine: Engine) -> None:
    topic = engine.topic(schema=PERSON, partitions=1)
    engine.produce(topic, [person()])
    table = Table("capture", topic)
    for spans, why in (({3: (0, 1)}, "no partition 3"), ({0: (0, 2)}, "does not hold 0:0-1")):
        with pytest.raises(CalveError, match=why):
            captured(engine.spark, engine.job(table), table, spans)
    with pytest.raises(ConfigError, match='the field "city"'):
        captured(engine.spark, engine.job(table), table, {0: (0, 1)}, ["name", "city"])
