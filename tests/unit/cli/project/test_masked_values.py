"""What `calve capture` makes of values: nothing of them is left, and readers see the same form."""

from __future__ import annotations

import io
import json
import math
import re
import struct
from datetime import date
from json import JSONDecodeError
from random import Random
from typing import Any

import fastavro
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from calve.schema.avro import expand
from calve.schema.protobuf.files import load, messages
from calve.schema.wire import Schema, varint_of
from cli.project.capture.binary import avro, protobuf
from cli.project.capture.pseudonyms import LONG, Pseudonyms
from cli.verify.formats.fields import timestamp_us
from tests import random_avro, random_protobuf
from tests.protobuf_classes import message_class

HIDE = Pseudonyms(secret=b"the same for every run of a test")
ALL = Pseudonyms([("*",)], secret=HIDE.secret)


@given(
    st.text(st.characters(codec="utf-8"), max_size=60).filter(
        lambda text: text.lstrip()[:1] not in ("{", "[")
    )
)
def test_a_text_keeps_its_length_in_bytes_and_the_kind_of_its_characters(text: str) -> None:
    masked = HIDE.text(text)
    assert len(masked.encode()) == len(text.encode())
    assert HIDE.text(text) == masked
    kept = [(a, b) for a, b in zip(text, masked, strict=True) if a.isascii() and not a.isalnum()]
    assert all(a == b for a, b in kept)


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("Ada Lovelace", r"[A-Z][a-z]{2} [A-Z][a-z]{7}"),
        ("ada@example.org", r"[a-z]{3}@[a-z]{7}\.[a-z]{3}"),
        ("+44 20 7946", r"\+[1-9]\d [1-9]\d [1-9]\d{3}"),
        ("1e-07", r"[1-9]e-07"),
        ("0", "0"),
        ("Зоя", "é{3}"),
    ],
)
def test_the_form_of_a_text_stays_and_the_text_does_not(text: str, form: str) -> None:
    assert re.fullmatch(form, HIDE.text(text))
    assert text in ("0",) or HIDE.text(text) != text


def test_dates_times_and_ids_stay_valid_and_what_is_no_date_does_not_become_one() -> None:
    for n in range(200):
        hide = Pseudonyms(secret=bytes([n]))
        timestamp_us(hide.text("2024-02-29T23:59:59.123+02:00"))
        timestamp_us(hide.text("2024-02-29T23:59:59Z"))
        assert re.fullmatch(
            r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", hide.text("6f9619ff-8b86-d011-b42d-00cf4fc964ff")
        )
    assert date.fromisoformat(HIDE.text("1815-12-10")) != date(1815, 12, 10)
    assert HIDE.text("2024-02-30") != "2024-02-30"


@given(st.integers(-(2**63), 2**63 - 1))
def test_a_number_keeps_its_sign_and_its_size(number: int) -> None:
    masked = HIDE.integer(number)
    assert -(2**63) <= masked <= LONG
    assert (masked > 0) - (masked < 0) == (number > 0) - (number < 0)
    assert abs(number) > 2**62 or len(str(masked)) == len(str(number))


@given(st.floats())
def test_a_real_number_stays_one(number: float) -> None:
    masked = HIDE.real(number)
    assert math.isnan(masked) == math.isnan(number)
    assert math.isinf(masked) == math.isinf(number)


def test_words_that_are_no_data_stay() -> None:
    hide = Pseudonyms(words={"paid", "7"}, secret=HIDE.secret)
    assert (hide.text("paid"), hide.integer(7)) == ("paid", 7)
    assert hide.json('{"paid": ["paid", 7, 70]}').startswith('{"paid": ["paid", 7, ')


@pytest.mark.parametrize("number", [2**63 - 1, 2**63, -(2**63) - 1, 10**19 - 1])
def test_a_number_in_json_fits_a_long_where_the_original_does(number: int) -> None:
    for n in range(100):
        masked = int(Pseudonyms(secret=bytes([n])).json(str(number)))
        assert (abs(masked) <= LONG) == (abs(number) <= LONG)


def test_json_keeps_its_form_names_that_are_known_and_nothing_else() -> None:
    text = '{"id": 12.50, "name": "Ada \\u00e9\\"", "by": {"ada@x.org": true}, "id": null, "list": [{"name": "Eve"}]}'
    masked = Pseudonyms(names={"id", "name", "by", "list"}, secret=HIDE.secret).json(text)
    assert not re.search("Ada|Eve|ada|12.50", masked)
    before, after = (json.loads(each, object_pairs_hook=list) for each in (text, masked))
    assert [name for name, _ in after] == ["id", "name", "by", "id", "list"]
    assert [type(value) for _, value in after] == [type(value) for _, value in before]
    assert re.fullmatch(r"[a-z]{3}@[a-z]\.[a-z]{3}", after[2][1][0][0])


