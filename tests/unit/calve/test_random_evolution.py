"""Schemas that evolve at random, step by step: each field's values stay in the column of that field, whatever it is called."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, field, replace
from itertools import count
from random import Random
from typing import Any

import fastavro
from hypothesis import given, settings
from hypothesis import strategies as st

from calve.avro import columns_of, expand
from calve.avro_reader import resolution
from calve.columns import struct
from calve.lineage import settle

Json = Any
WIDER = {"int": "long", "float": "double"}
KINDS = ["int", "float", "string", "record", "list"]


@dataclass(frozen=True)
class Field:
    """A field in one version; `id` is what it is in all of them."""

    id: int
    name: str
    kind: str
    aliases: tuple[str, ...] = ()
    fields: tuple[Field, ...] = ()


@dataclass
class Steps:
    random: Random
    numbers: count[int] = field(default_factory=count)

    def new(self, depth: int = 0, name: str | None = None) -> Field:
        kind = self.random.choice(KINDS if depth < 2 else KINDS[:3])
        nested = kind in ("record", "list")
        inner = tuple(self.new(depth + 1) for _ in range(self.random.randint(1, 2))) if nested else ()
        number = next(self.numbers)
        return Field(number, name or f"f{number}", kind, (), inner)

    def next(self, fields: tuple[Field, ...], depth: int = 0) -> tuple[Field, ...]:
        """The fields of the next version: one to three of them are changed, and perhaps what is inside."""
        found = list(fields)
        left = {alias for each in fields for alias in each.aliases}
        for _ in range(self.random.randint(1, 3)):
            place = self.random.randrange(len(found))
            each = found[place]
            match self.random.choice(
                ["add", "take a name", "drop", "rename", "widen", "mix", "inside", "forget"]
            ):
                case "add":
                    found.insert(place, self.new(depth))
                case "take a name" if each.aliases and each.aliases[0] in left:
                    found.append(self.new(depth, name=each.aliases[0]))
                    left.remove(each.aliases[0])
                case "drop" if len(found) > 1 and not each.aliases:
                    del found[place]
                case "rename":
                    name = f"g{next(self.numbers)}"
                    found[place] = replace(each, name=name, aliases=(each.name, *each.aliases))
                case "widen" if each.kind in WIDER:
                    found[place] = replace(each, kind=WIDER[each.kind])
                case "mix":
                    self.random.shuffle(found)
                case "inside" if each.fields:
                    found[place] = replace(each, fields=self.next(each.fields, depth + 1))
        names = {each.name for each in found}
        return tuple(
            replace(each, aliases=tuple(a for a in each.aliases if a not in names)) for each in found
        )


def schema(fields: tuple[Field, ...], numbers: count[int]) -> Json:
    made = [{"name": f.name, "aliases": list(f.aliases), "type": avro(f, numbers)} for f in fields]
    return {"type": "record", "name": f"R{next(numbers)}", "fields": made}


def avro(each: Field, numbers: count[int]) -> Json:
    match each.kind:
        case "record":
            return ["null", schema(each.fields, numbers)]
        case "list":
            return {"type": "array", "items": schema(each.fields, numbers)}
    return each.kind


def row(fields: tuple[Field, ...]) -> Json:
    """A value for each field, which says which field it is of."""
    return {each.name: value(each) for each in fields}


def value(each: Field) -> Json:
    match each.kind:
        case "record":
            return row(each.fields)
        case "list":
            return [row(each.fields)] * 2
        case "string":
            return f"v{each.id}"
    return each.id


def expected(column: Json, names: dict[int, str], fields: tuple[Field, ...]) -> Json:
    """The row that a version's values must be in a table: null where the version has no such field."""
    present = {names[each.id]: each for each in fields}
    return {
        each["name"]: inner(each["type"], names, present[each["name"]]) if each["name"] in present else None
        for each in column["fields"]
    }


def inner(column: Json, names: dict[int, str], each: Field) -> Json:
    match each.kind:
        case "record":
            return expected(column, names, each.fields)
        case "list":
            return [expected(column["element"], names, each.fields)] * 2
    return value(each)


def newest_names(fields: tuple[Field, ...], names: dict[int, str]) -> None:
    for each in fields:
        names[each.id] = each.name
        newest_names(each.fields, names)


@settings(max_examples=100)
@given(st.randoms(use_true_random=False), st.integers(1, 7))
def test_values_stay_with_their_field_through_random_versions(random: Random, size: int) -> None:
    steps = Steps(random)
    versions = [tuple(steps.new() for _ in range(3))]
    for _ in range(size):
        versions.append(steps.next(versions[-1]))
    names: dict[int, str] = {}
    for fields in versions:
        newest_names(fields, names)
    schemas = [schema(fields, count()) for fields in versions]
    known = [columns_of(expand(json.dumps(each))) for each in schemas]
    table = struct()
    for number in range(len(known)):  # as the job sees them: one after the other, or all at once
        if random.random() < 0.5 or number == len(known) - 1:
            table, _, fits = settle(table, known[: number + 1])
    for fields, written, fit in zip(versions, schemas, fits, strict=True):
        assert fit.columns is not None, fit.problem
        assert read(written, fit.columns, row(fields)) == expected(table, names, fields)


def read(written: Json, columns: Json, values: Json) -> Json:
    found = resolution(expand(json.dumps(written)), columns)
    data = io.BytesIO()
    fastavro.schemaless_writer(data, fastavro.parse_schema(json.loads(json.dumps(written))), values)
    data.seek(0)
    writer, reader = (fastavro.parse_schema(json.loads(json.dumps(s))) for s in (found.writer, found.reader))
    return fastavro.schemaless_reader(data, writer, reader)
