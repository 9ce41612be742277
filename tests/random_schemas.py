"""Schemas that evolve at random, and values of them: what a field is, whatever it is called and wherever it stands."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from itertools import count
from random import Random
from typing import Any

WIDER = {"int": "long", "float": "double", "decimal(9, 2)": "decimal(30, 2)"}
LEAVES = (*WIDER, *WIDER.values(), "boolean", "string", "binary", "date", "timestamptz")
EXACT = Context(prec=40)
NESTED = ("struct", "list", "map")
INTEGERS = {"int": 31, "long": 63}
TEXTS = ["", "a", "ünï", "\U0001f680", "line\nbreak", '"quoted"\\', "null", "0", "{}"]


@dataclass(frozen=True)
class Field:
    """A field in one version; `id` is what it is in all of them. `parts`: a struct's fields, or what a list or map holds."""

    id: int
    name: str
    kind: str
    aliases: tuple[str, ...] = ()
    parts: tuple[Field, ...] = ()


@dataclass
class Steps:
    """Makes a first version, and the next one of any.

    collections: whether lists and maps may hold lists and maps. reuse: whether a new field may take a name that another has laid
    down; renamed again and again, such names can be told from each other by nobody, and versions are refused.
    """

    random: Random
    reuse: bool = False
    collections: bool = True
    leaves: tuple[str, ...] = LEAVES
    nested: tuple[str, ...] = NESTED
    numbers: count[int] = field(default_factory=count)

    def first(self) -> tuple[Field, ...]:
        return tuple(self.new() for _ in range(4))

    def new(self, depth: int = 0, name: str | None = None, *, held: bool = False) -> Field:
        nested = ("struct",) if held and not self.collections else self.nested
        kind = self.random.choice(self.leaves + nested * 2 if depth < 2 else self.leaves)
        inner = {"struct": self.random.randint(1, 3), "list": 1, "map": 1}.get(kind, 0)
        parts = tuple(self.new(depth + 1, held=kind != "struct") for _ in range(inner))
        number = next(self.numbers)
        return Field(number, name or f"f{number}", kind, (), parts)

    def next(self, fields: tuple[Field, ...], depth: int = 0) -> tuple[Field, ...]:
        """The fields of the next version: one to three of them are changed, and perhaps what is inside."""
        found = list(fields)
        left = {alias for each in fields for alias in each.aliases}
        for _ in range(self.random.randint(1, 3)):
            place = self.random.randrange(len(found))
            each = found[place]
            match self.random.choice(["add", "reuse", "drop", "rename", "widen", "mix", "inside", "inside"]):
                case "add":
                    found.insert(place, self.new(depth))
                case "reuse" if self.reuse and each.aliases and each.aliases[0] in left:
                    found.append(self.new(depth, name=each.aliases[0]))
                    left.remove(each.aliases[0])
                case "drop" if len(found) > 1 and not each.aliases:
                    del found[place]
                case "rename":
                    name = f"g{next(self.numbers)}"
                    found[place] = replace(each, name=name, aliases=(each.name, *each.aliases))
                case "widen":
                    found[place] = replace(each, kind=WIDER.get(each.kind, each.kind))
                case "mix":
                    self.random.shuffle(found)
                case "inside":
                    found[place] = self.inside(each, depth + 1)
        names = {each.name for each in found}
        return tuple(
            replace(each, aliases=tuple(a for a in each.aliases if a not in names)) for each in found
        )

    def inside(self, each: Field, depth: int) -> Field:
        match each.kind:
            case "struct":
                return replace(each, parts=self.next(each.parts, depth))
            case "list" | "map":
                [element] = each.parts
                changed = replace(element, kind=WIDER.get(element.kind, element.kind))
                return replace(each, parts=(self.inside(changed, depth),))
        return each

    def broken(self, fields: tuple[Field, ...]) -> tuple[Field, ...]:
        """A version that no table of the others can hold: one field has a type that is not a wider one."""
        place = self.random.randrange(len(fields))
        each = fields[place]
        other = replace(each, kind="boolean" if each.kind != "boolean" else "string", parts=())
        return (*fields[:place], other, *fields[place + 1 :])

    def row(self, fields: tuple[Field, ...]) -> dict[str, Any]:
        return {each.name: self.value(each) for each in fields}

    def value(self, each: Field) -> Any:
        """A value of the field, or None."""
        if self.random.random() < 0.1:
            return None
        match each.kind:
            case "struct":
                return self.row(each.parts)
            case "list":
                return [self.element(each) for _ in range(self.random.randint(0, 3))]
            case "map":
                keys = self.random.sample(TEXTS, self.random.randint(0, 3))
                return {key: self.element(each) for key in keys}
        return self.leaf(each)

    def leaf(self, each: Field) -> Any:
        """A value with a liking for the extremes, and for telling which field it is of."""
        random = self.random
        match each.kind:
            case "boolean":
                return random.random() < 0.5
            case "int" | "long":
                greatest = 2 ** INTEGERS[each.kind]
                return random.choice([each.id, -1, greatest - 1, -greatest, random.randrange(greatest)])
            case "float" | "double":
                return self.number(each.kind)
            case "string":
                return random.choice([f"v{each.id}", *TEXTS])
            case "binary":
                return random.randbytes(random.randint(0, 5))
            case "date":
                return date(1, 1, 1) + timedelta(
                    days=random.choice([0, 719_162, random.randrange(3_000_000)])
                )
            case "timestamptz":
                moment = timedelta(microseconds=random.randrange(200 * 365 * 86_400 * 10**6))
                return datetime(1850, 1, 1, tzinfo=UTC) + moment
        digits = 9 if each.kind.startswith("decimal(9") else 30
        return Decimal(random.choice([0, each.id, 10**digits - 1, 1 - 10**digits])).scaleb(-2, EXACT)

    def element(self, each: Field) -> Any:
        """Never null: a list of Avro or JSON Schema may say that it has none."""
        while (found := self.value(each.parts[0])) is None:
            pass
        return found

    def number(self, kind: str) -> float:
        wide = self.random.choice([0.0, -0.0, 1.5, 2.0**-126, math.ldexp(self.random.random(), 90)])
        code = "<f" if kind == "float" else "<d"
        found: float = struct.unpack(code, struct.pack(code, wide))[0]
        return found


