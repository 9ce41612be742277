"""Typical mistakes, in calve.yaml and on the command line: each message names the place and the fix, and there is no trace."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from calve.errors import ConfigError
from cli.config import load_jobs
from cli.main import main

HEAD = """\
name: shop
kafka: {bootstrap_servers: "127.0.0.1:1"}
registry: {url: "http://127.0.0.1:1"}
lake: {bucket: shop-tables, region: us-east-1}
"""
IN_FILE = {
    "tables: {orders: {topic: orders, freshnes: 5s}}": (
        "5  tables.orders.freshnes",
        'Did you mean "freshness"?',
    ),
    "tables:\n\torders: {topic: orders}": ("6 ", "Indent with spaces"),
    "tables: {orders: {}}": ("5  tables.orders.topic", "Add `topic:`"),
    "tables: {orders: {topic: orders, freshness: 5 sec}}": (
        "5  tables.orders.freshness",
        "Use ms, s, m, h or d",
    ),
    "tables: {orders: {topic: orders, upsert: {}, deduplicate: {key: [id]}}}": (
        "5  tables.orders.deduplicate",
        "Remove one",
    ),
    "tables: {order-lines: {topic: orders}}": ("5  tables.order-lines", "use a-z, 0-9 and _"),
    "tables: [orders]": ("5  tables", "Write it as {name: value}"),
    "tables:\n  orders: {topic: a}\n  orders: {topic: b}": ("7  tables.orders", "Remove one"),
    "tables: {orders: {topic: orders, value: {format: json, schema: absent.json}}}": (
        "5  tables.orders.value.schema",
        "Name a schema file, relative to calve.yaml",
    ),
    "tables: {orders: {topic: orders, partition_by: [days(at)]}}": (
        "5  tables.orders.partition_by[0]",
        'Did you mean "day"?',
    ),
    "tables: {orders: {topic: orders}}\nexports: {w: {table: order, schedule: rate(1 day), recipients: [a@b.eu]}}": (
        "6  exports.w.table",
        'Did you mean "orders"?',
    ),
    "tables: {orders: {topic: orders}}\nexports: {w: {table: orders, schedule: 0 6 * * 1, recipients: [a@b.eu]}}": (
        "6  exports.w.schedule",
        "Write rate(6 hours) or cron(0 6 ? * MON *)",
    ),
    "tables: {orders: {topic: orders}}\nmasking: {secret: hunter2}": ("6  masking.secret", "aws:SECRET_ID"),
}
ON_LINE = {
    "statsu": ("statsu", "Did you mean 'status'?"),
    "ingest --drian": ("--drian", "--drain"),
    "query": ("SQL", "query -h"),
    "console --port 99999": ("--port", "65535"),
    "status ordres": ("ordres", 'Did you mean "orders"?'),
    "status -c nowhere.yaml": ("nowhere.yaml", "calve init"),
    "status --env prod": ("calve.prod.yaml", "make it for the environment prod"),
    "status --region frankfurt": ('"frankfurt"', "eu-central-1"),
    "status --profile nobody": ('"nobody"', "aws configure list-profiles"),
    "query selct": ("selct", "calve query --help"),
    "dead-letters show orders 3-1841": ('"3-1841"', "PARTITION:OFFSET"),
    "produce orders missing.jsonl": ("missing.jsonl", "name a file"),
    "init": ("calve.yaml exists already", "--config calve.mine.yaml"),
}
WITHOUT_CREDENTIALS = ("rollback orders", "export list")


@pytest.mark.parametrize("text", IN_FILE)
def test_a_mistake_in_the_file_is_named_with_its_line_and_its_fix(text: str, tmp_path: Path) -> None:
    (config := tmp_path / "calve.yaml").write_text(f"{HEAD}{text}\n")
    place, fix = IN_FILE[text]
    with pytest.raises(ConfigError) as caught:
        load_jobs(config)
    assert f"{config}:{place}" in str(caught.value)
    assert fix in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("words", ON_LINE)
def test_a_mistake_on_the_command_line_is_named_with_its_fix(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "calve.yaml").write_text(f"{HEAD}tables: {{orders: {{topic: orders}}}}\n")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr("cli.main.no_proxy", dict)  # it would stay in the environment
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["calve", *words.split()])
    with pytest.raises(SystemExit) as ended:
        main()
    said, (place, fix) = capsys.readouterr().err, ON_LINE[words]
    assert ended.value.code == 2, said
    assert place in said
    assert fix in said
    assert "Traceback" not in said


@pytest.mark.parametrize("words", WITHOUT_CREDENTIALS)
def test_without_credentials_a_command_says_how_to_log_in(words: str, tmp_path: Path) -> None:
    """In a process of its own: boto3 remembers the credentials that it has found."""
    (tmp_path / "calve.yaml").write_text(f"{HEAD}tables: {{orders: {{topic: orders}}}}\n")
    done = subprocess.run(
        [sys.executable, "-m", "cli.main", *words.split()],
        cwd=tmp_path,
        env={
            "PATH": "/usr/bin:/bin",
            "HOME": str(tmp_path),
            "PYTHONPATH": str(Path(__file__).parents[3]),
            "AWS_EC2_METADATA_DISABLED": "true",
            "COLUMNS": "200",
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert "no AWS credentials" in done.stderr
    assert "aws sso login" in done.stderr
    assert "Traceback" not in done.stderr
