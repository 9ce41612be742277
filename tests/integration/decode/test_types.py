"""Every Avro type, written by the registry's own serializer, is the same value to Spark and to PyIceberg."""

from __future__ import annotations

import json
import math
import uuid
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from tests.integration.support.engine import Engine
from tests.integration.support.proofs import assert_proved, proof
from tests.integration.support.records.avro_records import (
    Avro,
    Row,
    entries,
    logical,
    nullable,
    read,
    record,
    same,
)


def at_utc(*moment: int) -> datetime:
    return datetime(*moment, tzinfo=UTC)  # type: ignore[misc,arg-type]


FLAT: dict[str, tuple[Avro, list[Any]]] = {
    "boolean": ("boolean", [True, False]),
    "int": ("int", [-(2**31), 2**31 - 1]),
    "long": ("long", [-(2**63), 2**63 - 1]),
    "float": ("float", [-3.4028234663852886e38, 1.401298464324817e-45, math.inf, math.nan]),
    "double": ("double", [-1.7976931348623157e308, 5e-324, -math.inf, math.nan, -0.0]),
    "bytes": ("bytes", [b"", bytes(range(256))]),
    "string": ("string", ["", "\x00 žąsis 🧊", "long " * 2000]),
    "enum": ({"type": "enum", "name": "Side", "symbols": ["BUY", "SELL"]}, ["SELL", "BUY"]),
    "fixed": ({"type": "fixed", "name": "Four", "size": 4}, [b"\x00\xff\x00\xff", bytes(4)]),
    "date": (logical("int", "date"), [date(1, 1, 1), date(1582, 10, 10), date(9999, 12, 31)]),
    "millis": (
        logical("long", "timestamp-millis"),
        [
            at_utc(1, 1, 1),
            at_utc(1969, 12, 31, 23, 59, 59, 999_000),
            at_utc(9999, 12, 31, 23, 59, 59, 999_000),
        ],
    ),
    "micros": (
        logical("long", "timestamp-micros"),
        [at_utc(1, 1, 1), at_utc(1582, 10, 10, 1, 2, 3, 4), at_utc(9999, 12, 31, 23, 59, 59, 999_999)],
    ),
    "local_millis": (
        logical("long", "local-timestamp-millis"),
        [datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999_000)],  # noqa: DTZ001 local time
    ),
    "local_micros": (
        logical("long", "local-timestamp-micros"),
        [datetime(1900, 1, 1, 0, 0, 0, 1), datetime(9999, 12, 31, 23, 59, 59, 999_999)],  # noqa: DTZ001 local time
    ),
    "money": (
        logical("bytes", "decimal", precision=38, scale=10),
        [Decimal("-9999999999999999999999999999.9999999999"), Decimal("0.0000000001"), Decimal("0E-10")],
    ),
    "price": (
        {"type": "fixed", "name": "Price", "size": 5, "logicalType": "decimal", "precision": 9, "scale": 2},
        [Decimal("-9999999.99"), Decimal("9999999.99")],
    ),
    "uuid": (
        logical("string", "uuid"),
        ["00000000-0000-0000-0000-000000000000", str(uuid.UUID(int=2**128 - 1))],
    ),
    "clock_millis": (logical("int", "time-millis"), [0, 86_399_999]),
    "clock_micros": (logical("long", "time-micros"), [0, 86_399_999_999]),
    "unknown": (logical("string", "no-such-type"), ["as it is"]),
    "nanos": (logical("long", "timestamp-nanos"), [-(2**63), 1_790_000_000_123_456_789, 2**63 - 1]),
    "local_nanos": (logical("long", "local-timestamp-nanos"), [-1, 2**63 - 1]),
    "span": (
        {"type": "fixed", "name": "Span", "size": 12, "logicalType": "duration"},
        [bytes(12), b"\xff" * 12],
    ),
    "tiny": ({"type": "int", "connect.type": "int8"}, [-128, 127]),
    "small": ({"type": "int", "connect.type": "int16"}, [-32_768, 32_767]),
    "bare_decimal": (logical("bytes", "decimal", precision=10), [Decimal(-9_999_999_999), Decimal(0)]),
}

ADDRESS = record("Address", street=nullable("string"), zip=nullable("int"))
NESTED = record(
    "Person",
    home=ADDRESS,
    work=nullable("test.Address"),
    others={"type": "array", "items": nullable("test.Address")},
    by_name={"type": "map", "values": "test.Address"},
    tags={"type": "array", "items": {"type": "array", "items": nullable("string")}},
    scores={"type": "map", "values": nullable("double")},
    side={"type": "enum", "name": "Side", "symbols": ["BUY", "SELL"]},
    other_side=nullable("test.Side"),
    deep=record(
        "A", b=record("B", c={"type": "array", "items": record("C", d={"type": "map", "values": "long"})})
    ),
) | {"namespace": "test"}
HOME = {"street": "Gedimino 1", "zip": None}
FULL: Row = {
    "home": HOME,
    "work": {"street": None, "zip": -1},
    "others": [HOME, None, HOME],
    "by_name": {"a": HOME, "": {"street": "", "zip": 0}},
    "tags": [[], ["x", None]],
    "scores": {"high": 1.5, "none": None},
    "side": "SELL",
    "other_side": "BUY",
    "deep": {"b": {"c": [{"d": {"k": 2**63 - 1}}, {"d": {}}]}},
}
EMPTY: Row = FULL | {
    "work": None,
    "others": [],
    "by_name": {},
    "tags": [],
    "scores": {},
    "other_side": None,
    "deep": {"b": {"c": []}},
}


