"""Records are the same for the same seed, are what their schemas say, and in three formats the same rows."""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any

import jsonschema
import pytest
from fastavro import parse_schema, schemaless_reader
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message_factory import GetMessageClass

from bench.workloads.all import WORKLOADS
from bench.workloads.nested import ORDERS, ORDERS_JSON, ORDERS_PROTOBUF, with_entries
from bench.workloads.trades import PROTOBUF, TRADES, TRADES_JSON, TRADES_PROTOBUF
from bench.workloads.workload import BLOCK, Workload, blocks
from calve.schema.wire import Schema
from cli.verify.formats.protobuf import compiled

FRAME = b"\x00\x00\x00\x00\x07"


def values(workload: Workload, count: int) -> list[bytes]:
    made = [value for _, block in blocks(workload, count, FRAME) for value in block]
    assert all(each.startswith(FRAME) for each in made)
    return [each.removeprefix(FRAME) for each in made]


def avro(workload: Workload, value: bytes) -> Any:
    rest = BytesIO(value)
    row = schemaless_reader(rest, parse_schema(json.loads(workload.schema)), None)
    assert rest.read() == b""
    return row


@pytest.mark.parametrize("workload", [each for each in WORKLOADS.values() if each.type == "AVRO"])
def test_values_are_of_their_schema_and_no_two_are_alike(workload: Workload) -> None:
    made = values(workload, 300)
    assert made == values(workload, 300)
    assert len({json.dumps(avro(workload, each), default=str) for each in made}) == 300


def test_blocks_go_on_where_the_one_before_has_ended() -> None:
    sizes = [len(made) for _, made in blocks(TRADES, BLOCK + 2, FRAME)]
    assert sizes == [BLOCK, 2]
    [(_, [first, second])] = [block for block in blocks(TRADES, BLOCK + 2, FRAME) if len(block[1]) == 2]
    ids = [avro(TRADES, each.removeprefix(FRAME))["trade_id"] for each in (first, second)]
    assert ids == [f"{BLOCK:010d}", f"{BLOCK + 1:010d}"]


def test_orders_are_the_same_rows_in_json_and_protobuf() -> None:
    message = GetMessageClass(compiled(Schema(1, ORDERS_PROTOBUF.schema, "PROTOBUF")).messages[0])
    formats = (values(each, 50) for each in (ORDERS, ORDERS_JSON, ORDERS_PROTOBUF))
    for binary, text, tagged in zip(*formats, strict=True):
        row, found = json.loads(text), message.FromString(tagged)
        assert ParseDict(with_entries(row), message()) == found
        assert avro(ORDERS, binary)["lines"][0]["sku"] == row["lines"][0]["sku"]
        jsonschema.validate(row, json.loads(ORDERS_JSON.schema))


def test_trades_are_the_same_rows_in_every_format() -> None:
    message = GetMessageClass(compiled(Schema(1, PROTOBUF, "PROTOBUF")).messages[0])
    formats = (values(each, 200) for each in (TRADES, TRADES_JSON, TRADES_PROTOBUF))
    for binary, text, tagged in zip(*formats, strict=True):
        row = avro(TRADES, binary)
        row["ts"] = round(row["ts"].timestamp() * 1000)
        assert json.loads(text) == row
        found = MessageToDict(message.FromString(tagged), preserving_proto_field_name=True)
        assert found | {"ts": int(found["ts"])} == row
