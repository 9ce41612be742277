"""Debezium's types are the same values to Spark and to PyIceberg, in Avro and in JSON; what is none of them is a dead letter."""

from __future__ import annotations

import base64
import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from calve.config.job import Source
from calve.modes.upsert import ChangeData
from glue_jobs.table.opening import Opener
from tests.change_types import TIME, TYPES, avro, avro_schema, json_schema
from tests.debezium import around, event, json_around
from tests.integration.decode.test_sources import proved as proved_from
from tests.integration.decode.test_sources import topic_of
from tests.integration.support.engine import Engine
from tests.integration.support.records.avro_records import Row, nullable, read, record, same
from tests.integration.support.records.json_topics import json_topic, proved, send
from tests.integration.support.records.producing import Raw

Case = tuple[Any, Any]
"""What a producer writes in both formats, and the value of the column."""


def local(*moment: int) -> datetime:
    return datetime(*moment)  # type: ignore[arg-type]  # noqa: DTZ001 local time


def at_utc(*moment: int) -> datetime:
    return datetime(*moment, tzinfo=UTC)  # type: ignore[misc,arg-type]


LAST, LAST_UTC = (each(9999, 12, 31, 23, 59, 59, 999_999) for each in (local, at_utc))
VALUES: dict[str, list[Case]] = {
    "date": [
        (-719_162, date(1, 1, 1)),
        (2_932_896, date(9999, 12, 31)),
        (2**31 - 1, date(9999, 12, 31)),
        (-(2**31), date(1, 1, 1)),
    ],
    "millis": [
        (9_223_372_036_825_200_000, LAST),
        (-9_223_372_036_832_400_000, local(1, 1, 1)),
        (253_402_300_800_000, LAST),
        (-1, local(1969, 12, 31, 23, 59, 59, 999_000)),
        (253_402_300_799_999, local(9999, 12, 31, 23, 59, 59, 999_000)),
    ],
    "micros": [
        (-1, local(1969, 12, 31, 23, 59, 59, 999_999)),
        (-62_135_596_800_000_000, local(1, 1, 1)),
        (9_223_372_036_825_200_000, LAST),
        (-9_223_372_036_832_400_000, local(1, 1, 1)),
    ],
    "time_millis": [(-1, -1)],
    "nanos": [(2**63 - 1, 2**63 - 1), (-(2**63), -(2**63))],
    "time_micros": [(-3_020_399_000_000, -3_020_399_000_000)],
    "time_nanos": [(86_399_999_999_999, 86_399_999_999_999)],
    "duration_micros": [(-1, -1)],
    "duration_nanos": [(1, 1)],
    "year": [(0, 0), (9999, 9999)],
    "moment": [
        ("2011-12-03T10:15:30.030431+01:00", at_utc(2011, 12, 3, 9, 15, 30, 30_431)),
        ("2020-02-29T00:00:00Z", at_utc(2020, 2, 29)),
        ("1969-12-31T23:59:59.999999000-18:00", at_utc(1970, 1, 1, 17, 59, 59, 999_999)),
        ("0001-01-01T00:00:00Z", at_utc(1, 1, 1)),
        ("9999-12-31T23:59:59.9Z", at_utc(9999, 12, 31, 23, 59, 59, 900_000)),
        ("infinity", LAST_UTC),
        ("-infinity", at_utc(1, 1, 1)),
        ("+294247-01-10T04:00:25.2Z", LAST_UTC),
        ("-0043-03-15T12:00:00Z", at_utc(1, 1, 1)),
    ],
    "ZonedTime": [("10:15:30.123456789+01:00", "10:15:30.123456789+01:00")],
    "IsoDate": [("2023-11-21Z", "2023-11-21Z")],
    "Json": [('{"a": 1.0}', '{"a": 1.0}')],
    "enum": [("a", "a")],
    "enum_set": [("a,b", "a,b")],
    "connect_time": [(86_399_999, 86_399_999)],
    "moments": [
        ([], []),
        (["2020-01-01T00:00:00Z", None, "infinity"], [at_utc(2020, 1, 1), None, LAST_UTC]),
    ],
    "by_name": [
        ({"k": 1}, [("k", local(1970, 1, 1, 0, 0, 0, 1))]),
        ({}, []),
        ({"k": 2**63 - 1}, [("k", LAST)]),
    ],
    "vector": [([0.5, -0.0], [0.5, -0.0])],
}
BYTES = b"\x01\xff"
TEXT = base64.b64encode(BYTES).decode()
IN_AVRO: dict[str, list[Case]] = {
    "bits": [(BYTES, BYTES)],
    "any_scale": [({"scale": 40, "value": BYTES}, {"scale": 40, "value": BYTES})],
    "decimal": [(Decimal("-9999999.99"), Decimal("-9999999.99"))],
    "connect_date": [(date(1, 1, 1), date(1, 1, 1))],
    "connect_moment": [(at_utc(2020, 1, 1), at_utc(2020, 1, 1))],
    "point": [
        ({"x": 0.1, "y": -1.0, "wkb": BYTES, "srid": None}, {"x": 0.1, "y": -1.0, "wkb": BYTES, "srid": None})
    ],
}
IN_JSON: dict[str, list[Case]] = {
    "bits": [(TEXT, BYTES)],
    "any_scale": [({"scale": 40, "value": TEXT}, {"scale": 40, "value": BYTES})],
    "decimal": [("MDk=", Decimal("123.45")), (-0.01, Decimal("-0.01"))],
    "connect_date": [(-719_162, date(1, 1, 1))],
    "connect_moment": [(1_577_836_800_000, at_utc(2020, 1, 1))],
    "point": [({"x": 0.1, "y": -1.0, "wkb": TEXT}, {"x": 0.1, "y": -1.0, "wkb": BYTES, "srid": None})],
}
NO_MOMENTS = [
    "",
    "infinite",
    "+infinity-01-01T00:00:00Z",
    "2020-01-01",
    "2020-01-01T00:00:00",
    "2020-01-01T00:00Z",
    "2020-02-30T00:00:00Z",
    "2020-01-01T00:00:00.1234567Z",
    "1883-11-18T12:03:58-04:56:02",
    "+1000-01-01T00:00:00Z",
    "2020-01-01T00:00:00Z ",
]


