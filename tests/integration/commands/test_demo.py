"""`calve demo` from outside, as a new user runs it, and what it says when a count is not exact."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cli import lake
from cli.console import Console
from cli.embedded.layout import Layout
from cli.embedded.stack import Stack
from cli.run import jobs
from cli.run.demo import checks
from cli.run.demo import demo as steps
from cli.run.demo.trading import job_on


@pytest.mark.long
def test_a_new_user_sees_every_count_exact_and_nothing_stays(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    command = [str(Path(sys.executable).with_name("calve")), "demo"]
    on_a_terminal = os.environ | {"TTY_COMPATIBLE": "1", "COLUMNS": "80"}
    shown = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=600, env=on_a_terminal
    )
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert "Every count is exact" in shown.stdout
    bars = [line for line in shown.stderr.splitlines() if re.search(r": (done|ended, .*) in ", line)]
    assert len(shown.stdout.splitlines()) + len(bars) <= 60
    for noise in ("WARN", "rdkafka", "incubator", "Traceback"):
        assert noise not in shown.stdout + shown.stderr
    assert not layout.stack_file.exists()
    assert not layout.run.exists()
    assert "check=coverage  state=proved" in (layout.demo / "demo.log").read_text()


@pytest.mark.full
def test_rows_that_vanish_behind_the_engine_are_counted_as_missing(
    stack: Stack, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert spark  # else verifying starts a JVM that later tests of this process could not use
    drain = jobs.run_deployed

    def drain_and_lose_a_region(stack, name, *arguments, **options):
        code = drain(stack, name, *arguments, **options)
        job = job_on(stack)
        if name != f"{job.name}-{job.job}":
            return code
        users = lake.load(lake.open_catalog(job.lake), job.table_name(job.tables[1]))
        assert users
        users.delete("regionid == 'Region_1'")
        return code

    monkeypatch.setattr(jobs, "run_deployed", drain_and_lose_a_region)
    monkeypatch.setattr(checks, "PATIENCE_S", 20.0)
    wrong = steps.run(stack, Console(), io.StringIO())
    assert any(each.startswith("users, applied: expected 10,000, PyIceberg finds") for each in wrong)
    assert any(each.startswith("users: verify found") for each in wrong)
    for where in ("Iceberg REST", "Snowflake"):  # nobody has announced what somebody has deleted
        assert any(each.startswith("users, rows: expected") and where in each for each in wrong)
    assert not any(each.startswith("stock_trades") for each in wrong)
