"""A JSON Schema with every type, and payloads of it: what each must be, as a row or as a dead letter."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

CONNECT = "org.apache.kafka.connect.data."
MOMENT = {"type": "string", "format": "date-time"}
DECIMAL = {"type": "number", "connect.type": "bytes", "title": f"{CONNECT}Decimal"}
EVERY_TYPE = {
    "type": "object",
    "$defs": {"inner": {"type": "object", "properties": {"s": {"type": "string"}, "at": MOMENT}}},
    "properties": {
        "i": {"type": "integer"},
        "n": {"type": "number"},
        "s": {"type": "string"},
        "b": {"type": "boolean"},
        "at": MOMENT,
        "d": {"type": ["string", "null"], "format": "date"},
        "i32": {"type": "integer", "connect.type": "int32"},
        "f": {"type": "number", "connect.type": "float32"},
        "day": {"type": "integer", "connect.type": "int32", "title": f"{CONNECT}Date"},
        "ms": {"type": "integer", "connect.type": "int64", "title": f"{CONNECT}Timestamp"},
        "dec": DECIMAL | {"connect.parameters": {"scale": "2", "connect.decimal.precision": "5"}},
        "big": {"oneOf": [{"type": "null"}, DECIMAL | {"connect.parameters": {"scale": "10"}}]},
        "raw": {"type": "string", "connect.type": "bytes"},
        "any": {},
        "side": {"enum": ["BUY", "SELL"]},
        "o": {"$ref": "#/$defs/inner"},
        "l": {"type": "array", "items": {"type": "string"}},
        "w": {"type": "object", "properties": {"lo": {"type": "array", "items": {"$ref": "#/$defs/inner"}}}},
        "ln": {"type": "array", "items": {"type": "number"}},
        "m": {"type": "object", "additionalProperties": {"type": "string"}},
        "md": {"type": "object", "additionalProperties": {"type": "string", "format": "date"}},
        "u": {"type": ["string", "integer", "boolean", "null"]},
        "uo": {"oneOf": [{"$ref": "#/$defs/inner"}, {"type": "array", "items": {}}, {"type": "null"}]},
    },
}


def at_utc(*moment: int) -> datetime:
    return datetime(*moment, tzinfo=UTC)  # type: ignore[misc,arg-type]


NINES = Decimal("-9999999999999999999999999999.9999999999")
FULL = {
    "i": -(2**63),
    "n": 1.5,
    "s": "žąsis 🧊\x00",
    "b": True,
    "at": at_utc(2026, 11, 20, 8, 0, 0, 123456),
    "d": date(1582, 10, 10),
    "i32": 2**31 - 1,
    "f": 0.10000000149011612,
    "day": date(1, 1, 1),
    "ms": at_utc(1969, 12, 31, 23, 59, 59, 999_000),
    "dec": Decimal("-999.99"),
    "big": NINES,
    "raw": b"\x01\x02",
    "any": '{"a":["1",null,true,-0.5],"b":1.1}',
    "side": "SELL",
    "o": {"s": "true", "at": at_utc(1, 1, 1)},
    "l": ["12", None, "[x", "true", ""],
    "w": {"lo": [{"s": None, "at": at_utc(2026, 1, 1)}, None]},
    "ln": [1.0, -0.0, None, 1.7976931348623157e308],
    "m": [("k", "1"), ("", None)],
    "md": [("k", date(2026, 1, 1)), ("n", None)],
    "u": '"7"',
    "uo": '{"s":1}',
}
FULL_TEXT = json.dumps(
    FULL
    | {
        "at": "2026-11-20T10:00:00.12345600+02:00",
        "d": "1582-10-10",
        "f": 0.1,
        "day": -719162,
        "ms": -1,
        "dec": "DEC",
        "big": "BIG",
        "raw": "AQI=",
        "any": {"b": "ANY", "a": ["1", None, True, -0.5]},
        "o": {"s": "true", "at": "0001-01-01t00:00:00z"},
        "w": {"lo": [{"at": "2026-01-01 00:00:00Z"}, None]},
        "m": {"k": "1", "": None},
        "md": {"k": "2026-01-01", "n": None},
        "u": "7",
        "uo": {"s": 1},
        "not in the schema": [{}],
    }
)
FULL_TEXT = FULL_TEXT.replace('"DEC"', "-999.990").replace('"BIG"', str(NINES)).replace('"ANY"', "1.10")

ROWS: list[tuple[str, dict[str, Any]]] = [
    (FULL_TEXT, FULL),
    ("{}", {}),
    (' {"i":1}\n', {"i": 1}),
    ('{"i":null,"o":null,"any":null,"l":null,"dec":null}', {}),
    ('{"i":1,"i":2}', {"i": 2}),
    ('{"n":123456789012345678901234567890}', {"n": 1.2345678901234568e29}),
    ('{"n":-0.0}', {"n": -0.0}),
    ('{"u":7,"uo":["x",1]}', {"u": "7", "uo": '["x",1]'}),
    ('{"u":true,"uo":null}', {"u": "true"}),
    ('{"dec":"MDk=","big":"/w=="}', {"dec": Decimal("123.45"), "big": Decimal("-0.0000000001")}),
    ('{"big":"tMSzV6V5O4X2dd3AAAAAAQ=="}', {"big": Decimal("-9999999999999999999999999999.9999999999")}),
    ('{"any":"s","l":[],"m":{},"o":{}}', {"any": '"s"', "l": [], "m": [], "o": {"s": None, "at": None}}),
    ('{"any":{"a":1e2,"\\u0001":"\\u0007\\b\\f\\n\\r\\t\\"\\\\/\\u007f\\u2028"}}', None),  # type: ignore[list-item]
    ('{"any":[12345678901234567890123456789012345678,1e-7,1.0E300,0.00,-0,-0.0,123e-2]}', None),  # type: ignore[list-item]
    ('{"any":{"🧊":1,"ﬀ":2,"":3}}', None),  # type: ignore[list-item]
    ('{"s":"\\\\ud800","zz":"\\ud83e\\uddca"}', {"s": "\\ud800"}),
    ('{"zz":%s}' % ("[" * 900 + "]" * 900), {}),
]
"""Payloads and the row, without its nulls; None where verification is what says the row."""

REFUSED = [
    '{"i":1.5}',
    '{"i":1.0}',
    '{"i":1e3}',
    '{"i":"1"}',
    '{"i":true}',
    '{"i":9223372036854775808}',
    '{"i":01}',
    '{"i32":2147483648}',
    '{"n":1e400}',
    '{"n":NaN}',
    '{"n":"NaN"}',
    '{"n":-Infinity}',
    '{"ln":[1,1e400]}',
    '{"f":1e39}',
    '{"n":%s}' % ("9" * 1001),
    '{"zz":%s}' % ("9" * 1001),
    '{"s":1}',
    '{"s":true}',
    '{"s":{}}',
    '{"s":[1]}',
    '{"l":["x",1]}',
    '{"l":"x"}',
    '{"m":{"k":1}}',
    '{"m":{"k":"1","k":"2"}}',
    '{"m":[]}',
    '{"o":{"s":5}}',
    '{"o":[]}',
    '{"w":{"lo":[{"at":"x"}]}}',
    '{"side":1}',
    '{"b":1}',
    '{"b":"true"}',
    '{"at":"2026-11-20T10:00:00.1234567Z"}',
    '{"at":"2026-11-20T10:00:00"}',
    '{"at":"2026-02-30T10:00:00Z"}',
    '{"at":"2026-11-20T24:00:00Z"}',
    '{"at":"2026-11-20T23:59:60Z"}',
    '{"at":"2026-11-20T10:00:00+19:00"}',
    '{"at":"0000-01-01T00:00:00Z"}',
    '{"at":"2026-11-20T10:00:00Z\\n"}',
    '{"at":""}',
    '{"at":1}',
    '{"d":"2026-1-1"}',
    '{"md":{"k":"2026-13-01"}}',
    '{"ms":9223372036854775807}',
    '{"ms":-9223372036854775808}',
    '{"dec":123.456}',
    '{"dec":1234.5}',
    '{"dec":"12.5"}',
    '{"dec":""}',
    '{"dec":"MDkw"}',
    '{"dec":"MDk"}',
    '{"big":"SztMqFqGxHoJiiJAAAAAAA=="}',
    '{"big":"AAAAAAAAAAAAAAAAAAAAAAA="}',
    '{"big":"f////////////////////w=="}',
    '{"u":1e400}',
    '{"dec":1e2}',
    '{"big":0.00000000001}',
    '{"raw":"AQ"}',
    '{"raw":1}',
    '{"any":{"a":1,"a":2}}',
    '{"any":1e400}',
    '{"i":1}x',
    '{"i":1},{"i":2}',
    '{"i":1}]}',
    '{"i":1},null]}',
    '{"i":1}],"zz":[{}',
    '{"i":1',
    '{"s":"abc',
    '{"i":1,}',
    "{'i':1}",
    "/**/{}",
    "",
    " ",
    "null",
    "3",
    '"x"',
    '[{"i":1}]',
    "\ufeff{}",
    '{"s":"\\ud800"}',
    '{"zz":"\\uDC00"}',
    '{"zz":"\x01"}',
    '{"a":' * 1000 + "1" + "}" * 1000,
]
REFUSED_BYTES = [b'{"s":"\xff"}', b'{"zz":"\xed\xa0\x80"}', b'{"s":"\xc0\xaf"}', b"\x00\x01"]
