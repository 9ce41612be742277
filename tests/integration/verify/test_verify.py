"""`verify` against tables written by PyIceberg, honest ones and ones that somebody has touched."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyiceberg.table import Table
from typer.testing import CliRunner, Result

from calve.config import job
from calve.errors import CalveError
from cli.lake import open_catalog
from cli.main import app
from cli.verify.findings import Finding, Verification
from cli.verify.topic import Sources
from tests.integration.support.records.producing import (
    alter_config,
    create_topic,
    delete_records,
    delete_topic,
    transaction,
)
from tests.integration.support.records.readings import (
    DATABASE,
    PARTITIONS,
    Row,
    World,
    append,
    filled,
    new_world,
)


@pytest.fixture(scope="module")
def sources(stack) -> Sources:
    lake = job.Lake(DATABASE, f"s3://{stack.bucket}/verify", region=stack.region, endpoint=stack.aws_endpoint)
    catalog = open_catalog(lake)
    catalog.create_namespace_if_not_exists(DATABASE)
    return Sources(
        catalog, job.Kafka(stack.bootstrap_servers), job.Registry(stack.registry_url), stack.region
    )


@pytest.fixture
def bare(stack, sources) -> World:
    """A topic without records and without a table."""
    return new_world(sources, stack)


@pytest.fixture
def fresh(bare) -> World:
    """A filled world for this test alone."""
    return filled(bare)


@pytest.fixture(scope="module")
def shared(stack, sources) -> World:
    return filled(new_world(sources, stack))


@pytest.fixture
def world(shared) -> Iterator[World]:
    """A filled world whose tables may be changed: they are rolled back afterwards."""
    heads = [shared.table(letters=letters).current_snapshot() for letters in (False, True)]
    yield shared
    for letters, head in zip((False, True), heads, strict=True):
        table = shared.table(letters=letters)
        if head and table.current_snapshot() != head:
            table.manage_snapshots().rollback_to_snapshot(head.snapshot_id).commit()


def only(found: Verification, check: str) -> Finding:
    """The one finding of a check, apart from the totals, which any change of the number of rows upsets."""
    assert not found.ok
    [finding] = [each for each in found.findings if each.check != "totals"]
    assert finding.check == check
    return finding


def files_with(table: Table, x: int) -> tuple[str, ...]:
    """The data files that hold a reading."""
    from pyiceberg.io.pyarrow import ArrowScan

    scan = table.scan(row_filter=f"x == {x}")
    return tuple(
        sorted(
            task.file.file_path
            for task in scan.plan_files()
            if len(ArrowScan(table.metadata, table.io, scan.projection(), scan.row_filter).to_table([task]))
        )
    )


def row_of(world: World, x: int) -> Row:
    [row] = world.table().scan(row_filter=f"x == {x}").to_arrow().to_pylist()
    return dict(row)


def test_an_honest_table_is_proved(world):
    found = world.verify()
    assert found.findings == ()
    assert found.complete
    figures = {check.name: check.figures for check in found.checks}
    assert figures["ledgers"]["rounds"] == 2
    assert figures["coverage"] == {"offsets": 40, "records": 40, "rows": 36, "dead_letters": 4, "gaps": 0}
    assert figures["dead letters"] == {"compared": 4, "malformed": 4}
    assert [(each.start, each.to, each.rows) for each in found.digests] == [(0, 20, 20), (0, 20, 16)]
    assert all(each.table == each.topic for each in found.digests)


def test_a_removed_row_is_found(world):
    world.table().delete("x == 24")
    finding = only(world.verify(), "coverage")
    assert "neither the table nor the dead letters" in finding.message
    assert finding.where == "partition 0 offset 12"
    [second] = [
        each.snapshot_id
        for each in world.table().metadata.snapshots
        if each.summary and each.summary.additional_properties.get("calve.round") == "r2"
    ]
    assert f"claimed by snapshot {second}" in finding.message


def test_a_doubled_row_is_found_with_both_data_files(world):
    append(world.table(), [row_of(world, 7)])
    finding = only(world.verify(), "coverage")
    assert "more than once" in finding.message
    assert finding.where == "partition 1 offset 3"
    assert finding.files == files_with(world.table(), 7)
    assert len(finding.files) == 2


@pytest.mark.parametrize(
    ("change", "columns"),
    [
        (lambda row: row | {"note": "changed"}, ("note",)),
        (lambda row: row | {"at": None}, ("at",)),
        (lambda row: row | {"_kafka": row["_kafka"] | {"key": b"other"}}, ("_kafka",)),
        (
            lambda row: row | {"_kafka": row["_kafka"] | {"headers": [{"key": "h", "value": b"2"}]}},
            ("_kafka",),
        ),
    ],
    ids=["a value", "a null", "the key", "a header"],
)
def test_an_altered_row_is_found_with_its_columns_and_its_data_file(
    world, change: Callable[[Row], Row], columns
):
    row = row_of(world, 12)
    world.table().delete("x == 12")
    append(world.table(), [change(row)])
    finding = only(world.verify(), "contents")
    assert finding.where == "partition 0 offset 6"
    assert finding.columns == columns
    assert finding.files == files_with(world.table(), 12)


def test_ranges_beyond_those_that_are_looked_into_are_named_as_ranges(world, monkeypatch):
    monkeypatch.setattr("cli.verify.compare.MAX_PLACES", 1)
    append(world.table(), [row_of(world, 6), row_of(world, 7)])
    near, far = (each for each in world.verify().findings if each.check != "totals")
    assert (near.where, far.where) == ("partition 0 offset 3", "partition 1 offset 0-4095")
    assert set(files_with(world.table(), 7)) <= set(far.files)


def test_a_row_that_was_never_produced_is_found(world):
    row = row_of(world, 3)
    append(world.table(), [row | {"_kafka": row["_kafka"] | {"offset": 500}}])
    finding = only(world.verify(), "coverage")
    assert "does not claim" in finding.message
    assert finding.where == "partition 1 offset 500"
    assert len(finding.files) == 1


def test_a_row_without_a_place_is_found(world):
    append(world.table(), [row_of(world, 3) | {"_kafka": None}])
    assert "without _kafka" in only(world.verify(), "coverage").message


def test_a_removed_dead_letter_is_found(world):
    world.table(letters=True).delete('"offset" == 4')
    finding = only(world.verify(), "coverage")
    assert "undecodable records (malformed)" in finding.message
    assert finding.where == "partition 1 offset 4"


def test_an_altered_dead_letter_is_found(world):
    letters = world.table(letters=True)
    [row] = letters.scan(row_filter='"offset" == 4').to_arrow().to_pylist()
    letters.delete('"offset" == 4')
    append(world.table(letters=True), [row | {"value": row["value"] + b"x"}], {"calve.round": "r1"})
    finding = only(world.verify(), "dead letters")
    assert finding.columns == ("value",)
    assert finding.where == "partition 1 offset 4"


def test_a_doubled_dead_letter_is_found(world):
    letters = world.table(letters=True)
    append(letters, letters.scan(row_filter='"offset" == 4').to_arrow().to_pylist())
    assert "more than once among the dead letters" in only(world.verify(), "dead letters").message


def test_a_record_with_two_fates_is_found(world):
    row = row_of(world, 3)
    raw = world.record(3)
    letter = row["_kafka"] | {
        "topic_id": world.key().topic_id,
        "value": raw.value,
        "reason": "unknown_schema_id",
    }
    append(world.table(letters=True), [letter])
    finding = only(world.verify(), "coverage")
    assert "both in the table and among the dead letters" in finding.message
    assert finding.where == "partition 1 offset 1"


def test_a_dead_letter_with_a_reason_that_its_bytes_contradict_is_found(world):
    letters = world.table(letters=True)
    [row] = letters.scan(row_filter='"offset" == 4').to_arrow().to_pylist()
    letters.delete('"offset" == 4')
    append(world.table(letters=True), [row | {"reason": "trailing_bytes"}], {"calve.round": "r1"})
    finding = only(world.verify(), "dead letters")
    assert "trailing_bytes, but the bytes are malformed" in finding.message


def test_dead_letters_that_wait_on_their_branch_count(bare):
    bare.produce(range(20))
    bare.commit({0: 0, 1: 0}, {0: 10, 1: 10}, round_id="r1", branch="calve_r1")
    found = bare.verify()
    assert found.findings == ()
    figures = {check.name: check.figures for check in found.checks}
    assert figures["dead letters"] == {"compared": 2, "malformed": 2, "waiting on a branch": "round r1"}


def test_a_ledger_that_does_not_balance_is_found(bare):
    bare.produce(range(9))
    bare.commit({0: 0, 1: 0}, {0: 5, 1: 4}, round_id="r1", applied=8)
    assert "does not balance" in only(bare.verify(), "ledgers").message


def test_a_gap_between_rounds_is_found(bare):
    bare.produce(range(8))
    bare.commit({0: 0, 1: 0}, {0: 4, 1: 4}, round_id="r1")
    bare.produce(range(10, 18))
    bare.rows = bare.rows[1:]
    bare.commit({0: 5, 1: 4}, {0: 8, 1: 8}, round_id="r2")
    found = bare.verify()
    assert {finding.check for finding in found.findings} == {"ledgers", "coverage"}
    assert all(finding.partition == 0 for finding in found.findings)


def test_aborted_records_are_gaps_and_rows_of_them_are_found(bare):
    servers = bare.stack.bootstrap_servers
    bare.produce([0, 2])
    transaction(servers, bare.topic, [bare.record(4), bare.record(6)], outcome="abort")
    transaction(servers, bare.topic, [bare.record(8)], outcome="commit")
    bare.take(8, bare.record(8), 5)
    bare.commit({0: 0}, {0: 7}, round_id="r1")
    found = bare.verify()
    assert found.findings == ()
    assert next(check.figures["gaps"] for check in found.checks if check.name == "coverage") == 4
    bare.take(4, bare.record(4), 2)
    append(bare.table(), bare.rows)
    finding = only(bare.verify(), "coverage")
    assert "has no record in Kafka" in finding.message
    assert finding.where == "partition 0 offset 2"


@pytest.mark.long
def test_rows_whose_records_were_compacted_away_are_never_called_proved(bare):
    servers = bare.stack.bootstrap_servers
    bare.produce([0, 2])
    transaction(servers, bare.topic, [bare.record(4)], outcome="abort")
    bare.take(4, bare.record(4), 2)
    bare.commit({0: 0}, {0: 4}, round_id="r1")
    assert not bare.verify().ok
    alter_config(servers, bare.topic, cleanup_policy="compact")
    found = bare.verify()
    assert found.ok
    [open_] = [check for check in found.checks if check.state == "not verifiable"]
    assert (open_.name, open_.figures["rows"]) == ("compacted", 1)
    bare.table().delete("x == 2")
    assert bare.verify().findings[0].where == "partition 0 offset 1"


def test_expired_offsets_are_never_called_proved(fresh):
    delete_records(fresh.stack.bootstrap_servers, fresh.topic, {0: 6})
    found = fresh.verify()
    assert found.ok
    assert not found.complete
    [expired] = [check for check in found.checks if check.state == "not verifiable"]
    assert expired.figures["offsets"] == 6
    assert found.digests[0].start == 6


def test_a_row_removed_among_expired_offsets_still_upsets_the_totals(fresh):
    delete_records(fresh.stack.bootstrap_servers, fresh.topic, {0: 6})
    fresh.table().delete("x == 4")
    [finding] = fresh.verify().findings
    assert finding.message == "the table has 35 rows, its ledgers say 36"


def test_a_table_whose_history_was_expired_is_verified_from_its_lowest_offset(fresh):
    table = fresh.table()
    *older, _ = [snapshot.snapshot_id for snapshot in table.metadata.snapshots]
    table.maintenance.expire_snapshots().by_ids(older).commit()
    found = fresh.verify()
    assert found.ok
    assert found.complete
    assert [each.start for each in found.digests] == [0, 0]
    fresh.table().delete("x == 6")
    assert only(fresh.verify(), "coverage").where == "partition 0 offset 3"


def test_a_row_missing_at_the_beginning_of_an_expired_history_is_never_called_proved(fresh):
    table = fresh.table()
    *older, _ = [snapshot.snapshot_id for snapshot in table.metadata.snapshots]
    table.maintenance.expire_snapshots().by_ids(older).commit()
    fresh.table().delete("x == 0")
    [beginning] = [check for check in fresh.verify().checks if check.state == "not verifiable"]
    assert (beginning.name, beginning.figures["offsets"]) == ("beginning", 1)


def test_a_topic_that_was_created_again_is_named(fresh):
    servers = fresh.stack.bootstrap_servers
    delete_topic(servers, fresh.topic)
    create_topic(servers, fresh.topic, partitions=PARTITIONS)
    found = fresh.verify()
    assert "which is gone" in only(found, "topic").message


def test_the_command_says_what_is_wrong_and_fails(world, tmp_path):
    proved = run(world.topic, tmp_path)
    assert proved.exit_code == 0
    assert json.loads(proved.stdout)["ok"] is True
    world.table().delete("x == 24")
    failed = run(world.topic, tmp_path)
    assert failed.exit_code == 1
    [finding] = [each for each in json.loads(failed.stdout)["findings"] if each["check"] == "coverage"]
    assert finding["partition"] == 0
    assert finding["offsets"] == [[12, 13]]


def test_a_fault_of_the_command_is_no_finding_about_the_table(world, tmp_path, monkeypatch):
    def broken(*_: object, **__: object) -> None:
        raise IndexError("a value of a record")

    monkeypatch.setattr("cli.verify.verification.read_topic", broken)
    found = run(world.topic, tmp_path)
    assert found.exit_code == 3
    told = json.loads(found.stdout)
    assert (told["ok"], told["findings"]) == (False, [])
    assert f"verify could not check {DATABASE}.{world.topic}: IndexError in verification.py" in found.stderr
    assert "a value of a record" not in found.output
    assert "Traceback" not in found.output
    monkeypatch.undo()
    assert run(world.topic, tmp_path).exit_code == 0


def test_before_the_first_round_the_next_command_is_named(tmp_path):
    found = run("nosuch", tmp_path)
    assert isinstance(found.exception, CalveError)
    assert "no job has read its topic yet" in found.exception.message
    assert found.exception.fix == "start the job: calve ingest"


def run(table: str, folder: Path) -> Result:
    config = folder / "calve.yaml"
    config.write_text(
        f"name: t\nlake: {{database: {DATABASE}}}\ntables:\n  {table}: {{topic: {table}}}\n", encoding="utf-8"
    )
    return CliRunner().invoke(app, ["verify", table, "--config", str(config), "--output", "json"])