def test_a_json_field_that_is_kept_keeps_all_in_it() -> None:
    text = '{"a": {"deep": {"of the map": "uno"}}, "b": {"deep": "second"}, "c": [{"d": "tres"}, {"e": "fourth"}]}'
    masked = Pseudonyms(
        [("a",), ("c", "d")], names={"a", "b", "c", "d", "e", "deep"}, secret=HIDE.secret
    ).json(text)
    assert '{"deep": {"of the map": "uno"}}' in masked
    assert '"d": "tres"' in masked
    assert "second" not in masked
    assert "fourth" not in masked


@pytest.mark.parametrize("cut", range(1, 60))
def test_broken_json_is_masked_and_stays_broken(cut: int) -> None:
    text = '{"name": "Ada Lovelace", "born": 18151210, "of": ["London"]}'[:cut]
    masked = HIDE.json(text)
    assert len(masked) == len(text)
    assert not re.search("Ada|Love|1815|Lon", masked)
    with pytest.raises(JSONDecodeError):
        json.loads(masked)


def test_json_in_a_text_is_masked_like_json() -> None:
    hide = Pseudonyms(names={"name"}, secret=HIDE.secret)
    found = json.loads(json.loads(hide.json(json.dumps(json.dumps({"name": "Ada", "secret": 1})))))
    assert found["name"] != "Ada"
    assert len(found) == 2
    assert "secret" not in found


def test_bytes_that_are_no_text_become_as_many_others() -> None:
    data = bytes(range(256))
    assert len(HIDE.raw(data)) == 256
    assert HIDE.raw(data) != data
    masked = HIDE.string(b"caf\xe9 Ada")
    assert masked[:3].isalpha()
    with pytest.raises(UnicodeDecodeError):
        masked.decode()


@pytest.mark.parametrize("seed", range(60))
def test_random_avro_keeps_its_form(seed: int) -> None:
    random = Random(seed)
    schema = random_avro.Schemas(random).record()
    tree = expand(json.dumps(schema))
    for _ in range(10):
        data = random_avro.Values(random).of(schema)
        masked = avro(data, tree, HIDE)
        assert avro(data, tree, ALL) == data
        before, after = Plain(data).value(tree), Plain(masked).value(tree)
        assert form(before) == form(after)
        for cut in random.sample(range(len(data)), min(len(data), 5)):
            with pytest.raises(EOFError):
                Plain(avro(data[:cut], tree, HIDE)).value(tree)


class Plain:
    """Avro's values as plain ones, those of unions with the branch; raises EOFError if the bytes are cut short."""

    def __init__(self, data: bytes) -> None:
        self.data = io.BytesIO(data)

    def value(self, node: Any) -> Any:
        if isinstance(node, list):
            place = self.long()
            return place, self.value(node[place])
        kind = node if isinstance(node, str) else node["type"]
        match kind:
            case "null":
                return None
            case "record":
                return {each["name"]: self.value(each["type"]) for each in node["fields"]}
            case "array" | "map":
                return list(self.items(node, kind))
            case "enum":
                return f"symbol {self.long()}", "kept"
            case "int" | "long":
                return self.long()
            case "fixed":
                return self.take(node["size"])
            case "bytes" | "string":
                return self.take(self.long())
        return self.take({"boolean": 1, "float": 4, "double": 8}[kind])

    def items(self, node: Any, kind: str) -> Any:
        while count := self.long():
            size = self.long() if count < 0 else None
            begun = self.data.tell()
            for _ in range(abs(count)):
                if kind == "map":
                    yield self.take(self.long())
                yield self.value(node["items" if kind == "array" else "values"])
            assert size in (None, self.data.tell() - begun)

    def long(self) -> int:
        shift = found = 0
        while True:
            [byte] = self.take(1)
            found |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return (found >> 1) ^ -(found & 1)

    def take(self, size: int) -> bytes:
        found = self.data.read(size)
        if len(found) < size:
            raise EOFError
        return found


def form(value: Any) -> Any:
    """A value without what masking changes."""
    match value:
        case bytes():
            return len(value)
        case int():
            return (value > 0) - (value < 0)
        case dict():
            return {name: form(each) for name, each in value.items()}
        case list() | tuple():
            return [form(each) for each in value]
    return value


