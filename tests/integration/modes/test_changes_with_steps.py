"""Steps on a database's changes: both engines make the same table, and it is that of the database behind the steps."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, replace
from typing import Any, Protocol

import pytest

from calve.config.job import Source
from calve.config.steps import Filter, Flatten, Mask, Route, Rule, Sql, Step
from calve.modes.upsert import ChangeData, Upsert
from glue_jobs.engines.choice import RowEngine
from tests.integration.modes.test_changes_agree import reasons, whole
from tests.integration.steps.test_masked_tables import masking, token
from tests.integration.support.engine import Engine
from tests.integration.support.proofs import assert_proved, proof
from tests.integration.support.records.database import BY_RECORD_KEY, KEPT, Database

__all__ = ["masking"]
long = pytest.mark.long
BY_PK = ChangeData(("pk.id",), deletes=True, bucketed=True)
PK = Source(column="pk")
MASK = Mask(fields={"note": Rule("hash"), "tags": Rule("partial", 1)}, masking_key="k1")
ORDER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "id", "type": "long"}, {"name": "state", "type": "string"}],
    }
)
LISTED = Filter("name IS NULL OR name NOT LIKE '%3' AND name NOT LIKE '%6'")


class Changes(Protocol):
    """A topic of change events."""

    topic: str

    def target(self, mode: ChangeData, **settings: Any) -> Any: ...


@dataclass
class Twice:
    """A topic as a table of each engine. `settings`: of both tables."""

    engine: Engine
    database: Changes
    patch: pytest.MonkeyPatch
    settings: dict[str, Any]
    mode: ChangeData = BY_RECORD_KEY

    def __post_init__(self) -> None:
        self.names = [f"{self.database.topic}_{each}" for each in ("rows", "columnar")]
        self.targets = [
            self.database.target(self.mode, table=name, engine=name.rpartition("_")[2], **self.settings)
            for name in self.names
        ]

    def drain(self) -> Any:
        """The ledgers of the rounds, which are those of both engines."""
        by_rows, by_columns = self.targets
        self.engine.flush()
        expected = [each.ledger for each in self.engine.drain(by_rows)]
        with self.patch.context() as patch:
            patch.setattr(RowEngine, "stage", None)
            assert [each.ledger for each in self.engine.drain(by_columns)] == expected
        rows, columns = (whole(self.engine, each) for each in self.names)
        assert rows == columns
        assert self.letters(0) == self.letters(1)
        return expected

    def letters(self, number: int = 0) -> list[tuple[int, int, str]]:
        """Place and reason of each dead letter of a table."""
        held = self.targets[number].opened.dead_letters.table
        return [] if held is None else reasons(self.engine, self.names[number])

    def rows(self, *columns: str) -> dict[int, Any]:
        found = self.engine.rows(self.names[1]).where("not _change.deleted").select("id", *columns).collect()
        assert len({each[0] for each in found}) == len(found)
        return {each[0]: each[1:] for each in found}

    def prove(self) -> None:
        taken = {
            name: self.settings[name]
            for name in ("steps", "masking", "key", "value")
            if name in self.settings
        }
        for name in self.names:
            assert_proved(proof(self.engine, name, **taken))


def masked(row: dict[str, Any]) -> tuple[Any, Any]:
    note, tags = row["note"], row["tags"]
    return note and token(note), tags and ["*" * (len(each) - 1) + each[-1] for each in tags]


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({}, id="by the record key", marks=pytest.mark.full),
        pytest.param({"key": PK}, id="by a column of it", marks=long),
    ],
)
def test_a_masked_table_has_the_masked_rows_of_the_database(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, masking: str, settings: dict[str, Any]
) -> None:
    """Updates lack values that are masked in the table; rows are deleted, and their keys change."""
    database, dice = Database(engine), random.Random(21)
    steps: tuple[Step, ...] = (
        MASK,
        Sql("SELECT *, id * 2 AS twice, _change.op AS how FROM source"),
        Flatten(),
    )
    mode = BY_PK if settings else BY_RECORD_KEY
    tables = Twice(engine, database, monkeypatch, {"steps": steps, "masking": masking} | settings, mode)
    for _ in range(3):
        database.churn(dice, 60)
        database.message()
        tables.drain()
        assert tables.rows("note", "tags", "twice") == {
            key: (*masked(row), 2 * key) for key, row in database.rows.items()
        }
    tables.prove()


@long
@pytest.mark.parametrize("mode", [BY_RECORD_KEY, KEPT], ids=["removed", "kept"])
def test_a_row_that_a_filter_drops_leaves_the_table(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, mode: ChangeData
) -> None:
    """As many records as before are counted as filtered, and a record of the key that passes makes the row again."""
    database, dice = Database(engine, full=True), random.Random(22)
    tables = Twice(engine, database, monkeypatch, {"steps": (LISTED,)}, mode)
    filtered = 0
    for _ in range(3):
        for _ in range(60):
            database.rewrite(dice)
        filtered += sum(each.filtered_by_steps for each in tables.drain())
        assert tables.rows("name") == {
            key: (row["name"],) for key, row in database.rows.items() if not row["name"].endswith(("3", "6"))
        }
    assert filtered > 10
    tables.prove()


@long
def test_an_update_without_a_value_that_a_step_reads_is_a_dead_letter(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An expression would take the placeholder for the value. A step that moves a value needs none."""
    database = Database(engine, partitions=1)
    query = Sql("SELECT id, name, note LIKE 'note%' AS plain, tags AS labels FROM source WHERE id < 3")
    tables = Twice(engine, database, monkeypatch, {"steps": (query,)})
    for key in (1, 2, 3):
        database.insert(key, name="old")
    database.update(1, name="new")
    database.update(2, name="new", note="own")
    database.update(3, name="new")
    tables.drain()
    assert tables.rows("name", "plain", "labels") == {1: ("old", True, ["t1"]), 2: ("new", False, ["t2"])}
    assert tables.letters() == [(0, 3, "value_unavailable")]
    tables.prove()


