"""A schema that is inferred from values reads all of them, and has the columns that a person would write."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from calve.decoding.decode_plan import decoding, first_columns
from calve.decoding.formats import Top
from calve.schema.wire import BARE, Schema
from cli.project.samples import inferred
from glue_jobs.engines.columnar.decoder import Decoder
from tests.columnar import records_of

NAMES = st.sampled_from(["id", "Id", "price", "a-b", "", "_kafka", "day", "x" * 201]) | st.text(max_size=4)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.datetimes().map(lambda at: at.isoformat() + "Z")
    | st.dates().map(str),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)


def schema_of(*values: Any) -> dict[str, Any] | None:
    return inferred(json.dumps(each).encode() for each in values)


@settings(deadline=None)
@given(st.lists(st.dictionaries(NAMES, VALUES, min_size=1, max_size=6), min_size=1, max_size=6))
def test_every_sampled_value_is_a_row(values: list[dict[str, Any]]) -> None:
    schema = schema_of(*values)
    assert schema
    if not schema["properties"]:
        return  # `calve init` leaves the topic out, with the reason
    top, versions = Top(rest="undeclared"), [Schema(0, json.dumps(schema), "JSON")]
    columns = first_columns(versions, "it", top)
    decoder = Decoder(decoding(columns, versions, wire=BARE, top=top), columns)
    found = decoder.decode(records_of([json.dumps(each).encode() for each in values]))
    assert found.good.tolist() == list(range(len(values)))


def test_columns_have_the_types_of_their_values() -> None:
    schema = schema_of(
        {"id": 1, "at": "2026-11-27T10:00:00Z", "day": "2026-11-27", "price": 1, "side": None, "mixed": 1},
        {
            "id": 2,
            "at": "2026-11-27T10:00:00.5+01:00",
            "price": 1.5,
            "side": "BUY",
            "mixed": "1",
            "tags": ["a"],
        },
        {
            "id": 3,
            "at": "2026-02-28T10:00:00Z",
            "a-b": 1,
            "items": [{"n": 1}, {"n": 2, "q": True}],
            "ok": False,
        },
    )
    assert schema
    types = {name: each.get("format") or each.get("type") for name, each in schema["properties"].items()}
    assert types == {
        "id": "integer",
        "at": "date-time",
        "day": "date",
        "price": "number",
        "side": "string",
        "mixed": None,
        "tags": "array",
        "items": "array",
        "ok": "boolean",
    }
    assert schema["properties"]["items"]["items"]["properties"] == {
        "n": {"type": "integer"},
        "q": {"type": "boolean"},
    }
    assert "required" not in json.dumps(schema)


def test_values_that_are_not_objects_of_json_have_no_schema() -> None:
    assert inferred([]) is None
    for value in (b"", b"\x00\x00\x00\x00\x01{}", b"[1]", b"1", b"<a/>", b"[" * 100_000):
        assert inferred([b"{}", value]) is None