def newest_names(versions: list[tuple[Field, ...]]) -> dict[int, str]:
    """What each field is called in the last version that has it."""
    return {each.id: each.name for fields in versions for each in everything(fields)}


def everything(fields: tuple[Field, ...]) -> Iterator[Field]:
    for each in fields:
        yield each
        yield from everything(each.parts)


def rows_of(fields: tuple[Field, ...], values: Any, names: dict[int, str]) -> dict[str, Any]:
    """A record as the row of a table whose columns have these names; what its version has no field for is not in it."""
    return {names[each.id]: cell(each, values[each.name], names) for each in fields}


def cell(each: Field, value: Any, names: dict[int, str]) -> Any:
    if value is None:
        return None
    match each.kind:
        case "struct":
            return rows_of(each.parts, value, names)
        case "list":
            return [cell(each.parts[0], item, names) for item in value]
        case "map":
            return {key: cell(each.parts[0], item, names) for key, item in value.items()}
    return value


def padded(column: Any, value: Any) -> Any:
    """A value with null for each field of its column (Iceberg, JSON form) that it does not have."""
    if value is None or isinstance(column, str):
        return value
    match column["type"]:
        case "struct":
            return {each["name"]: padded(each["type"], value.get(each["name"])) for each in column["fields"]}
        case "list":
            return [padded(column["element"], each) for each in value]
    return {key: padded(column["value"], each) for key, each in value.items()}