def of_changes(engine: Engine, topic: str, **settings: Any) -> Opener:
    """The target of a topic of events, each of a row of its own."""
    return engine.target(topic, change_data=ChangeData(("_kafka.offset",)), **settings)


def inserted(rows: list[Row]) -> list[Row]:
    return [event("c", after=row) for row in rows]


def data(engine: Engine, topic: str) -> list[Row]:
    """The columns of the rows of the database."""
    return [{name: value for name, value in row.items() if name != "_change"} for row in read(engine, topic)]


def rows(values: dict[str, list[Case]]) -> list[tuple[Row, Row]]:
    """What is written and the row, one value at a time."""
    nothing: Row = dict.fromkeys(TYPES)
    cases = [(name, *case) for name, listed in values.items() for case in listed]
    return [(nothing, nothing), *((nothing | {n: wrote}, nothing | {n: found}) for n, wrote, found in cases)]


@pytest.mark.full
def test_every_type_in_avro_is_its_value(engine: Engine) -> None:
    topic = engine.topic(partitions=1, schema=json.dumps(around(avro_schema())))
    cases = rows(VALUES | IN_AVRO)
    engine.produce(topic, inserted([written for written, _ in cases]))
    refused: list[Row] = [{"moment": each} for each in NO_MOMENTS]
    refused.append({"moments": ["2020-01-01T00:00:00Z", "x"]})
    engine.produce(topic, inserted([cases[0][0] | each for each in refused]))
    (outcome,) = engine.drain(of_changes(engine, topic))
    assert same(data(engine, topic)) == same([found for _, found in cases])
    assert outcome.ledger.rejected == {"malformed": len(refused)}
    proved(engine, topic)


@pytest.mark.full
def test_every_type_in_json_is_its_value(engine: Engine) -> None:
    topic = json_topic(engine, json_around(json_schema()))
    schema_id = engine.registry.get_latest_version(f"{topic}-value").schema_id
    assert schema_id is not None
    cases = rows(VALUES | IN_JSON)
    for written, _ in cases:
        send(engine, topic, schema_id, event("c", after=written))
    refused: list[Row] = [{"moment": each} for each in [*NO_MOMENTS, 1]]
    refused += [
        {"moments": ["x"]},
        {"micros": 2**63},
        {"micros": "1"},
        {"date": "2020-01-01"},
    ]
    for each in refused:
        send(engine, topic, schema_id, event("c", after=each))
    (outcome,) = engine.drain(of_changes(engine, topic))
    assert same(data(engine, topic)) == same([found for _, found in cases])
    assert outcome.ledger.rejected == {"malformed": len(refused)}
    proved(engine, topic)


