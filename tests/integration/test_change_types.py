"""Debezium's types are the same values to Spark and to PyIceberg, in Avro and in JSON; what is none of them is a dead letter."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from typing import Any

import pytest

from cli.verify import writers
from glue_jobs.target import Target
from tests.change_types import TIME, TYPES, avro, avro_schema, json_schema
from tests.integration.avro_records import Row, nullable, read, record, same
from tests.integration.engine import Engine
from tests.integration.json_topics import json_topic, proved, send

Case = tuple[Any, Any]
"""What a producer writes in both formats, and the value of the column."""


def local(*moment: int) -> datetime:
    return datetime(*moment)  # type: ignore[arg-type]  # noqa: DTZ001 local time


def at_utc(*moment: int) -> datetime:
    return datetime(*moment, tzinfo=UTC)  # type: ignore[misc,arg-type]


VALUES: dict[str, list[Case]] = {
    "date": [(-719_162, date(1, 1, 1)), (2_932_896, date(9999, 12, 31))],
    "millis": [
        (-1, local(1969, 12, 31, 23, 59, 59, 999_000)),
        (253_402_300_799_999, local(9999, 12, 31, 23, 59, 59, 999_000)),
    ],
    "micros": [(-1, local(1969, 12, 31, 23, 59, 59, 999_999)), (-62_135_596_800_000_000, local(1, 1, 1))],
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
    ],
    "ZonedTime": [("10:15:30.123456789+01:00", "10:15:30.123456789+01:00")],
    "IsoDate": [("2023-11-21Z", "2023-11-21Z")],
    "Json": [('{"a": 1.0}', '{"a": 1.0}')],
    "enum": [("a", "a")],
    "enum_set": [("a,b", "a,b")],
    "connect_time": [(86_399_999, 86_399_999)],
    "moments": [
        ([], []),
        (["2020-01-01T00:00:00Z", None], [at_utc(2020, 1, 1), None]),
    ],
    "by_name": [({"k": 1}, [("k", local(1970, 1, 1, 0, 0, 0, 1))]), ({}, [])],
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
    "infinity",
    "2020-01-01",
    "2020-01-01T00:00:00",
    "2020-01-01T00:00Z",
    "2020-02-30T00:00:00Z",
    "2020-01-01T00:00:00.1234567Z",
    "1883-11-18T12:03:58-04:56:02",
    "+10000-01-01T00:00:00Z",
    "2020-01-01T00:00:00Z ",
]


@pytest.fixture(autouse=True)
def _verified_as_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cli.verify.decoding.writer_of", partial(writers.writer_of, changes=True))


def of_changes(engine: Engine, topic: str) -> Target:
    """The target of a topic whose values are rows as those of changes are."""
    target = engine.target(topic)
    part = target.schemas.value
    target.schemas.value = replace(part, top=replace(part.top, changes=True))
    return target


def rows(values: dict[str, list[Case]]) -> list[tuple[Row, Row]]:
    """What is written and the row, one value at a time."""
    nothing: Row = dict.fromkeys(TYPES)
    cases = [(name, *case) for name, listed in values.items() for case in listed]
    return [(nothing, nothing), *((nothing | {n: wrote}, nothing | {n: found}) for n, wrote, found in cases)]


def test_every_type_in_avro_is_its_value(engine: Engine) -> None:
    topic = engine.topic(partitions=1, schema=json.dumps(avro_schema()))
    cases = rows(VALUES | IN_AVRO)
    engine.produce(topic, [written for written, _ in cases])
    refused: list[Row] = [{"moment": each} for each in NO_MOMENTS]
    refused += [{"moments": ["2020-01-01T00:00:00Z", "x"]}, {"millis": 2**63 - 1}, {"millis": -(2**63)}]
    engine.produce(topic, [cases[0][0] | each for each in refused])
    (outcome,) = engine.drain(of_changes(engine, topic))
    assert same(read(engine, topic)) == same([found for _, found in cases])
    assert outcome.ledger.rejected == {"malformed": len(refused)}
    proved(engine, topic)


def test_every_type_in_json_is_its_value(engine: Engine) -> None:
    topic = json_topic(engine, json_schema())
    schema_id = engine.registry.get_latest_version(f"{topic}-value").schema_id
    assert schema_id is not None
    cases = rows(VALUES | IN_JSON)
    for written, _ in cases:
        send(engine, topic, schema_id, written)
    refused: list[Row] = [{"moment": each} for each in [*NO_MOMENTS, 1]]
    refused += [
        {"moments": ["x"]},
        {"millis": 2**63 - 1},
        {"millis": -(2**63)},
        {"micros": 2**63},
        {"micros": "1"},
        {"date": "2020-01-01"},
    ]
    for each in refused:
        send(engine, topic, schema_id, each)
    (outcome,) = engine.drain(of_changes(engine, topic))
    assert same(read(engine, topic)) == same([found for _, found in cases])
    assert outcome.ledger.rejected == {"malformed": len(refused)}
    proved(engine, topic)


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
    topic = engine.topic(partitions=1, schema=json.dumps(schema))
    good, bad = "2020-01-01T00:00:00+02:00", "2020-01-01T00:00:00"
    nothing: Row = {"inner": None, "by_name": {}, "by_number": [], "either": None}

    def filled(text: str) -> list[Row]:
        return [
            nothing | {"inner": {"at": text}},
            nothing | {"by_name": {"k": text, "n": None}},
            nothing | {"by_number": [{"key": 1, "value": text}, {"key": 1, "value": None}]},
            nothing | {"either": text},
        ]

    engine.produce(topic, [nothing, *filled(good)])
    for each in filled(bad):
        engine.send(topic, engine.encode(topic, each))
    longer, shorter = engine.encode(topic, filled(bad)[0]) + b"\0", engine.encode(topic, filled(bad)[3])[:-1]
    engine.send(topic, longer)
    engine.send(topic, shorter)
    engine.flush()
    (outcome,) = engine.drain(of_changes(engine, topic))
    found = datetime(2019, 12, 31, 22, tzinfo=UTC)
    assert read(engine, topic) == [
        nothing | {"by_name": [], "by_number": []},
        nothing | {"inner": {"at": found}, "by_name": [], "by_number": []},
        nothing | {"by_name": [("k", found), ("n", None)], "by_number": []},
        nothing | {"by_name": [], "by_number": [(1, None)]},
        nothing | {"by_name": [], "by_number": [], "either": {"string": found, "long": None}},
    ]
    assert outcome.ledger.rejected == {"malformed": 5, "trailing_bytes": 1}
    proved(engine, topic)


@pytest.mark.parametrize("kind", ["avro", "json"])
def test_infinite_times_of_a_database_are_kept(engine: Engine, kind: str) -> None:
    schema = avro_schema() if kind == "avro" else json_schema()
    topic = (
        engine.topic(partitions=1, schema=json.dumps(schema))
        if kind == "avro"
        else json_topic(engine, schema)
    )
    infinite = [9_223_372_036_825_200_000, -9_223_372_036_832_400_000, 2**63 - 1, -(2**63)]
    written = [dict.fromkeys(TYPES) | {"micros": each, "date": n - 2**31} for n, each in enumerate(infinite)]
    if kind == "avro":
        engine.produce(topic, written)
    else:
        schema_id = engine.registry.get_latest_version(f"{topic}-value").schema_id
        assert schema_id is not None
        for each in written:
            send(engine, topic, schema_id, each)
    (outcome,) = engine.drain(of_changes(engine, topic))
    assert outcome.ledger.applied == len(infinite)
    moments = engine.rows(topic).orderBy("_kafka.offset").selectExpr("unix_micros(cast(micros as timestamp))")
    assert [row[0] for row in moments.collect()] == infinite
    proved(engine, topic)
