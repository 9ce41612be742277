"""Random Avro schemas of every type, and random bytes of their values, in every form that Avro allows."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any

from tests.database_values import MOMENTS

Json = Any
MOMENT = {"type": "string", "logicalType": "io.debezium.time.ZonedTimestamp"}
LOGICAL: tuple[Json, ...] = (
    {"type": "int", "logicalType": "date"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "long", "logicalType": "local-timestamp-millis"},
    {"type": "long", "logicalType": "local-timestamp-micros"},
    {"type": "long", "logicalType": "time-micros"},
    {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
    {"type": "bytes", "logicalType": "decimal", "precision": 18, "scale": 0},
    {"type": "bytes", "logicalType": "decimal", "precision": 19, "scale": 4},
    {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 10},
    MOMENT,
)
PLAIN = ("boolean", "int", "long", "float", "double", "bytes", "string")
NAMED = ("enum", "fixed", "money")
NESTED = ("record", "array", "map", "union", "entries")
NUMBERS = [0, 1, -1, 63, 64, -64, -65, 2**31 - 1, -(2**31)]
WIDE = [2**62, 2**63 - 1, -(2**63), 9223372036854775, -9223372036854775, 253402300799999999]


@dataclass
class Schemas:
    """Makes a record's schema; no two types of it have one name.

    wide: no decimal has up to 18 digits and may be written in more than 8 bytes, of which Spark takes the last.
    """

    random: Random
    unions: bool = True
    wide: bool = False
    numbers: count[int] = field(default_factory=count)

    def record(self, depth: int = 0) -> Json:
        fields = [
            {"name": f"f{next(self.numbers)}", "type": self.type(depth + 1)}
            for _ in range(self.random.randint(1, 6 if depth == 0 else 3))
        ]
        return {"type": "record", "name": f"R{next(self.numbers)}", "fields": fields}

    def type(self, depth: int) -> Json:
        nested = NESTED if self.unions else tuple(each for each in NESTED if each != "union")
        logical = tuple(each for each in LOGICAL if not self.wide or each.get("precision", 38) > 18)
        kinds = PLAIN + NAMED + (nested * 2 if depth < 4 else ()) + logical
        made = self.one(depth, self.random.choice(kinds))
        if self.random.random() < 0.5 and not isinstance(made, list):
            return ["null", made] if self.random.random() < 0.8 else [made, "null"]
        return made

    def one(self, depth: int, kind: Json) -> Json:
        number, random = next(self.numbers), self.random
        match kind:
            case "enum":
                return {
                    "type": "enum",
                    "name": f"E{number}",
                    "symbols": [f"S{n}_{number}" for n in range(random.randint(1, 70))],
                }
            case "fixed":
                return {"type": "fixed", "name": f"F{number}", "size": random.randint(1, 20)}
            case "money":
                size = random.randint(1, 18)
                digits = min(38, len(str(2 ** (8 * size - 1) - 1)) - 1)
                precision = random.randint(19 if self.wide and size > 8 else 1, digits)
                return {
                    "type": "fixed", "name": f"M{number}", "size": size,
                    "logicalType": "decimal", "precision": precision, "scale": random.randint(0, precision),
                }  # fmt: skip
            case "record":
                return self.record(depth)
            case "array":
                return {"type": "array", "items": self.type(depth + 1)}
            case "map":
                return {"type": "map", "values": self.type(depth + 1)}
            case "entries":
                decimals = LOGICAL[9] if self.wide else LOGICAL[6]
                key = random.choice(["int", "string", "bytes", "boolean", LOGICAL[0], decimals, LOGICAL[9]])
                fields = [{"name": "key", "type": key}, {"name": "value", "type": self.type(depth + 1)}]
                random.shuffle(fields)
                return {
                    "type": "array",
                    "items": {"type": "record", "name": f"N{number}.MapEntry", "fields": fields},
                }
            case "union":
                return self.union(depth)
        return kind

    def union(self, depth: int) -> Json:
        """One of several types, each of another name."""
        kinds = self.random.sample(
            ["null", *PLAIN, "enum", "fixed", "record", "array", "map"], self.random.randint(2, 5)
        )
        made = [self.one(depth + 1, each) for each in kinds]
        return (
            made
            if len(made) > 2 or "null" not in made
            else [*made, "string" if "string" not in made else "bytes"]
        )


@dataclass
class Values:
    """Writes random values. plain: as writers do, not in every way that readers take."""

    random: Random
    plain: bool = False

    def of(self, schema: Json, *, last: bool = False) -> bytes:
        if isinstance(schema, list):
            place = self.random.randrange(len(schema))
            return zigzag(place) + self.of(schema[place])
        node: Json = {"type": schema} if isinstance(schema, str) else schema
        match node["type"]:
            case "record":
                return b"".join(self.of(each["type"]) for each in node["fields"])
            case "array":
                return self.blocks(node["items"], key=False)
            case "map":
                return self.blocks(node["values"], key=True)
        return self.leaf(node)

    def blocks(self, items: Json, *, key: bool) -> bytes:
        found = b""
        while self.random.random() < 0.5:
            size = self.random.randint(1, 4)
            block = b"".join((self.text() if key else b"") + self.of(items) for _ in range(size))
            if self.random.random() < 0.3:
                found += zigzag(-size) + zigzag(len(block)) + block
            else:
                found += zigzag(size) + block
            if self.plain:
                break
        return found + b"\x00"

    def leaf(self, node: Json) -> bytes:  # noqa: C901 one case for each type
        random = self.random
        match node["type"]:
            case "null":
                return b""
            case "boolean":
                return bytes([random.choice([0, 1])])
            case "int":
                return zigzag(random.choice([*NUMBERS, random.randint(0, 100_000)]))
            case "long" if str(node.get("logicalType")).endswith(("millis", "micros")):
                return zigzag(random.choice([*NUMBERS, random.randrange(2**40)]))
            case "long":
                return zigzag(random.choice([*NUMBERS, *WIDE, random.randrange(2**50)]))
            case "float":
                return struct.pack("<f", random.choice([0.0, -0.0, 1.5, -(2.0**-149), float("inf")]))
            case "double":
                return struct.pack(
                    "<d", random.choice([0.0, -0.0, 1.5, 5e-324, float("-inf"), random.random()])
                )
            case "enum":
                return zigzag(random.randrange(len(node["symbols"])))
            case "fixed" if node.get("logicalType") == "decimal":
                return self.decimal(node).to_bytes(node["size"], "big", signed=True)
            case "fixed":
                return random.randbytes(node["size"])
            case "bytes" if node.get("logicalType") == "decimal":
                found = self.decimal(node)
                size = max(1, (found.bit_length() + 8) // 8) + random.choice([0, 0, 1, 20])
                return zigzag(size) + found.to_bytes(size, "big", signed=True)
            case "bytes":
                content = random.randbytes(random.choice([0, 1, 5, 200]))
                return zigzag(len(content)) + content
        return sized(random.choice([*MOMENTS])) if node == MOMENT else self.text()

    def decimal(self, node: Json) -> int:
        most: int = 10 ** node["precision"] - 1
        return self.random.choice([0, 1, -1, most, -most, self.random.randint(-most, most)])

    def text(self) -> bytes:
        texts = ["", "a", "b", "žąsis 🧊", "x" * 100, "name"]
        return sized(self.random.choice(texts))


def sized(text: str) -> bytes:
    content = text.encode()
    return zigzag(len(content)) + content


def zigzag(number: int) -> bytes:
    """As `calve.schema.wire.zigzag`, of any number."""
    rest = number * 2 if number >= 0 else -number * 2 - 1
    found = bytearray()
    while rest >= 0x80:
        found.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes((*found, rest))


def mutated(value: bytes, random: Random) -> bytes:
    """The same bytes with a few of them changed, left out, put in or repeated."""
    found = bytearray(value)
    for _ in range(random.choice([1, 1, 1, 2, 4])):
        place = random.randrange(len(found) + 1)
        match random.randrange(6):
            case 0:
                found[place : place + 1] = bytes([random.randrange(256)])
            case 1:
                del found[place : place + random.randint(1, 4)]
            case 2:
                found[place:place] = random.randbytes(random.randint(1, 4))
            case 3:
                del found[place:]
            case 4:
                found[place:place] = zigzag(random.choice([*NUMBERS, *WIDE, 16_777_217, 1_000_001, -(2**62)]))
            case _:
                found[place : place + 1] = bytes([random.choice([0, 1, 2, 0x7F, 0x80, 0xFF])])
    return bytes(found)
