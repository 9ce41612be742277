"""Exports when something is late, missing, killed, or changes under them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from calve.config.spark_conf import CATALOG
from calve.errors import CalveError
from calve.names import TableName
from calve.table.protocol import Commit, nearest_position
from cli import lake
from cli.config import load_jobs
from tests.integration.support.engine import Engine, until
from tests.integration.support.exporting import (
    BUCKET,
    FUNCTION,
    JOB,
    NAME,
    Deployment,
    last_monday,
    midnight,
    parsed,
    said,
)
from tests.integration.support.servers.aws_gate import AwsGate, is_glue
from tests.integration.support.servers.gate import Answer, Request

pytestmark = pytest.mark.full

MONDAY = last_monday()
WEEK_BEFORE = MONDAY - timedelta(days=7)
FRIDAY, SATURDAY = (MONDAY + timedelta(days=n) for n in (4, 5))
QUIET_DAY = MONDAY - timedelta(days=30)
BUSY_DAY = MONDAY - timedelta(days=20)


def test_rows_that_come_late_make_a_correction(weekly: Deployment) -> None:
    window = (WEEK_BEFORE, WEEK_BEFORE + timedelta(days=6))
    assert weekly.run("weekly_trades", *window)["status"] == "written"
    first = weekly.mail(f"Weekly trades, {said(WEEK_BEFORE, 7)}")
    weekly.trades.produce(
        midnight(FRIDAY - timedelta(days=7)), midnight(SATURDAY - timedelta(days=7)), 50, seed=1
    )
    weekly.drain()
    weekly.fire("weekly_trades")
    second = weekly.mail(f"Correction: Weekly trades, {said(WEEK_BEFORE, 7)}")
    assert "This file replaces it" in second.text
    now = weekly.trades.summary(midnight(WEEK_BEFORE), midnight(MONDAY))
    assert weekly.download(second.link) == now != weekly.download(first.link)


def test_a_window_without_rows_is_a_file_of_a_header(weekly: Deployment) -> None:
    assert weekly.run("hasty_trades", QUIET_DAY)["rows"] == 0
    mail = weekly.mail(f"Hasty trades, {said(QUIET_DAY, 1)}: 0 rows")
    (header,) = weekly.download(mail.link)
    assert header == ["side", "quantity", "symbol", "price", "account", "userid"]


def test_recipients_are_told_that_there_is_no_table(weekly: Deployment) -> None:
    weekly.warm()
    before = weekly.files()
    assert weekly.run("absent_trades", FRIDAY)["status"] == "waiting"
    mail = weekly.mail("Failed: Absent trades")
    assert f"there is no table {NAME}.absent" in mail.text
    assert weekly.files() == before


@pytest.mark.parametrize(
    ("day", "step"), [(FRIDAY, "uploadId="), (SATURDAY, "manifest.json")], ids=["file", "manifest"]
)
def test_a_function_that_is_killed_while_it_writes_leaves_no_delivery(
    weekly: Deployment, day: date, step: str
) -> None:
    with through_a_gate(weekly) as gate:

        def dies(request: Request) -> Answer | None:
            os.kill(worker(gate.url), signal.SIGKILL)
            return None

        with gate.meanwhile(writing(step), dies), pytest.raises(CalveError, match="ended with"):
            weekly.run("weekly_trades", day)
    left = [key for key in weekly.files() if f"/{day}_" in key]
    assert [key for key in left if step == "uploadId=" or key.endswith("manifest.json")] == []
    assert len(uploads(weekly)) == (step == "uploadId=")
    for upload in uploads(weekly):  # the bucket's lifecycle drops it, in its time
        weekly.client("s3").abort_multipart_upload(
            Bucket=BUCKET, Key=upload["Key"], UploadId=upload["UploadId"]
        )
    assert weekly.run("weekly_trades", day)["status"] == "written"
    mail = weekly.mail(f"Weekly trades, {said(day, 1)}")
    assert weekly.download(mail.link) == weekly.trades.summary(
        midnight(day), midnight(day + timedelta(days=1))
    )


def test_an_upload_that_s3_refuses_is_aborted(weekly: Deployment) -> None:
    before = weekly.files()
    refused = Answer(403, {"Content-Type": "application/xml"}, b"<Error><Code>AccessDenied</Code></Error>")
    with (
        through_a_gate(weekly) as gate,
        gate.meanwhile(writing("uploadId="), lambda _: refused),
        pytest.raises(CalveError, match="ended with"),
    ):
        weekly.run("weekly_trades", WEEK_BEFORE)
    assert (uploads(weekly), weekly.files()) == ([], before)
    assert "There is no file yet" in weekly.mail(f"Failed: Weekly trades, {said(WEEK_BEFORE, 1)}").text


def writing(step: str) -> Callable[[Request], bool]:
    """Completing an upload, or putting an object, whichever has this in its path."""

    def concerns(request: Request) -> bool:
        return step in request.path and request.method in ("POST", "PUT") and "partNumber" not in request.path

    return concerns


def uploads(weekly: Deployment) -> list[dict[str, Any]]:
    """Those that were begun, and neither completed nor aborted."""
    found = weekly.client("s3").list_multipart_uploads(Bucket=BUCKET, Prefix="exports/")
    return list(found.get("Uploads", ()))


def test_every_file_is_of_one_snapshot_while_ingest_commits_and_compaction_runs(
    weekly: Deployment, engine: Engine
) -> None:
    (job,) = (each for each in load_jobs(weekly.config) if each.job == "main")
    table = lake.load(lake.open_catalog(job.lake), TableName(NAME, weekly.trades.topic))
    assert table
    base = sum_of_offsets(table, table.metadata.current_snapshot_id)
    day = (midnight(BUSY_DAY), midnight(BUSY_DAY + timedelta(days=1)))
    seeds = count(10)

    def newest() -> int:
        table.refresh()
        return sum_of_offsets(table, table.metadata.current_snapshot_id)

    def ingest() -> None:
        before = newest()
        weekly.trades.produce(*day, 500, seed=next(seeds))
        until(lambda: newest() > before, seconds=120)

    def changes(request: Request) -> Answer:
        """The function learns of the table as it is, and reads it when it is so no more."""
        answer = gate.pass_on(request)
        ingest()
        compact(engine, weekly.trades.topic)
        return answer

    manifests = []
    with job_running(weekly), through_a_gate(weekly) as gate:
        ingest()
        for _ in range(3):
            with gate.meanwhile(first("GetTable"), changes):
                manifests.append(weekly.run("weekly_trades", BUSY_DAY)["manifest"])
    weekly.drain()
    manifests.append(weekly.run("weekly_trades", BUSY_DAY)["manifest"])
    files = weekly.files()
    table.refresh()
    for key in manifests:
        manifest = json.loads(files[key])
        rows = parsed(files[manifest["parts"][0]["key"]])[1:]
        held = sum_of_offsets(table, int(manifest["snapshot_id"])) - base
        assert sum(int(row[2]) for row in rows) == held
    assert [json.loads(files[key])["correction"] for key in manifests] == [False, True, True, True]
    assert parsed(files[json.loads(files[manifests[-1]])["parts"][0]["key"]]) == weekly.trades.summary(*day)

    compact(engine, weekly.trades.topic)
    assert weekly.run("weekly_trades", BUSY_DAY)["status"] == "unchanged"


def first(action: str) -> Callable[[Request], bool]:
    """The first request for this; a client that has waited for too long asks again."""
    left = iter([True])
    return lambda request: is_glue(request, action) and next(left, False)


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


def worker(endpoint: str) -> int:
    """The process that runs the function and reaches AWS by this address."""
    for folder in Path("/proc").iterdir():
        try:
            if (
                folder.name.isdecimal()
                and f"ministack-lambda-{FUNCTION}-" in (folder / "cmdline").read_text()
                and f"AWS_ENDPOINT_URL={endpoint}\0" in (folder / "environ").read_text()
            ):
                return int(folder.name)
        except OSError:
            continue
    raise AssertionError("the function does not run")
