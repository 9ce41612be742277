"""Bare values, undeclared fields and keys, as verification reads them by rules of its own."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from calve.decoding.formats import Top
from calve.schema.wire import Schema
from calve.table.position import Ledger, TopicKey
from cli.verify.claim import Round
from cli.verify.formats.decoding import Decoder, Keys, Values
from cli.verify.formats.fields import Unreadable
from cli.verify.reading import DecoderByRound, ReadWith
from cli.verify.topic import Records

KAFKA = pa.struct([("partition", pa.int32()), ("offset", pa.int64()), ("schema_id", pa.int32())])
AVRO = Schema(0, json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}))
OBJECT = Schema(0, json.dumps({"type": "object", "properties": {"a": {"type": "integer"}}}), "JSON")
TOPIC = TopicKey("c", "t")


def nothing(_: int) -> Schema | None:
    return None


def decoder(only: Schema, *columns: Any, key: Keys | None = None, own: str | None = None) -> Decoder:
    names = {"_kafka", key.column if key else "_kafka"}
    table = pa.schema([*columns, ("_kafka", KAFKA)])
    data = pa.schema([each for each in table if each.name not in names])
    top = Top(rest=own) if only.type == "JSON" else Top(own)
    return Decoder(table, "t", Values(data, nothing, top, only=only), key)


def records(*pairs: tuple[bytes | None, bytes | None]) -> Records:
    size = len(pairs)
    return Records(
        partitions=[0] * size,
        offsets=list(range(size)),
        timestamp_types=[0] * size,
        timestamps_ms=[0] * size,
        keys=[key for key, _ in pairs],
        values=[value for _, value in pairs],
        headers=[None] * size,
    )


@pytest.mark.parametrize(
    ("only", "value", "verdict"),
    [
        (Schema(0, "", "STRING"), b"a\xff", "malformed"),
        (Schema(0, "", "STRING"), None, None),
        (Schema(0, "", "BYTES"), b"\xff", None),
        (AVRO, b"\x02", None),
        (AVRO, b"\x02\x02", "trailing_bytes"),
        (AVRO, b"", "malformed"),
        (AVRO, None, "null_value"),
    ],
)
def test_bare_values_are_rows_or_say_why_not(only: Schema, value: bytes | None, verdict: str | None) -> None:
    column = {"STRING": ("value", pa.string()), "BYTES": ("value", pa.binary()), "AVRO": ("a", pa.int32())}
    assert decoder(only, column[only.type]).values.verdict(value) == verdict


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ('{"a": 1}', None),
        ('{"a": 1, "z": [1, {"y": 2.50, "x": null}], "b": true}', '{"b":true,"z":[1,{"x":null,"y":2.5}]}'),
        ('{"a": 1, "a": 2, "n": null}', '{"n":null}'),
        ('{"z": 1, "z": 1}', "malformed"),
        ('{"a": {"x": 1, "x": 1}}', "malformed"),
        ('{"z": 1e400}', "malformed"),
    ],
)
def test_what_a_schema_does_not_declare_is_one_text(text: str, rest: str | None) -> None:
    made = decoder(OBJECT, ("a", pa.int64()), ("rest", pa.string()), own="rest")
    if reason := made.values.verdict(text.encode()):
        assert reason == rest
        return
    [batch], _ = made.rows(records((None, text.encode())))
    assert batch.column("rest").to_pylist() == [rest]


@pytest.mark.parametrize(
    ("schema", "kind", "key", "expected"),
    [
        (Schema(0, "", "STRING"), pa.string(), b"k", "k"),
        (Schema(0, "", "STRING"), pa.string(), b"\xff", "key_malformed"),
        (Schema(0, '"long"'), pa.int64(), b"\x04", 2),
        (Schema(0, '"int"'), pa.int64(), b"\x04", 2),
        (Schema(0, '"long"'), pa.int64(), b"\x04\x04", "key_malformed"),
        (Schema(0, '"string"'), pa.int64(), b"\x00", "key_incompatible_schema"),
        (AVRO, pa.struct([("a", pa.int32())]), b"\x02", {"a": 1}),
        (OBJECT, pa.struct([("a", pa.int64())]), b'{"a": 1, "z": 2}', {"a": 1}),
        (OBJECT, pa.struct([("a", pa.int64())]), b"null", "key_malformed"),
        (Schema(0, '{"type": "string"}', "JSON"), pa.string(), b' "k" ', "k"),
        (Schema(0, '{"type": "string"}', "JSON"), pa.string(), b"null", None),
        (Schema(0, '{"type": "string"}', "JSON"), pa.string(), b"{}", "key_malformed"),
        (AVRO, pa.struct([("a", pa.int32())]), None, None),
    ],
)
def test_keys_are_their_column_or_say_why_not(
    schema: Schema, kind: Any, key: bytes | None, expected: Any
) -> None:
    keys = Keys(pa.field("key", kind), Values(pa.schema([("key", kind)]), nothing, Top("key"), only=schema))
    try:
        found = keys.array([keys.read(key)]).to_pylist()[0]
    except Unreadable as verdict:
        found = verdict.reason
    assert found == expected


def test_a_record_whose_value_and_key_are_bad_is_refused_for_its_value() -> None:
    column = pa.field("key", pa.int64())
    keys = Keys(column, Values(pa.schema([column]), nothing, Top("key"), only=Schema(0, '"long"')))
    made = decoder(AVRO, column, ("a", pa.int32()), key=keys)
    batches, refused = made.rows(records((b"", b""), (b"", b"\x02"), (b"\x04", b"\x02"), (None, b"\x02")))
    assert refused == [(0, "malformed"), (1, "key_malformed")]
    assert [batch.column("key").to_pylist() for batch in batches] == [[2, None]]
    assert made.rows(records((b"", b"\x02"), (None, b"\x02"))).refused == [(0, "key_malformed")]


def test_columns_that_nothing_fills_any_more_are_null() -> None:
    text = Schema(0, "", "STRING")
    made = decoder(text, ("key", pa.int64()), ("line", pa.string()), own="line")
    [batch], _ = made.rows(records((b"k", b"x")))
    assert (batch.column("key").to_pylist(), batch.column("line").to_pylist()) == ([None], ["x"])


def test_each_round_is_read_with_the_schema_that_it_names() -> None:
    column = ("a", pa.int32())
    later = Schema(
        0,
        '{"type": "record", "name": "R", "fields": [{"name": "b", "type": "string"}, {"name": "a", "type": "int"}]}',
    )

    def decoder_for(read_with: ReadWith) -> Decoder | None:
        only = {"1": AVRO, "2": later}.get((read_with or {}).get("value", "2"))
        return decoder(only, column) if only else None

    def round_(number: int, start: int, to: int, name: str) -> Round:
        return Round(TOPIC, {0: start}, {0: to}, Ledger(), read_with={"value": name}, snapshot=number)

    rounds = [round_(3, 2, 3, "2"), round_(2, 1, 2, "1"), round_(1, 0, 1, "forgotten")]
    epochs = DecoderByRound(rounds, decoder_for)
    assert epochs.provable_from() == {0: 1}
    batches, refused = epochs.rows(
        records((None, b"\x02"), (None, b"\x04"), (None, b"\x02x\x06")).select([1, 2])
    )
    assert refused == []
    assert sorted(value for batch in batches for value in batch.column("a").to_pylist()) == [2, 3]
    redrive = replace(round_(4, 0, 0, "2"), start={}, to={}, round="back")
    again = replace(epochs, redrives=[redrive], redriven={(0, 1): "back"})
    returned = records((None, b"\x02"), (None, b"\x02y\x08")).select([1])
    assert [batch.column("a").to_pylist() for batch in again.rows(returned)[0]] == [[4]]
    assert epochs.rows(returned).refused == [(0, "trailing_bytes")]
