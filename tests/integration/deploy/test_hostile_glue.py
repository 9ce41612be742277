"""A deployed job under a Glue that is as unkind as its launch logs and its documentation allow."""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path

import pytest

from calve.config.spark_conf import CATALOG
from calve.names import TableName
from calve.outputs.job_status import JobStatus, place
from cli.embedded.layout import CHECKOUT
from tests.integration.support.deployed import Deployed, deployment
from tests.integration.support.engine import Engine, everything, trades
from tests.standins.hostile_glue.machines import Machines, installed_python, isolates
from tests.standins.hostile_glue.run import started

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the job's packages are for Glue's processor"),
    pytest.mark.skipif(not isolates(), reason="no process of this machine may have mounts of its own"),
    pytest.mark.skipif(installed_python() is None, reason="this machine lacks Glue's version of Python"),
]
CONFIG = """\
name: hostile
tables:
  {topic}: {{topic: {topic}, freshness: 1s}}
  {kept}: {{topic: {kept}, freshness: 1s, upsert: {{key: [id]}}, engine: rows}}
"""


Both = tuple[Deployed, str]


@pytest.fixture(scope="module")
def hostile(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Both:
    """A job deployed with the packages that Glue lacks, and its second table: ten records of each of 50 keys, by rows."""
    made = deployment(engine, tmp_path_factory.mktemp("hostile"), "hostile")
    kept = engine.topic(partitions=2)
    made.config.write_text(CONFIG.format(topic=made.topic, kept=kept))
    made.deploy(lambda_architecture="x86_64")
    engine.produce(made.topic, 2000)
    engine.produce(kept, trades(50) * 10)
    return made, kept


def test_a_job_drains_its_topics_on_machines_that_share_nothing(hostile: Both, tmp_path: Path) -> None:
    deployed, kept = hostile
    with started(deployed.engine.stack, deployed.job, tmp_path / "glue", drain="true") as run:
        code = run.wait(400)
    events, machines = run.events(), run.machines
    assert (code, events[-1]["event"]) == (0, "job.ended"), events[-1]
    engines = {each["topic"]: each["engine"] for each in events if each["event"] == "table.engine"}
    assert engines == {deployed.topic: "columnar", kept: "rows"}
    assert deployed.rows() == everything(2000)
    table = deployed.engine.spark.table(TableName(deployed.database, kept).quoted(CATALOG))
    assert sorted(row.id for row in table.select("id").collect()) == list(range(50))
    assert all(machines.tasks(each) > 0 for each in machines.names[1:])

    where = place(f"s3://{deployed.bucket}", deployed.name, "main").removeprefix(f"s3://{deployed.bucket}/")
    report = deployed.client("s3").get_object(Bucket=deployed.bucket, Key=where)["Body"].read()
    said = JobStatus.from_dict(json.loads(report)).runs
    arguments = deployed.client("glue").get_job(JobName=deployed.job)["Job"]["DefaultArguments"]
    opened = [each.generation for id, each in said.items() if id != "emulated" and each.opened]
    assert arguments["--generation"] in opened
    group = f"{arguments['--custom-logGroup-prefix']}/output"
    logged = deployed.client("logs").get_log_events(logGroupName=group, logStreamName=run.id)["events"]
    assert [json.loads(each["message"]) for each in logged] == events
    assert deployed.client("logs").describe_metric_filters(logGroupName=group)["metricFilters"]


def test_a_machine_cannot_write_into_its_home_and_sees_neither_another_nor_the_sources(
    tmp_path: Path,
) -> None:
    machines = Machines(tmp_path / "glue", {"PATH": os.defpath})
    hidden = tmp_path / "glue" / "driver" / "work" / "settings.json"
    hidden.touch()
    tried = (
        f"! touch $HOME/x && touch ./x && ! test -e {hidden} && ! test -e {CHECKOUT / 'calve' / 'errors.py'}"
    )
    with machines.process("worker-1", ["sh", "-c", tried], "said") as process:
        assert process.wait(10) == 0
