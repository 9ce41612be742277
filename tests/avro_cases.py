"""Values about which readers of Avro differ: what Spark makes of each.

`tests/integration/engines/test_columnar_decoding.py` asks Spark.
"""

from __future__ import annotations

from decimal import Context, Decimal
from typing import Any

from calve.schema.change_events import MILLIS as DATABASE_MILLIS
from calve.schema.change_events import MOMENT
from calve.schema.columns import Json
from tests.database_values import FIRST, LAST, MOMENTS, NO_MOMENTS
from tests.integration.support.records.avro_records import entries, logical, nullable, record
from tests.random_avro import zigzag

EXACT = Context(prec=40)


def text(content: bytes) -> bytes:
    return zigzag(len(content)) + content


DECIMAL_18 = logical("bytes", "decimal", precision=18, scale=2)
DECIMAL_20 = logical("bytes", "decimal", precision=20, scale=2)
MILLIS = logical("long", "timestamp-millis")
FAR = zigzag(2**63 // 1000 + 1)
LEAST = zigzag(-(2**63))
INTS = {"type": "array", "items": "int"}
DAYS = entries("MapEntry", logical("int", "date"), "string")


SUMS = {"type": "map", "values": entries("MapEntry", DECIMAL_20, "int")}
UNFIT_SUM = text(bytes([16, *bytes(16)])) + b"\x02"
UNFIT_KEY = zigzag(1) + UNFIT_SUM + b"\x00"
PAIRS = entries("MapEntry", "boolean", {"type": "map", "values": DECIMAL_20})
UNFIT_MAP = zigzag(1) + text(b"a") + UNFIT_SUM[:-1] + b"\x00"
NUMBERS = {"type": "map", "values": record("V", d={"type": "array", "items": DECIMAL_20}, f="float")}
FIT, NAN = text(b"\x01"), b"\x00\x00\xc0\x7f"
NINE = b"\x01" + b"\x00" * 7
A, B = text(b"a"), text(b"b")
AT = logical("string", MOMENT)
GOOD_AT, BAD_AT = text(b"1970-01-01T00:00:00Z"), text(b"1970-01-01")
HISTORY = entries("MapEntry", "int", AT)
ONE_BAD = zigzag(1) + zigzag(9) + BAD_AT + b"\x00"
FLAGGED = entries("MapEntry", "boolean", {"type": "map", "values": AT})

CASES: list[tuple[Json, list[bytes], list[Any]]] = [
    ("boolean", [b"\x01", b"\x00", b"\x02"], ["True", "False", "False"]),
    (
        "int",
        [b"\x80\x80\x80\x80\x00", b"\x80\x80\x80\x80\x80\x00", b"\xfe\xff\xff\xff\x7f", b"\x80"],
        [0, 2**31 - 1],
    ),
    ("long", [LEAST, b"\xff" * 9 + b"\x03", b"\xff" * 10 + b"\x01"], [-(2**63), -(2**63)]),
    ("string", [zigzag(-1), zigzag(1) + b"\xff", zigzag(2) + b"a", zigzag(0) + b"a"], [b"\xff"]),
    ("bytes", [zigzag(-(2**40)), zigzag(2**62) + b"a", zigzag(16_777_217) + bytes(16_777_217)], []),
    ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, [zigzag(-1), zigzag(1), zigzag(2)], [b"B"]),
    (
        ["null", "int", "string"],
        [zigzag(3), zigzag(-1), zigzag(1) + zigzag(5)],
        [{"int": 5, "string": None}],
    ),
    (nullable("int"), [zigzag(2), zigzag(-1), zigzag(0), zigzag(1) + zigzag(5)], [None, 5]),
    (MILLIS, [FAR, zigzag(-(2**63 // 1000)), zigzag(-1)], [-(2**63 // 1000) * 1000, -1000]),
    (DECIMAL_18, [zigzag(0), text((10**18).to_bytes(8, "big"))], []),
    (
        DECIMAL_18,
        [text(b"\x81"), text(bytes(9)), text(NINE + b"\x07")],
        [Decimal("-1.27"), Decimal(0), Decimal("0.07")],
    ),
    (
        DECIMAL_20,
        [zigzag(0), text((10**20).to_bytes(9, "big")), text(NINE + bytes(9)), text(b"\x80" + bytes(16))],
        [],
    ),
    (DECIMAL_20, [text(b"\xff" * 40)], [Decimal("-0.01")]),
    (
        DECIMAL_20,
        [text((1 - 10**20).to_bytes(30, "big", signed=True))],
        [Decimal(1 - 10**20).scaleb(-2, EXACT)],
    ),
    (INTS, [LEAST + zigzag(0), zigzag(-2) + zigzag(77) + b"\x02\x04" + zigzag(0)], [[], [1, 2]]),
    (INTS, [zigzag(1_000_001), zigzag(1) + b"\x02" + LEAST, zigzag(1) + b"\x02"], []),
    (
        {"type": "map", "values": "int"},
        [zigzag(3) + A + b"\x02" + B + b"\x04" + A + b"\x06\x00"],
        [[(b"a", 3), (b"b", 2)]],
    ),
    ({"type": "map", "values": "int"}, [zigzag(1) + zigzag(-1) + b"\x00\x00"], []),
    ({"type": "map", "values": MILLIS}, [zigzag(2) + A + FAR + A + b"\x02\x00"], [[(b"a", 1000)]]),
    ({"type": "map", "values": MILLIS}, [zigzag(2) + A + b"\x02" + A + FAR + b"\x00"], []),
    (DAYS, [zigzag(2) + zigzag(-(2**31)) + A + zigzag(-(2**31)) + B + b"\x00"], [[(-(2**31), b"b")]]),
    (SUMS, [zigzag(2) + A + UNFIT_KEY + A + b"\x00\x00"], [[(b"a", [])]]),
    (SUMS, [zigzag(2) + A + b"\x00" + A + UNFIT_KEY + b"\x00"], []),
    (
        SUMS,
        [
            zigzag(1)
            + A
            + zigzag(3)
            + text(b"\x00")
            + b"\x02"
            + text(b"\x01")
            + b"\x02"
            + UNFIT_SUM
            + b"\x00\x00"
        ],
        [],
    ),
    (PAIRS, [zigzag(2) + b"\x01" + UNFIT_MAP + b"\x01\x00\x00"], []),
    (
        PAIRS,
        [zigzag(1) + b"\x01" + zigzag(2) + A + UNFIT_SUM[:-1] + A + text(b"\x01") + b"\x00\x00"],
        [[("True", [(b"a", Decimal("0.01"))])]],
    ),
    (NUMBERS, [zigzag(1) + A + zigzag(7) + FIT * 3 + UNFIT_SUM[:-1] + FIT * 3 + b"\x00" + NAN + b"\x00"], []),
    (
        NUMBERS,
        [zigzag(2) + A + zigzag(1) + UNFIT_SUM[:-1] + b"\x00" + NAN + A + b"\x00" + NAN + b"\x00"],
        [[(b"a", {"d": [], "f": "nan"})]],
    ),
    (AT, [text(each.encode()) for each in (*MOMENTS, *NO_MOMENTS)], [*MOMENTS.values()]),
    (AT, [text(b"\xff"), text(b"1970-01-01T00:00:00\xffZ")], []),
    (nullable(AT), [b"\x00", b"\x02" + GOOD_AT, b"\x02" + BAD_AT], [None, 0]),
    (
        ["null", AT, "int"],
        [b"\x00", b"\x02" + GOOD_AT, b"\x02" + BAD_AT, b"\x04\x0a"],
        [None, {"string": 0, "int": None}, {"string": None, "int": 5}],
    ),
    (
        {"type": "array", "items": nullable(AT)},
        [zigzag(2) + b"\x00\x02" + each + b"\x00" for each in (GOOD_AT, BAD_AT)],
        [[None, 0]],
    ),
    (
        {"type": "map", "values": AT},
        [zigzag(2) + A + one + A + other + b"\x00" for one, other in ((BAD_AT, GOOD_AT), (GOOD_AT, BAD_AT))],
        [[(b"a", 0)]],
    ),
    (
        HISTORY,
        [zigzag(2) + b"\x02" + each + b"\x02" + GOOD_AT + b"\x00" for each in (BAD_AT, GOOD_AT)],
        [[(1, 0)]],
    ),
    (
        {"type": "map", "values": HISTORY},
        [zigzag(2) + A + ONE_BAD + A + b"\x00\x00", zigzag(2) + A + b"\x00" + A + ONE_BAD + b"\x00"],
        [[(b"a", [])]],
    ),
    (FLAGGED, [zigzag(2) + b"\x01" + zigzag(1) + A + BAD_AT + b"\x00\x01\x00\x00"], []),
    (
        FLAGGED,
        [zigzag(1) + b"\x01" + zigzag(2) + A + BAD_AT + A + GOOD_AT + b"\x00\x00"],
        [[("True", [(b"a", 0)])]],
    ),
    (
        entries("MapEntry", AT, "int"),
        [zigzag(2) + GOOD_AT + b"\x02" + text(b"1970-01-01t01:00:00+01:00") + b"\x04\x00"],
        [[(0, 2)]],
    ),
    (
        logical("long", DATABASE_MILLIS),
        [zigzag(5), LEAST, zigzag(2**63 - 1), zigzag(LAST // 1000), zigzag(FIRST // 1000)],
        [5000, FIRST - 1000, LAST + 1, LAST - 999, FIRST],
    ),
]
"""A type, values of it, and those that are good, as `tests.columnar.plain` has them."""

MOST = 1_000_000
LISTS = {"type": "array", "items": {"type": "array", "items": "boolean"}}
FLAGS = {"type": "array", "items": nullable("boolean")}
MANY: list[tuple[Json, bytes, list[int]]] = [
    (FLAGS, zigzag(MOST) + b"\x00" * MOST + b"\x00", [MOST]),
    (FLAGS, zigzag(1) + b"\x00" + zigzag(MOST) + b"\x00" * MOST + b"\x00", []),
    (LISTS, zigzag(1) + b"\x00" + zigzag(MOST) + b"\x00" * MOST + b"\x00", [MOST + 1]),
    (LISTS, zigzag(1) + b"\x02\x01\x00" + zigzag(MOST) + b"\x00" * MOST + b"\x00", []),
]
"""As many items as may be: a type, a value, and the number of its items. Items of the list within stand for those before it."""