def test_what_a_reader_of_avro_sees_is_masked() -> None:
    schema: dict[str, Any] = {
        "type": "record",
        "name": "Person",
        "fields": [
            {"name": "name", "type": "string"},
            {"name": "born", "type": {"type": "int", "logicalType": "date"}},
            {"name": "wakes", "type": {"type": "int", "logicalType": "time-millis"}},
            {"name": "pay", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
            {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "OLD"]}},
            {"name": "of", "type": {"type": "map", "values": ["null", "string"]}},
        ],
    }
    clear = {
        "name": "Ada",
        "born": -56269,
        "wakes": 86_399_999,
        "pay": b"\x01\x02",
        "state": "OLD",
        "of": {"Eve": "Bob"},
    }
    parsed = fastavro.parse_schema(json.loads(json.dumps(schema)))
    plain = {**schema, "fields": [{**each, "type": _bare(each["type"])} for each in schema["fields"]]}
    held = io.BytesIO()
    fastavro.schemaless_writer(held, fastavro.parse_schema(plain), clear)
    masked = avro(held.getvalue(), expand(json.dumps(schema)), Pseudonyms([("of",)], secret=HIDE.secret))
    found: Any = fastavro.schemaless_reader(io.BytesIO(masked), parsed, None)
    assert found["state"] == "OLD"
    assert found["of"] == {"Eve": "Bob"}
    assert re.fullmatch("[A-Z][a-z]{2}", found["name"])
    assert {type(each).__name__ for each in found.values()} == {"str", "date", "time", "Decimal", "dict"}
    assert all(found[name] != clear[name] for name in ("name", "pay"))


def _bare(kind: Any) -> Any:
    return kind["type"] if isinstance(kind, dict) and kind["type"] in ("int", "bytes") else kind


@pytest.mark.parametrize("seed", range(40))
def test_random_protobuf_stays_readable(seed: int) -> None:
    random = Random(seed)
    text, write = random_protobuf.Schemas(random).top()
    _, message = next(iter(messages(load(Schema(1, text, "PROTOBUF")).messages)))
    known = message_class(text, message.name.rpartition(".")[2])
    for _ in range(10):
        data = write()
        assert protobuf(data, message, ALL) == data
        masked = protobuf(data, message, HIDE)
        before, after = readable(known, data), readable(known, masked)
        assert (before is None) == (after is None)
        assert before is None or after is None or before <= after


def readable(known: Any, data: bytes) -> set[str] | None:
    """The names of the fields of a message; None if it is none."""
    try:
        return {each.name for each, _ in known.FromString(data).ListFields()}
    except DecodeError:
        return None


PERSON = """syntax = "proto3"; message Person {
  string name = 1; sint32 floor = 2; repeated double at = 3; map<string, string> of = 4; Person boss = 5; fixed32 code = 6;
  enum State { NEW = 0; OLD = 1; } State state = 7; bool is_new = 8; bytes face = 9; int32 debt = 10; }"""


def test_what_a_reader_of_protobuf_sees_is_masked() -> None:
    known = message_class(PERSON, "Person")
    clear = known(
        name="Ada", floor=-12, at=[1.5, 20.25], of={"Eve": "Bob"}, code=4711, state=1, is_new=True, debt=-5
    )
    clear.face, clear.boss.name = b"\x00\xff\x01", "Charles"
    [(_, message)] = list(messages(load(Schema(1, PERSON, "PROTOBUF")).messages))[:1]
    unknown = b"\xa2\x06\x05Alice" + b"\xa8\x06\xff\xff\x7f" + b"\xb5\x06Carl"
    masked = protobuf(
        clear.SerializeToString() + unknown, message, Pseudonyms([("boss",)], secret=HIDE.secret)
    )
    found = known.FromString(masked)
    assert not re.search(b"Ada|Eve|Bob|Alice|Carl", masked)
    assert (found.state, found.is_new, found.boss.name) == (1, True, "Charles")
    assert -100 < found.floor <= -10
    assert -10 < found.debt < 0
    assert [len(str(each)) for each in found.at] == [3, 5]
    assert len(found.of) == 1
    assert 1000 <= found.code < 10_000
    no_field = protobuf(b"\x0a\x03Ada\x0fAda Lovelace", message, HIDE)
    assert b"Ada" not in no_field
    assert no_field.startswith(b"\x0a\x03")


def test_a_number_fits_where_the_original_did() -> None:
    for code, most in (("i", 2**31 - 1), ("q", LONG)):
        for n in range(100):
            struct.pack(f"<{code}", Pseudonyms(secret=bytes([n])).integer(most, most))
            struct.pack(f"<{code}", Pseudonyms(secret=bytes([n])).integer(-most - 1, most))


def test_values_that_are_deep_or_many_take_no_longer_than_their_bytes() -> None:
    deep = '{"a":' * 50_000 + '["Ada"' + "[" * 50_000
    masked = Pseudonyms([("a", "b")], names={"a"}, secret=HIDE.secret).json(deep)
    assert "Ada" not in masked
    assert len(masked) == len(deep)
    nulls = expand(
        '{"type": "record", "name": "R", "fields": [{"name": "n", "type": {"type": "array", "items": "null"}}]}'
    )
    many = b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f\x00"
    assert avro(many, nulls, HIDE) == many
    [(_, message)] = list(messages(load(Schema(1, PERSON, "PROTOBUF")).messages))[:1]
    boss = b"\x0a\x03Ada"
    for _ in range(5_000):
        boss = b"\x2a" + varint_of(len(boss)) + boss
    assert b"Ada" not in protobuf(boss, message, HIDE)
