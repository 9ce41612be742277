"""What `calve status` and `calve tables` say about real Iceberg tables."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import SortDirection, SortField, SortOrder
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform
from pyiceberg.types import (
    DateType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from calve.config.job import Job, Kafka, Lake, Registry
from calve.config.job import Table as TableSettings
from calve.config.maintenance import ORPHANS_NOTE, SURPLUS_FILES, Maintenance, RowRetention, due
from calve.names import TableName
from calve.outputs.job_status import FormerState, TableState
from calve.schema.columns import REJECTED_AT
from calve.table.position import DeadLetterRound, Ledger, Position, TopicKey
from calve.table.protocol import TopicState
from calve.table.summary import POSITION_TAG, STATE, carried_position, encode
from cli.conditions import Conditions
from cli.console import duration
from cli.lake import Metadata, Tables, ancestors, count_by, latest_commit, load, rows, state_of
from cli.look.health import TableStatus, Waiting
from cli.look.status.metadata import upkeep, waiting
from cli.look.status.overview import History, kind
from cli.look.status.survey import Survey, facts_of, unread_offsets
from cli.look.tables import columns, facts, partitioning, sorting
from tests.unit.cli.folder_catalog import FolderCatalog

if TYPE_CHECKING:
    from pathlib import Path

NAME = ("trading", "trades")
DAY_S = 86_400.0
TOPIC = TopicKey("cluster", "topic")
SCHEMA = Schema(NestedField(1, "price", LongType()))
JOB = Job(
    name="trading",
    job="main",
    kafka=Kafka("127.0.0.1:1"),
    registry=Registry("http://127.0.0.1:1"),
    lake=Lake("trading", "s3://lake"),
    tables=(TableSettings("trades", "stock_trades"), TableSettings("users", "users")),
)


@pytest.fixture
def catalog(tmp_path: Path) -> FolderCatalog:
    return FolderCatalog(tmp_path)


def summary(
    to: int, *, metrics: dict[str, float] | None = None, ledger: Ledger | None = None
) -> dict[str, str]:
    position = Position({TOPIC: {0: to}}, round=f"round-{to}", writer="w", topic="stock_trades")
    return encode(position=position, topic=TOPIC, start={}, ledger=ledger or Ledger(), metrics=metrics or {})


def append(table: Table, count: int, properties: dict[str, str] | None = None) -> int:
    table.append(
        pa.table({"price": pa.array(range(count), pa.int64())}), snapshot_properties=properties or {}
    )
    head = table.current_snapshot()
    assert head is not None
    return head.snapshot_id


def test_a_foreign_commit_on_top_does_not_hide_the_position(catalog: FolderCatalog) -> None:
    table = catalog.make(NAME, SCHEMA)
    ours = append(table, 3, summary(3))
    foreign = append(table, 2)
    found = latest_commit(table)
    assert found is not None
    commit, position = found
    assert (commit.id, position.snapshot, position.of(TOPIC)) == (ours, ours, {0: 3})
    assert [each.id for each in ancestors(table)] == [foreign, ours]
    assert rows(table) == 5


def test_a_snapshot_that_is_newer_but_staged_on_a_branch_is_not_the_position(catalog: FolderCatalog) -> None:
    table = catalog.make(NAME, SCHEMA)
    ours = append(table, 3, summary(3))
    table.manage_snapshots().create_branch(ours, "calve_round").commit()
    table.append(pa.table({"price": [1]}), snapshot_properties=summary(4), branch="calve_round")
    found = latest_commit(table)
    assert found is not None
    assert found[1].of(TOPIC) == {0: 3}
    assert rows(table) == 3


def test_after_a_rollback_the_older_position_counts(catalog: FolderCatalog) -> None:
    table = catalog.make(NAME, SCHEMA)
    first = append(table, 3, summary(3))
    append(table, 3, summary(6))
    table.manage_snapshots().rollback_to_snapshot(first).commit()
    found = latest_commit(table)
    assert found is not None
    assert found[1].of(TOPIC) == {0: 3}
    assert rows(table) == 3


def test_the_tag_says_where_a_table_stands_whose_history_was_cut(catalog: FolderCatalog) -> None:
    table = catalog.make(NAME, SCHEMA)
    ours = append(table, 3, summary(3))
    table.manage_snapshots().create_tag(ours, POSITION_TAG).commit()
    middle = append(table, 1)
    append(table, 1)
    left = [each for each in table.metadata.snapshots if each.snapshot_id != middle]
    table.metadata = table.metadata.model_copy(update={"snapshots": left})  # expiry as Java does it
    assert len(ancestors(table)) == 1
    found = latest_commit(table)
    assert found is not None
    assert found[0].id == ours


def test_a_table_of_another_writer_has_no_position(catalog: FolderCatalog) -> None:
    table = catalog.make(NAME, SCHEMA)
    assert latest_commit(table) is None
    append(table, 1)
    assert latest_commit(table) is None
    assert ancestors(table)[0].ledger is None


def test_a_snapshot_shows_its_ledger_and_metrics(catalog: FolderCatalog) -> None:
    ledger = Ledger(
        span=4, consumed=3, gaps=1, applied=2, dead_lettered=1, rows_appended=2, rejected={"malformed": 1}
    )
    table = catalog.make(NAME, SCHEMA)
    append(table, 2, summary(4, ledger=ledger, metrics={"lag_records": 7}))
    (snapshot,) = ancestors(table)
    assert snapshot.ledger == ledger
    assert snapshot.metrics == {"lag_records": 7}
    assert snapshot.total("records") == 2
    assert snapshot.operation == "append"


def test_the_state_is_what_the_job_wrote(catalog: FolderCatalog) -> None:
    suspended = TableState("suspended", "offsets_expired", "gone", "2026-01-01T00:00:00+00:00")
    table = catalog.make(NAME, SCHEMA, properties={STATE: suspended.to_json()})
    assert state_of(table) == suspended


def test_dead_letters_are_counted_by_reason(catalog: FolderCatalog) -> None:
    table = catalog.make(("trading", "trades__dead_letters"), Schema(NestedField(1, "reason", StringType())))
    assert count_by(table, "reason") == {}
    table.append(pa.table({"reason": ["malformed", "bad_magic", "malformed"]}))
    table.append(pa.table({"reason": ["malformed"]}))
    assert count_by(table, "reason") == {"bad_magic": 1, "malformed": 3}


def statuses(catalog: FolderCatalog, *only: str, job: Job = JOB) -> list[TableStatus]:
    """Without the cluster."""
    return Survey(facts_of([job], Tables(catalog), None, only)).statuses()


def test_a_survey_shows_every_table_even_without_the_cluster(catalog: FolderCatalog) -> None:
    table = catalog.make(
        NAME, SCHEMA, properties={STATE: '{"state": "running", "since": "2026-01-01T00:00:00Z"}'}
    )
    snapshot = append(table, 3, summary(3, metrics={"freshness_s": 1.5}))
    letters = catalog.make(
        ("trading", "trades__dead_letters"), Schema(NestedField(1, "reason", StringType()))
    )
    letters.append(pa.table({"reason": ["malformed"]}))

    trades, users = statuses(catalog)
    assert (trades.table, trades.state, trades.rows, trades.snapshot_id) == (
        "trading.trades",
        "running",
        3,
        snapshot,
    )
    assert (trades.freshness_s, trades.freshness_target_s) == (1.5, 60.0)
    assert trades.commit_age_s is not None
    assert (trades.lag_records, trades.lag_s) == (None, None)
    assert trades.dead_letters == {"malformed": 1}
    assert (users.state, users.rows, users.snapshot_id, users.dead_letters) == ("pending", 0, None, {})
    assert [each.table for each in statuses(catalog, "users")] == ["trading.users"]


def test_a_table_that_was_made_and_never_written_has_no_commit_to_show(catalog: FolderCatalog) -> None:
    table = catalog.make(NAME, SCHEMA)
    born = encode(
        position=Position({}, round="r", writer="w", topic="t"),
        topic=TOPIC,
        start={},
        ledger=Ledger(),
        metrics={},
    )
    append(table, 0, born)
    (status,) = statuses(catalog, "trades")
    assert (status.snapshot_id, status.commit_age_s, status.rows) == (None, None, 0)


def test_what_is_unread_runs_from_the_position_to_the_end_of_each_partition() -> None:
    topic = TopicState(
        TOPIC, "stock_trades", log_start={0: 0, 1: 0, 2: 5, 3: 0}, end={0: 10, 1: 10, 2: 10, 3: 0}
    )
    assert unread_offsets({0: 10, 1: 4, 2: 3}, topic) == {1: 4, 2: 5}
    assert unread_offsets({}, topic) == {0: 0, 1: 0, 2: 5}


def test_a_list_of_tables_shows_their_layout_and_size(catalog: FolderCatalog) -> None:
    table = catalog.make(NAME, SCHEMA)
    append(table, 3, summary(3))
    append(table, 4, summary(7))
    _, shown = facts(Tables(catalog), TableName(*NAME), Conditions())
    assert [shown[each] for each in ("rows", "files", "columns", "dead_letters")] == [7, 2, 1, 0]
    assert shown["bytes"] > 0
    assert facts(Tables(catalog), TableName("trading", "users"), Conditions())[0].state == "pending"
    assert load(catalog, TableName("trading", "users")) is None


def test_layout_and_columns_are_written_as_in_calve_yaml(catalog: FolderCatalog) -> None:
    item = StructType(NestedField(6, "sku", StringType()), NestedField(7, "count", IntegerType()))
    schema = Schema(
        NestedField(1, "userid", StringType(), required=True),
        NestedField(2, "order", StructType(NestedField(3, "created_at", TimestamptzType()))),
        NestedField(4, "items", ListType(5, item)),
    )
    table = catalog.make(
        NAME,
        schema,
        partitioning=PartitionSpec(
            PartitionField(3, 1000, DayTransform(), "day"),
            PartitionField(1, 1001, BucketTransform(16), "bucket"),
        ),
        order=SortOrder(
            SortField(3, IdentityTransform(), SortDirection.DESC),
            SortField(1, BucketTransform(4), SortDirection.ASC),
        ),
    )
    assert partitioning(table) == "day(order.created_at), bucket(16, userid)"
    assert sorting(table) == "order.created_at desc, bucket(4, userid)"
    assert list(columns(table.schema().fields)) == [
        ("userid", "string", True),
        ("order", "struct", False),
        ("order.created_at", "timestamptz", False),
        ("items", "list<struct<sku string, count int>>", False),
    ]


def test_a_dead_letter_round_travels_with_the_position(catalog: FolderCatalog) -> None:
    letters = DeadLetterRound("round-3", 12, 2)
    position = Position({TOPIC: {0: 3}}, round="round-3", writer="w", topic="t", dead_letters=letters)
    table = catalog.make(NAME, SCHEMA)
    append(table, 1, encode(position=position, topic=TOPIC, start={}, ledger=Ledger(), metrics={}))
    found = latest_commit(table)
    assert found is not None
    assert found[1].dead_letters == letters


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0s"),
        (0.42, "0.4s"),
        (59.4, "59s"),
        (60, "1m"),
        (61, "1m1s"),
        (3599.6, "1h"),
        (11520, "3h12m"),
        (187200, "2d4h"),
    ],
)
def test_durations_are_short(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_commit_that_moves_nothing_does_not_hide_what_the_last_round_achieved(
    catalog: FolderCatalog,
) -> None:
    table = catalog.make(NAME, SCHEMA)
    append(table, 3, summary(3, metrics={"freshness_s": 1.5, "lag_records": 7, "lag_s": 2.0}))
    still = append(table, 1, carried_position(summary(3)))
    (status,) = statuses(catalog, "trades")
    assert status.snapshot_id == still
    assert (status.freshness_s, status.lag_records, status.lag_source) == (1.5, 7, "job")


def test_maintenance_that_is_due_is_told_by_the_metadata(catalog: FolderCatalog) -> None:
    table = catalog.make(NAME, SCHEMA)
    for _ in range(SURPLUS_FILES + 1):
        append(table, 1, summary(3))
    (status,) = statuses(catalog, "trades")
    assert [each.kind for each in status.due] == ["compact"]
    assert status.files == SURPLUS_FILES + 1


DEAD_LETTERS = Schema(NestedField(1, REJECTED_AT, TimestamptzType()))
AGED = Schema(NestedField(1, "at", TimestamptzType()), NestedField(2, "day", DateType()))


@pytest.mark.parametrize("column", ["at", "day"])
def test_rows_and_dead_letters_that_are_old_are_due_by_what_is_known_of_their_files(
    catalog: FolderCatalog, column: str
) -> None:
    keeping = Maintenance(dead_letters_s=2 * DAY_S, rows=RowRetention(column, 2 * DAY_S))
    table, letters = catalog.make(NAME, AGED), catalog.make((NAME[0], "trades__dead_letters"), DEAD_LETTERS)
    for ages_s, expected in (([0.0, DAY_S], []), ([3 * DAY_S], ["rows", "dead_letters"])):
        moments = [datetime.now(UTC) - timedelta(seconds=each) for each in ages_s]
        table.append(pa.table({"at": moments, "day": [each.date() for each in moments]}))
        letters.append(pa.table({REJECTED_AT: moments}))
        found = due(upkeep(Metadata.of(table), Metadata.of(letters), keeping), keeping)
        assert [each.kind for each in found] == expected
    assert not due(upkeep(Metadata.of(table), Metadata.of(letters), Maintenance()), Maintenance())
    assert not due(upkeep(Metadata.of(table), None, replace(keeping, rows=None)), keeping)
    later = replace(keeping, rows=RowRetention("no_column_yet", 1.0))
    assert upkeep(Metadata.of(table), Metadata.of(letters), later).oldest_row_s is None


def test_rows_of_which_nothing_is_known_are_not_due(catalog: FolderCatalog) -> None:
    table = catalog.make(NAME, AGED, properties={"write.metadata.metrics.default": "none"})
    long_ago = datetime(2020, 1, 1, tzinfo=UTC)
    table.append(pa.table({"at": [long_ago], "day": [long_ago.date()]}))
    assert upkeep(Metadata.of(table), None, Maintenance(rows=RowRetention("at", 1.0))).oldest_row_s is None


def test_orphans_are_due_a_week_after_somebody_has_looked(catalog: FolderCatalog) -> None:
    table = catalog.make(NAME, SCHEMA)
    append(table, 1)
    began = upkeep(Metadata.of(table), None, Maintenance()).orphans_s
    assert began is not None
    assert began < DAY_S
    note = Path(table.location()) / "metadata" / ORPHANS_NOTE
    for age_s, expected in ((8 * DAY_S, ["orphans"]), (6 * DAY_S, [])):
        note.write_text(json.dumps({"at": int(time.time() - age_s), "files": []}))
        assert [
            each.kind for each in due(upkeep(Metadata.of(table), None, Maintenance()), Maintenance())
        ] == expected


def test_an_operator_who_is_denied_a_note_that_is_not_there_sees_the_table(
    catalog: FolderCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = catalog.make(NAME, SCHEMA)
    append(table, 1)
    new_input = type(table.io).new_input

    def denied(io: Any, location: str) -> Any:
        if location.endswith(ORPHANS_NOTE):  # in Arrow's words
            raise OSError("AWS Error ACCESS_DENIED during HeadObject operation: No response body.")
        return new_input(io, location)

    monkeypatch.setattr(type(table.io), "new_input", denied)
    assert upkeep(Metadata.of(table), None, Maintenance()).orphans_s is not None


def test_tables_are_looked_at_side_by_side(tmp_path: Path) -> None:
    """Each of a group waits for the others of it: one after the other they would wait in vain."""
    together = threading.Barrier(8)

    class Slow(FolderCatalog):
        def load_table(self, identifier: Any) -> Table:
            if not str(identifier[-1]).endswith("__dead_letters"):
                together.wait(timeout=20)
            return super().load_table(identifier)

    job = replace(JOB, tables=tuple(TableSettings(f"t{n}", f"t{n}") for n in range(16)))
    assert [each.name for each in statuses(Slow(tmp_path), job=job)] == [f"t{n}" for n in range(16)]


def test_requests_that_wait_are_told_and_a_pause_until_the_job_heeds_it() -> None:
    pause = {"calve.paused": json.dumps({"id": "i", "at": "2026-01-01T00:00:00+00:00", "by": "ann"})}
    redrive = {"calve.redrive": json.dumps({"id": "j", "at": "2026-01-02T00:00:00+00:00"})}
    assert waiting(pause | redrive, "running") == (
        Waiting("redrive", "2026-01-02T00:00:00+00:00"),
        Waiting("pause", "2026-01-01T00:00:00+00:00"),
    )
    assert waiting(pause, "paused") == ()


def test_a_commit_of_maintenance_is_called_by_its_kind(catalog: FolderCatalog) -> None:
    table = catalog.make(NAME, SCHEMA)
    append(table, 1, summary(1))
    append(table, 1, {"calve.maintenance": "dead_letters"})
    append(table, 1)
    history = History.of(Tables(catalog), TableName(*NAME), FormerState("running"))
    assert [kind(each) for each in history.snapshots] == ["others", "dead letters", "round"]
