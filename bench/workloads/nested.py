"""Orders and wide records: prebuilt values of which each gets a number of its own, so that no two rows are alike."""

from __future__ import annotations

import json
from collections.abc import Callable
from io import BytesIO
from random import Random
from typing import Any

from fastavro import parse_schema, schemaless_writer
from google.protobuf.json_format import ParseDict
from google.protobuf.message_factory import GetMessageClass

from bench.workloads.workload import SEED, Block, Workload
from calve.schema.wire import Schema, zigzag
from cli.verify.formats.protobuf import compiled

PREBUILT = 4_000
WORDS = (
    "amber",
    "basalt",
    "cedar",
    "delta",
    "ember",
    "fjord",
    "glacier",
    "harbor",
    "iris",
    "juniper",
    "kelp",
    "lagoon",
    "moraine",
)
STATES = ("NEW", "PAID", "PACKED", "SHIPPED", "DELIVERED", "RETURNED")
CHANNELS = ("web", "app", "phone", "shop")
Row = dict[str, Any]


def _record(name: str, /, **fields: Any) -> Row:
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": each, "type": kind} for each, kind in fields.items()],
    }


MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}
ADDRESS = _record("address", street="string", city="string", zip="string", country="string")
LINE = _record(
    "line",
    sku="string",
    title="string",
    quantity="int",
    price=MONEY,
    discount=["null", "double"],
    tags={"type": "array", "items": "string"},
)
ORDERS_SCHEMA = _record(
    "order",
    order_id="string",
    created_at=MILLIS,
    updated_at=["null", MILLIS],
    state={"type": "enum", "name": "state", "symbols": list(STATES)},
    channel="string",
    customer=_record(
        "customer",
        id="long",
        name="string",
        email=["null", "string"],
        billing=ADDRESS,
        shipping=["null", "address"],
    ),
    lines={"type": "array", "items": LINE},
    total=MONEY,
    attributes={"type": "map", "values": "string"},
    scores={"type": "map", "values": "double"},
    coupon=["null", "string"],
    gift="boolean",
    note=["null", "string"],
)
ORDERS_PROTOBUF_SCHEMA = """syntax = "proto3";
message order {
  string order_id = 1; int64 created_at = 2; optional int64 updated_at = 3; string state = 4; string channel = 5;
  customer customer = 6; repeated line lines = 7; int64 total = 8; map<string, string> attributes = 9;
  map<string, double> scores = 10; optional string coupon = 11; bool gift = 12; optional string note = 13;
}
message customer { int64 id = 1; string name = 2; optional string email = 3; address billing = 4; address shipping = 5; }
message address { string street = 1; string city = 2; string zip = 3; string country = 4; }
message line {
  string sku = 1; string title = 2; int32 quantity = 3; int64 price = 4; optional double discount = 5; repeated string tags = 6;
}
"""
"""Money is in cents, which both Spark and calve read as an integer."""
KINDS = ("int", "long", "double", "boolean", "string", ["null", "int"], ["null", "string"], MILLIS)
WIDE_COLUMNS = 200
WIDE_SCHEMA = _record(
    "wide",
    id="string",
    **{f"c{n:03d}": KINDS[n % len(KINDS)] for n in range(1, WIDE_COLUMNS)},
)


def order(random: Random) -> Row:
    """An order without its number."""
    created = 1_790_000_000_000 + random.randrange(10**9)
    lines = [_line(random) for _ in range(random.randint(6, 10))]
    return {
        "created_at": created,
        "updated_at": random.choice((None, created + random.randrange(10**7))),
        "state": random.choice(STATES),
        "channel": random.choice(CHANNELS),
        "customer": {
            "id": random.randrange(10**7),
            "name": _words(random, 2),
            "email": random.choice((None, f"user{random.randrange(10**6)}@example.com")),
            "billing": _address(random),
            "shipping": random.choice((None, _address(random))),
        },
        "lines": lines,
        "total": _money(random),
        "attributes": {word: _words(random, 2) for word in random.sample(WORDS, random.randint(2, 5))},
        "scores": {word: random.random() for word in random.sample(WORDS, 3)},
        "coupon": random.choice((None, None, f"SAVE{random.randrange(100)}")),
        "gift": random.random() < 0.1,
        "note": random.choice((None, _words(random, 8))),
    }


def wide(random: Random) -> Row:
    """A wide row without its number."""
    make = (
        lambda: random.randrange(-1_000, 100_000),
        lambda: random.randrange(10**12),
        lambda: round(random.uniform(0, 1_000), 3),
        lambda: random.random() < 0.5,
        lambda: random.choice(WORDS),
        lambda: random.choice((None, random.randrange(1_000))),
        lambda: random.choice((None, random.choice(WORDS))),
        lambda: 1_790_000_000_000 + random.randrange(10**9),
    )
    return {f"c{n:03d}": make[n % len(make)]() for n in range(1, WIDE_COLUMNS)}


