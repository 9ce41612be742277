"""Why a record does not match its schema: a sentence for what the engines refuse, none for what they take, and never a value."""

from __future__ import annotations

import json
import re
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from calve.decoding.decode_plan import DecodePlan, decoding, first_columns
from calve.decoding.formats import FIELDS, Top
from calve.errors import CalveError
from calve.schema.wire import BARE, CONFLUENT, Schema
from cli.verify.formats.decoding import Values
from glue_jobs.columns.arrow_types import arrow_type
from glue_jobs.decode.explaining.explanation import MOST_EXPLAINED, Explainer
from glue_jobs.engines.columnar.decoder import Decoder
from tests.avro_cases import CASES
from tests.columnar import records_of
from tests.debezium import json_around
from tests.integration.support.records.json_records import EVERY_TYPE, REFUSED, ROWS
from tests.judged import judged
from tests.protobuf_classes import message_class
from tests.random_avro import Schemas, mutated, zigzag
from tests.random_avro import Values as AvroValues
from tests.random_formats import fill_message, json_schema, json_text, protobuf_schema
from tests.random_schemas import Field, Steps
from tests.unit.glue_jobs.decode.test_protobuf_messages import PROTO2, SCHEMA, _damaged, _message

FRAME = CONFLUENT.frame(7)
SECRET = "sEcReT"
STEP = r"(?:[a-z_][A-Za-z0-9_]*|\(a field without a column\)|\(field [0-9]+\))(?:\[(?:[0-9]+|key|value)\])*"
SENTENCE = re.compile(rf"(?:the value|the key|{STEP}(?:\.{STEP})*): expected [^:]+, found ((?:':'|[^:])+)")
FOUND = re.compile(
    "the end of the (?:value|message)|(?:a length|a number) beyond .*|a (?:length|number) that is .*|a greater length"
    "|more(?: digits)?|no digits|[0-9,]+ more bytes?|another (?:text|string)|other (?:bytes|nanos)|nothing|null"
    "|a number of more than [0-9]+ bytes|a number(?: with .*)?|a boolean|an object(?: without it)?|a list|no JSON value"
    "|a string(?: (?:that|with) .*)?|a key that is there twice|a varint|a field (?:of [48] bytes|with a length)"
    "|a number that begins none|bytes left over|seconds out of this range|year, month and day that are no date"
    "|the message [A-Za-z0-9_.]+"
    r"|an error at character [0-9,]+ \((?:Extra data|Unexpected UTF-8 BOM \(decode using utf-8-sig\)"
    r"|Unterminated string starting at|Illegal trailing comma before end of (?:object|array)"
    r"|Invalid (?:\\escape|\\uXXXX escape|control character at)"
    r"|Expecting (?:value|'[,:]' delimiter|property name enclosed in double quotes))\)"
)
"""All that is ever said to be found: kinds, and nothing of a value."""


def made(text: Any, kind: str = "AVRO", top: Top = FIELDS) -> DecodePlan:
    schema = Schema(7, text if isinstance(text, str) else json.dumps(text), kind)
    columns = first_columns([schema], "it", top)
    return decoding(columns, [schema], top=top)


def why(found: DecodePlan, value: bytes, reason: str = "malformed") -> str | None:
    """The sentence, once it was looked at that it has nothing of the value."""
    sentence = Explainer(found).explain(reason, value)
    if sentence is not None:
        match = SENTENCE.fullmatch(sentence)
        assert match, sentence
        assert FOUND.fullmatch(match[1]), sentence
        assert SECRET not in sentence
    return sentence


def record(**fields: Any) -> Any:
    return {"type": "record", "name": "R", "fields": [{"name": n, "type": t} for n, t in fields.items()]}


LINES = {"type": "array", "items": record(price="double") | {"name": "Line"}}
ORDER = record(id="long", lines=LINES, m={"type": "map", "values": "int"})


