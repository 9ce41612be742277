"""A deploy hands a job over where, and only where, another generation is deployed."""

from dataclasses import replace

import pytest
from aws_cdk import App

from calve.config.deployment import Alerts, Deployment, JobDeployment, LakeDeployment, Workers
from stacks.base.bundling import Runtime
from stacks.base.function import Brokers, Site
from stacks.jobs import job_code
from stacks.jobs.ingest import IngestStack
from stacks.stateful.lake import LakeStack, names_of_lake
from tests.synth.deployments import MADE, job

JOB = JobDeployment(job("main", "orders"), workers=Workers(2, 4))
BASE = Deployment("trading", (JOB,), LakeDeployment("trading"))
BROKERS = Brokers(
    servers="b:9098",
    connection="trading",
    zone="eu-central-1a",
    subnets=("subnet-1",),
    security_groups=("sg-1",),
)
SETTINGS = JOB.settings
TABLE = SETTINGS.tables[0]
KEY = "arn:aws:kms:eu-central-1:111122223333:key/11111111-2222-3333-4444-555555555555"


def generation(deployment=BASE, brokers=BROKERS):
    app = App(context={"aws:cdk:bundling-stacks": []})
    site = Site(deployment, Runtime(), names_of_lake(deployment), brokers)
    lake = LakeStack(app, "trading-lake", site).lake
    ingest = IngestStack(app, "trading-ingest", replace(site, lake=lake))
    return ingest.jobs[0].generation


@pytest.fixture(scope="module")
def base():
    return generation()


def of_job(**changes):
    return replace(BASE, jobs=(replace(JOB, **changes),))


def of_lake(**changes):
    return replace(BASE, lake=replace(BASE.lake, **changes))


@pytest.mark.parametrize(
    "deployment",
    [
        of_job(worker="G.2X"),
        of_job(workers=Workers(2, 8)),
        of_job(workers=Workers(3, 4)),
        of_job(maintenance_window="Mon:4"),
        of_job(schedule="rate(6 hours)"),
        of_job(conf={"spark.sql.shuffle.partitions": "8"}),
        of_job(settings=replace(SETTINGS, tables=(replace(TABLE, freshness_s=7.0),))),
        of_job(settings=replace(SETTINGS, kafka=replace(SETTINGS.kafka, secret="aws:calve/other"))),
        of_lake(kms_key=KEY),
        of_lake(bucket="company-lake"),
        of_lake(prefix="raw"),
    ],
    ids=lambda each: str(each.jobs[0])[-60:] if each.lake == BASE.lake else str(each.lake)[-60:],
)
def test_what_is_configured_otherwise_is_another_generation(base, deployment):
    assert generation(deployment) != base


@pytest.mark.parametrize(
    "brokers",
    [
        replace(BROKERS, servers="c:9098"),
        replace(BROKERS, connection=None),
        replace(BROKERS, zone="eu-central-1b"),
        replace(BROKERS, subnets=("subnet-2",)),
        replace(BROKERS, security_groups=("sg-2",)),
    ],
)
def test_other_brokers_or_another_place_beside_them_are_another_generation(base, brokers):
    assert generation(brokers=brokers) != base


def test_other_code_is_another_generation(base, tmp_path, monkeypatch):
    script = tmp_path / "ingest.py"
    script.write_text(job_code.SCRIPT.read_text() + "\n")
    monkeypatch.setattr(job_code, "SCRIPT", script)
    assert generation() != base


def test_other_certificates_under_the_same_name_are_another_generation(tmp_path):
    file = tmp_path / "ca.pem"
    settings = replace(SETTINGS, kafka=replace(SETTINGS.kafka, ca_file=str(file)))
    found = set()
    for content in ("one", "two"):
        file.write_text(content)
        found.add(generation(of_job(settings=settings)))
    assert len(found) == 2


def test_what_no_run_sees_is_the_same_generation(base):
    assert generation() == base
    others = replace(BASE, exports=MADE.exports, alerts=Alerts(emails=("ops@example.com",), restarts=9))
    assert generation(others) == base
