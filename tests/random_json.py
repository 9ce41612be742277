"""Random JSON Schemas with all that decides what a column is, and payloads of them, most of them good."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any

from tests.random_avro import mutated
from tests.random_formats import CONNECT

Json = Any
Make = Callable[[], Json]
"""Makes a value of a schema."""
TIME = "org.apache.kafka.connect.data."
DRAFTS = [None, "http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2020-12/schema"]
TEXTS = ["", "a", "ünï \U0001f680", '"\\\n', "null", "true", "1", "{}", "[1]", "2020-02-29"]
NUMBERS = [0, -1, 7, 2**31 - 1, 2**31, -(2**31), 2**53 + 1, 2**63 - 1, 2**63, -(2**63) - 1, 10**38, 10**400]
REALS = [0.0, -0.0, 1.5, 1e-7, 3.4e38, 3.5e38, 1e300, 123456789.125, 5e-324]
MOMENTS = ["2020-02-29T12:30:00Z", "1969-12-31T23:59:59.999999-18:00", "0001-01-01T00:00:00+00:00"]
NO_MOMENTS = ["2020-02-30T00:00:00Z", "2020-01-01", "2020-01-01T00:00:00", "2020-01-01T00:00:00.0000001Z"]
WILD: list[Json] = [
    *(None, True, False, *TEXTS, *NUMBERS, *REALS, [], {}, [None], [[1]], {"a": 1}, {"": None}),
    {
        "b": [{"d": 1e-7, "c": -0.0}, {}, {"\x1f": "\x7f\x0b\b", "\n": 100, '"': 2.5}],
        "a": 10**37,
        "é": {"z": 1, "y": 1e22},
    },
    {
        "\uffff": 1,
        "\U0001f680": 2,
        "\ud7ff": [1e6, 12345678.5],
        "\ue000": 3,
        "aa": {"b": 4, "a": {"b": 5, "a": 6}},
        "a": 7,
    },
]
SPELLINGS = {
    r"(?<=[:\[,])(-?[0-9]+)(?=[,}\]])": [
        r"\1.0",
        r"\1e0",
        r"\1.50",
        r'"\1"',
        r"0\1",
        r"+\1",
        r"\1" + "0" * 40,
    ],
    r"(?<=[:\[,])null(?=[,}\]])": ["NaN", "Null", "-Infinity", "nul"],
    r'(?<=[{,])("[^"\\]*"):': [r"\1:0,\1:", r"\1 :", r"\1:{},\1:"],
    r'"a"': ["'a'", r'"\\u0061"', r'"\\ud800"', r'"\\ud83d\\ude80"', '"\t"'],
    r"}$": ["},", "}}", "} ", "}//x", ""],
}
"""Places of a text, and how else somebody may write what stands there."""


@dataclass
class Schemas:
    """Makes the schema of an object, and its values; no two fields have one name."""

    random: Random
    numbers: count[int] = field(default_factory=count)

    def top(self) -> tuple[Json, Make]:
        self.shared: dict[str, Json] = {}
        self.keyword = self.random.choice(["$defs", "definitions"])
        schema, make = self.object(0)
        draft, own = (
            self.random.choice(DRAFTS),
            self.random.choice([None, "http://x.org/a/b.json", "urn:x:b"]),
        )
        around = {"$schema": draft, "$id": own, self.keyword: self.shared}
        return schema | {name: each for name, each in around.items() if each}, make

    def object(self, depth: int) -> tuple[Json, Make]:
        parts = {
            self.name(): self.node(depth + 1) for _ in range(self.random.randint(1, 4 if depth == 0 else 3))
        }
        schemas = {name: schema for name, (schema, _) in parts.items()}

        def make() -> Json:
            found = {name: value() for name, (_, value) in parts.items() if self.random.random() < 0.95}
            return found | ({"undeclared": self.random.choice(WILD)} if self.random.random() < 0.1 else {})

        return {"type": "object", "properties": schemas}, make

    def name(self) -> str:
        return f"f{next(self.numbers)}"

    def node(self, depth: int) -> tuple[Json, Make]:
        """A field: of any kind, said in any way, with or without null."""
        schema, make = self.kind(depth)
        match self.random.randrange(9):
            case 0 | 1:
                return self.nullable(schema), lambda: None if self.random.random() < 0.3 else make()
            case 2 | 3:
                return self.referred(schema), make
            case 4:
                return {
                    "allOf": [schema, self.random.choice([{}, {"description": "d"}, {"minimum": 0}])]
                }, make
            case 5 if depth < 3:
                return self.union(schema, make, depth)
        return schema, make

    def nullable(self, schema: Json) -> Json:
        null = self.random.choice([{"type": "null"}, {"type": ["null"]}, {"const": None}, {"enum": [None]}])
        if isinstance(schema, dict) and isinstance(schema.get("type"), str) and self.random.random() < 0.4:
            return schema | {"type": self.random.sample([schema["type"], "null"], 2)}
        both = self.random.sample([null, schema], 2)
        return {self.random.choice(["oneOf", "anyOf"]): both}

    def referred(self, schema: Json) -> Json:
        """The same by a reference: to a definition, an anchor, or inside of a schema that has a URI of its own."""
        name = f"d{next(self.numbers)}"
        match self.random.randrange(4):
            case 0:
                inner = schema if isinstance(schema, dict) else {"allOf": [schema]}
                self.shared[name] = inner | {"$anchor": name}
                return {"$ref": f"#{name}"}
            case 1:
                self.shared[name] = {"$id": f"{name}.json", self.keyword: {"it": schema}}
                return {"$ref": f"{name}.json#/{self.keyword}/it"}
            case 2:
                own = {"$id": f"{name}.json", self.keyword: {"it": schema}}
                return own | {"allOf": [{"$ref": f"#/{self.keyword}/it"}]}
        self.shared[name] = schema
        beside = self.random.choice([{}, {"title": "t"}, {"type": "string"}, {"description": "d"}])
        return {"$ref": f"#/{self.keyword}/{name}"} | beside

    def union(self, schema: Json, make: Make, depth: int) -> tuple[Json, Make]:
        others = [self.kind(depth + 1) for _ in range(self.random.randint(1, 2))]
        schemas = [schema, *(each for each, _ in others)]
        makes = [make, *(each for _, each in others)]
        return {self.random.choice(["oneOf", "anyOf"]): schemas}, lambda: self.random.choice(makes)()

    def kind(self, depth: int) -> tuple[Json, Make]:
        nested = [self.array, self.map, self.object, self.places] if depth < 4 else []
        return self.random.choice([self.leaf] * 6 + [self.constant, self.anything, *nested])(depth)

    def array(self, depth: int) -> tuple[Json, Make]:
        items, make = self.node(depth + 1)
        return {"type": "array", "items": items}, lambda: [make() for _ in range(self.random.randrange(3))]

    def places(self, depth: int) -> tuple[Json, Make]:
        items, make = self.node(depth + 1)
        where = self.random.choice([{"items": [items]}, {"prefixItems": [items]}, {}])
        return {"type": "array"} | where, lambda: [make()]

    def map(self, depth: int) -> tuple[Json, Make]:
        values, make = self.node(depth + 1)
        where: Json = {"additionalProperties": values}
        if self.random.random() < 0.3:
            where = self.random.choice(
                [
                    {"patternProperties": {"a": values}},
                    {"if": {"properties": {"a": values}}},
                    {"dependencies": {}},
                ]
            )
        return {"type": "object"} | where, lambda: {k: make() for k in self.random.sample(TEXTS[:6], 2)}

    def anything(self, _depth: int) -> tuple[Json, Make]:
        schema = self.random.choice(
            [{}, True, {"type": "object"}, {"type": ["string", "integer"]}, {"enum": []}]
        )
        return schema, lambda: self.random.choice(WILD)

    def constant(self, _depth: int) -> tuple[Json, Make]:
        scalars: list[Json] = [None, "a", "b", True, False, 0, -1, 1.5, {"a": 1}]
        values: list[Json] = self.random.choices(scalars, k=self.random.randint(1, 3))
        if self.random.random() < 0.3:
            values = self.random.choice([["a", "b"], [1, 2], [1, 2.5], [True, None], ["a", None], [None]])
        schema: Json = {"const": values[0]} if self.random.random() < 0.4 else {"enum": values}
        if self.random.random() < 0.2:
            schema |= {"type": self.random.choice(["string", "integer", "null"])}
        return schema, lambda: self.random.choice(values)

    def leaf(self, _depth: int) -> tuple[Json, Make]:
        choice, scale = self.random.choice, self.random.randint(0, 6)
        parameters = {"scale": str(scale), "connect.decimal.precision": str(self.random.choice([9, 18, 38]))}
        decimal = {"title": CONNECT, "connect.type": "bytes", "connect.parameters": parameters}
        digits = [0, 1, -1, 10**scale, 12.5, "MDk=", "", "x", 10**9, 10**38]
        return choice(
            [
                ({"type": "boolean"}, lambda: choice([True, False])),
                ({"type": "integer"}, lambda: choice(NUMBERS[:8])),
                ({"type": ["integer", "number"]}, lambda: choice(NUMBERS + REALS)),
                ({"type": "integer", "connect.type": choice(["int8", "int32"])}, lambda: choice(NUMBERS[:4])),
                ({"type": "number"}, lambda: choice([*NUMBERS[:11], *REALS])),
                ({"type": "number", "connect.type": "float32"}, lambda: choice(REALS)),
                ({"type": "number"} | decimal, lambda: choice(digits)),
                ({"type": "string"}, lambda: choice(TEXTS)),
                ({"type": "string", "format": choice(["uuid", "time"])}, lambda: choice(TEXTS)),
                ({"type": "string", "connect.type": "bytes"}, lambda: choice(["", "MDk=", "MDk", "a"])),
                (
                    {"type": "string", "format": "date"},
                    lambda: choice(["2020-02-29", "0001-01-01", "2021-02-29"]),
                ),
                ({"type": "string", "format": "date-time"}, lambda: choice(MOMENTS + NO_MOMENTS)),
                (
                    {"type": "integer", "connect.type": "int32", "title": f"{TIME}Date"},
                    lambda: choice([0, -719_162, 2_932_896, 2**31 - 1]),
                ),
                (
                    {"type": "integer", "connect.type": "int64", "title": f"{TIME}Timestamp"},
                    lambda: choice([0, -1, 253_402_300_799_999, 2**63 - 1]),
                ),
            ]
        )


def partly(schema: Json, random: Random) -> Json:
    """The same without some of its properties, which payloads have nevertheless."""
    held = {name: each for name, each in schema["properties"].items() if random.random() < 0.5}
    return schema | {"properties": held or schema["properties"]}


def payload(value: Json, random: Random) -> bytes:
    """The text of a value, now and then of another one, or written as nobody should."""
    if random.random() < 0.4:
        value = disturbed(value, random)
    text = json.dumps(value, ensure_ascii=random.random() < 0.5, separators=random.choice([None, (",", ":")]))
    if random.random() < 0.3:
        text = respelled(text, random)
    found = text.encode(errors="surrogatepass")
    return mutated(found, random) if random.random() < 0.15 else found


def disturbed(value: Json, random: Random) -> Json:
    """The same with one part of it replaced by something else."""
    if isinstance(value, dict) and value and random.random() < 0.9:
        name = random.choice(list(value))
        return value | {name: disturbed(value[name], random)}
    if isinstance(value, list) and value and random.random() < 0.7:
        place = random.randrange(len(value))
        return [*value[:place], disturbed(value[place], random), *value[place + 1 :]]
    return random.choice(WILD)


def respelled(text: str, random: Random) -> str:
    """One place of a text in another spelling."""
    pattern, others = random.choice(list(SPELLINGS.items()))
    places = list(re.finditer(pattern, text))
    if not places:
        return text
    place = random.choice(places)
    return text[: place.start()] + place.expand(random.choice(others)) + text[place.end() :]
