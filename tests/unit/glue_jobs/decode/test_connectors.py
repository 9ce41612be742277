"""Events of each of Debezium's relational connectors, with the sources and types that its documentation shows.

https://debezium.io/documentation/reference/stable/connectors/: both readers make the same rows and positions of them.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from io import BytesIO
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from fastavro import parse_schema, schemaless_writer

from calve.decoding.decode_plan import decoding, first_columns
from calve.decoding.formats import Top
from calve.schema.columns import CHANGE, struct
from calve.schema.wire import BARE, Schema
from cli.verify.columns import arrow_columns
from cli.verify.formats.decoding import Values
from glue_jobs.decode.machines.judging import Judge

TIME, DATA = "io.debezium.time.", "io.debezium.data."
AT_MS = 1_700_000_000_123


class Connector(NamedTuple):
    """sources: what differs in those of two changes, the older one first. order: fields of them. columns: types and a row."""

    name: str
    order: tuple[str, ...]
    sources: tuple[dict[str, Any], dict[str, Any]]
    columns: dict[str, tuple[Any, Any]]


def named(kind: str, name: str) -> Any:
    return {"type": kind, "connect.version": 1, "connect.name": name}


LARGE = {"type": "record", "name": "VariableScaleDecimal", "namespace": "io.debezium.data", "fields": [
    {"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}]}  # fmt: skip
BINLOG = {"server_id": 223344, "gtid": None, "thread": 7, "query": None}
CONNECTORS = [
    Connector(
        "mysql",
        ("file", "pos", "row"),
        (
            BINLOG | {"file": "mysql-bin.000009", "pos": 9_484, "row": 1},
            BINLOG | {"file": "mysql-bin.000010", "pos": 154, "row": 0},
        ),
        {
            "born": (named("int", f"{TIME}Date"), -1),
            "joined": (named("string", f"{TIME}ZonedTimestamp"), "2024-02-29T11:04:26Z"),
            "lasts": (named("long", f"{TIME}MicroTime"), -90_000_000_000),
            "year": (named("int", f"{TIME}Year"), 2024),
            "kinds": (named("string", f"{DATA}EnumSet"), "a,b"),
            "seen": (named("long", f"{TIME}Timestamp"), AT_MS),
        },
    ),
    Connector(
        "mariadb",
        ("file", "pos", "row"),
        (
            BINLOG | {"file": "mariadb-bin.000003", "pos": 99, "row": 0, "gtid": "0-112-5"},
            BINLOG | {"file": "mariadb-bin.000003", "pos": 1_000, "row": 0, "gtid": "0-112-6"},
        ),
        {"uuid": ("string", "7f1ef1a0-2a66-4a1c-a4c9-0a2f1d6a2e2b"), "flag": ("boolean", True)},
    ),
    Connector(
        "sqlserver",
        ("commit_lsn", "change_lsn", "event_serial_no"),
        (
            {"commit_lsn": "00000027:00000ac0:0002", "change_lsn": "00000027:00000ac0:0001", "event_serial_no": 2},
            {"commit_lsn": "00000027:00000ac0:0002", "change_lsn": "00000027:00000ac0:0001", "event_serial_no": 10},
        ),
        {
            "at": (named("long", f"{TIME}NanoTimestamp"), 1_700_000_000_123_456_700),
            "zoned": (named("string", f"{TIME}ZonedTimestamp"), "2018-07-02T23:53:44.1234567Z"[:26] + "Z"),
            "money": ({"type": "bytes", "logicalType": "decimal", "precision": 19, "scale": 4}, None),
        },
    ),
    Connector(
        "oracle",
        ("scn",),
        (
            {"scn": "9979", "commit_scn": "9980", "txId": "6.28.807", "rs_id": "001234.00012345.0124", "ssn": 0},
            {"scn": "10002", "commit_scn": "10003", "txId": "6.28.808", "rs_id": None, "ssn": None},
        ),
        {
            "number": (LARGE, {"scale": 2, "value": b"\x01\x00"}),
            "clob": ("string", "__debezium_unavailable_value"),
            "span": (named("long", f"{TIME}MicroDuration"), 3_600_000_000),
        },
    ),
    Connector(
        "db2",
        ("commit_lsn", "change_lsn"),
        (
            {"commit_lsn": "00000000:0000579e:0001", "change_lsn": "00000000:0000579e:0000"},
            {"commit_lsn": "00000000:0000579f:0001", "change_lsn": "00000000:00000001:0000"},
        ),
        {"xml": (named("string", f"{DATA}Xml"), "<a/>")},
    ),
    Connector(
        "vitess",
        ("ts_ms",),
        (
            {"keyspace": "commerce", "shard": "-80", "vgtid": '[{"keyspace":"commerce","shard":"-80"}]', "ts_ms": AT_MS},
            {"keyspace": "commerce", "shard": "-80", "vgtid": None, "ts_ms": AT_MS + 1},
        ),
        {"big": ("string", "18446744073709551615")},
    ),
    Connector(
        "spanner",
        ("ts_ms",),
        (
            {"server_transaction_id": "MTQ0MTk=", "record_sequence": "00000001", "mod_number": 0, "ts_ms": AT_MS},
            {"server_transaction_id": "MTQ0MTk=", "record_sequence": "00000002", "mod_number": 1, "ts_ms": AT_MS + 1},
        ),
        {"json": (named("string", f"{DATA}Json"), '{"a":1}')},
    ),
]  # fmt: skip
KINDS: dict[type, Any] = {int: ["null", "long"], str: ["null", "string"], type(None): ["null", "string"]}


def envelope(each: Connector) -> Schema:
    """Also with the block of transactions, which calve does not read."""
    columns = {"id": ("long", 1)} | each.columns
    row = {"type": "record", "name": "Value", "fields": [
        {"name": name, "type": ["null", kind], "default": None} for name, (kind, _) in columns.items()]}  # fmt: skip
    known = {
        name: value for source in each.sources[::-1] for name, value in source.items() if value is not None
    }
    first = each.sources[0] | known
    source = [{"name": name, "type": KINDS[type(value)], "default": None} for name, value in first.items()]
    source += [] if "ts_ms" in first else [{"name": "ts_ms", "type": "long"}]
    block = {"type": "record", "name": "block", "namespace": "event", "fields": [
        {"name": "id", "type": "string"}, {"name": "total_order", "type": "long"},
        {"name": "data_collection_order", "type": "long"}]}  # fmt: skip
    fields = [
        {"name": "before", "type": ["null", row], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {"name": "source", "type": {"type": "record", "name": "Source", "fields": source}},
        {"name": "transaction", "type": ["null", block], "default": None},
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": ["null", "long"], "default": None},
    ]
    return Schema(
        7, json.dumps({"type": "record", "name": "Envelope", "namespace": each.name, "fields": fields})
    )


def events(each: Connector) -> list[dict[str, Any]]:
    """A snapshot's, an update's with its transaction, a deletion's and a truncation's."""
    row = {"id": 1} | {name: value for name, (_, value) in each.columns.items()}
    older, newer = ({"ts_ms": AT_MS} | source for source in each.sources)
    block = {"id": "571", "total_order": 1, "data_collection_order": 1}
    return [
        {"op": "r", "after": row, "source": older},
        {"op": "u", "before": row, "after": row, "source": newer, "transaction": block},
        {"op": "d", "before": row, "source": newer},
        {"op": "t", "source": newer},
    ]


@pytest.mark.parametrize("connector", CONNECTORS, ids=lambda each: each.name)
def test_events_of_every_connector_are_rows_in_the_order_of_its_log(connector: Connector) -> None:
    schema, top = envelope(connector), Top(changes=True, order=connector.order)
    table = first_columns([schema], "s", top)
    plan = decoding(table, [schema], wire=BARE, top=top)
    values = []
    for each in events(connector):
        stream = BytesIO()
        schemaless_writer(stream, parse_schema(json.loads(schema.text)), each)
        values.append(stream.getvalue())
    columns = struct(*table["fields"], CHANGE)
    judged = list(Judge(plan, columns, connector.order).judge(pa.array(values, pa.binary())))
    found = pa.concat_arrays(judged).to_pylist()
    assert [each["reason"] for each in found] == [None] * 4
    rows = [each["value"] for each in found]
    assert [each["_change"]["op"] for each in rows] == ["r", "u", "d", "t"]
    assert [each["id"] for each in rows] == [1, 1, 1, None]
    assert rows[0]["_change"]["at"] == datetime.fromtimestamp(AT_MS // 1000, UTC).replace(microsecond=123_000)
    older, newer = (each["_change"]["position"] for each in rows[:2])
    assert older < newer
    own = Values(arrow_columns(columns), lambda _: None, top, only=schema)
    read = [pa.record_batch(own.project(value), arrow_columns(columns)).to_pylist()[0] for value in values]
    assert read == rows
