import json
from dataclasses import replace
from typing import Any

import pytest

from calve.decoding.decode_plan import decoding, evolution, first_columns
from calve.decoding.formats import REGISTERED, columns
from calve.errors import Suspended
from calve.schema.avro_reader import Value
from calve.schema.evolution import SchemaProblem, data_columns
from calve.schema.wire import GLUE, Schema
from calve.schema.writers import AvroWriter, JsonWriter


def schema(number: int, *fields: tuple[str, Any], kind: str = "AVRO") -> Schema:
    named = [{"name": name, "type": each} for name, each in fields]
    return Schema(number, json.dumps({"type": "record", "name": "R", "fields": named}), kind)


FIRST = schema(1, ("a", "int"))
WIDER = schema(2, ("a", "int"), ("b", ["null", "string"]))
CLASHING = schema(3, ("a", "string"))


def test_a_table_grows_with_each_later_version() -> None:
    [(version, changes)] = evolution(first_columns([FIRST], "t-value"), [FIRST, WIDER])
    assert (version.id, [change.path for change in changes]) == (2, ["b"])


def test_a_new_table_is_made_with_the_columns_of_all_versions_that_fit() -> None:
    columns = first_columns([FIRST, WIDER, CLASHING], "t-value")
    assert [(each["name"], each["type"]) for each in columns["fields"]] == [("a", "int"), ("b", "string")]
    assert evolution(columns, [FIRST, WIDER, CLASHING]) == []


def test_a_renamed_column_is_filled_by_both_names() -> None:
    renamed = {"type": "record", "name": "R", "fields": [{"name": "z", "aliases": ["a"], "type": "int"}]}
    versions = [FIRST, Schema(2, json.dumps(renamed))]
    columns = first_columns(versions, "t-value")
    assert [each["name"] for each in columns["fields"]] == ["z"]
    found = decoding(columns, versions)
    avro = [each for each in found.writers if isinstance(each, AvroWriter)]
    assert [each.value.parts for each in avro] == [(("z", Value("int", "int")),)] * 2


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


def test_a_schema_of_another_format_makes_no_table() -> None:
    with pytest.raises(Suspended, match="is THRIFT") as caught:
        first_columns([schema(1, ("a", "int"), kind="THRIFT")], "t-value")
    assert caught.value.code == "schema_unsupported"


def test_field_ids_and_the_system_column_are_no_data() -> None:
    field = {"id": 4, "name": "a", "required": False, "type": "int", "doc": "the a"}
    table = {"type": "struct", "schema-id": 0, "fields": [field, field | {"id": 5, "name": "_kafka"}]}
    assert data_columns(table) == {
        "type": "struct",
        "fields": [{"name": "a", "required": False, "type": "int", "doc": "the a"}],
    }


def test_versions_of_several_formats_become_one_table() -> None:
    written = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}}
    as_json = Schema(2, json.dumps(written), "JSON")
    table = first_columns([WIDER, as_json], "t-value")
    assert table["fields"][0]["type"] == "long"
    assert evolution(table, [WIDER, as_json]) == []
    assert [type(each) for each in decoding(table, [WIDER, as_json]).writers] == [AvroWriter, JsonWriter]


@pytest.mark.parametrize("text", ["{", '{"type": "array"}', '{"type": "record", "fields": []}', "[[1]]", "7"])
def test_text_that_is_no_schema_of_its_format_is_a_problem(text: str) -> None:
    for kind in REGISTERED:
        with pytest.raises(SchemaProblem):
            columns(Schema(1, text, kind))


def test_foreign_schemas_of_a_shared_topic_are_other_tables_and_ours_never_are() -> None:
    columns = first_columns([FIRST], "t-value")
    strange = [schema(9, ("x", "int")), FIRST]
    found = decoding(columns, [FIRST, CLASHING], foreign=strange, shared=True)
    assert (found.incompatible, found.others, found.other_ids) == ((3,), (b"\x00\x00\x00\x00\x09",), (9,))
    assert found.ids == {1, 3, 9}
    assert decoding(columns, [FIRST], foreign=strange).others == ()


def test_values_of_glue_begin_with_either_header_and_their_versions_have_numbers() -> None:
    columns = first_columns([FIRST], "t")
    version = replace(FIRST, id=2**100, version=4)
    found = decoding(columns, [version], foreign=[replace(WIDER, id=2**90)], wire=GLUE, shared=True)
    assert [each.prefix for each in found.writers] == [GLUE.frame(2**100)]
    assert found.others == GLUE.frames(2**90)
    assert (found.other_ids, found.numbers) == ((2**90,), {2**100: 4})