@pytest.mark.parametrize(
    "step",
    [
        Filter("note IS NOT NULL"),
        pytest.param(Sql("SELECT id, name FROM source WHERE note LIKE 'n%'"), marks=long),
        pytest.param(Route("note", ("note 1",), ("note 1",), "keep"), marks=long),
    ],
    ids=["filter", "sql", "route"],
)
def test_an_update_without_the_value_of_a_condition_is_a_dead_letter(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, step: Step
) -> None:
    database = Database(engine, partitions=1)
    tables = Twice(engine, database, monkeypatch, {"steps": (step,)})
    database.insert(1)
    database.update(1, name="new")
    database.delete(1)
    database.insert(2)
    tables.drain()
    assert tables.letters() == [(0, 1, "value_unavailable")]
    assert set(tables.rows()) == {2}
    tables.prove()


@long
def test_rows_move_between_the_tables_of_a_topic(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    database = Database(engine, full=True)
    here, there = (
        Twice(engine, database, monkeypatch, {"steps": (Route("name", (each,), (each, other), "leave_out"),)})
        for each, other in (("a", "b"), ("b", "a"))
    )
    there.names = [f"{each}_b" for each in there.names]
    there.targets = [
        database.target(table=name, engine=name.split("_")[-2], **there.settings) for name in there.names
    ]
    for key in range(6):
        database.insert(key, name="ab"[key % 2])
    for each in (here, there):
        each.drain()
    for key in (0, 1, 2):
        database.update(key, name="ba"[key % 2], note="n", tags=None)
    database.delete(4)
    for each in (here, there):
        each.drain()
        each.prove()
    assert (set(here.rows()), set(there.rows())) == ({1}, {0, 2, 3, 5})


def test_a_new_field_of_a_database_stays_out_until_somebody_decides(engine: Engine, masking: str) -> None:
    database = Database(engine, full=True)
    settings: dict[str, Any] = {"masking": masking, "quarantine_new_fields": True}
    engine.drain(database.target(steps=(MASK,), **settings))
    database.insert(1, name="a")
    engine.flush()
    engine.drain(database.target(steps=(MASK,), **settings))
    database.add_column("email", ["null", "string"])
    database.update(1, note="x", tags=None, email="a@b.c")
    engine.flush()
    engine.drain(database.target(steps=(MASK,), **settings))
    assert "email" not in engine.rows(database.topic).columns
    assert_proved(proof(engine, database.topic, steps=(MASK,), masking=masking))
    decided = replace(MASK, fields=MASK.fields | {"email": Rule("partial", "domain")})
    database.update(1, note="y", tags=None)
    engine.flush()
    engine.drain(database.target(steps=(decided,), **settings))
    assert [row["email"] for row in engine.rows(database.topic).collect()] == ["***@b.c"]


@pytest.mark.parametrize(
    "upsert",
    [
        pytest.param(Upsert(("_kafka.key",), deletes=True), marks=pytest.mark.full),
        pytest.param(Upsert(("twice",)), marks=long),
    ],
    ids=["by the record key", "by a column"],
)
def test_an_upsert_that_a_filter_drops_leaves_the_table(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, upsert: Upsert
) -> None:
    """The key may be computed by a later step. A tombstone of the record key passes all steps."""
    topic, dice = engine.topic(schema=ORDER, partitions=2), random.Random(23)
    steps = (Filter("state <> 'gone'"), Sql("SELECT *, id * 2 AS twice FROM source"))
    names = [f"{topic}_{each}" for each in ("rows", "columnar")]
    targets = [
        engine.target(topic, table=name, engine=name.rpartition("_")[2], steps=steps, upsert=upsert)
        for name in names
    ]
    states: dict[int, str] = {}
    for _ in range(3):
        for _ in range(60):
            number, state = dice.randrange(15), dice.choice(("new", "paid", "gone"))
            dead = upsert.deletes and dice.random() < 0.1
            states[number] = "gone" if dead else state
            value = None if dead else engine.encode(topic, {"id": number, "state": state})
            engine.send(topic, value, key=b"%d" % number, partition=number % 2)
        engine.flush()
        expected = [each.ledger for each in engine.drain(targets[0])]
        with monkeypatch.context() as patch:
            patch.setattr(RowEngine, "stage", None)
            assert [each.ledger for each in engine.drain(targets[1])] == expected
        rows, columns = (whole(engine, each) for each in names)
        assert rows == columns
        found = {row["id"]: row["state"] for row in engine.rows(names[1]).collect()}
        assert found == {number: state for number, state in states.items() if state != "gone"}
        assert len(rows) == len(found)
    for name in names:
        assert_proved(proof(engine, name, steps=steps))
