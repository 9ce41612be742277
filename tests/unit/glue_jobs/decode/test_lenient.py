"""JSON whose properties need not fit: the machine and calve verify read the same rows of any records."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from calve.decoding.decode_plan import decoding
from calve.decoding.formats import Top, columns, writer
from calve.schema.inference import INFERRED, Infer
from calve.schema.wire import BARE, NO_ID, Schema
from cli.verify.formats.fields import MALFORMED
from cli.verify.formats.json_values import JsonWriter
from glue_jobs.columns.buffers import spans_of
from glue_jobs.decode.machines.parts import PartDecoder
from tests.unit.calve.schema.test_inference import NAMES, RECORDS, VALUES, texts

TOP = Top(rest="rest")
INFER = Infer(columns=6, types={"at": "timestamptz"})
PAIRS = st.lists(st.tuples(NAMES | st.just("at"), VALUES), max_size=6)
"""An object's members: a name may be there twice."""
MEMBERS = PAIRS.map(
    lambda pairs: "{" + ",".join(f"{json.dumps(n)}:{json.dumps(each)}" for n, each in pairs) + "}"
)
TEXTS = (
    MEMBERS
    | VALUES.map(json.dumps)
    | st.sampled_from(['{"a":1', '{"a":1e999}', '{"a":01}', "", '{"a":1,}', '{"at":"2026-01-01T00:00:00Z"}'])
)


def rows(schema: str, values: list[str]) -> tuple[list[Any], list[Any]]:
    """The row of each value, None if it makes none: as the job reads it, and as verify does."""
    version = Schema(NO_ID, schema, INFERRED)
    table = columns(version, TOP)
    found = PartDecoder(decoding(table, [version], (), BARE, TOP)).read(
        spans_of(pa.array([each.encode() for each in values], pa.binary()))
    )
    made = dict(zip(found.records.tolist(), found.columns.to_pylist(), strict=True))
    plan: Any = writer(version, table, BARE, TOP)
    oracle = JsonWriter(b"", found.columns.schema, plan, None)

    def read(value: str) -> Any:
        try:
            arrays = oracle.project([oracle.decode(value.encode())])
        except MALFORMED:
            return None
        return {each.name: array[0].as_py() for each, array in zip(found.columns.schema, arrays, strict=True)}

    return [made.get(place) for place in range(len(values))], [*map(read, values)]


@example([], ['{"at":"soon","b":1}', '{"at":"2026-01-01T00:00:00Z"}', '{"at":1,"at":"2026-01-01T00:00:00Z"}'])
@example(
    [{"a": 0.5}], ['{"a":1e999,"b":"x"}', '{"a":-0.0}', '{"a":"x"} ', '{"a":"x"}}', '{"b":null,"c":null}']
)
@given(RECORDS, st.lists(TEXTS, max_size=8))
def test_the_machine_and_verify_agree(before: list[Any], values: list[str]) -> None:
    job, verify = rows(INFER.learnt(INFER.declared(), texts(before), ["rest"]), values)
    assert repr(job) == repr(verify)


@given(RECORDS, RECORDS)
def test_a_row_does_not_depend_on_later_records(before: list[Any], after: list[Any]) -> None:
    """Once the records themselves have taught their columns: later columns are null in their rows."""
    values = texts(before)
    first = INFER.learnt(INFER.declared(), rest_of(INFER.declared(), values), ["rest"])
    later = INFER.learnt(first, rest_of(first, texts(after)), ["rest"])
    for one, other in zip(rows(first, values)[0], rows(later, values)[0], strict=True):
        assert repr(given_fields(one)) == repr(given_fields(other))


def rest_of(schema: str, values: list[str]) -> list[str]:
    return [row["rest"] for row in rows(schema, values)[0] if row is not None and row["rest"] is not None]


def given_fields(row: Any) -> Any:
    """Without nulls and without the order of names."""
    if not isinstance(row, dict):
        return row
    return {name: given_fields(each) for name, each in sorted(row.items()) if each is not None}
