"""What docs/query.md says is run, is run here, on tables that have the names of the page."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from calve.config.job import Table
from cli.embedded.aws import ACCESS_KEY, SECRET_KEY
from cli.lake import open_catalog
from cli.main import app
from cli.run.datagen.produce import SCHEMAS
from glue_jobs.ingest import openers_of
from tests.integration.support.engine import Engine
from tests.integration.support.records.keyed import BY_RECORD_KEY
from tests.query_page import Snippet, snippets
from tests.standins.trino.server import trino

pytestmark = [pytest.mark.xdist_group("query_page"), pytest.mark.full]
DATABASE = "query_page"
ID, MOMENT = "634951912179100320", re.compile(r"2026-11-20[ T]10:00:00(?: UTC|Z)?")


@dataclass(frozen=True)
class Page:
    """The tables of the page, under its names but for the database, and what the page's examples stand for."""

    engine: Engine
    snapshot: int
    moment: datetime

    def here(self, text: str) -> str:
        """A snippet, on these tables."""
        text = text.replace("glue.trading.", f"glue.{DATABASE}.").replace("trading.", f"{DATABASE}.")
        text = text.replace(ID, str(self.snapshot)).replace("eu-west-1", self.engine.stack.region)

        def moment(found: re.Match[str]) -> str:
            zone = found[0].removeprefix(found[0][:19])
            return self.moment.strftime(f"%Y-%m-%d{found[0][10]}%H:%M:%S.%f") + zone

        return MOMENT.sub(moment, text)


def avro(name: str) -> str:
    """A schema of the example records, as the serializer finds it again."""
    return json.dumps(json.loads((SCHEMAS / f"{name}.avsc").read_text()))


