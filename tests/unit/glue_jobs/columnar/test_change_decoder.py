"""Which of the records of a database's topic make rows, delete rows, do neither, or are rejects."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from calve.decoding.decode_plan import DecodePlan, decoding, first_columns
from calve.decoding.formats import Top
from calve.modes.upsert import ChangeData
from calve.schema.columns import CHANGE, field, struct
from calve.schema.wire import BARE, CONFLUENT, Schema
from calve.schema.writers import PlainWriter
from glue_jobs.engines.columnar.decoder import Decoded, Decoder
from tests.columnar import records_of
from tests.debezium import COLUMNS, event, json_schema

ROW = {"id": 1, "name": "n", "note": None, "tags": None}
CHANGES = Top(taken="pk", changes=True)
INSERTED, DELETED, EMPTIED, SAID, STRANGE, ROWLESS, NO_EVENT, TOMBSTONE = range(8)
EVENTS: list[Any] = [
    event("c", after=ROW),
    event("d", before=ROW | {"id": 2}),
    event("t"),
    event("m"),
    event("x", after=ROW),
    event("u", before=ROW),
    [],
    None,
]
VALUES = [None if each is None else CONFLUENT.frame(7) + json.dumps(each).encode() for each in EVENTS]
KEYS = [b"k"] * len(VALUES)


def decoded(mode: ChangeData, keys: list[bytes | None] | list[bytes] = KEYS) -> Decoded:
    """The records, whose keys are a column of text."""
    versions = [Schema(7, json_schema(COLUMNS), "JSON")]
    row = first_columns(versions, "it", CHANGES)
    key = DecodePlan(
        (PlainWriter(0, b"", "pk", text=True),), wire=BARE, columns=struct(field("pk", "string"))
    )
    plan = replace(decoding(row, versions, top=CHANGES), key=key)
    columns = struct(field("pk", "string"), *row["fields"], CHANGE)
    return Decoder(plan, columns, mode).decode(records_of(VALUES, keys))


@pytest.mark.parametrize(
    ("mode", "rows", "deletions"),
    [
        (ChangeData(("pk",), deletes=True), [INSERTED], [[DELETED], [TOMBSTONE]]),
        (ChangeData(("id",)), [INSERTED], [[DELETED]]),
        (ChangeData(("pk",), keep_deleted=True), [INSERTED, DELETED], []),
    ],
    ids=["by record key", "by a column", "deleted rows stay"],
)
def test_an_event_makes_a_row_or_deletes_one_or_does_neither(
    mode: ChangeData, rows: list[int], deletions: list[list[int]]
) -> None:
    found = decoded(mode)
    assert found.good.tolist() == rows
    assert [each.good.tolist() for each in found.deletions] == deletions
    assert found.rejected.tolist() == [STRANGE, ROWLESS, NO_EVENT]
    assert found.truncates == 1


def test_rows_have_the_change_and_their_keys() -> None:
    found = decoded(ChangeData(("id",), keep_deleted=True)).columns.to_pylist()
    assert [(each["pk"], each["id"], each[CHANGE["name"]]["deleted"]) for each in found] == [
        ("k", 1, False),
        ("k", 2, True),
    ]


def test_deletions_have_the_columns_of_the_row_that_was_there() -> None:
    [deletion] = decoded(ChangeData(("id",))).deletions
    assert deletion.columns.select(["pk", "id"]).to_pylist() == [{"pk": "k", "id": 2}]


@pytest.mark.parametrize("mode", [ChangeData(("pk",), deletes=True), ChangeData(("id",))], ids=["key", "id"])
def test_a_record_with_a_bad_key_is_a_reject_whatever_it_does(mode: ChangeData) -> None:
    found = decoded(mode, [b"\xff"] * len(VALUES))
    every: list[Any] = [*found.good, *(place for each in found.deletions for place in each.good)]
    assert not every
    assert found.rejected.tolist() == list(range(len(VALUES)))
    assert found.truncates == 0