@pytest.mark.long
def test_a_text_that_is_no_moment_is_refused_wherever_it_stands_and_a_longer_value_for_its_length(
    engine: Engine,
) -> None:
    moment = avro("string", f"{TIME}ZonedTimestamp")
    inner = record("Inner", at=nullable(moment))
    entry = {"type": "array", "items": record("MapEntry", key="int", value=nullable(moment))}
    schema = record(
        "Nested",
        inner=nullable(inner),
        by_name={"type": "map", "values": nullable(moment)},
        by_number=entry,
        either=["null", moment, "long"],
    )
    topic = engine.topic(partitions=1, schema=json.dumps(around(schema)))
    good, bad = "2020-01-01T00:00:00+02:00", "2020-01-01T00:00:00"
    nothing: Row = {"inner": None, "by_name": {}, "by_number": [], "either": None}

    def filled(text: str) -> list[Row]:
        return [
            nothing | {"inner": {"at": text}},
            nothing | {"by_name": {"k": text, "n": None}},
            nothing | {"by_number": [{"key": 1, "value": text}, {"key": 1, "value": None}]},
            nothing | {"either": text},
        ]

    engine.produce(topic, inserted([nothing, *filled(good)]))
    encoded = [engine.encode(topic, each) for each in inserted(filled(bad))]
    for each in encoded:
        engine.send(topic, each)
    longer, shorter = encoded[0] + b"\0", encoded[3][:-1]
    engine.send(topic, longer)
    engine.send(topic, shorter)
    engine.flush()
    (outcome,) = engine.drain(of_changes(engine, topic))
    found = datetime(2019, 12, 31, 22, tzinfo=UTC)
    assert data(engine, topic) == [
        nothing | {"by_name": [], "by_number": []},
        nothing | {"inner": {"at": found}, "by_name": [], "by_number": []},
        nothing | {"by_name": [("k", found), ("n", None)], "by_number": []},
        nothing | {"by_name": [], "by_number": [(1, None)]},
        nothing | {"by_name": [], "by_number": [], "either": {"string": found, "long": None}},
    ]
    assert outcome.ledger.rejected == {"malformed": 5, "trailing_bytes": 1}
    proved(engine, topic)


@pytest.mark.parametrize("kind", ["avro", pytest.param("json", marks=pytest.mark.full)])
def test_infinite_times_of_a_database_are_the_last_that_every_reader_knows(engine: Engine, kind: str) -> None:
    schema = around(avro_schema()) if kind == "avro" else json_around(json_schema())
    topic = (
        engine.topic(partitions=1, schema=json.dumps(schema))
        if kind == "avro"
        else json_topic(engine, schema)
    )
    infinite = [9_223_372_036_825_200_000, -9_223_372_036_832_400_000, 2**63 - 1, -(2**63)]
    written = [
        dict.fromkeys(TYPES)
        | {"micros": each, "millis": each, "date": 2**31 - 1 if each > 0 else -(2**31)}
        | {"moment": "infinity" if each > 0 else "-infinity"}
        for each in infinite
    ]
    if kind == "avro":
        engine.produce(topic, inserted(written))
    else:
        schema_id = engine.registry.get_latest_version(f"{topic}-value").schema_id
        assert schema_id is not None
        for each in written:
            send(engine, topic, schema_id, event("c", after=each))
    (outcome,) = engine.drain(of_changes(engine, topic))
    assert outcome.ledger.applied == len(infinite)
    last, first = (
        (LAST, LAST, date(9999, 12, 31), LAST_UTC),
        (*2 * [local(1, 1, 1)], date(1, 1, 1), at_utc(1, 1, 1)),
    )
    names = ("micros", "millis", "date", "moment")
    wanted = 2 * [dict(zip(names, each, strict=True)) for each in (last, first)]
    assert [{name: row[name] for name in names} for row in data(engine, topic)] == wanted
    proved(engine, topic)


REAL = {"type": "number", "connect.type": "float64"}
NUMBERS = {
    "real": REAL,
    "single": REAL | {"connect.type": "float32"},
    "plain": {"type": "number"},
    "many": {"type": "array", "items": REAL},
    "by_name": {"type": "object", "connect.type": "map", "additionalProperties": REAL},
    "inner": {"type": "object", "properties": {"x": REAL}},
    "exact": TYPES["decimal"].json,
    "text": {"type": "string"},
}