@pytest.fixture(scope="module")
def page(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Page:
    trades = engine.topic(partitions=2, schema=avro("stock_trades"))
    users = engine.topic(partitions=1, schema=avro("users"))
    tables = (Table("stock_trades", trades), Table("users", users, upsert=BY_RECORD_KEY))
    job = engine.job(*tables)
    job = replace(job, lake=replace(job.lake, database=DATABASE))
    targets = openers_of(job, engine.lake, engine.cluster)
    moment = datetime.now(UTC)
    for turn in range(2):
        moment = datetime.now(UTC)
        time.sleep(1.1)
        fields = {"side": "BUY", "quantity": 10, "account": "a", "userid": f"u{turn}"}
        rows = [fields | {"symbol": f"S{n % 2}", "price": 5 * n} for n in range(6)]
        engine.produce(trades, rows, partition=turn)
        engine.send(trades, b"\x01no magic byte", partition=turn)
        for user in range(turn + 1):
            row = {"registertime": turn, "userid": f"u{user}", "regionid": "r", "gender": "OTHER"}
            engine.send(users, engine.encode(users, row), key=f"u{user}".encode(), partition=0)
        engine.flush()
        for target in targets:
            engine.drain(target)
    loaded = open_catalog(job.lake).load_table((DATABASE, "stock_trades"))
    return Page(engine, loaded.history()[1].snapshot_id, moment)


def run(kind: str) -> list[Snippet]:
    found = [each for each in snippets() if (each.known, each.kind) == ("Run", kind)]
    assert found
    return found


def test_the_commands_of_the_page(page: Page, tmp_path: Path) -> None:
    config = tmp_path / "calve.yaml"
    config.write_text(
        f"name: query\nlake: {{database: {DATABASE}}}\ntables: {{stock_trades: {{topic: a}}, users: {{topic: b}}}}\n"
    )
    answers = []
    for snippet in run("console"):
        for line in snippet.text.splitlines():
            _, _, *arguments = shlex.split(page.here(line))
            result = CliRunner().invoke(app, [*arguments, "--config", str(config)])
            assert result.exit_code == 0, (line, result.exception)
            assert f"table={DATABASE}." in result.stderr
            answers.append(result.stdout)
    by_symbol, offsets, users, letters, joined, old, new = answers
    assert sorted(by_symbol.splitlines()) == [
        "row symbol=S0  trades=6  avg(price)=10.0",
        "row symbol=S1  trades=6  avg(price)=15.0",
    ]
    assert offsets.count("row partition=") == 2
    assert [each["userid"] for each in json.loads(users)] == ["u0"]
    assert letters.splitlines() == ["reason,count_star()", "bad_magic,2"]
    assert joined.count("row regionid=r") == 1
    assert old.split("=")[-1] == "6\n"
    assert new == "row userid=u1\n"


def test_the_sql_and_the_programs_of_the_page_for_spark(
    page: Page, capsys: pytest.CaptureFixture[str]
) -> None:
    spark, stack = page.engine.spark, page.engine.stack
    for key, value in {
        "glue.endpoint": stack.aws_endpoint,
        "s3.endpoint": stack.aws_endpoint,
        "s3.path-style-access": "true",
    }.items():
        spark.conf.set(f"spark.sql.catalog.glue.{key}", value)
    programs = [page.here(each.text) for each in run("python spark")]
    namespace: dict[str, Any] = {}
    for program in programs:
        exec(program, namespace)
    printed = capsys.readouterr().out
    assert "|    S0|    6|" in printed
    assert printed.count("|S0    |") + printed.count("|    S0|") > 3
    counts = [
        len(spark.sql(page.here(statement)).collect())
        for snippet in run("sql spark")
        for statement in snippet.statements
    ]
    assert counts == [2, 1, 1, 3, 1, 4]


def test_the_sql_and_the_catalog_of_the_page_for_trino(page: Page, tmp_path: Path) -> None:
    [catalog] = run("properties")
    with trino(page.engine.stack, tmp_path, page.here(catalog.text)) as server:
        answers = [
            server.rows(page.here(statement))
            for snippet in run("sql trino")
            for statement in snippet.statements
        ]
    by_symbol, first, old, offsets, history, letters = answers
    assert {(each["symbol"], each["trades"]) for each in by_symbol} == {("S0", 6), ("S1", 6)}
    assert first == [{"_col0": 6}]
    assert [each["userid"] for each in old] == ["u0"]
    assert {tuple(each.values()) for each in offsets} == {(0, 5), (1, 5)}
    assert len(history) >= 2
    assert letters == [{"reason": "bad_magic", "_col1": 2}]


def test_a_spark_session_that_stays_sees_what_is_new(page: Page) -> None:
    name = f"glue.{DATABASE}.users"
    before = page.engine.spark.table(name).count()
    page.engine.sql(f"delete from lake.{DATABASE}.users where userid = 'u0'", "users")
    assert page.engine.spark.table(name).count() == before - 1


def test_the_programs_of_the_page_in_python(page: Page) -> None:
    stack = page.engine.stack
    environment = dict(os.environ) | {
        "PYICEBERG_CATALOG__GLUE__GLUE__ENDPOINT": stack.aws_endpoint,
        "PYICEBERG_CATALOG__GLUE__S3__ENDPOINT": stack.aws_endpoint,
        "PYICEBERG_CATALOG__GLUE__CLIENT__ACCESS_KEY_ID": ACCESS_KEY,
        "PYICEBERG_CATALOG__GLUE__CLIENT__SECRET_ACCESS_KEY": SECRET_KEY,
    }
    printed = []
    for snippet in run("python"):
        program = [sys.executable, "-c", page.here(snippet.text)]
        done = subprocess.run(program, capture_output=True, text=True, env=environment, timeout=120)
        assert done.returncode == 0, done.stderr
        printed.append(done.stdout)
    by_pyiceberg, by_duckdb = printed
    assert "bad_magic" in by_pyiceberg
    assert "S0" in by_duckdb


def test_a_filter_on_offsets_leaves_files_out(page: Page) -> None:
    catalog = open_catalog(page.engine.job().lake)
    trades = catalog.load_table((DATABASE, "stock_trades"))
    files = len(list(trades.scan().plan_files()))
    assert 0 < len(list(trades.scan("_kafka.partition = 1").plan_files())) < files
    assert not list(trades.scan("_kafka.offset > 6").plan_files())
