"""Columns that records make: in any batches the same, within their budget."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from calve.decoding.formats import Top, columns
from calve.schema.evolution import SchemaProblem
from calve.schema.inference import DEEPEST, EMPTY, INFERRED, SHAPE, Infer, first, size
from calve.schema.wire import NO_ID, Schema

NAMES = st.sampled_from(["a", "b", "c", "A", "d e", "rest", "_kafka", "ü", 'q"', "B1"])
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["", "x", 'a "b" c', "\\", '\\"', '{"a":1}', "12", "null"]),
)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4)
)
RECORDS = st.lists(st.dictionaries(NAMES, VALUES, max_size=5), max_size=6)
BUDGETS = st.builds(Infer, columns=st.integers(1, 8), depth=st.integers(1, 4))


def texts(records: Iterable[Any]) -> list[str]:
    return [json.dumps(each, separators=(",", ":"), ensure_ascii=False) for each in records]


def made(schema: str) -> dict[str, Any]:
    """The columns, each with its type."""
    found = columns(Schema(NO_ID, schema, INFERRED), Top(rest="rest"))
    return {each["name"]: each["type"] for each in found["fields"]}


@given(BUDGETS, RECORDS, st.data())
def test_any_batches_teach_the_same(infer: Infer, records: list[Any], data: st.DataObject) -> None:
    whole = infer.learnt(infer.declared(), texts(records), ["rest"])
    parts = infer.declared()
    while records:
        count = data.draw(st.integers(1, len(records)))
        parts = infer.learnt(infer.declared(parts), texts(records[:count]), ["rest"])
        records = records[count:]
    assert parts == whole


@given(BUDGETS, RECORDS)
def test_every_schema_makes_columns_within_the_budget(infer: Infer, records: list[Any]) -> None:
    schema = infer.learnt(infer.declared(), texts(records), ["rest", "b1"])

    def walked(kind: Any, depth: int) -> int:
        assert depth <= infer.depth
        return sum(
            walked(each["type"], depth + 1) if isinstance(each["type"], dict) else 1
            for each in kind["fields"]
        )

    found = made(schema)
    del found["rest"]
    assert not {name.lower() for name in found} & {"b1", "_kafka"}
    fields = [{"type": each} for each in found.values()]
    assert walked({"fields": fields}, 1) <= infer.columns


@example(Infer(), [{"a": 1}, {"b": 2}, {"a": "x"}, {"a": 'y": 1, "c'}, {"a": None}, {"a": {"b": [1]}}])
@given(BUDGETS, RECORDS)
def test_texts_of_one_shape_teach_the_same(infer: Infer, records: list[Any]) -> None:
    """In Python's regular expressions, which write a group in another way."""
    seen: dict[str, str] = {}
    for text in texts(records):
        shape = text
        for pattern, replacement in SHAPE:
            by = replacement.replace("$1", r"\1")
            shape = re.sub(pattern, by, shape)
        first = infer.learnt(EMPTY, [seen.setdefault(shape, text)])
        assert infer.learnt(first, [text]) == first


def test_the_first_value_decides() -> None:
    infer = Infer()
    records = [
        {
            "n": None,
            "i": 1,
            "r": 1.0,
            "t": "2026-01-01",
            "f": True,
            "l": [1],
            "e": {},
            "s": {"x": {"y": {"z": 1}}, "n": None},
        },
        {
            "n": "late",
            "i": 1.5,
            "r": 2,
            "t": 3,
            "f": "no",
            "l": {},
            "e": {"x": 1},
            "s": {"w": 2**63},
            "o": {"n": None},
        },
    ]
    assert made(infer.learnt(infer.declared(), texts(records))) == {
        "i": "long",
        "r": "double",
        "t": "string",
        "f": "boolean",
        "l": "string",
        "e": "string",
        "s": {
            "type": "struct",
            "fields": [
                {
                    "name": "x",
                    "required": False,
                    "type": {
                        "type": "struct",
                        "fields": [{"name": "y", "required": False, "type": "string", "doc": "JSON text"}],
                    },
                },
                {"name": "w", "required": False, "type": "string", "doc": "JSON text"},
            ],
        },
        "n": "string",
        "o": "string",
        "rest": "string",
    }


@pytest.mark.parametrize(
    ("known", "types"),
    [
        ({"a": 1}, {"A": "long"}),
        ({"a": 1}, {"a": "string"}),
        ({"a": 1}, {"a.b": "long"}),
        ({"a": {"b": 1}}, {"a": "json"}),
    ],
)
def test_a_field_keeps_its_type(known: Any, types: dict[str, str]) -> None:
    schema = Infer().learnt(EMPTY, texts([known]))
    with pytest.raises(SchemaProblem):
        Infer(types=types).declared(schema)


@given(BUDGETS, RECORDS, RECORDS)
def test_an_earlier_schema_is_found_again(infer: Infer, before: list[Any], after: list[Any]) -> None:
    earlier = infer.learnt(infer.declared(), texts(before))
    later = infer.learnt(earlier, texts(after))
    assert json.loads(first(later, size(earlier))) == json.loads(earlier)


def test_a_record_may_be_as_deep_as_the_machine_reads_it() -> None:
    deep = '{"a":' * DEEPEST + "1" + "}" * DEEPEST
    assert made(Infer(depth=1).learnt(EMPTY, [deep])) == {"a": "string", "rest": "string"}


def test_declared_types_come_first_and_count() -> None:
    infer = Infer(columns=3, types={"at": "timestamptz", "who.id": "string", "day": "date"})
    schema = infer.declared()
    assert infer.is_used(schema)
    assert infer.learnt(schema, texts([{"x": 1}])) == schema
    assert list(made(schema)) == ["at", "who", "day", "rest"]
    assert made(schema)["at"] == "timestamptz"
    assert infer.declared(schema) == schema
