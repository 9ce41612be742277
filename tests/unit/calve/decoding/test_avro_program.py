"""Programs are numbers that the machine knows, and what has none says why."""

from __future__ import annotations

import json

import pytest

from calve.decoding.avro_operations import Op
from calve.decoding.avro_program import reasons
from calve.decoding.decode_plan import DecodePlan, decoding, first_columns
from calve.decoding.formats import Top
from calve.schema.change_events import MOMENT
from calve.schema.columns import Json, field, struct
from calve.schema.wire import BARE, Schema
from calve.schema.writers import PlainWriter
from glue_jobs.decode.machines import avro_machine as machine
from tests.integration.support.records.avro_records import entries, logical, record

NAMES = {"BYTES": "TEXT"}


def test_the_machine_s_operations_are_those_of_programs() -> None:
    assert {NAMES.get(op.name, op.name): op.value for op in Op} == {
        name: value
        for name, value in vars(machine).items()
        if name in {NAMES.get(op.name, op.name) for op in Op}
    }


EMPTY = {"type": "fixed", "name": "F", "size": 0}


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        ("int", []),
        (entries("MapEntry", "long", {"type": "map", "values": ["null", "string", "bytes"]}), []),
        ({"type": "array", "items": EMPTY}, ["its lists have items without bytes"]),
        ({"type": "array", "items": record("R", f=EMPTY)}, ["its lists have items without bytes"]),
        ({"type": "map", "values": EMPTY}, []),
        (logical("string", MOMENT), ["its values have timestamps as text"]),
    ],
)
def test_what_has_no_program_says_why(kind: Json, found: list[str]) -> None:
    versions = [Schema(7, json.dumps(record("T", f=kind)))]
    columns = first_columns(versions, "it")
    assert reasons(decoding(columns, versions), columns) == found


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("JSON", '{"type": "object", "properties": {"f": {"type": "integer"}}}'),
        ("PROTOBUF", 'syntax = "proto3"; message M { int32 f = 1; }'),
    ],
)
def test_keys_of_every_format_and_plain_values_are_columnar(kind: str, text: str) -> None:
    versions, top = [Schema(7, text, kind)], Top(column="key")
    columns = first_columns(versions, "it", top)
    key = decoding(columns, versions, top=top)
    plain = DecodePlan((PlainWriter(0, b"", "v", text=True),), wire=BARE, key=key)
    assert reasons(plain, struct(field("v", "string"), *columns["fields"])) == []