@pytest.mark.parametrize(
    ("payload", "sentence"),
    [
        (b"\x02\x02" + bytes(4), "lines[0].price: expected a double, found the end of the value"),
        (b"\x02\x04" + bytes(8), "lines[1].price: expected a double, found the end of the value"),
        (b"\x02\x00\x02\x02k", "m[key]: expected an int, found the end of the value"),
        (b"\x02\x00\x02\x01k", "m[key]: expected a string, found a length that is negative"),
        (b"\x02\x00\x00\x00", "the value: expected the end, found 1 more byte"),
        (b"", "id: expected a long, found the end of the value"),
        (b"\xff" * 11, "id: expected a long, found a number of more than 10 bytes"),
        (b"\x02\x00\x00", None),
    ],
)
def test_avro_says_where_the_bytes_end_or_lead_nowhere(payload: bytes, sentence: str | None) -> None:
    assert why(made(ORDER), FRAME + payload) == sentence


def test_what_avro_readers_differ_about_is_explained_as_the_engines_judge_it() -> None:
    for kind, values, _ in CASES:
        found = made(record(v=kind))
        columns = first_columns([Schema(7, json.dumps(record(v=kind)))], "it")
        framed = [FRAME + each for each in values if len(each) < 100_000]
        good = set(Decoder(found, columns).decode(records_of(framed)).good.tolist())
        for place, each in enumerate(framed):
            assert (why(found, each) is None) == (place in good), (kind, each[:20])


def test_random_avro_is_explained_where_the_engine_refuses_it_and_nowhere_else() -> None:
    random, counts = Random(5), [0, 0]
    for _ in range(12):
        schema = Schemas(random).record()
        try:
            found, columns = made(schema), first_columns([Schema(7, json.dumps(schema))], "it")
        except CalveError:
            continue
        if not found.writers:
            continue
        whole = [AvroValues(random).of(schema) for _ in range(20)]
        values = [FRAME + mutated(random.choice(whole), random) for _ in range(200)]
        good = set(Decoder(found, columns).decode(records_of(values)).good.tolist())
        for place, each in enumerate(values):
            assert (why(found, each) is None) == (place in good), each.hex()
            counts[place in good] += 1
    assert min(counts) > 100, counts


NO_JSON = "the value: expected JSON, found an error at character"
JSON_ORDER = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "lines": {"type": "array", "items": {"type": "object", "properties": {"price": {"type": "number"}}}},
        "tags": {"type": "object", "additionalProperties": {"type": "boolean"}},
        "at": {"type": "string", "format": "date-time"},
    },
}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('{"lines":[{},{"price":"sEcReT"}]}', "lines[1].price: expected a double, found a string"),
        ('{"id":12.5}', "id: expected a whole number, found a number with a fraction"),
        ('{"id":1e5}', "id: expected a whole number, found a number with an exponent"),
        (
            '{"id":9223372036854775808}',
            "id: expected a whole number of 64 bits, found a number beyond it",
        ),
        ('{"tags":{"sEcReT":1}}', "tags[key]: expected a boolean, found a number"),
        (
            '{"tags":{"sEcReT":true,"sEcReT":true}}',
            "tags: expected each key once, found a key that is there twice",
        ),
        ('{"at":"sEcReT"}', "at: expected a date-time, found another string"),
        ('{"lines":[{"price":1}', f"{NO_JSON} 22 (Expecting ',' delimiter)"),
        ('{"lines":{}}', "lines: expected a list, found an object"),
        ('{"sEcReT":[1 2]}', f"{NO_JSON} 14 (Expecting ',' delimiter)"),
        ("null", "the value: expected an object, found null"),
        ("[]", "the value: expected an object, found a list"),
        ("", f"{NO_JSON} 1 (Expecting value)"),
        ('{"id":1} x', f"{NO_JSON} 10 (Extra data)"),
        ('{"id":1,x}', f"{NO_JSON} 9 (Expecting property name enclosed in double quotes)"),
        ('{"id":tru}', f"{NO_JSON} 7 (Expecting value)"),
        ('{"zz":"sEcReT\\y"}', f"{NO_JSON} 14 (Invalid \\escape)"),
        ('{"zz":"sEcReT', f"{NO_JSON} 7 (Unterminated string starting at)"),
        ('{"at":"\\udead"}', "at: expected a string, found a string with half of a surrogate pair"),
        (
            '{"zz":[{"\\ud800":1}]}',
            "the value: expected a string, found a string with half of a surrogate pair",
        ),
        ('{"zz":{"a":[1,{"b":[]}],"c":{}},"id":null}', None),
    ],
)
def test_json_says_the_path_the_type_and_the_kind_of_what_is_there(text: str, sentence: str | None) -> None:
    assert why(made(JSON_ORDER, "JSON"), FRAME + text.encode()) == sentence


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('"NaN"', None),
        ('"-Infinity"', None),
        ("1.5", None),
        ('"sEcReT"', "after.price: expected a double, found another string"),
        ("NaN", "after.price: expected a double, found no JSON value"),
        ("1e999", "after.price: expected a double, found a number beyond it"),
    ],
)
def test_texts_that_are_numbers_of_a_database_are_explained_as_none(text: str, sentence: str | None) -> None:
    row = {"type": "object", "properties": {"price": {"type": "number"}}}
    found = made(json_around(row), "JSON", Top(changes=True))
    assert why(found, FRAME + f'{{"op":"c","after":{{"price":{text}}}}}'.encode()) == sentence


