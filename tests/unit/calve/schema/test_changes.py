"""What is read of Debezium's events."""

from __future__ import annotations

import json
from typing import Any

import pytest

from calve.decoding.decode_plan import decoding, first_columns
from calve.decoding.formats import Top, columns
from calve.errors import Suspended
from calve.schema.change_events import read_as
from calve.schema.columns import Json, field, struct
from calve.schema.evolution import SchemaProblem
from calve.schema.wire import Schema
from calve.schema.writers import AvroWriter, JsonWriter
from tests.debezium import COLUMNS, envelope, json_schema

EVENTS = Top(changes=True, order=("lsn",))


def avro(text: str | None = None) -> Schema:
    return Schema(7, text or envelope(COLUMNS))


def changed(**parts: Any) -> Schema:
    """The envelope with other parts; None: without."""
    found = json.loads(envelope(COLUMNS))
    fields = [each | {"type": parts.get(each["name"], each["type"])} for each in found["fields"]]
    return Schema(7, json.dumps(found | {"fields": [each for each in fields if each["type"] is not None]}))


def renamed(name: str) -> Schema:
    return avro(envelope({"id": "long", name: "string"}))


@pytest.mark.parametrize("schema", [avro(), Schema(7, json_schema(COLUMNS), "JSON")], ids=["avro", "json"])
def test_the_columns_are_those_of_the_row(schema: Schema) -> None:
    assert [each["name"] for each in columns(schema, EVENTS)["fields"]] == list(COLUMNS)


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        (changed(op="int"), "no change event of Debezium"),
        (changed(op=None), "no change event of Debezium"),
        (
            avro('{"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}'),
            "no change event",
        ),
        (changed(after=["null", "string"]), "the connector for MongoDB .* `value: {document: FILE}`"),
        (renamed("_kafka"), "_kafka: calve uses this name"),
        (renamed("_change"), "_change: calve uses this name"),
        (
            Schema(7, 'syntax = "proto3"; message M { int32 a = 1; }', "PROTOBUF"),
            "change events are AVRO or JSON",
        ),
    ],
)
def test_what_is_no_event_is_refused_in_words(schema: Schema, says: str) -> None:
    with pytest.raises(SchemaProblem, match=says):
        columns(schema, EVENTS)


def test_a_table_of_no_events_is_refused_when_it_is_to_be_made() -> None:
    with pytest.raises(Suspended, match="subject s, schema id 7: the schema: it is no change event"):
        first_columns([changed(op=None)], "subject s", EVENTS)


@pytest.mark.parametrize(
    ("schema", "kind"), [(avro(), AvroWriter), (Schema(7, json_schema(COLUMNS), "JSON"), JsonWriter)]
)
def test_a_writer_reads_the_whole_event(schema: Schema, kind: type) -> None:
    table = first_columns([schema], "s", EVENTS)
    (made,) = decoding(table, [schema], top=EVENTS).writers
    assert isinstance(made, kind)
    assert (made.id, made.prefix) == (7, b"\0\0\0\0\7")


def source_of(found: Json) -> dict[str, str | None]:
    return {each["name"]: each["written"] for each in found["fields"][3]["type"]["fields"]}


def test_numbers_and_texts_are_read_apart_so_that_versions_may_differ() -> None:
    row = struct(field("id", "long"))
    events = struct(
        field("op", "string"), field("after", row), field("source", struct(field("scn", "string")))
    )
    found = read_as(events, row, ("scn",))
    assert source_of(found) == {"ts_us_long": None, "ts_ms_long": None, "scn_long": None, "scn_string": "scn"}
    assert found["fields"][1]["written"] is None, "the event has no `before`"


@pytest.mark.parametrize("kind", ["double", struct(field("a", "long"))])
def test_what_orders_changes_must_be_a_number_or_a_text(kind: Json) -> None:
    row = struct(field("id", "long"))
    events = struct(field("op", "string"), field("after", row), field("source", struct(field("pos", kind))))
    for name in ("pos", "missing"):
        with pytest.raises(SchemaProblem, match=f"source.{name}: changes are ordered by it"):
            read_as(events, row, (name,))