def test_flat_types_keep_their_values_and_extremes(engine: Engine) -> None:
    fields = {name: nullable(kind) for name, (kind, _) in FLAT.items()}
    required = {f"{name}_": "test.Side" if name == "enum" else kind for name, (kind, _) in FLAT.items()}
    del required["fixed_"], required["price_"], required["span_"]
    topic = engine.topic(
        partitions=1, schema=json.dumps(record("Flat", **fields, **required) | {"namespace": "test"})
    )
    longest = max(len(values) for _, values in FLAT.values())
    expected = []
    for turn in range(longest + 1):
        row: Row = {}
        for name, (_, values) in FLAT.items():
            row[name] = values[turn] if turn < len(values) else None
            if f"{name}_" in required:
                row[f"{name}_"] = values[turn % len(values)]
        expected.append(row)
    engine.produce(
        topic, [{name: as_written(name, value) for name, value in row.items()} for row in expected]
    )
    (outcome,) = engine.drain(engine.target(topic))
    assert outcome.ledger.dead_lettered == 0
    assert same(read(engine, topic)) == same(expected)
    assert_proved(proof(engine, topic))
    comments = {each["name"]: each.get("doc") for each in engine.table(topic).schema["fields"]}
    assert comments["nanos"] == "nanoseconds since 1970-01-01 UTC"
    assert comments["long"] is None


def as_written(name: str, value: Any) -> Any:
    """What the serializer is given for a value."""
    return uuid.UUID(value) if name.startswith("uuid") and value is not None else value


def test_nested_types_keep_their_values(engine: Engine) -> None:
    topic = engine.topic(partitions=1, schema=json.dumps(NESTED))
    engine.produce(topic, [FULL, EMPTY])
    engine.drain(engine.target(topic))
    assert [_maps(row) for row in read(engine, topic)] == [FULL, EMPTY]
    assert_proved(proof(engine, topic))


def _maps(row: Row) -> Row:
    """Arrow's lists of pairs as dictionaries again."""
    deep = [{"d": dict(each["d"])} for each in row["deep"]["b"]["c"]]
    return row | {
        "by_name": dict(row["by_name"]),
        "scores": dict(row["scores"]),
        "deep": {"b": {"c": deep}},
    }


def test_fields_may_have_the_names_that_the_engine_uses(engine: Engine) -> None:
    names = "topic partition offset timestamp timestampType key value headers schema_id reject size decoded end frame"
    row: Row = {name: number for number, name in enumerate([*names.split(), "select", "from", "_", "Case"])}
    topic = engine.topic(partitions=1, schema=json.dumps(record("Names", **dict.fromkeys(row, "long"))))
    engine.produce(topic, [row])
    engine.send(topic, b"")
    engine.produce(topic, [row])
    (outcome,) = engine.drain(engine.target(topic))
    assert outcome.ledger.rejected == {"truncated": 1}
    assert read(engine, topic) == [row, row]


def named(name: str, kind: Avro, **more: Any) -> Avro:
    return {"type": kind, "name": name, **more}


UNIONS = record(
    "Unions",
    choice=[
        "null",
        "string",
        "long",
        "boolean",
        "double",
        "bytes",
        record("Address", street=nullable("string")),
        {"type": "array", "items": "int"},
        {"type": "map", "values": "int"},
        named("Side", "enum", symbols=["BUY", "SELL"]),
    ],
    whole=["null", "int", "long"],
    real=["double", "float"],
    day=["null", logical("int", "date"), logical("long", "timestamp-micros")],
    price=[
        "null",
        logical("bytes", "decimal", precision=20, scale=2),
        named("Cents", "fixed", size=4, logicalType="decimal", precision=9, scale=2),
    ],
    clash=["null", record("one.Same", x="int"), record("two.Same", x="int")],
    each={"type": "array", "items": ["null", "string", "long"]},
    by_name={"type": "map", "values": ["string", record("Inner", deep=["null", "int", "string"])]},
    alone=["string"],
)