def test_what_json_engines_take_has_no_explanation_and_what_they_refuse_has_one() -> None:
    found = made(EVERY_TYPE, "JSON")
    for text, _ in ROWS:
        assert why(found, FRAME + text.encode()) is None, text
    unexplained = [each for each in REFUSED if why(found, FRAME + raw(each)) is None]
    assert len(unexplained) == 4, (
        unexplained
    )  # numbers that are too great, and members that are there twice, in JSON of any form


def raw(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode()


def test_random_json_is_explained_where_verification_refuses_it_and_nowhere_else() -> None:
    random, counts = Random(3), [0, 0]
    for _ in range(20):
        steps = Steps(random)
        fields = steps.first()
        schema = Schema(7, json.dumps(json_schema(fields)), "JSON")
        found = decoding(columns := first_columns([schema], "it"), [schema])
        theirs = Values(
            pa.schema([(n["name"], arrow_type(n["type"])) for n in columns["fields"]]), {7: schema}.get
        )
        for _ in range(40):
            value = FRAME + changed(json_text(steps.row(fields)), random)
            verdict, sentence = theirs.verdict(value), why(found, value)
            assert verdict is not None or sentence is None, (value, sentence)
            counts[sentence is not None] += 1
            assert verdict != "malformed" or sentence is not None, value
    assert min(counts) > 100, counts


def changed(text: bytes, random: Random) -> bytes:
    """The text as it is, or with a value of another kind, or with bytes that are lost or changed."""
    match random.randrange(4):
        case 0:
            return text
        case 1:
            return mutated(text, random)
    others = ["null", "true", "1.5", "[]", "{}", f'"{SECRET}"', "9" * 30, f'{{"{SECRET}":{SECRET!r}}}']
    places = [each.end() for each in re.finditer(rb'":\s*', text)]
    place = random.choice(places)
    return text[:place] + random.choice(others).encode() + b"," + text[place:]


@pytest.mark.parametrize(
    ("payload", "sentence"),
    [
        (b"\x0a\x05a", "id: expected a string, found the end of the message"),
        (b"\x12\x02\x09\xff", "lines[0].price: expected a double, found the end of the message"),
        (b"\x12\x00\x12\x02\x08\x01", "lines[1].price: expected a double, found a varint"),
        (b"\x0a\x01\xff", "id: expected a string in UTF-8, found other bytes"),
        (b"\x1a\x05\x0a\x01k\x10\x80", "tags[value]: expected an int32, found the end of the message"),
        (b"\x22\x02\x10\x01", "at: expected a Timestamp with whole microseconds, found other nanos"),
        (b"\x07", "the value: expected a field, found a number that begins none"),
        (b"\x4a\x05", "(field 9): expected a field, found the end of the message"),
        (b"\x12\x00\x0a\x01a", None),
    ],
)
def test_protobuf_says_the_field_and_what_is_there(payload: bytes, sentence: str | None) -> None:
    text = """syntax = "proto3"; import "google/protobuf/timestamp.proto";
        message Order { string id = 1; repeated Line lines = 2; map<string, int32> tags = 3; google.protobuf.Timestamp at = 4; }
        message Line { double price = 1; }"""
    assert why(made(text, "PROTOBUF"), FRAME + b"\x00" + payload) == sentence


def test_another_message_of_the_file_is_named() -> None:
    text = 'syntax = "proto3"; package shop; message Header { string a = 1; } message Order { string b = 1; message In {} }'
    found = made(text, "PROTOBUF")
    sentence = "the value: expected the message shop.Header, found the message shop.Order"
    assert why(found, FRAME + b"\x02\x02", "incompatible_schema") == sentence
    inside = why(found, FRAME + b"\x04\x02\x00", "incompatible_schema")
    assert inside == "the value: expected the message shop.Header, found the message shop.Order.In"
    assert why(found, FRAME + b"\x0a", "incompatible_schema") is None


@pytest.mark.parametrize("text", [SCHEMA, PROTO2])
def test_random_messages_are_explained_where_the_engine_refuses_them_and_nowhere_else(text: str) -> None:
    random, kind, found = Random(2), message_class(text, "Top"), made(text, "PROTOBUF")
    whole = [_message(kind, random) for _ in range(60)]
    whole += [whole[n] + whole[-n] for n in range(10)]
    agreed(found, [*whole, *(_damaged(each, random) for each in whole * 3)])


def test_messages_of_random_schemas_too() -> None:
    random = Random(4)
    for _ in range(5):
        steps = Steps(random, collections=False)
        fields = steps.first()
        kind, found = message_class(protobuf_schema(fields), "Top"), made(protobuf_schema(fields), "PROTOBUF")
        whole = [filled(kind, fields, steps.row(fields)) for _ in range(20)]
        agreed(found, [*whole, *(_damaged(each, random) for each in whole)])


def filled(kind: Any, fields: tuple[Field, ...], row: dict[str, Any]) -> bytes:
    message = kind()
    fill_message(message, fields, row)
    return bytes(message.SerializeToString())


def agreed(found: DecodePlan, payloads: list[bytes]) -> None:
    (writer,) = found.writers
    values = [writer.prefix + each for each in payloads]
    rows = judged(found, pa.array(values, pa.binary())).to_pylist()
    for value, row in zip(values, rows, strict=True):
        assert (why(found, value) is None) == (row["reason"] is None), value.hex()


def test_a_flood_and_a_huge_value_are_bounded_and_nothing_is_raised() -> None:
    found = made(JSON_ORDER, "JSON")
    explainer = Explainer(found)
    for _ in range(MOST_EXPLAINED):
        assert explainer.explain("malformed", FRAME + b"[]")
    assert explainer.explain("malformed", FRAME + b"[]") is None
    deep = FRAME + b'{"zz":' + b"[" * 400_000
    assert why(found, deep) == "the value: expected at most 998 levels, found more"
    levels = b'{"zz":' + b'{"a":' * 997 + b"1" + b"}" * 997 + b',"id":"x"}'
    assert why(found, FRAME + levels) == "id: expected a whole number, found a string"
    assert why(found, FRAME + b'{"zz":[' + b"1," * 400_000) is None
    assert why(found, FRAME + b'""' * 9_000_000) is None
    flags = made(record(v={"type": "array", "items": ["null", "int"]}))
    assert why(flags, FRAME + zigzag(300_000) + bytes(300_000) + b"\xff") is None
    assert why(found, FRAME + b'{"id":' + b"9" * 5_000_000) is not None


def test_keys_and_texts_are_explained_as_what_they_are() -> None:
    key = made('"long"', top=Top("key"))
    found = DecodePlan((), key=key)
    assert why(found, FRAME + b"\xff", "key_malformed") == "key: expected a long, found the end of the value"
    strings = Schema(0, "", "STRING")
    text = decoding(first_columns([strings], "it"), [strings], wire=BARE)
    assert why(text, b"\xff") == "the value: expected a text in UTF-8, found other bytes"