def numbered(schema: Row, row: Callable[[Random], Row]) -> Callable[[], Block]:
    """Records of a schema whose first field is a text that numbers them."""

    def make() -> Block:
        rest = parse_schema(schema | {"fields": schema["fields"][1:]})
        return _numbered(lambda number: zigzag(10) + number, row, lambda each: _written(rest, each))

    return make


def json_orders() -> Block:
    """The same orders as JSON objects."""

    def body(row: Row) -> bytes:
        return json.dumps(_in_cents(row), separators=(",", ":")).encode().removeprefix(b"{")

    return _numbered(lambda number: b'{"order_id":"' + number + b'",', order, body)


def protobuf_orders() -> Block:
    """The same orders as messages."""
    message = GetMessageClass(compiled(Schema(1, ORDERS_PROTOBUF_SCHEMA, "PROTOBUF")).messages[0])

    def body(row: Row) -> bytes:
        return ParseDict(with_entries(_in_cents(row)), message()).SerializeToString()

    return _numbered(lambda number: b"\x0a" + bytes([len(number)]) + number, order, body)


def _numbered(
    head: Callable[[bytes], bytes], row: Callable[[Random], Row], body: Callable[[Row], bytes]
) -> Block:
    """Values of a head, which has the number of the record, and one of some bodies."""
    random = Random(SEED)  # noqa: S311 reproducible on purpose
    prebuilt = [body(row(random)) for _ in range(PREBUILT)]

    def block(first: int, size: int, frame: bytes) -> tuple[list[bytes], list[bytes]]:
        chosen = Random(SEED + first).choices(prebuilt, k=size)  # noqa: S311
        keys = [b"%010d" % number for number in range(first, first + size)]
        return keys, [frame + head(key) + each for key, each in zip(keys, chosen, strict=True)]

    return block


def _in_cents(row: Row) -> Row:
    lines = [each | {"price": int.from_bytes(each["price"], "big")} for each in row["lines"]]
    return row | {"total": int.from_bytes(row["total"], "big"), "lines": lines}


def with_entries(row: Row) -> Row:
    """The same with maps as lists of entries, as `compiled` reads maps."""
    maps = {name: row[name].items() for name in ("attributes", "scores")}
    return row | {name: [{"key": k, "value": v} for k, v in items] for name, items in maps.items()}


def json_schema(kind: Any) -> Row:
    """The JSON Schema of an Avro type."""
    if isinstance(kind, list):
        return {"oneOf": [{"type": "null"}, json_schema(kind[1])]}
    match kind:
        case {"logicalType": _} | "int" | "long":
            return {"type": "integer"}
        case {"type": "record", "fields": fields}:
            return {
                "type": "object",
                "properties": {each["name"]: json_schema(each["type"]) for each in fields},
            }
        case {"type": "array", "items": items}:
            return {"type": "array", "items": json_schema(items)}
        case {"type": "map", "values": values}:
            return {"type": "object", "additionalProperties": json_schema(values)}
        case "address":
            return json_schema(ADDRESS)
        case "boolean":
            return {"type": "boolean"}
        case "double":
            return {"type": "number"}
    return {"type": "string"}


def _written(schema: Any, row: Row) -> bytes:
    out = BytesIO()
    schemaless_writer(out, schema, row)
    return out.getvalue()


def _line(random: Random) -> Row:
    return {
        "sku": f"SKU-{random.randrange(10**6):06d}",
        "title": _words(random, 4),
        "quantity": random.randint(1, 9),
        "price": _money(random),
        "discount": random.choice((None, round(random.random(), 2))),
        "tags": random.sample(WORDS, random.randint(0, 3)),
    }


def _address(random: Random) -> Row:
    return {
        "street": f"{random.randrange(1, 300)} {_words(random, 2)} street",
        "city": random.choice(WORDS),
        "zip": f"{random.randrange(10**5):05d}",
        "country": random.choice(("LT", "DE", "SE", "FI", "PL")),
    }


def _money(random: Random) -> bytes:
    return random.randrange(100, 10**8).to_bytes(5, "big", signed=True)


def _words(random: Random, count: int) -> str:
    return " ".join(random.choices(WORDS, k=count))


ORDERS = Workload("orders", json.dumps(ORDERS_SCHEMA), numbered(ORDERS_SCHEMA, order))
ORDERS_JSON = Workload("orders_json", json.dumps(json_schema(ORDERS_SCHEMA)), json_orders, "JSON")
ORDERS_PROTOBUF = Workload("orders_protobuf", ORDERS_PROTOBUF_SCHEMA, protobuf_orders, "PROTOBUF")
WIDE = Workload("wide", json.dumps(WIDE_SCHEMA), numbered(WIDE_SCHEMA, wide))
