import json
from typing import Any

import pytest

from calve.decoding import data_columns, decoding, evolution, first_columns
from calve.errors import Suspended
from calve.registry import Schema


def schema(number: int, *fields: tuple[str, Any], kind: str = "AVRO") -> Schema:
    named = [{"name": name, "type": each} for name, each in fields]
    return Schema(number, json.dumps({"type": "record", "name": "R", "fields": named}), kind)


FIRST = schema(1, ("a", "int"))
WIDER = schema(2, ("a", "int"), ("b", ["null", "string"]))
CLASHING = schema(3, ("a", "string"))


def test_a_new_table_begins_with_the_first_version_and_grows_with_each_later_one() -> None:
    columns = first_columns([FIRST, WIDER], "t-value")
    [(version, changes)] = evolution(columns, [FIRST, WIDER])
    assert (version.id, [change.path for change in changes]) == (2, ["b"])


def test_a_version_that_does_not_fit_changes_nothing() -> None:
    assert evolution(first_columns([FIRST], "t-value"), [FIRST, CLASHING]) == []


def test_every_version_that_fits_is_decoded_and_every_other_is_incompatible() -> None:
    columns = first_columns([WIDER], "t-value")
    found = decoding(columns, [FIRST, WIDER, CLASHING], foreign=[schema(9, ("x", "int"))])
    assert [writer.id for writer in found.writers] == [1, 2]
    assert sorted(found.incompatible) == [3, 9]
    assert found.ids == {1, 2, 3, 9}


def test_a_column_that_a_user_has_dropped_makes_its_writers_incompatible_rather_than_lossy() -> None:
    columns = first_columns([FIRST], "t-value")
    assert decoding(columns, [FIRST, WIDER]).incompatible == (2,)


def test_a_schema_that_is_not_avro_makes_no_table() -> None:
    with pytest.raises(Suspended, match="is PROTOBUF") as caught:
        first_columns([schema(1, ("a", "int"), kind="PROTOBUF")], "t-value")
    assert caught.value.code == "schema_unsupported"


def test_field_ids_and_the_system_column_are_no_data() -> None:
    field = {"id": 4, "name": "a", "required": False, "type": "int", "doc": "the a"}
    table = {"type": "struct", "schema-id": 0, "fields": [field, field | {"id": 5, "name": "_kafka"}]}
    assert data_columns(table) == {
        "type": "struct",
        "fields": [{"name": "a", "required": False, "type": "int", "doc": "the a"}],
    }
