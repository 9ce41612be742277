"""What the commands are told by a calve.yaml as it is deployed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import boto3
import pytest
from botocore.stub import Stubber
from typer.testing import CliRunner

from calve.config.deployment import UNKNOWN_WAREHOUSE
from calve.errors import CalveError, ConfigError
from calve.settings import load_spark_settings
from cli.account import Account
from cli.config import load_jobs, load_target
from cli.exports import Delivered
from cli.look.status.overview import exported
from cli.main import app
from cli.spark import spark_environment

HERE = SimpleNamespace(region="us-east-1", aws_endpoint=None)
EXPORTS = "exports: {weekly: {table: a, schedule: rate(7 days), recipients: [a@b.c]}}\n"
DEPLOYED = "name: t\nkafka: {bootstrap_servers: 'b:1'}\nregistry: {url: https://r}\ntables: {a: {topic: t}}\n"


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("cli.config.current", lambda _: None)
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "aws"))
    path = tmp_path / "calve.yaml"
    path.write_text(DEPLOYED)
    return path


def test_what_only_reads_needs_no_bucket(config: Path) -> None:
    (job,) = load_jobs(config, tables=["a"])
    assert job.lake.warehouse == UNKNOWN_WAREHOUSE


def test_what_writes_is_told_to_name_the_bucket_where_no_deploy_sees_it(config: Path) -> None:
    with pytest.raises(ConfigError, match="in an overlay for --env that is never deployed"):
        load_jobs(config, writes=True)


def test_the_region_is_that_of_a_deploy(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def region() -> str:
        return load_jobs(config)[0].lake.region

    assert region() == "us-east-1"
    Path(config.with_name("aws")).write_text("[default]\nregion = eu-north-1\n")
    assert region() == "eu-north-1" == Account.of(None, None).region
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    assert region() == "eu-west-1" == Account.of(None, None).region
    config.write_text(DEPLOYED + "lake: {region: eu-central-1}\n")
    assert region() == "eu-central-1"


def test_the_spark_settings_of_a_job_reach_the_process_that_runs_it_here(tmp_path: Path) -> None:
    config = tmp_path / "calve.yaml"
    config.write_text(
        "name: t\njobs: {main: {conf: {spark.sql.shuffle.partitions: 64}}, other: }\n"
        "tables: {a: {topic: a, job: main}, b: {topic: b, job: other}}\n"
    )
    found = load_spark_settings(config)
    assert found == {"main": {"spark.sql.shuffle.partitions": "64"}, "other": {}}
    submitted = spark_environment(None, jars=(), more=found["main"])["PYSPARK_SUBMIT_ARGS"]
    assert "--conf spark.sql.shuffle.partitions=64" in submitted


def test_of_many_tables_only_the_nearest_are_named(config: Path) -> None:
    config.write_text(
        DEPLOYED.replace(
            "{a: {topic: t}}", f"{{{', '.join(f'orders_{n}: {{topic: t{n}}}' for n in range(120))}}}"
        )
    )
    with pytest.raises(ConfigError) as caught:
        load_jobs(config, tables=["zzz"])
    fix = caught.value.fix or ""
    assert fix.startswith("use one of 120, such as orders_")
    assert fix.endswith("; calve tables lists them")
    assert fix.count("orders_") == 3
    with pytest.raises(ConfigError) as caught:
        load_jobs(config, tables=["order_7"])
    assert caught.value.fix == 'Did you mean "orders_7"?'
    config.write_text(DEPLOYED)
    with pytest.raises(ConfigError) as caught:
        load_jobs(config, tables=["zzz"])
    assert caught.value.fix == "use a"


@contextmanager
def nothing_deployed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An account without a stack, which is asked for one."""
    clients = {name: boto3.client(name, "eu-north-1") for name in ("sts", "cloudformation")}
    monkeypatch.setattr(Account, "client", lambda _, service: clients[service])
    account, stacks = Stubber(clients["sts"]), Stubber(clients["cloudformation"])
    account.add_response("get_caller_identity", {"Account": "000000000000"})
    stacks.add_client_error("describe_stacks", "ValidationError")
    with account, stacks:
        yield


def test_exports_have_delivered_nothing_before_a_deploy(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config.write_text(DEPLOYED + EXPORTS)
    monkeypatch.setenv("AWS_REGION", "eu-north-1")
    with nothing_deployed(monkeypatch):
        assert exported(config, None) == [Delivered("weekly")]


@pytest.mark.parametrize(("exports", "fix"), [("", "add `exports:` to "), (EXPORTS, "deploy them: ")])
@pytest.mark.parametrize(("embedded", "how"), [(False, "calve deploy"), (True, "calve deploy")])
@pytest.mark.parametrize("command", [["list"], ["run", "weekly"]])
def test_exports_that_are_not_deployed_say_how_they_would_be(
    config: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: list[str],
    exports: str,
    fix: str,
    embedded: bool,
    how: str,
) -> None:
    config.write_text(DEPLOYED + exports)
    monkeypatch.setenv("AWS_REGION", "eu-north-1")
    loaded = load_target(config)[0]
    monkeypatch.setattr("cli.exports.load_target", lambda *_: (loaded, HERE if embedded else None))
    with nothing_deployed(monkeypatch):
        answer = CliRunner().invoke(app, ["export", *command, "-c", str(config)])
    assert isinstance(answer.exception, CalveError)
    assert (answer.exception.fix or "").startswith(fix)
    assert (answer.exception.fix or "").endswith(how)
