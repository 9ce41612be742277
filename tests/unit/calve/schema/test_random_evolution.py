"""Schemas that evolve at random, step by step: each field's values stay in the column of that field, whatever it is called."""

from __future__ import annotations

import io
import json
from random import Random
from typing import Any

import fastavro
from hypothesis import given, settings
from hypothesis import strategies as st

from calve.schema.avro import columns_of, expand
from calve.schema.columns import struct
from calve.schema.lineage import settle
from tests.random_formats import avro_schema
from tests.random_schemas import Steps, newest_names, padded, rows_of
from tests.spark_decoder.resolution import resolution

Json = Any


LEAVES, NESTED = ("int", "float", "string"), ("struct", "list")
SEEDS = st.integers(0, 2**64 - 1)


@settings(max_examples=100, derandomize=True)
@given(SEEDS, st.integers(1, 7))
def test_values_stay_with_their_field_though_names_are_used_again(seed: int, size: int) -> None:
    steps = Steps(Random(seed), reuse=True, leaves=LEAVES, nested=NESTED)
    versions = [steps.first()]
    for _ in range(size):
        versions.append(steps.next(versions[-1]))
    keeps_values(steps, [(version, True) for version in versions])


@settings(max_examples=50, derandomize=True)
@given(SEEDS, st.integers(1, 15))
def test_values_stay_with_their_field_among_versions_that_do_not_fit(seed: int, size: int) -> None:
    steps = Steps(Random(seed), leaves=LEAVES, nested=NESTED)
    versions = [(steps.first(), True)]
    for _ in range(size):
        fields = steps.next(next(fields for fields, fits in reversed(versions) if fits))
        versions += [(fields, True), (steps.broken(fields), False)]
    keeps_values(steps, versions)


def keeps_values(steps: Steps, versions: list[tuple[Any, bool]]) -> None:
    """Each version fits that should, no other does, and every value of it is read into its field's column."""
    names = newest_names([fields for fields, fits in versions if fits])
    schemas = [avro_schema(fields) for fields, _ in versions]
    known = [columns_of(expand(json.dumps(each))) for each in schemas]
    table = struct()
    for number in range(len(known)):  # as the job sees them: one after the other, or all at once
        if steps.random.random() < 0.5 or number == len(known) - 1:
            table, _, fits = settle(table, known[: number + 1])
    for (fields, should_fit), written, fit in zip(versions, schemas, fits, strict=True):
        assert (fit.columns is not None) == should_fit, fit.problem
        if fit.columns is None:
            continue
        for _ in range(3):
            row = steps.row(fields)
            assert read(written, fit.columns, row) == padded(table, rows_of(fields, row, names))


def read(written: Json, columns: Json, values: Json) -> Json:
    found = resolution(expand(json.dumps(written)), columns)
    data = io.BytesIO()
    fastavro.schemaless_writer(data, fastavro.parse_schema(json.loads(json.dumps(written))), values)
    data.seek(0)
    writer, reader = (fastavro.parse_schema(json.loads(json.dumps(s))) for s in (found.writer, found.reader))
    return fastavro.schemaless_reader(data, writer, reader)
