"""Trades: flat records of about 55 bytes, in three formats with the same rows.

Numbers are made for a whole block at once, and written as the format writes them; texts are taken from a list of trades.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from google.protobuf.message_factory import GetMessageClass
from numpy.typing import NDArray

from bench.workloads.workload import SEED, Block, Workload
from calve.schema.wire import Schema, zigzag
from cli.verify.formats.protobuf import compiled

BEGIN_MS = 1_790_000_000_000
TAILS = 20_000
SYMBOLS = ("ZBZX", "ZJZZT", "ZTEST", "ZVV", "ZVZZT", "ZWZZT", "ZXZZT")
SIDES = ("BUY", "SELL")
ACCOUNTS = ("ABC123", "LMN456", "XYZ789")

FIELDS = [
    {"name": "trade_id", "type": "string"},
    {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "price", "type": "double"},
    {"name": "quantity", "type": "int"},
    {"name": "symbol", "type": "string"},
    {"name": "side", "type": "string"},
    {"name": "account", "type": "string"},
    {"name": "userid", "type": ["null", "string"], "default": None},
]
AVRO = json.dumps({"type": "record", "name": "trade", "fields": FIELDS})
JSON_SCHEMA = json.dumps(
    {
        "type": "object",
        "title": "trade",
        "properties": {
            "trade_id": {"type": "string"},
            "ts": {"type": "integer"},
            "price": {"type": "number"},
            "quantity": {"type": "integer"},
            **{name: {"type": "string"} for name in ("symbol", "side", "account", "userid")},
        },
    }
)
PROTOBUF = (
    'syntax = "proto3"; message trade { string trade_id = 1; int64 ts = 2; double price = 3; int32 quantity = 4;'
    " string symbol = 5; string side = 6; string account = 7; string userid = 8; }"
)
Texts = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class Trades:
    """Columns of a block: the numbers of the trades, and which texts each has."""

    number: NDArray[np.int64]
    price: NDArray[np.float64]
    quantity: NDArray[np.int64]
    tail: NDArray[np.int64]

    @property
    def ts(self) -> NDArray[np.int64]:
        return BEGIN_MS + self.number


def columns(first: int, size: int) -> Trades:
    rng = np.random.default_rng([SEED, first])
    return Trades(
        np.arange(first, first + size, dtype=np.int64),
        rng.integers(500, 100_000, size) / 100,
        rng.integers(1, 4_001, size),
        rng.integers(0, TAILS, size),
    )


def texts() -> list[Texts]:
    """Symbol, side, account and user of trades."""
    rng = np.random.default_rng(SEED)
    chosen = (rng.choice(each, TAILS) for each in (SYMBOLS, SIDES, ACCOUNTS))
    users = (f"User_{n}" for n in rng.integers(1, 10_001, TAILS))
    return [(str(a), str(b), str(c), d) for a, b, c, d in zip(*chosen, users, strict=True)]


def avro() -> Block:
    given = texts()
    tails = [b"".join(map(_text, each[:3])) + zigzag(1) + _text(each[3]) for each in given]
    keys = [each[3].encode() for each in given]

    def block(first: int, size: int, frame: bytes) -> tuple[list[bytes], list[bytes]]:
        made = columns(first, size)
        heads = _fixed(frame, made)
        width = heads.shape[1]
        data, quantities = heads.tobytes(), [zigzag(n) for n in made.quantity.tolist()]
        chosen = made.tail.tolist()
        values = [
            data[at * width : (at + 1) * width] + quantities[at] + tails[tail]
            for at, tail in enumerate(chosen)
        ]
        return [keys[tail] for tail in chosen], values

    return block


def json_text() -> Block:
    def tail(symbol: str, side: str, account: str, user: str) -> bytes:
        return f'"symbol":"{symbol}","side":"{side}","account":"{account}","userid":"{user}"}}'.encode()

    def head(number: int, ts: int, price: float, quantity: int) -> bytes:
        return f'{{"trade_id":"{number:010d}","ts":{ts},"price":{price},"quantity":{quantity},'.encode()

    return _of_each(head, tail)


def protobuf() -> Block:
    message = GetMessageClass(compiled(Schema(1, PROTOBUF, "PROTOBUF")).messages[0])

    def tail(symbol: str, side: str, account: str, user: str) -> bytes:
        return message(symbol=symbol, side=side, account=account, userid=user).SerializeToString()

    def head(number: int, ts: int, price: float, quantity: int) -> bytes:
        return message(trade_id=f"{number:010d}", ts=ts, price=price, quantity=quantity).SerializeToString()

    return _of_each(head, tail)


def _of_each(
    head: Callable[[int, int, float, int], bytes], tail: Callable[[str, str, str, str], bytes]
) -> Block:
    """Values whose numbers are written one after another, in front of texts that are written once."""
    given = texts()
    tails = [tail(*each) for each in given]
    keys = [each[3].encode() for each in given]

    def block(first: int, size: int, frame: bytes) -> tuple[list[bytes], list[bytes]]:
        made = columns(first, size)
        chosen = made.tail.tolist()
        numbers = (made.number, made.ts, made.price, made.quantity)
        each = zip(*(column.tolist() for column in numbers), chosen, strict=True)
        values = [frame + head(n, ts, price, quantity) + tails[at] for n, ts, price, quantity, at in each]
        return [keys[at] for at in chosen], values

    return block


def _text(text: str) -> bytes:
    return zigzag(len(text)) + text.encode()


def _fixed(frame: bytes, made: Trades) -> NDArray[np.uint8]:
    """Frame, trade_id, ts and price of each trade, which take as many bytes in all of them."""
    size = len(made.number)
    lead = np.tile(np.frombuffer(frame + zigzag(10), np.uint8), (size, 1))
    digits = made.number[:, None] // 10 ** np.arange(9, -1, -1) % 10 + ord("0")
    twice = made.ts * 2
    varint = (twice[:, None] >> np.arange(0, 42, 7)) & 0x7F
    varint[:, :-1] |= 0x80
    price = made.price.astype("<f8").view(np.uint8).reshape(size, 8)
    return np.hstack([lead, digits.astype(np.uint8), varint.astype(np.uint8), price])


TRADES = Workload("trades", AVRO, avro)
TRADES_JSON = Workload("trades_json", JSON_SCHEMA, json_text, "JSON")
TRADES_PROTOBUF = Workload("trades_protobuf", PROTOBUF, protobuf, "PROTOBUF")
