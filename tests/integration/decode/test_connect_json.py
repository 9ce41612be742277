"""Messages of Kafka Connect's JSON converter with its schema in each of them: values and keys are their payloads."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from calve.config.job import Source
from tests.integration.decode.test_sources import Row, proved, topic_of
from tests.integration.support.engine import Engine
from tests.integration.support.records.avro_records import read, same
from tests.integration.support.records.producing import Raw

CONNECT = "org.apache.kafka.connect.data."


def named(field: str, kind: str, /, *, optional: bool = True, **more: Any) -> Any:
    return {"field": field, "type": kind, "optional": optional} | more


INNER = named("inner", "struct", fields=[named("s", "string"), named("f", "float")])
VALUE: dict[str, Any] = {
    "type": "struct",
    "optional": False,
    "name": "db.orders.Value",
    "fields": [
        named("id", "int64", optional=False),
        named("ok", "boolean"),
        named("small", "int16"),
        named("real", "double"),
        named("raw", "bytes"),
        named("day", "int32", name=f"{CONNECT}Date", version=1),
        named("at", "int64", name=f"{CONNECT}Timestamp", version=1),
        named(
            "money",
            "bytes",
            name=f"{CONNECT}Decimal",
            version=1,
            parameters={"scale": "2", "connect.decimal.precision": "9"},
        ),
        named("local", "int64", name="io.debezium.time.MicroTimestamp"),
        INNER,
        named("list", "array", items={"type": "string", "optional": True}),
        named("by", "map", keys={"type": "string"}, values={"type": "int32", "optional": True}),
    ],
}
COLUMNS = [each["field"] for each in VALUE["fields"]]
FULL = {
    "id": 2**63 - 1,
    "ok": True,
    "small": -32_768,
    "real": 0.1,
    "raw": base64.b64encode(b"\xff\x00").decode(),
    "day": -1,
    "at": -1,
    "money": "MDk=",
    "local": 1,
    "inner": {"s": "schema", "f": 0.5},
    "list": ["payload", None],
    "by": {"k": 1, "n": None},
}
FULL_ROW = FULL | {
    "raw": b"\xff\x00",
    "day": date(1969, 12, 31),
    "at": datetime(1969, 12, 31, 23, 59, 59, 999_000, UTC),
    "money": Decimal("123.45"),
    "by": [("k", 1), ("n", None)],
}
NOTHING: Row = dict.fromkeys(COLUMNS)
KEY = {"type": "struct", "optional": False, "fields": [named("id", "int64", optional=False)]}
TEXT_KEY = {"type": "string", "optional": False}
DAY_KEY = {"type": "int32", "optional": True, "name": f"{CONNECT}Date"}


def message(payload: Any, schema: Any = VALUE) -> bytes:
    return json.dumps({"schema": schema, "payload": payload}).encode()


VALUES: Sequence[tuple[bytes | None, Row | str]] = [
    (message(FULL), FULL_ROW),
    (message({"id": 1}), {"id": 1}),
    (message({"id": 1, "money": -0.01}), {"id": 1, "money": Decimal("-0.01")}),
    (message({"id": 1, "other": {}}, schema={"type": "int32"}), {"id": 1}),
    (b' {"payload": {"id": 2}, "schema": null} ', {"id": 2}),
    (b'{"payload":{"id":3}}', {"id": 3}),
    (b'{"payload":null,"schema":{},"payload":{"id":4}}', {"id": 4}),
    (None, "null_value"),
    *(
        (each, "malformed")
        for each in (
            b"",
            b"null",
            b"{}",
            b'"x"',
            b'{"id":1}',
            b'{"schema":{"id":1}}',
            b'{"Payload":{"id":1}}',
            b'{"payload":{"id":1},"payload":null}',
            b'{"payload":{"id":1}}}',
            b'{"payload":{"id":1}},{"payload":{"id":2}}',
            b'{"payload":{"id":1}},null]}',
            b'[{"payload":{"id":1}}]',
            b'{"payload":{"id":1},"schema":nul}',
            b'{"payload":{"id":1},"schema":"\\ud800"}',
            b'{"payload":{"id":1},"schema":"\xff"}',
            message(None),
            message([]),
            message("x"),
            message({"id": "1"}),
            message({"id": 1, "inner": {"s": 1}}),
            message({"id": 1, "list": ["x", True]}),
            message({"id": 1, "small": 2**31}),
            message({"id": 1, "raw": "AQ"}),
            message({"id": 1, "money": "f/////8="}),
            b'\x00\x00\x00\x00\x01{"payload":{"id":1}}',
        )
    ),
]


@pytest.mark.parametrize("rest", [None, "rest"])
def test_a_value_is_its_payload(engine: Engine, rest: str | None) -> None:
    source = Source(format="json", prefix="none", schema=json.dumps(VALUE), rest=rest)
    topic = topic_of(engine, [Raw(value) for value, _ in VALUES])
    engine.drain(engine.target(topic, value=source))
    expected = [NOTHING | found for _, found in VALUES if isinstance(found, dict)]
    if rest:
        expected = [each | {"rest": None} for each in expected]
        expected[3]["rest"] = '{"other":{}}'
    assert same(read(engine, topic)) == same(expected)
    letters = engine.letters(topic).select("offset", "reason").orderBy("offset").collect()
    reasons = [(place, found) for place, (_, found) in enumerate(VALUES) if isinstance(found, str)]
    assert [(row[0], row[1]) for row in letters] == reasons
    proved(engine, topic, source)


KEYS: dict[str, tuple[Any, Sequence[tuple[bytes | None, Any]]]] = {
    "a struct": (
        KEY,
        [
            (message({"id": 1}, KEY), {"id": 1}),
            (None, None),
            *(
                (each, "key_malformed")
                for each in (
                    b'{"id":1}',
                    b"{}",
                    b"null",
                    message(None, KEY),
                    message(1, KEY),
                    b'{"payload":{"id":1}',
                )
            ),
        ],
    ),
    "a text": (
        TEXT_KEY,
        [
            (message("k", TEXT_KEY), "k"),
            (message("true", TEXT_KEY), "true"),
            (message("", TEXT_KEY), ""),
            (message(None, TEXT_KEY), None),
            (None, None),
            *(
                (each, "key_malformed")
                for each in (
                    b'"k"',
                    b'""',
                    b"",
                    b"{}",
                    b"null",
                    b'{"schema":null}',
                    message(1, TEXT_KEY),
                    message(True, TEXT_KEY),
                    message({"payload": "k"}, TEXT_KEY),
                    message(["k"], TEXT_KEY),
                    b'{"payload":"a"},{"payload":"b"}',
                    b'{"payload":"a"}}',
                    b'{"payload":"a","schema":}',
                )
            ),
        ],
    ),
    "a day": (
        DAY_KEY,
        [
            (message(0, DAY_KEY), date(1970, 1, 1)),
            (message(None, DAY_KEY), None),
            *(
                (each, "key_malformed")
                for each in (b"0", b"{}", message("1970-01-01", DAY_KEY), message(0.5, DAY_KEY))
            ),
        ],
    ),
}


@pytest.mark.parametrize(("schema", "cases"), KEYS.values(), ids=KEYS)
def test_a_key_is_its_payload(engine: Engine, schema: Any, cases: Sequence[tuple[bytes | None, Any]]) -> None:
    value = Source(format="json", prefix="none", schema=json.dumps(VALUE))
    key = Source(format="json", prefix="none", schema=json.dumps(schema), column="record_key")
    topic = topic_of(engine, [Raw(message({"id": 1}), each) for each, _ in cases])
    engine.drain(engine.target(topic, value=value, key=key))
    rows = [NOTHING | {"record_key": found, "id": 1} for _, found in cases if found != "key_malformed"]
    assert read(engine, topic) == rows
    letters = engine.letters(topic).select("offset", "reason").orderBy("offset").collect()
    reasons = [(place, found) for place, (_, found) in enumerate(cases) if found == "key_malformed"]
    assert [(row[0], row[1]) for row in letters] == reasons
    proved(engine, topic, value, key)
