"""Exports when something is late, missing, killed, or changes under them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from calve.names import TableName
from calve.protocol import Commit, nearest_position
from calve.spark_conf import CATALOG
from cli import lake
from cli.config import load_jobs
from tests.integration.aws_gate import AwsGate
from tests.integration.engine import Engine, until
from tests.integration.exporting import JOB, NAME, Deployment, last_monday, midnight, parsed, said
from tests.integration.gate import Answer, Request

pytestmark = pytest.mark.full

MONDAY = last_monday()
WEEK_BEFORE = MONDAY - timedelta(days=7)
FRIDAY, SATURDAY = (MONDAY + timedelta(days=n) for n in (4, 5))
QUIET_DAY = MONDAY - timedelta(days=30)
BUSY_DAY = MONDAY - timedelta(days=20)
FUNCTION = f"{NAME}-export"


def test_rows_that_come_late_make_a_correction(weekly: Deployment) -> None:
    window = (WEEK_BEFORE, WEEK_BEFORE + timedelta(days=6))
    assert weekly.run("weekly_trades", *window)["status"] == "written"
    first = weekly.mail(f"Weekly trades, {said(WEEK_BEFORE, 7)}")
    weekly.produce(midnight(FRIDAY - timedelta(days=7)), midnight(SATURDAY - timedelta(days=7)), 50, seed=1)
    weekly.drain()
    weekly.fire("weekly_trades")
    second = weekly.mail(f"Correction: Weekly trades, {said(WEEK_BEFORE, 7)}")
    assert "This file replaces it" in second.text
    now = weekly.summary(midnight(WEEK_BEFORE), midnight(MONDAY))
    assert weekly.download(second.link) == now != weekly.download(first.link)


def test_a_window_without_rows_is_a_file_of_a_header(weekly: Deployment) -> None:
    assert weekly.run("hasty_trades", QUIET_DAY)["rows"] == 0
    mail = weekly.mail(f"Hasty trades, {said(QUIET_DAY, 1)}: 0 rows")
    (header,) = weekly.download(mail.link)
    assert header == ["side", "quantity", "symbol", "price", "account", "userid"]


def test_recipients_are_told_that_there_is_no_table(weekly: Deployment) -> None:
    before = weekly.files()
    assert weekly.run("absent_trades", FRIDAY)["status"] == "waiting"
    mail = weekly.mail("Failed: Absent trades")
    assert f"there is no table {NAME}.absent" in mail.text
    assert weekly.files() == before


@pytest.mark.parametrize(
    ("day", "step"), [(FRIDAY, "uploadId="), (SATURDAY, "manifest.json")], ids=["file", "manifest"]
)
def test_a_function_that_is_killed_while_it_writes_leaves_no_delivery(
    weekly: Deployment, day: Any, step: str
) -> None:
    def dies(request: Request) -> Answer | None:
        os.kill(worker(), signal.SIGKILL)
        return None

    def concerns(request: Request) -> bool:
        return step in request.path and request.method in ("POST", "PUT") and "partNumber" not in request.path

    with (
        through_a_gate(weekly) as gate,
        gate.meanwhile(concerns, dies),
        pytest.raises(Exception, match="ended"),
    ):
        weekly.run("weekly_trades", day)
    left = [key for key in weekly.files() if f"/{day}_" in key]
    assert [key for key in left if step == "uploadId=" or key.endswith("manifest.json")] == []
    assert weekly.run("weekly_trades", day)["status"] == "written"
    mail = weekly.mail(f"Weekly trades, {said(day, 1)}")
    assert weekly.download(mail.link) == weekly.summary(midnight(day), midnight(day + timedelta(days=1)))


def test_every_file_is_of_one_snapshot_while_ingest_commits_and_compaction_runs(
    weekly: Deployment, engine: Engine
) -> None:
    (job,) = (each for each in load_jobs(weekly.config) if each.job == "main")
    table = lake.load(lake.open_catalog(job.lake), TableName(NAME, weekly.topic))
    assert table
    base = before = sum_of_offsets(table, table.metadata.current_snapshot_id)

    def grown() -> bool:
        table.refresh()
        return sum_of_offsets(table, table.metadata.current_snapshot_id) > before

    outcomes = []
    with job_running(weekly):
        for n in range(4):
            weekly.produce(midnight(BUSY_DAY), midnight(BUSY_DAY + timedelta(days=1)), 500, seed=10 + n)
            until(grown, seconds=120)
            before = sum_of_offsets(table, table.metadata.current_snapshot_id)
            weekly.produce(midnight(BUSY_DAY), midnight(BUSY_DAY + timedelta(days=1)), 500, seed=20 + n)
            if n in (1, 2):
                compact(engine, weekly.topic)
            outcomes.append(weekly.run("weekly_trades", BUSY_DAY))
    weekly.drain()
    outcomes.append(weekly.run("weekly_trades", BUSY_DAY))
    table.refresh()
    files = weekly.files()
    manifests = {each["manifest"] for each in outcomes if each["manifest"]}
    assert len(manifests) >= 3
    for key in manifests:
        manifest = json.loads(files[key])
        rows = parsed(files[manifest["parts"][0]["key"]])[1:]
        held = sum_of_offsets(table, int(manifest["snapshot_id"])) - base
        assert sum(int(row[2]) for row in rows) == held
    newest = max(manifests, key=lambda key: int(key.split("/")[-2]))
    (part,) = json.loads(files[newest])["parts"]
    assert parsed(files[part["key"]]) == weekly.summary(
        midnight(BUSY_DAY), midnight(BUSY_DAY + timedelta(days=1))
    )

    compact(engine, weekly.topic)
    assert weekly.run("weekly_trades", BUSY_DAY)["status"] == "unchanged"


def compact(engine: Engine, topic: str) -> None:
    where = f"table => '{NAME}.{topic}', options => map('rewrite-all', 'true')"
    engine.spark.sql(f"CALL {CATALOG}.system.rewrite_data_files({where})")


def sum_of_offsets(table: Any, snapshot: int | None) -> int:
    """How many records the table held at a snapshot: none of them is malformed."""
    commits = []
    while snapshot is not None and (found := table.snapshot_by_id(snapshot)):
        commits.append(Commit(snapshot, found.parent_snapshot_id, found.summary.additional_properties))
        snapshot = found.parent_snapshot_id
    position = nearest_position(commits)
    assert position
    return sum(offset for parts in position.offsets.values() for offset in parts.values())


@contextmanager
def job_running(weekly: Deployment) -> Iterator[None]:
    """`calve run-job`, for as long as the block runs."""
    command = [sys.executable, "-m", "cli.main", "run-job", JOB, "--memory", "1g"]
    with subprocess.Popen(
        command, cwd=weekly.stack.root, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            yield
        finally:
            process.send_signal(signal.SIGINT)


@contextmanager
def through_a_gate(weekly: Deployment) -> Iterator[AwsGate]:
    """The export function reaches AWS through a gate."""
    functions = weekly.client("lambda")
    own = functions.get_function_configuration(FunctionName=FUNCTION)["Environment"]["Variables"]
    with AwsGate(weekly.stack.aws_endpoint) as gate:
        changed = own | {"AWS_ENDPOINT_URL": gate.url}
        functions.update_function_configuration(FunctionName=FUNCTION, Environment={"Variables": changed})
        try:
            yield gate
        finally:
            functions.update_function_configuration(FunctionName=FUNCTION, Environment={"Variables": own})


def worker() -> int:
    """The process that runs the function."""
    for folder in Path("/proc").iterdir():
        try:
            if (
                folder.name.isdecimal()
                and f"ministack-lambda-{FUNCTION}-" in (folder / "cmdline").read_text()
            ):
                return int(folder.name)
        except OSError:
            continue
    raise AssertionError("the function does not run")
