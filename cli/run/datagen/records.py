"""Records of a block: fields at random, encoded as confluent-kafka's AvroSerializer does it, and malformed ones made of those."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from random import Random
from typing import Any

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from fastavro import parse_schema, schemaless_writer

from cli.run.datagen.plan import Block, Dataset, Kind, Plan

SCHEMAS = Path(__file__).parent / "schemas"
FRAME_BYTES = 5
UNKNOWN_ID = 2_000_000_000
"""A schema id that no registry reaches: ids are given in turn from 1."""

ABSURD_LENGTH = b"\x80\xcc\xfd\x93\x0e"
"""Avro's length of a string of 1,900,000,000 bytes, of which none follow."""

USERS = [f"User_{n}" for n in range(1, 10_001)]
SIDES = ["BUY", "SELL"]
SYMBOLS = ["ZBZX", "ZJZZT", "ZTEST", "ZVV", "ZVZZT", "ZWZZT", "ZXZZT"]
ACCOUNTS = ["ABC123", "LMN456", "XYZ789"]
QUANTITIES = range(1, 4_001)
LARGE_QUANTITIES = range(4_001, 5_001)
PRICES = range(5, 1_001)
VENUES = ["XNAS", "XNYS", "XVIL", None]
REGISTERTIMES_MS = (1_487_715_775_521, 1_519_273_364_600)
REGIONS = [f"Region_{n}" for n in range(1, 10)]
GENDERS = ["MALE", "FEMALE", "OTHER"]
LANGUAGES = ["en", "lt", "de", None]

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Encoder:
    """Frames and encodes rows of one registered schema."""

    frame: bytes
    schema: Any

    def encode(self, row: Mapping[str, Any]) -> bytes:
        """The bytes that AvroSerializer makes of `row`, without its cost per record (a tenth of it)."""
        value = BytesIO()
        value.write(self.frame)
        schemaless_writer(value, self.schema, row)
        return value.getvalue()


def schema_text(dataset: Dataset, version: str = "") -> str:
    """The text of an example schema; `version` is empty, `v2` or `other`."""
    return (SCHEMAS / f"{dataset}{version and '.'}{version}.avsc").read_text()


def register(registry: SchemaRegistryClient, topic: str, text: str, row: Row) -> Encoder:
    """Let AvroSerializer register the schema for `<topic>-value` and take the frame that it writes."""
    value = AvroSerializer(registry, text)(row, SerializationContext(topic, MessageField.VALUE))
    return Encoder(bytes(value)[:FRAME_BYTES], parse_schema(json.loads(text)))


def rows(plan: Plan, block: Block) -> Iterator[Row]:
    """The block's well-formed rows, one for each place, also for those that `block.special` fills otherwise."""
    random = Random(f"{plan.seed} {plan.topic} {block.number}")  # noqa: S311 reproducible on purpose
    make = _trades if plan.dataset == "stock_trades" else _users
    return make(plan, block.size, random)


def later_rows(plan: Plan, block: Block) -> Iterator[Row]:
    """`rows` as the second schema version has them: the same rows with one field more."""
    random = Random(f"{plan.seed} {plan.topic} {block.number} v2")  # noqa: S311 reproducible on purpose
    name, values = ("venue", VENUES) if plan.dataset == "stock_trades" else ("language", LANGUAGES)
    added = random.choices(values, k=block.size)
    return (row | {name: value} for row, value in zip(rows(plan, block), added, strict=True))


def _trades(plan: Plan, size: int, random: Random) -> Iterator[Row]:
    columns = (
        random.choices(SIDES, k=size),
        random.choices(QUANTITIES, k=size),
        random.choices(SYMBOLS, k=size),
        random.choices(PRICES, k=size),
        random.choices(ACCOUNTS, k=size),
        random.choices(USERS, k=size),
    )
    for place in random.sample(range(size), round(size * plan.large_quantities)):
        columns[1][place] = random.choice(LARGE_QUANTITIES)
    for place in random.sample(range(size), round(size * plan.negative_prices)):
        columns[3][place] = -columns[3][place]
    for side, quantity, symbol, price, account, userid in zip(*columns, strict=True):
        yield {
            "side": side,
            "quantity": quantity,
            "symbol": symbol,
            "price": price,
            "account": account,
            "userid": userid,
        }


def _users(_plan: Plan, size: int, random: Random) -> Iterator[Row]:
    columns = (
        random.choices(range(*REGISTERTIMES_MS), k=size),
        random.choices(USERS, k=size),
        random.choices(REGIONS, k=size),
        random.choices(GENDERS, k=size),
    )
    for registertime, userid, regionid, gender in zip(*columns, strict=True):
        yield {"registertime": registertime, "userid": userid, "regionid": regionid, "gender": gender}


@dataclass(frozen=True, slots=True)
class Breaker:
    """Breaks values of one topic. `before_string` is what stands before the schema's first string field."""

    frame: bytes
    before_string: bytes
    other: bytes

    def broken(self, kind: Kind, value: bytes) -> bytes | None:
        """`value` broken in the given way; None is a record without a value."""
        match kind:
            case "null_value" | "tombstone":
                return None
            case "bad_magic":
                return b"\x7b" + value[1:]
            case "truncated":
                return value[: FRAME_BYTES - 2]
            case "truncated_payload":
                return value[:-1]
            case "trailing_bytes":
                return value + b"left over"
            case "unknown_schema_id":
                return b"\x00" + UNKNOWN_ID.to_bytes(4, "big") + value[FRAME_BYTES:]
            case "absurd_length":
                return self.frame + self.before_string + ABSURD_LENGTH
            case "incompatible_schema":
                return self.other
        raise ValueError(kind)