@pytest.mark.long
def test_numbers_of_a_database_that_are_not_finite_keep_their_row_and_their_value(engine: Engine) -> None:
    properties = {name: {"oneOf": [{"type": "null"}, kind]} for name, kind in NUMBERS.items()}
    topic = json_topic(engine, json_around({"type": "object", "title": "Value", "properties": properties}))
    schema_id = engine.registry.get_latest_version(f"{topic}-value").schema_id
    assert schema_id is not None
    nothing: Row = dict.fromkeys(NUMBERS)
    cases: list[tuple[str, Any]] = [("real", 0.1), ("real", -0.0), ("single", 0.5), ("real", 1e300)]
    cases += [("text", each) for each in ("NAN", "NaN", "POSITIVE_INFINITY", "INF")]
    written = [(name, json.dumps(value), value) for name, value in cases]
    for text, value in (("NaN", math.nan), ("Infinity", math.inf), ("-Infinity", -math.inf)):
        written += [(name, f'"{text}"', value) for name in ("real", "single", "plain")]
        written.append(("many", f'[1.5, null, "{text}"]', [1.5, None, value]))
        written.append(("by_name", f'{{"k": "{text}"}}', [("k", value)]))
        written.append(("inner", f'{{"x": "{text}"}}', {"x": value}))
    written.append(("real", '"\\u004eaN"', math.nan))
    refused = [("real", f'"{each}"') for each in ("nan", "INF", "-INF", "+Infinity", "\\u0049NF", "1.5", "")]
    refused += [("real", each) for each in ("NaN", "-INF", "1e999", "-1e999")]
    refused += [("single", "1e39"), ("text", "NaN"), ("exact", '"NaN"'), ("exact", "NaN")]
    refused += [("many", '["NaN", "INF"]'), ("by_name", '{"k": Infinity}')]
    for name, text in [*((name, text) for name, text, _ in written), *refused]:
        sent = json.dumps(event("c", after=nothing | {name: "HERE"})).replace('"HERE"', text)
        send(engine, topic, schema_id, sent.encode())
    (outcome,) = engine.drain(of_changes(engine, topic))
    assert same(data(engine, topic)) == same([nothing | {name: value} for name, _, value in written])
    assert outcome.ledger.rejected == {"malformed": len(refused)}
    proved(engine, topic)


CONNECT_TYPES: dict[str, Row] = {
    "day": {"type": "int32", "name": f"{TIME}Date", "version": 1},
    "at": {"type": "int64", "name": f"{TIME}MicroTimestamp", "version": 1},
    "moment": {"type": "string", "name": f"{TIME}ZonedTimestamp", "version": 1},
    "took": {"type": "int64", "name": f"{TIME}MicroDuration", "version": 1},
    "real": {"type": "double"},
}


@pytest.mark.long
def test_every_type_in_messages_that_hold_their_schema_is_its_value(engine: Engine) -> None:
    fields = [{"field": name, "optional": True, **kind} for name, kind in CONNECT_TYPES.items()]
    row = {"type": "struct", "optional": True, "fields": fields}
    parts = [{"field": "before"} | row, {"field": "after"} | row]
    parts.append({"field": "op", "type": "string", "optional": False})
    schema = {"type": "struct", "optional": False, "fields": parts}
    source = Source(format="json", prefix="none", schema=json.dumps(schema))
    written: list[Row] = [
        {"day": -719_162, "at": -1, "moment": "2020-01-01T00:00:00.5-01:00", "took": 7, "real": "-Infinity"},
        dict.fromkeys(CONNECT_TYPES),
        *({"moment": each} for each in NO_MOMENTS),
        *({"real": each} for each in ("INF", math.inf)),
    ]
    messages = [json.dumps({"schema": schema, "payload": each}).encode() for each in inserted(written)]
    topic = topic_of(engine, [Raw(each) for each in messages])
    (outcome,) = engine.drain(of_changes(engine, topic, value=source))
    full = {
        "day": date(1, 1, 1),
        "at": local(1969, 12, 31, 23, 59, 59, 999_999),
        "took": 7,
        "real": -math.inf,
    }
    moment = at_utc(2020, 1, 1, 1, 0, 0, 500_000)
    assert data(engine, topic) == [full | {"moment": moment}, dict.fromkeys(CONNECT_TYPES)]
    assert outcome.ledger.rejected == {"malformed": len(NO_MOMENTS) + 2}
    comments = {each["name"]: each.get("doc") for each in engine.table(topic).schema["fields"]}
    assert comments["took"] == "microseconds"
    proved_from(engine, topic, source)
