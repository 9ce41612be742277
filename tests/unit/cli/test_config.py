"""What the commands are told by a calve.yaml as it is deployed."""

from __future__ import annotations

from pathlib import Path

import pytest

from calve.deployment import UNKNOWN_WAREHOUSE
from calve.errors import ConfigError
from cli.account import Account
from cli.config import load_jobs, spark_settings
from cli.spark import spark_environment

DEPLOYED = "name: t\nkafka: {bootstrap_servers: 'b:1'}\nregistry: {url: https://r}\ntables: {a: {topic: t}}\n"


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("cli.embedded.stack.current", lambda _: None)
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
    found = spark_settings(config)
    assert found == {"main": {"spark.sql.shuffle.partitions": "64"}, "other": {}}
    submitted = spark_environment(tmp_path, None, jars=(), more=found["main"])["PYSPARK_SUBMIT_ARGS"]
    assert "--conf spark.sql.shuffle.partitions=64" in submitted
    assert "spark.driver.extraJavaOptions" in submitted
