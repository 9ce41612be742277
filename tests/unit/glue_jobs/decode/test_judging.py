"""Values in Arrow arrays as Spark hands them over: each has its row or its reason, in pieces of a bounded size."""

from __future__ import annotations

import json
import uuid
import zlib

import pyarrow as pa
import pytest

from calve.decoding.decode_plan import decoding, first_columns
from calve.schema.wire import GLUE, Schema
from glue_jobs.decode.machines import judging
from glue_jobs.decode.machines.judging import Judge
from tests.judged import judged
from tests.random_avro import zigzag

ID = uuid.UUID(int=2**127 + 5).int
FRAME = GLUE.frame(ID)
PACKED = b"\x03\x05" + FRAME[2:]
VERSIONS = [
    Schema(
        ID, json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}), version=3
    )
]
PLAN = decoding(first_columns(VERSIONS, "it"), VERSIONS, wire=GLUE)


def test_compressed_values_are_read_and_have_the_reasons_of_others() -> None:
    good = zigzag(5)
    values = [
        PACKED + zlib.compress(good),
        None,
        FRAME + good,
        PACKED + b"garbage",
        PACKED + zlib.compress(good + b"!"),
        PACKED + zlib.compress(b""),
        b"\x03\x05" + GLUE.frame(ID + 1)[2:],
        b"\x03\x04" + FRAME[2:],
        FRAME[:9],
    ]
    found = judged(PLAN, pa.array(values, pa.binary())).to_pylist()
    assert [each["value"] and each["value"]["a"] for each in found] == [5, None, 5, *[None] * 6]
    assert [each["reason"] for each in found] == [
        *(
            None,
            "null_value",
            None,
            "malformed",
            "trailing_bytes",
            "malformed",
            "unknown_schema_id",
            "bad_magic",
        ),
        "truncated",
    ]
    assert [each["number"] for each in found] == [3, None, 3, 3, 3, 3, None, None, None]


def test_what_is_decoded_at_once_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging, "CHUNK_BYTES", 64)
    values = [FRAME + zigzag(n) for n in range(10)] + [FRAME + bytes(200), None]
    array = pa.array([b"before", *values], pa.binary()).slice(1)
    pieces = list(Judge(PLAN, PLAN.columns).judge(array))
    assert [len(each) for each in pieces] == [4, 4, 3, 1]
    found = pa.concat_arrays(pieces)
    assert [each["value"]["a"] for each in found.to_pylist()[:10]] == list(range(10))
    assert found.field("reason").to_pylist()[10:] == ["trailing_bytes", "null_value"]
