"""Both engines make the same rows, dead letters and ledgers of a database's changes."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from calve.modes.upsert import ChangeData
from calve.schema.change_events import UNAVAILABLE
from glue_jobs.engines.choice import RowEngine
from glue_jobs.modes import filling
from tests.integration.support.engine import Engine
from tests.integration.support.records.database import BY_ID, BY_LSN, BY_RECORD_KEY, KEPT, Database

pytestmark = pytest.mark.long


@pytest.mark.parametrize(
    ("encoding", "mode"),
    [
        ("avro", BY_RECORD_KEY),
        pytest.param("json", KEPT, marks=pytest.mark.full),
        pytest.param("connect", BY_ID, marks=pytest.mark.full),
        pytest.param("json", BY_RECORD_KEY, marks=pytest.mark.full),
    ],
    ids=["Avro", "JSON and deleted rows", "JSON with its schema, by a column", "JSON"],
)
def test_both_engines_keep_the_rows_of_a_database(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, encoding: str, mode: ChangeData
) -> None:
    """Only a round with a truncation is made by rows, whichever engine the table has."""
    database, dice = Database(engine, encoding=encoding, full=True), random.Random(f"{encoding} {mode}")
    by_rows, by_columns = (f"{database.topic}_{each}" for each in ("rows", "columns"))
    targets = [
        database.target(mode, table=by_rows, engine="rows"),
        database.target(mode, table=by_columns, engine="columnar"),
    ]

    def changed(*events: Callable[[], object], by_rows_too: bool = False) -> None:
        database.snapshot()
        for _ in range(60):
            database.rewrite(dice)
        database.message()
        for each in events:
            each()
        for op, after in (("x", {"id": 1}), ("u", None), ("c", None)):
            database.write(op, 1, None, None if after is None else dict.fromkeys(database.columns) | after)
        database.write("d", 99, None, None)
        database.redeliver(20)
        engine.flush()
        with monkeypatch.context() as patch:
            expected = [each.ledger for each in engine.drain(targets[0])]
            if not by_rows_too:
                patch.setattr(RowEngine, "stage", None)
            assert [each.ledger for each in engine.drain(targets[1])] == expected
        assert whole(engine, by_rows) == whole(engine, by_columns)
        letters = [reasons(engine, each) for each in (by_rows, by_columns)]
        assert letters[0] == letters[1]

    changed(lambda: database.churn(dice, 20))
    changed(lambda: database.churn(dice, 20), database.truncate, by_rows_too=True)
    changed(lambda: database.churn(dice, 20))
    changed()
    assert len(whole(engine, by_rows)) > 5
    assert {reason for _, _, reason in reasons(engine, by_rows)} >= {"bad_change"}


def test_both_engines_order_changes_by_position(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Events come in any order, and some lack values."""
    database, dice = Database(engine, held=True), random.Random(12)
    by_rows, by_columns = (f"{database.topic}_{each}" for each in ("rows", "columns"))
    target, other = (
        database.target(BY_LSN, table=name, engine=each)
        for name, each in ((by_rows, "rows"), (by_columns, "columnar"))
    )
    database.churn(dice, 150)
    for _ in database.release(dice, 3):
        expected = [each.ledger for each in engine.drain(target)]
        with monkeypatch.context() as patch:
            patch.setattr(RowEngine, "stage", None)
            assert [each.ledger for each in engine.drain(other)] == expected
        assert whole(engine, by_rows) == whole(engine, by_columns)
    rows = engine.rows(by_columns).where("not _change.deleted").select("id", "name").collect()
    assert {each.id: each.name for each in rows} == {key: row["name"] for key, row in database.rows.items()}


@pytest.mark.parametrize("most_bytes", [filling.MOST_BYTES, 0])
def test_a_placeholder_is_a_value_where_no_update_has_it(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, most_bytes: int
) -> None:
    """Also if the driver has no room for values: then the columnar engine's round is made by rows."""
    database = Database(engine, partitions=1)
    by_rows, by_columns = (f"{database.topic}_{each}" for each in ("rows", "columns"))
    targets = [
        database.target(table=by_rows, engine="rows"),
        database.target(table=by_columns, engine="columnar"),
    ]
    made: list[int] = []
    by_row_engine = RowEngine.stage

    def stage(self: RowEngine, batch: Any, stage_id: str) -> Any:
        made.append(1)
        return by_row_engine(self, batch, stage_id)

    def drained() -> None:
        engine.flush()
        expected = [each.ledger for each in engine.drain(targets[0])]
        with monkeypatch.context() as patch:
            patch.setattr(filling, "MOST_BYTES", most_bytes)
            patch.setattr(RowEngine, "stage", stage)
            assert [each.ledger for each in engine.drain(targets[1])] == expected
        assert whole(engine, by_rows) == whole(engine, by_columns)

    for key in (1, 2, 3):
        database.insert(key)
    drained()
    assert not made
    for key, note in ((1, "own"), (1, UNAVAILABLE), (3, UNAVAILABLE)):
        database.write("c", key, None, database.rows[key] | {"note": note})
    for key in (2, 3):
        database.update(key, name="new")
    drained()
    assert bool(made) == (most_bytes == 0)
    rows = engine.rows(by_columns).select("id", "note").collect()
    assert {each.id: each.note for each in rows} == {1: UNAVAILABLE, 2: "note 2", 3: UNAVAILABLE}


def whole(engine: Engine, table: str) -> list[str]:
    return sorted(map(repr, engine.rows(table).collect()))


def reasons(engine: Engine, table: str) -> list[tuple[int, int, str]]:
    found = engine.letters(table).select("partition", "offset", "reason").collect()
    return sorted((row[0], row[1], row[2]) for row in found)
