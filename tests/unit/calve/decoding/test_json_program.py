"""Programs for JSON are numbers that the machine knows, and what has none says why."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calve.config.engine_choice import Unsupported
from calve.decoding.avro_program import reasons
from calve.decoding.decode_plan import decoding, first_columns
from calve.decoding.formats import Top
from calve.decoding.json_program import FIELD_WIDTH, Kind, json_program, slot, slots
from calve.schema.columns import Json
from calve.schema.wire import BARE, Schema
from calve.schema.writers import JsonWriter
from glue_jobs.decode.machines import json_machine


def test_the_machine_s_nodes_are_those_of_programs() -> None:
    names = {kind.name for kind in Kind}
    assert {kind.name: kind.value for kind in Kind} == {
        name: value for name, value in vars(json_machine).items() if name in names
    }
    assert json_machine.FIELD_WIDTH == FIELD_WIDTH


def writer(properties: Json, top: Top) -> tuple[JsonWriter, Json]:
    version = Schema(7, json.dumps({"type": "object", "properties": properties}), "JSON")
    columns = first_columns([version], "it", top)
    [found] = decoding(columns, [version], wire=BARE, top=top).writers
    assert isinstance(found, JsonWriter)
    return found, columns


@pytest.mark.parametrize(
    ("properties", "top", "why"),
    [
        ({"f": {}}, Top(), "its values have JSON of any form"),
        (
            {"f": {"type": "array", "items": {"oneOf": [{"type": "string"}, {"type": "integer"}]}}},
            Top(),
            "its values have JSON of any form",
        ),
        ({"f": {"type": "integer"}}, Top(rest="more"), "its values keep what their schema does not declare"),
        (
            {"f": {"type": "string", "title": "io.debezium.time.ZonedTimestamp"}},
            Top(changes=True),
            "its values have types of Debezium",
        ),
    ],
)
def test_what_has_no_program_says_why(properties: Json, top: Top, why: str) -> None:
    if top.changes:
        properties = {"after": {"type": "object", "properties": properties}, "op": {"type": "string"}}
    found, columns = writer(properties, top)
    with pytest.raises(Unsupported, match=why):
        json_program(found, columns)


def test_registered_schemas_have_programs() -> None:
    version = Schema(7, json.dumps({"type": "object", "properties": {"f": {"type": "integer"}}}), "JSON")
    columns = first_columns([version], "it")
    assert reasons(decoding(columns, [version]), columns) == []


@given(st.lists(st.binary(min_size=1, max_size=24), unique=True, max_size=40))
def test_every_name_is_in_the_slots_after_its_own(names: list[bytes]) -> None:
    size, *held = slots(names)
    assert len(held) == size > len(names)
    for number, name in enumerate(names):
        place = slot(name, size)
        while held[place] != number + 1:
            assert held[place] != 0
            place = (place + 1) % size
