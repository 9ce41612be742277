"""`calve capture`: what it asks for, and its folder."""

from __future__ import annotations

import json
import re
import zlib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from calve.config.job import Source, Table
from calve.config.steps import Sql
from calve.decoding.record_schemas import record_schemas_of
from calve.errors import ConfigError
from calve.schema.wire import Schema
from cli.main import app
from cli.project.capture.command import parsed, put
from cli.project.capture.folder import ABOUT, Answers, Capture, Record, Recorded
from cli.project.capture.masking import Masking, named

SCHEMAS = {
    7: Schema(7, '{"type": "string"}', "AVRO", {"other": "x"}),
    8: Schema(8, 'syntax = "proto3";\r\n', "PROTOBUF"),
    9: None,
}
ANSWERS = Answers(
    "confluent", SCHEMAS, {"a-value": [7, 8]}, ["a-value"], {7: ["a-value"]}, {"alias": "a-value"}, {}
)
CAPTURE = Capture(
    "orders", "a", "2026-11-30T00:00:00+00:00", ("status",), {"calve.fields": "x"}, ("1 row",),
    (Record(0, 5, 1, 0, b"key", b"\x00\xff", (("h", None), ("i", "é\n".encode()))),), ANSWERS,
)  # fmt: skip


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["5"], '"5" is no range'),
        (["1:9-3"], "ends before it begins"),
        (["1:1", "1:7-8"], "partition 1 twice"),
        (["0:0-9999", "1:0"], "10,001 offsets"),
    ],
)
def test_offsets_that_are_none(words: list[str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        parsed(words)


def test_offsets_of_several_partitions() -> None:
    assert parsed(["2:1800-1850", " 0:77 "]) == {2: (1800, 1851), 0: (77, 78)}


def test_a_capture_comes_back_as_it_was(tmp_path: Path) -> None:
    put(CAPTURE, tmp_path / "deep" / "late")
    assert Capture.read(tmp_path / "deep" / "late") == CAPTURE
    assert [each.name for each in (tmp_path / "deep").iterdir()] == ["late"]
    schemas = tmp_path / "deep" / "late" / "schemas"
    assert {each.name for each in schemas.iterdir()} == {"7.avsc", "8.proto"}


def test_a_capture_that_cannot_be_written_leaves_no_folder(tmp_path: Path) -> None:
    broken = replace(CAPTURE, records=(replace(CAPTURE.records[0], key="no bytes"),))  # type: ignore[arg-type]
    with pytest.raises(AttributeError):
        put(broken, tmp_path / "late")
    assert list(tmp_path.iterdir()) == []


@given(st.binary() | st.text().map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_every_byte_of_a_record_comes_back(data: bytes) -> None:
    record = Record(3, 2**62, -(2**62), 1, data, None, (("", data),), "bad_timestamp")
    assert Record.of_line(record.line) == record
    assert "\n" not in record.line


def test_the_recorded_registry_answers_as_the_real_one_did() -> None:
    registry = Recorded(ANSWERS)
    assert [each.id for each in registry.versions("a-value")] == [7, 8]
    assert registry.by_id(9) is None
    assert registry.real_name("alias") == "a-value"
    assert registry.default_subject("new") == "new-value"
    with pytest.raises(ConfigError, match="does not hold the subject b"):
        registry.versions("b")


def test_a_folder_that_is_no_capture(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no capture"):
        Capture.read(tmp_path)
    CAPTURE.write(tmp_path / "late")
    about = tmp_path / "late" / ABOUT
    about.write_text(json.dumps(json.loads(about.read_text()) | {"format": 2}))
    with pytest.raises(ConfigError, match="another release"):
        Capture.read(tmp_path / "late")


def test_mistakes_are_named_before_anything_starts(tmp_path: Path) -> None:
    file = tmp_path / "calve.yaml"
    table = "tables: {a: {topic: a, value: {format: string}}}"
    file.write_text("name: x\nkafka: {bootstrap_servers: 'h:9092'}\nlake: {bucket: lakes}\n" + table)
    (tmp_path / "there").mkdir()
    for words, why in (
        (["capture", "a", "--offsets", "0:1", "--into", str(tmp_path / "there")], "exists"),
        (["preview", "a", "--capture", str(tmp_path / "there")], "holds no capture"),
        (["capture", "b", "--offsets", "0:1", "--into", str(tmp_path / "new")], 'no table "b"'),
    ):
        done = CliRunner().invoke(app, [*words, "--config", str(file)])
        assert isinstance(done.exception, ConfigError)
        assert why in str(done.exception)


PERSON = Schema(
    0x0123456789ABCDEF0123456789ABCDEF,
    '{"type": "record", "name": "P", "fields": [{"name": "name", "type": "string"}]}',
    guid=None,
)


NUMBERED = replace(PERSON, text=PERSON.text.replace("[{", '[{"name": "n", "type": "long"}, {'))


def masking_of(wire: str, schema: Schema, value: Source | None = None) -> Masking:
    answers = Answers(
        wire, {schema.id: schema}, {"topic-value": [schema.id], "topic": [schema.id]}, default_subjects={}
    )
    table = Table("people", "topic", value=value or Source())
    return Masking(table, record_schemas_of(table, Recorded(answers)))


@pytest.mark.parametrize("compressed", [False, True])
def test_values_of_a_glue_registry(compressed: bool) -> None:
    payload = b"\x18Ada Lovelace"
    frame = (b"\x03\x05" if compressed else b"\x03\x00") + PERSON.id.to_bytes(16, "big")
    masked = masking_of("glue", PERSON).value(frame + (zlib.compress(payload) if compressed else payload), ())
    assert masked is not None
    assert masked.startswith(frame)
    found = zlib.decompress(masked[18:]) if compressed else masked[18:]
    assert re.fullmatch(rb"\x18[A-Z][a-z]{2} [A-Z][a-z]{7}", found)
    assert found != payload


def test_a_payload_that_cannot_be_inflated_is_masked() -> None:
    frame = b"\x03\x05" + PERSON.id.to_bytes(16, "big")
    masked = masking_of("glue", PERSON).value(frame + b"Ada Lovelace", ()) or b""
    assert masked.startswith(frame)
    assert b"Ada" not in masked


@pytest.mark.parametrize("header", [b"\x00\x00\x00\x00\x07", b"\x01" + bytes(15) + b"\x09"])
def test_a_value_whose_header_names_its_schema(header: bytes) -> None:
    masking = masking_of("confluent", replace(PERSON, id=7, guid=None if header[:1] == b"\x00" else 9))
    headers = (("__value_schema_id", header), ("who", b"Ada"), ("content-type", b"avro/binary"))
    number = 7 if header[:1] == b"\x00" else 9
    assert named(b"\x06Ada", masking.schemas.value, headers) == number
    masked = masking.value(b"\x06Ada", headers)
    assert masked is not None
    assert re.fullmatch(rb"\x06[A-Z][a-z]{2}", masked)
    like_a_frame = masking_of("confluent", replace(NUMBERED, id=7, guid=9)).value(
        b"\x00\x18Ada Lovelace", headers
    )
    assert like_a_frame is not None
    assert re.fullmatch(rb"\x00\x18[A-Z][a-z]{2} [A-Z][a-z]{7}", like_a_frame)
    assert b"Ada" not in like_a_frame
    kept = dict(masking.headers(headers))
    assert kept["__value_schema_id"] == header
    assert kept["content-type"] == b"avro/binary"
    assert kept["who"] != b"Ada"


def test_a_message_that_the_file_does_not_have_is_masked() -> None:
    schema = Schema(7, 'syntax = "proto3"; message Person { string name = 1; }', "PROTOBUF")
    masking = masking_of("confluent", schema)
    known, unknown = (
        masking.value(b"\x00\x00\x00\x00\x07" + each + b"\x0a\x03Ada", ()) or b""
        for each in (b"\x00", b"\x02\x0c")
    )
    assert re.fullmatch(rb"\x00{4}\x07\x00\x0a\x03[A-Z][a-z]{2}", known)
    assert unknown.startswith(b"\x00\x00\x00\x00\x07")
    assert b"Ada" not in known + unknown


def test_an_event_in_structured_mode_keeps_what_it_is_and_not_what_it_is_about() -> None:
    schema = '{"type": "object", "properties": {"name": {"type": "string"}}}'
    masking = masking_of("confluent", PERSON, Source(format="json", schema=schema, cloudevents="event"))
    event = {
        "specversion": "1.0",
        "type": "org.shop.person",
        "source": "/shop",
        "id": "Ada",
        "data": {"name": "Ada"},
    }
    found = json.loads(masking.value(json.dumps(event).encode(), ()) or b"")
    assert [name for name, value in event.items() if found[name] == value] == [
        "specversion",
        "type",
        "source",
    ]
    assert found["id"] == found["data"]["name"]


def test_what_calve_yaml_contains_is_no_data() -> None:
    schema = '{"type": "object", "properties": {"state": {"type": "string"}, "more": {"type": "string"}}}'
    masking = masking_of("confluent", PERSON, Source(format="json", schema=schema))
    query = "SELECT get_json_object(more, '$.city') AS city FROM source WHERE state = 'it''s paid'"
    masking = replace(masking, table=replace(masking.table, steps=(Sql(query),)))
    value = {"state": "it's paid", "more": '{"city": "London", "street": "Savile Row"}'}
    found = json.loads(masking.value(json.dumps(value).encode(), ()) or b"")
    assert found["state"] == "it's paid"
    assert next(iter(json.loads(found["more"]))) == "city"
    assert not {"street", "London", "Savile Row"} & {
        *json.loads(found["more"]),
        *json.loads(found["more"]).values(),
    }


def test_a_table_that_looks_up_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "calve.yaml"
    steps = "steps: [{lookup: {table: b, on: {value: id}, columns: {name: name}}}]"
    tables = f"tables: {{b: {{topic: b, value: {{format: string}}}}, a: {{topic: a, value: {{format: string}}, {steps}}}}}"
    file.write_text("name: x\nkafka: {bootstrap_servers: 'h:9092'}\nlake: {bucket: lakes}\n" + tables)
    done = CliRunner().invoke(
        app, ["capture", "a", "--offsets", "0:1", "--config", str(file), "--into", str(tmp_path / "n")]
    )
    assert isinstance(done.exception, ConfigError)
    assert "looks up rows of b" in str(done.exception)
