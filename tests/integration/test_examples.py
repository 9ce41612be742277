"""The examples, run as they stand: their generator, their calve.yaml, their expected rows."""

from __future__ import annotations

import importlib.util
import json
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

from calve.job import Job, Kafka, Registry
from calve.names import TableName
from calve.settings import StackDefaults, load
from calve.spark_conf import CATALOG
from glue_jobs.ingest import open_targets
from tests.integration.engine import Engine
from tests.integration.test_emit import records

EXAMPLES = Path(__file__).parents[2] / "examples"


def loaded(engine: Engine, name: str) -> Job:
    stack = engine.stack
    defaults = StackDefaults(
        Kafka(stack.bootstrap_servers),
        Registry(stack.registry_url),
        f"s3://{stack.bucket}/{name}",
        stack.region,
        stack.aws_endpoint,
    )
    [job] = load(EXAMPLES / name / "calve.yaml", stack=defaults)
    return job


def script(name: str, file: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"examples_{name}_{file}", EXAMPLES / name / f"{file}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def ingest(engine: Engine, job: Job) -> None:
    """Drain the tables one after the other, in the order of calve.yaml."""
    properties = {"bootstrap.servers": engine.stack.bootstrap_servers}
    for target in open_targets(job, engine.lake, engine.cluster, properties):
        engine.drain(target)


def assert_expected(engine: Engine, job: Job) -> None:
    for name, expected in json.loads((EXAMPLES / job.name / "expected.json").read_text()).items():
        table = engine.spark.table(TableName(job.lake.database, name).quoted(CATALOG))
        found = [list(row) for row in table.selectExpr(*expected["columns"]).collect()]
        assert sorted(found, key=str) == sorted(expected["rows"], key=str), name


def test_anomalies(engine: Engine) -> None:
    job, topic = loaded(engine, "anomalies"), f"trades_{uuid.uuid4().hex[:8]}"
    script("anomalies", "generate").generate(topic, engine.stack.bootstrap_servers, engine.stack.registry_url)
    ingest(engine, replace(job, tables=tuple(replace(each, topic=topic) for each in job.tables)))
    assert_expected(engine, job)
    flagged = records(engine, "flagged_stock_trades")
    assert [value["anomaly_flag"] for _, value, _ in flagged] == [
        "NEGATIVE_PRICE",
        "LARGE_TRADE",
        "UNUSUAL_PRICE",
        "LARGE_TRADE",
    ]
    assert len(records(engine, "stock_trades_with_totals")) == 10
    assert len({key for key, _, _ in records(engine, "stock_total_trades")}) == 6
