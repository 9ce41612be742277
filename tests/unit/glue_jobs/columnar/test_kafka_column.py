"""Where rows come from, as Spark's source of Kafka says it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from calve.schema.columns import KAFKA
from glue_jobs.columns.arrow_types import arrow_type
from glue_jobs.engines.columnar.tasks import kafka_column
from tests.columnar import plain, records_of

HEADERS: list[list[tuple[bytes, bytes | None]]] = [
    [(b"a", b"1"), (b"", None)],
    [],
    [(b"long" * 50, b"")],
    [(b"bad\xff\xc3(", b"\xff")],
]
RECORDS = records_of([b"v"] * 4, keys=[b"k", None, b"", b"\xff"], headers=HEADERS)


def test_the_facts_of_the_chosen_records() -> None:
    numbers = pa.array([7, None, 8], pa.int32())
    found = kafka_column("it", RECORDS, np.array([0, 1, 3]), numbers)
    assert found.type.equals(arrow_type(KAFKA["type"]))
    found.validate(full=True)
    assert plain(found) == [
        {
            "topic": b"it",
            "partition": 3,
            "offset": 10 + n,
            "timestamp": (1000 + n) * 1000,
            "timestamp_type": n % 2,
            "key": key,
            "headers": headers,
            "schema_id": number,
        }
        for n, key, headers, number in (
            (0, b"k", [{"key": b"a", "value": b"1"}, {"key": b"", "value": None}], 7),
            (1, None, None, None),
            (3, b"\xff", [{"key": "bad\ufffd\ufffd(".encode(), "value": b"\xff"}], 8),
        )
    ]


def test_records_without_headers_have_none() -> None:
    found = kafka_column("it", records_of([b"v"] * 3), np.arange(3), pa.nulls(3, pa.int32()))
    assert found.field("headers").null_count == 3
    assert len(kafka_column("it", RECORDS, np.arange(0), pa.nulls(0, pa.int32()))) == 0


def test_headers_that_are_not_there_are_an_error() -> None:
    lying = replace(RECORDS, headers_count=np.full(4, 100, np.int32))
    with pytest.raises(ValueError, match="headers"):
        kafka_column("it", lying, np.arange(4), pa.nulls(4, pa.int32()))
