"""Dead letters whose reason is compared with what their bytes say."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from calve.schema.wire import Schema
from cli.verify.dead_letters import DeadLetters
from cli.verify.formats.decoding import Decoder, Values
from cli.verify.sides import Sides, rows_made
from cli.verify.topic import Records

KAFKA = pa.struct([("partition", pa.int32()), ("offset", pa.int64())])
COLUMNS = pa.schema([("x", pa.int64())])
SCHEMA = Schema(0, json.dumps({"type": "object", "properties": {"x": {"type": "integer"}}}), "JSON")
UNUSABLE = ["unknown_schema_id", "incompatible_schema"]
"""Reasons that need not be true any more."""


def side(value: bytes | None, given: str, *, refused: str | None = None) -> tuple[Sides, Records]:
    values = Values(COLUMNS, lambda _: None, only=SCHEMA)
    letters = DeadLetters(None, {0: {1: given}})
    decoder = Decoder(COLUMNS.append(pa.field("_kafka", KAFKA)), "t", values)
    unused: list[Any] = [None] * 5
    return Sides(decoder, letters, *unused), Records(
        partitions=[0, 0],
        offsets=[0, 1],
        timestamp_types=[0, 0],
        timestamps_ms=[0, 0],
        keys=[None, None],
        values=[b'{"x":1}', value],
        headers=[None, None],
        refused=[None, refused],
    )


@pytest.mark.parametrize(
    ("value", "given", "found"),
    [
        (b'{"x":"1"}', "malformed", []),
        (b'{"x":1}', "malformed", [None]),
        (b'{"x":1,"x":2}', "malformed", []),
        (b'{"x":1,"x":2}', "null_value", ["malformed"]),
        (b'{"x":"1"}', "null_value", ["malformed"]),
        (None, "null_value", []),
        (None, "malformed", ["null_value"]),
        *((b'{"x":1}', each, []) for each in UNUSABLE),
    ],
)
def test_a_dead_letter_whose_bytes_contradict_its_reason_is_noticed(
    value: bytes | None, given: str, found: list[str | None]
) -> None:
    made, records = side(value, given)
    [rows] = rows_made(records, made)
    assert rows.offsets.to_pylist() == [0]
    assert list(made.misjudged.items()) == [((0, 1), (given, each)) for each in found]
    assert made.undecodable == {}


@pytest.mark.parametrize("given", ["bad_timestamp", "malformed"])
def test_a_record_that_the_source_refuses_is_judged_by_that(given: str) -> None:
    made, records = side(b'{"x":1}', given, refused="bad_timestamp")
    list(rows_made(records, made))
    assert made.misjudged == ({} if given == "bad_timestamp" else {(0, 1): (given, "bad_timestamp")})


def test_a_record_that_is_neither_a_row_nor_a_dead_letter_is_noticed() -> None:
    made, records = side(b"{", "malformed")
    made.dead_letters.reasons.clear()
    list(rows_made(records, made))
    assert made.undecodable == {(0, 1): "malformed"}