def test_a_union_is_a_struct_with_a_field_for_each_of_its_types(engine: Engine) -> None:
    topic = engine.topic(partitions=1, schema=json.dumps(UNIONS))
    kinds = dict.fromkeys(["string", "long", "boolean", "double", "bytes", "Address", "array", "map", "Side"])
    rest: dict[str, tuple[Any, Any]] = {
        "whole": (None, None),
        "real": (("float", 0.5), {"double": None, "float": 0.5}),
        "day": (None, None),
        "price": (None, None),
        "clash": (None, None),
        "each": ([], []),
        "by_name": ({}, []),
        "alone": ("a", "a"),
    }
    choices: list[tuple[Any, Any]] = [
        (None, None),
        ("text", {"string": "text"}),
        (2**63 - 1, {"long": 2**63 - 1}),
        (True, {"boolean": True}),
        (-0.0, {"double": -0.0}),
        (b"\x00", {"bytes": b"\x00"}),
        (("Address", {"street": None}), {"Address": {"street": None}}),
        ([], {"array": []}),
        ({"k": -1}, {"map": [("k", -1)]}),
    ]
    rows = [rest | {"choice": (w, r and kinds | r)} for w, r in choices]
    for name, written, found in [
        ("whole", ("int", -(2**31)), {"int": -(2**31), "long": None}),
        ("whole", ("long", 7), {"int": None, "long": 7}),
        ("real", ("double", 0.1), {"double": 0.1, "float": None}),
        ("day", date(1, 1, 1), {"int": date(1, 1, 1), "long": None}),
        ("day", 253_370_764_800_000_000, {"int": None, "long": at_utc(9999, 1, 1)}),
        ("price", Decimal("-0.01"), {"bytes": Decimal("-0.01"), "Cents": None}),
        ("clash", ("one.Same", {"x": 1}), {"one_Same": {"x": 1}, "two_Same": None}),
        ("clash", ("two.Same", {"x": 2}), {"one_Same": None, "two_Same": {"x": 2}}),
        ("each", [None, "a", 5], [None, {"string": "a", "long": None}, {"string": None, "long": 5}]),
        (
            "by_name",
            {"k": ("Inner", {"deep": ("int", 1)})},
            [("k", {"string": None, "Inner": {"deep": {"int": 1, "string": None}}})],
        ),
        ("by_name", {"k": "v"}, [("k", {"string": "v", "Inner": None})]),
    ]:
        rows.append(rest | {"choice": (None, None), name: (written, found)})
    engine.produce(topic, [{name: pair[0] for name, pair in row.items()} for row in rows])
    (outcome,) = engine.drain(engine.target(topic))
    assert outcome.ledger.dead_lettered == 0
    assert same(read(engine, topic)) == same([{name: pair[1] for name, pair in row.items()} for row in rows])
    assert_proved(proof(engine, topic))


ENTRIES: dict[str, tuple[Avro, list[tuple[Any, Any]]]] = {
    "text": (entries("a.MapEntry", "string", "long"), [("", -1), ("k", 2**63 - 1)]),
    "whole": (entries("b.MapEntry", "int", nullable("string")), [(-(2**31), None), (2**31 - 1, "x")]),
    "day": (
        entries("c.Entry", logical("int", "date"), "int", logicalType="map"),
        [(date(1, 1, 1), 1), (date(9999, 12, 31), 2)],
    ),
    "money": (
        entries("d.MapEntry", logical("bytes", "decimal", precision=20, scale=2), "int"),
        [(Decimal("-0.01"), 1), (Decimal("999999999999999999.99"), 2)],
    ),
    "raw": (entries("e.MapEntry", "bytes", "bytes"), [(b"", b"\xff"), (b"\x00\xff", b"")]),
    "flag": (entries("f.MapEntry", "boolean", entries("f.Inner.MapEntry", "long", "int")), []),
}


def test_a_map_with_keys_of_any_type_is_a_map(engine: Engine) -> None:
    fields = {name: kind for name, (kind, _) in ENTRIES.items()}
    schema = record("Maps", **fields, listed=entries("g.MapEntry", nullable("int"), "int"))
    topic = engine.topic(partitions=1, schema=json.dumps(schema))
    pairs: dict[str, list[tuple[Any, Any]]] = {name: found for name, (_, found) in ENTRIES.items()}

    def written(found: list[tuple[Any, Any]]) -> list[Row]:
        return [{"key": key, "value": value} for key, value in found]

    full: Row = {name: written(found) for name, found in pairs.items()}
    full |= {"flag": [{"key": True, "value": written([(2**40, 1)])}], "listed": [{"key": None, "value": 1}]}
    twice = full | {"whole": written([(1, "first"), (1, "last")])}
    empty: Row = {key: [] for key in full}
    engine.produce(topic, [full, empty, twice])
    (outcome,) = engine.drain(engine.target(topic))
    assert outcome.ledger.dead_lettered == 0
    expected = pairs | {"flag": [(True, [(2**40, 1)])], "listed": [{"key": None, "value": 1}]}
    assert read(engine, topic) == [expected, empty, expected | {"whole": [(1, "last")]}]
    assert_proved(proof(engine, topic))
