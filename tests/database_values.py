"""Timestamps and numbers as databases have them and converters write them: which are good, and their values."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from calve.decoding.decode_plan import DecodePlan, decoding, first_columns
from calve.schema.columns import Json, field, list_of, map_of, struct
from calve.schema.wire import BARE, Schema
from calve.schema.writers import JsonWriter

FIRST, LAST = -62_135_596_800_000_000, 253_402_300_799_999_999
"""The first microsecond of year 1 and the last one of year 9999."""
HOURS_18 = 18 * 3_600_000_000
MOMENTS = {
    "1970-01-01T00:00:00Z": 0,
    "1970-01-01 00:00:00.000001z": 1,
    "1969-12-31t23:59:59.9999990000-00:00": -1,
    "1970-01-02T00:00:00.5+17:59": 86_400_500_000 - HOURS_18 + 60_000_000,
    "9999-12-31T23:59:59.999999-18:00": LAST + HOURS_18,
    "0001-01-01T00:00:00+18:00": FIRST - HOURS_18,
    "infinity": LAST,
    "+infinity": LAST,
    "-infinity": FIRST,
    "0000-01-01T00:00:00Z": FIRST,
    "0000-12-31T23:59:59.9999999999+01:00": FIRST,
    "-0000-00-00T::Z": FIRST,
    "-0001-12-31T23:59:59.999999Z": FIRST,
    "-4713-01-01T00:00:00-05:30:17": FIRST,
    "+10000-01-01T00:00:00Z": LAST,
    "+294276-12-31T23:59:59.999999+00:00": LAST,
    "+00000-99-99T9.Z": LAST,
    "+10000-01-01T00:00:00-99:99:99": LAST,
}
"""Text -> microseconds."""
NO_MOMENTS = [
    "", "Infinity", "INFINITY", "infinity ", " infinity", "--infinity", "+-infinity", "infinit", "infinitx", "infinity\n",
    "1970-01-01", "1970-01-01T00:00:00", "1970-01-01T00:00:00.0000001Z", "1970-01-01T00:00:00.Z", "1970-02-29T00:00:00Z",
    "1970-01-01T24:00:00Z", "1970-01-01T00:00:00Z\n", "0001-01-01T00:00:00+18:01", "+9999-01-01T00:00:00Z",
    "10000-01-01T00:00:00Z", "-999-01-01T00:00:00Z", "0000-01-01 00:00:00Z", "0000-01-01t00:00:00Z",
    "0000-01-01T00:00:00z", "0000-01-01T00:00:00ZZ", "0000-01-01T00:00:00", "0000-01-01TZ", "0000-01-01T00:00:00+",
    "0000-01-01T00:00:00+1.0", "0000-1-01T00:00:00Z", "0000-01-1T00:00:00Z", "0000/01-01T00:00:00Z", "0000-01/01T00:00:00Z",
    "+10000-01-01", "+10000", "+", "-", "-0001-12-31", "0000", "+1000\u0660-01-01T00:00:00Z",
]  # fmt: skip


def moment(random: Random) -> str:
    """A text that may be a timestamp."""
    year = random.choice(
        ["0000", "0001", "1970", "9999", "10000", "+10000", "+9999", "-0001", "-001", "2024"]
    )
    day = random.choice(["-01-01", "-02-29", "-02-30", "-13-01", "-1-01"] + ["-12-31"] * 4)
    time = random.choice(["00:00:00", "23:59:59", "24:00:00", "12:30", "1:2:3"] + ["12:30:59"] * 4)
    fraction = random.choice(["", "", ".5", ".000001", ".1234560000", ".0000001", "."])
    zone = random.choice(["Z", "Z", "z", "+00:00", "-18:00", "+18:01", "+05:30", "", "+0530", "+05:60"])
    return f"{year}{day}{random.choice('TTTTt ')}{time}{fraction}{zone}"


NUMBERS = [
    "0", "-0", "-0.0", "1.5", "0.1", "16777217", "1e400", "-1e400", "3.5e38", "-3.5e38", "3.4028235e38", "1e39", "1e-400",
    "123456789012345678901234", "null",
    '"NaN"', '"Infinity"', '"-Infinity"', '"Na\\u004e"', '"-\\u0049nfinity"',
    '"+Infinity"', '"+INF"', '"-INF"', '"INF"', '"+NaN"', '"nan"', '"infinity"', '"NaN "', '"NaNs"', '"*INF"', '"*Infinity"',
    '"Infinitx"', '""', '"1.5"', '"1e400"', "NaN", "Infinity", "-Infinity", "INF", "+INF", "true", "[]", "{}", "[1]", "01", "1.",
]  # fmt: skip
"""JSON of a number in a database, or of none."""
WHOLE = [
    "0", "-1", "5", "253402300799999", "253402300800000", "253402300800001", "-62135596800000", "-62135596800001",
    "-62135596800002", "9223372036854775807", "-9223372036854775808", "9223372036854775808", "1.0", "1e3", '"1"', "null", "true",
]  # fmt: skip
SHAPE = {
    "type": "struct",
    "fields": [
        {"name": "f", "type": "database_float"},
        {"name": "d", "type": "database_double"},
        {"name": "at", "type": "instant"},
        {"name": "ms", "type": "local_millis"},
        {"name": "us", "type": "local_micros"},
        {"name": "s", "type": "string"},
        {"name": "l", "type": {"type": "list", "element": "database_double"}},
        {"name": "m", "type": {"type": "map", "value": "instant"}},
    ],
}
COLUMNS = struct(
    field("f", "float"), field("d", "double"), field("at", "timestamptz"), field("ms", "timestamp"), field("us", "timestamp"),
    field("s", "string"), field("l", list_of("double")), field("m", map_of("timestamptz")),
)  # fmt: skip


def json_plan() -> tuple[DecodePlan, Json]:
    """A plan whose values are JSON of `SHAPE`, and its columns."""
    versions = [Schema(0, '{"type": "object", "properties": {"s": {"type": "string"}}}', "JSON")]
    plan = decoding(first_columns(versions, "it"), versions, wire=BARE)
    writers = (JsonWriter(0, b"", SHAPE, COLUMNS),)
    return replace(plan, writers=writers, columns=COLUMNS), COLUMNS


def payload(random: Random) -> bytes:
    """An object of a few fields, some of them twice."""

    def text() -> str:
        found = random.choice([*MOMENTS, *NO_MOMENTS, moment(random), moment(random)])
        return f'"{found}"'.replace("\n", "\\n")

    def value(name: str) -> str:
        match name:
            case "f" | "d":
                return random.choice(NUMBERS)
            case "ms" | "us":
                return random.choice(WHOLE)
            case "at":
                return random.choice([text(), text(), "null", "1", "true", "{}"])
            case "l":
                return f"[{random.choice(NUMBERS)},{random.choice(NUMBERS[:8])}]"
            case "m":
                other = random.choice("ab")
                return f'{{"a":{text()},"{other}":"infinity"}}'
        return random.choice(['"NaN"', '"INF"', "NaN", "-Infinity", '"x"', "[NaN]", '["Infinity"]'])

    names = random.choices(
        ["f", "d", "at", "ms", "us", "l", "m", "other", "f", "d", "at"], k=random.randint(1, 3)
    )
    found = ",".join(f'"{name}":{value(name)}' for name in names)
    return f"{{{found}}}".encode()


def payloads() -> list[bytes]:
    """Each value of each field alone, and one after another of the same name."""
    quoted = [f'"{each}"'.replace("\n", "\\n") for each in (*MOMENTS, *NO_MOMENTS)]
    listed = {
        "f": NUMBERS,
        "d": NUMBERS,
        "ms": WHOLE,
        "us": WHOLE,
        "at": [*quoted, "null", "1", "true", "{}", "-Infinity"],
    }
    alone = [f'{{"{name}":{each}}}' for name, found in listed.items() for each in found]
    twice = [
        f'{{"{name}":{one},"{name}":{other},"s":"{word}"}}'
        for name, good in {"f": "1.5", "d": '"NaN"', "at": '"infinity"'}.items()
        for each in listed[name]
        for one, other in ((each, good), (good, each))
        for word in ("x", "NaN")
    ]
    return [each.encode() for each in (*alone, *twice)]
