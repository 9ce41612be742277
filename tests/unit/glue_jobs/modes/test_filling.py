"""Values that updates lack, against events that are applied one by one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from calve.schema.change_events import UNAVAILABLE
from calve.schema.columns import CHANGE, KAFKA, field, list_of, map_of, struct
from glue_jobs.engines.batch import Batch
from glue_jobs.engines.columnar.layouts import schema
from glue_jobs.engines.columnar.parquet import Files, Written
from glue_jobs.iceberg.delete_files import LiveFile
from glue_jobs.iceberg.staging import NOTHING
from glue_jobs.iceberg.storage import Storage
from glue_jobs.index.decision import NO_RECORDS, KeyedFiles, KeyedRecords, KeyRule, order_of
from glue_jobs.index.hashing import Hashes, hashes
from glue_jobs.modes import filling, staging
from glue_jobs.modes.by_key import _chosen
from glue_jobs.modes.filling import TooLarge, filled
from glue_jobs.table.counts import Counts
from tests.unit.glue_jobs.columnar.layouts import layout, read

COLUMNS = struct(
    field("id", "long"),
    field("note", "string"),
    field("data", "binary"),
    field("tags", list_of("string")),
    field("facts", map_of("long")),
    KAFKA,
    CHANGE,
)
LAYOUT = layout(COLUMNS, batch_bytes=1)
SCHEMA = schema(LAYOUT.columns)
LACKING: dict[str, Any] = {
    "note": UNAVAILABLE,
    "data": UNAVAILABLE.encode(),
    "tags": [UNAVAILABLE],
    "facts": [(UNAVAILABLE, 0)],
}
KEYS, EVENTS, ROW_BYTES = 12, 60, 100
Row = dict[str, Any]


class Held:
    """The index of a table with these rows."""

    def __init__(self, rows: list[Row]) -> None:
        self.rows = pa.Table.from_pylist(rows, SCHEMA)

    def orders(self, table: Any, keys: Hashes, columns: Any) -> tuple[Any, pa.Array]:
        numbers, found = self.values(table, keys, columns, ["_change"])
        return numbers, order_of(found["_change"].combine_chunks().field("position"))

    def values(self, table: Any, keys: Hashes, columns: Any, wanted: list[str]) -> tuple[Any, pa.Table]:
        held = hashes([self.rows["id"].combine_chunks()])
        numbers, rows = np.nonzero(keys.high[:, None] == held.high[None, :])
        return numbers, self.rows.select(wanted).take(pa.array(rows))

    def bytes_of(self, table: Any, keys: Hashes, columns: Any) -> float:
        return float(ROW_BYTES * len(self.values(table, keys, columns, ["id"])[0]))

    def values_at(self, table: Any, columns: Any, files: list[LiveFile], positions: Any) -> dict[str, Any]:
        return {each.path: columns.values(each, positions[each.path], Storage("r")) for each in files}


def event(dice: Random, key: int, offset: int, *, ordered: bool) -> Row:
    values: Row = {
        "note": dice.choice((None, f"note {offset}")),
        "data": f"data {offset}".encode(),
        "tags": [f"tag {offset}", "b"],
        "facts": [(f"fact {offset}", offset)],
    }
    op = dice.choice("cuuud" if ordered else "cuuu")
    values |= {name: each for name, each in LACKING.items() if op == "u" and dice.random() < 0.3}
    position = dice.choice((None, *(f"{n:03d}" for n in range(20)))) if ordered else None
    kafka = {"topic": "t", "partition": key % 2, "offset": offset, "timestamp": 1_000_000 * offset}
    return {"id": key, **values, "_kafka": kafka, "_change": {"op": op, "position": position}}


def applied(row: Row | None, change: Row) -> Row:
    """The row of a key after a change."""
    if row is None:
        return change
    if (change["_change"]["position"] or "") < (row["_change"]["position"] or ""):
        return row
    lacks = {
        name for name, each in LACKING.items() if change[name] == each and change["_change"]["op"] == "u"
    }
    return change | {name: row[name] for name in lacks}


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_rows_are_those_of_events_applied_one_by_one(tmp_path: Path, seed: int, *, ordered: bool) -> None:
    """Two tasks read the events in several parts. In tables without an order some are deletions."""
    dice, rule = Random(seed), KeyRule(("id",), newest=True, order_by="_change.position" if ordered else None)
    rows: dict[Any, Row] = {}
    for key in range(0, KEYS, 2):
        made = event(dice, key, -key - 1, ordered=ordered)
        rows[key] = made | {"_change": made["_change"] | {"op": "c"}}
    table = SimpleNamespace(index=Held(list(rows.values())), main=SimpleNamespace(schema=LAYOUT.columns))
    parts: list[tuple[list[Row], list[Row]]] = [([], [])]
    for offset in range(EVENTS):
        if dice.random() < 0.2:
            parts.append(([], []))
        key = dice.randrange(KEYS)
        change = event(dice, key, offset, ordered=ordered)
        deletes = not ordered and dice.random() < 0.15
        parts[-1][deletes].append(change)
        if deletes:
            rows.pop(key, None)
        else:
            rows[key] = applied(rows.get(key), change)
    keyed, files = staged(tmp_path, rule, parts)
    aside = keyed.aside
    assert aside is not None
    every = KeyedRecords.together([*keyed.records, KeyedRecords.of(aside, rule), keyed.deletions])
    kept = _chosen(table, rule, every)  # type: ignore[arg-type]
    live = [LiveFile(-1, each.path, "PARQUET", each.rows, each.size, ()) for each in files]
    found = filled(table, rule, every, kept, aside, live)  # type: ignore[arg-type]
    written = (read(files) if files else SCHEMA.empty_table()).filter(
        pa.array(kept[: sum(each.rows for each in files)])
    )
    new_rows = [*written.to_pylist(), *found.to_pylist()]
    new = {each["id"]: {name: each[name] for name in ("id", *LACKING)} for each in new_rows}
    assert len(new) == len(new_rows)
    expected = {key: row for key, row in rows.items() if row["_kafka"]["offset"] >= 0}
    assert new == {key: {name: row[name] for name in ("id", *LACKING)} for key, row in expected.items()}


def staged(
    directory: Path, rule: KeyRule, parts: list[tuple[list[Row], list[Row]]]
) -> tuple[KeyedFiles, list[Written]]:
    """What two tasks leave."""
    files, deletions, aside = [], [], []
    half = len(parts) // 2
    for number, mine in enumerate((parts[:half], parts[half:])):
        task = Files(LAYOUT, f"file://{directory}/round-1-{number}", rule, changes=True)
        for changes, deleting in mine:
            gone = pa.Table.from_pylist(deleting, SCHEMA).select(["id", "_kafka"])
            task.delete(gone)
            task.write(pa.Table.from_pylist(changes, SCHEMA))
        files += task.close()
        deletions.append(task.deletions)
        aside += [task.aside] if task.aside else []
    records = tuple(each.records for each in files if each.records is not None)
    left = pa.concat_tables(aside) if aside else None
    return KeyedFiles(rule, records, KeyedRecords.together(deletions), left), files


def large(number: int, directory: Path) -> tuple[Any, ...]:
    """The arguments of `filled` for updates of so many keys that lack a value which the table has."""
    dice, rule = Random(0), KeyRule(("id",), newest=True)
    held = [event(dice, key, -key - 1, ordered=False) for key in range(number)]
    changes = [each | {"note": UNAVAILABLE, "_change": {"op": "u", "position": None}} for each in held]
    table = SimpleNamespace(index=Held(held), main=SimpleNamespace(schema=LAYOUT.columns))
    keyed, _ = staged(directory, rule, [([], []), (changes, [])])
    assert keyed.aside is not None
    every = KeyedRecords.of(keyed.aside, rule)
    return table, rule, every, np.ones(number, bool), keyed.aside, []


def test_the_driver_reads_no_more_values_than_it_has_room_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filling, "MOST_BYTES", 3 * ROW_BYTES * filling.INFLATION)
    assert len(filled(*large(3, tmp_path))) == 3
    with pytest.raises(TooLarge):
        filled(*large(4, tmp_path))


def test_values_of_staged_files_count_too() -> None:
    files = [LiveFile(-1, "a", "PARQUET", 2, 20, ()), LiveFile(-1, "b", "PARQUET", 4, 400, ())]
    assert filling._bytes(np.array([0, 2, 5]), files) == 210
    assert filling._bytes(np.array([], np.int64), []) == 0


def test_a_round_with_too_many_values_is_made_by_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The columnar engine's files are discarded first. The row engine looks for lacking values at once."""
    done: list[Any] = []

    def refuse(*_: Any) -> None:
        raise TooLarge

    def by_rows(batch: Batch, stage_id: str) -> Any:
        done.append(("rows", batch.lacks_values))
        return replace(NOTHING, rows=7), Counts()

    left = KeyedFiles(KeyRule(("id",), newest=True), (), NO_RECORDS)
    table = SimpleNamespace(mode=None, main="main", worker_s=SimpleNamespace(value=0.0), grow=lambda _: None)
    engine = SimpleNamespace(stage=lambda *_: (NOTHING, Counts(), left))
    monkeypatch.setattr(staging, "decided", refuse)
    monkeypatch.setattr(staging, "fold_of", lambda _: by_rows)
    monkeypatch.setattr(staging, "discard", lambda main, files: done.append(("discarded", files)))
    batch = Batch(table, {}, {}, "topic", 0.0)  # type: ignore[arg-type]
    files, _, _ = staging.stage_batch(engine, batch, "id")
    assert files.rows == 7
    assert done == [("discarded", NOTHING), ("rows", True)]
