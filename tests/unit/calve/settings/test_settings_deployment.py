"""calve.yaml becomes a deployment."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from calve.config.deployment import (
    UNKNOWN_SERVERS,
    UNKNOWN_WAREHOUSE,
    Alerts,
    Deployment,
    JobDeployment,
    LakeDeployment,
    Msk,
    Network,
    Workers,
)
from calve.config.job import Kafka, Lake, Registry, Share, Table, part_of
from calve.config.publishing import Csv, Export, Measure
from calve.settings import load, load_deployment
from calve.settings.resolving import StackDefaults

NAMED = "kafka: {bootstrap_servers: 'b:1'}\nregistry: {url: https://r}\n"
TABLES = "tables: {a: {topic: t}}\n"
ARN = "arn:aws:kafka:eu-west-1:000000000000:cluster/main/0a1b-2"
VPC = (
    "network: {vpc: vpc-1, availability_zones: [eu-west-1a, eu-west-1b], subnets: [subnet-1, subnet-2], "
    "security_groups: [sg-1]}\n"
)
Deployed = Callable[..., Deployment]


@pytest.fixture
def deployed(tmp_path: Path) -> Deployed:
    def _deployed(text: str, *, named: str = NAMED) -> Deployment:
        path = tmp_path / "calve.yaml"
        path.write_text(f"name: t\n{named}{text}\n{TABLES}", encoding="utf-8")
        return load_deployment(path)

    return _deployed


def only_job(deployment: Deployment) -> JobDeployment:
    (job,) = deployment.jobs
    return job


def only_export(deployment: Deployment) -> Export:
    (export,) = deployment.exports
    return export


def test_a_configuration_that_says_little_is_deployed_with_the_defaults(deployed: Deployed) -> None:
    found = deployed("")
    job = only_job(found)
    assert found == Deployment("t", (JobDeployment(job.settings),), LakeDeployment("t"))
    assert job.settings.kafka == Kafka("b:1")
    assert job.settings.registry == Registry("https://r")
    assert job.settings.lake == Lake("t", UNKNOWN_WAREHOUSE)
    assert job.settings.tables == (Table("a", "t"),)


def test_a_running_stack_supplies_what_is_not_named(tmp_path: Path) -> None:
    path = tmp_path / "calve.yaml"
    path.write_text("name: t\n" + TABLES)
    stack = StackDefaults(Kafka("127.0.0.1:1"), Registry("http://127.0.0.1:2"), endpoint="http://127.0.0.1:3")
    settings = only_job(load_deployment(path, stack=stack)).settings
    assert (settings.kafka, settings.registry) == (stack.kafka, stack.registry)
    assert settings.lake == Lake("t", UNKNOWN_WAREHOUSE, endpoint="http://127.0.0.1:3")


def test_the_jobs_of_a_deployment_are_those_of_the_commands(tmp_path: Path) -> None:
    path = tmp_path / "calve.yaml"
    path.write_text(
        f"name: t\n{NAMED}lake: {{bucket: lake}}\njobs: {{fast: , slow: {{worker: G.025X}}}}\n"
        "tables: {a: {topic: t, job: fast}, b: {topic: u, job: slow}}"
    )
    assert tuple(job.settings for job in load_deployment(path).jobs) == load(path)


def test_an_existing_lake_is_described_in_full(deployed: Deployed) -> None:
    found = deployed(
        "lake: {database: raw, import_database: true, bucket: b-1, prefix: p/q, kms_key: arn:k, region: eu-west-1}"
    )
    assert found.lake == LakeDeployment("raw", True, "b-1", "p/q", "arn:k")
    assert found.region == "eu-west-1"
    assert only_job(found).settings.lake.warehouse == "s3://b-1/p/q"


def test_a_prefix_goes_into_the_bucket_that_the_stack_makes(deployed: Deployed) -> None:
    assert only_job(deployed("lake: {prefix: p}")).settings.lake.warehouse == f"{UNKNOWN_WAREHOUSE}/p"


def test_a_serverless_cluster_is_reached_by_iam_in_a_network_of_its_own(deployed: Deployed) -> None:
    found = deployed("", named="kafka: {msk: {create: serverless}}\nregistry: {url: https://r}\n")
    assert (found.msk, found.network) == (Msk(), Network())
    assert only_job(found).settings.kafka == Kafka(UNKNOWN_SERVERS, "msk_iam", tls=True)


@pytest.mark.parametrize(
    ("auth", "kafka"),
    [
        ("", Kafka("b:9098", "msk_iam", tls=True)),
        (
            ", auth: {type: sasl_scram, secret: aws:s}",
            Kafka("b:9098", "sasl_scram", "SCRAM-SHA-512", tls=True, secret="aws:s"),
        ),
    ],
)
def test_an_existing_cluster_is_reached_in_its_network(deployed: Deployed, auth: str, kafka: Kafka) -> None:
    named = f"kafka: {{msk: {{cluster: '{ARN}'}}, bootstrap_servers: 'b:9098'{auth}}}\nregistry: {{url: https://r}}\n"
    found = deployed(VPC, named=named)
    assert found.msk == Msk(ARN)
    assert only_job(found).settings.kafka == kafka
    assert found.network == Network(
        "vpc-1", ("eu-west-1a", "eu-west-1b"), ("subnet-1", "subnet-2"), ("sg-1",)
    )


def test_brokers_that_listen_in_public_need_no_network(deployed: Deployed) -> None:
    named = f"kafka: {{msk: {{cluster: '{ARN}'}}, bootstrap_servers: 'b:9198,c:9198'}}\nregistry: {{url: https://r}}\n"
    assert deployed("", named=named).network is None


def test_an_empty_network_is_one_that_the_stack_makes(deployed: Deployed) -> None:
    assert deployed("network: {}").network == Network()
    assert deployed("network: null").network is None


@pytest.mark.parametrize(
    ("worker", "workers"),
    [
        ("", Workers(2, 4)),
        ("workers: {max: 3}", Workers(2, 3)),
        ("workers: {min: 6}", Workers(6, 6)),
        ("worker: G.025X", Workers(2, 2)),
        ("worker: G.025X, workers: {min: 3}", Workers(3, 3)),
        ("worker: G.2X, workers: {min: 4, max: 10}", Workers(4, 10)),
    ],
)
def test_a_job_has_workers(deployed: Deployed, worker: str, workers: Workers) -> None:
    assert only_job(deployed(f"jobs: {{main: {{{worker}}}}}")).workers == workers


@pytest.mark.parametrize(
    ("written", "schedule"),
    [
        ("continuous", None),
        ("schedule(rate(6 hours))", "rate(6 hours)"),
        ("schedule( rate(1 hours) )", "rate(1 hour)"),
        ('schedule("rate(2 day)")', "rate(2 days)"),
        ("schedule(cron(0 */6 * * ? *))", "cron(0 */6 * * ? *)"),
        ("schedule(cron(0/15 8-17 ? JAN-MAR MON-FRI,7 2026-2030))",) * 2,
        ("schedule(cron(30 6 L * ? *))", "cron(30 6 L * ? *)"),
        ("schedule(cron(30 6 ? * 2#1 *))", "cron(30 6 ? * 2#1 *)"),
    ],
)
def test_a_job_runs_always_or_by_a_schedule(deployed: Deployed, written: str, schedule: str | None) -> None:
    found = only_job(deployed(f"jobs: {{main: {{run: '{written}'}}}}")).schedule
    assert found == (schedule and schedule.removeprefix("schedule(").replace("))", ")"))


def test_every_option_reaches_the_job(deployed: Deployed) -> None:
    always, sometimes = (
        "worker: R.1X, maintenance_window: 'Mon:14'",
        "run: schedule(rate(1 day)), time_zone: Asia/Tokyo",
    )
    conf = "conf: {spark.a.b: 5, spark.c: true, spark.d: 1.5, spark.e: x}"
    job = only_job(deployed(f"jobs: {{main: {{{always}, {conf}}}}}"))
    assert (job.worker, job.maintenance_window) == ("R.1X", "Mon:14")
    assert job.conf == {"spark.a.b": "5", "spark.c": "true", "spark.d": "1.5", "spark.e": "x"}
    assert only_job(deployed(f"jobs: {{main: {{{sometimes}}}}}")).time_zone == "Asia/Tokyo"


def test_alerts_are_as_stated(deployed: Deployed) -> None:
    found = deployed("alerts: {emails: [a@b.c, d@e.f], freshness: 5m, lag: 10, restarts: 0}")
    assert found.alerts == Alerts(("a@b.c", "d@e.f"), 300.0, 10, 0)


@pytest.mark.parametrize(("given", "channel"), [("", "sns"), ("sender: reports@example.com", "ses")])
def test_a_sender_makes_the_mail_html(deployed: Deployed, given: str, channel: str) -> None:
    found = deployed(
        f"""
exports:
  weekly:
    table: a
    schedule: rate(7 days)
    recipients: [one@example.com]
    {given}
"""
    )
    assert only_export(found).channel == channel


def test_every_option_reaches_the_export(deployed: Deployed) -> None:
    found = deployed(
        """
exports:
  weekly_trades:
    table: a
    filter: price > 10
    group_by: [symbol, order.side]
    measures: {trades: count, sized: count(quantity), volume: sum(quantity), low: min(price), high: max(price)}
    time_column: created_at
    schedule: cron(0 6 ? * MON *)
    time_zone: Europe/Vilnius
    window: previous_month
    recipients: [one@example.com, two@example.com]
    channel: ses
    sender: reports@example.com
    reply_to: owner@example.com
    csv: {delimiter: ";", bom: true, gzip: true, row_limit: 1048575, formulas: keep}
    wait: 30m
    recheck_windows: 0
    keep: 30d
    link: {days: 14, max_downloads: 3}
"""
    )
    assert only_export(found) == Export(
        name="weekly_trades",
        database="t",
        table="a",
        time_column="created_at",
        schedule="cron(0 6 ? * MON *)",
        recipients=("one@example.com", "two@example.com"),
        window="previous_month",
        time_zone="Europe/Vilnius",
        filter="price > 10",
        group_by=("symbol", "order.side"),
        measures=(
            Measure("trades", "count"),
            Measure("sized", "count", "quantity"),
            Measure("volume", "sum", "quantity"),
            Measure("low", "min", "price"),
            Measure("high", "max", "price"),
        ),
        csv=Csv(";", bom=True, gzip=True, row_limit=1_048_575, formulas="keep"),
        channel="ses",
        sender="reports@example.com",
        reply_to="owner@example.com",
        wait_s=1800.0,
        recheck_windows=0,
        keep_days=30,
        link_days=14,
        max_downloads=3,
    )
    assert Export.from_json(only_export(found).to_json()) == only_export(found)


@pytest.mark.parametrize(
    ("table", "export", "column"),
    [
        ("event_time: created_at", "", "created_at"),
        ("event_time: created_at", ", time_column: settled_at", "settled_at"),
        ("event_time: created_at", ", time_column: _kafka.timestamp", "_kafka.timestamp"),
        ("job: main", "", "_kafka.timestamp"),
    ],
)
def test_the_time_of_a_row_is_its_event_time_else_its_arrival(
    tmp_path: Path, table: str, export: str, column: str
) -> None:
    path = tmp_path / "calve.yaml"
    path.write_text(
        f"name: t\n{NAMED}tables: {{a: {{topic: t, {table}}}}}\n"
        f"exports: {{e: {{table: a, schedule: rate(1 day), recipients: [a@b.c], columns: [x, _kafka.offset]{export}}}}}"
    )
    found = only_export(load_deployment(path))
    assert (found.time_column, found.columns) == (column, ("x", "_kafka.offset"))


def test_the_database_of_an_export_is_found_when_it_runs_where_it_is_named_after_a_cluster(
    deployed: Deployed,
) -> None:
    export = "exports: {e: {table: a, schedule: rate(1 day), recipients: [a@b.c]}}"
    assert only_export(deployed(f"lake: {{database: raw}}\n{export}")).source == "raw.a"
    found = only_export(deployed(f"lake: {{namespace: cluster_id}}\n{export}"))
    assert (found.database, found.source) == ("", "a")


def test_an_overlay_changes_jobs_and_exports_and_takes_back(tmp_path: Path) -> None:
    path = tmp_path / "calve.yaml"
    path.write_text(
        f"name: t\n{NAMED}{TABLES}jobs: {{main: {{worker: G.025X, conf: {{spark.a: x}}}}}}\nalerts: {{lag: 5}}\n"
        "exports: {e: {table: a, schedule: rate(1 day), recipients: [a@b.c], window: previous_day, filter: x > 1}}"
    )
    (tmp_path / "calve.prod.yaml").write_text(
        "jobs: {main: {worker: G.1X, workers: {max: 8}, conf: {spark.b: y}}}\nalerts: null\n"
        "exports: {e: {recipients: [d@e.f], filter: null}}"
    )
    found = load_deployment(path, "prod")
    assert (only_job(found).worker, only_job(found).workers) == ("G.1X", Workers(2, 8))
    assert only_job(found).conf == {"spark.a": "x", "spark.b": "y"}
    assert found.alerts == Alerts()
    export = only_export(found)
    assert (export.recipients, export.window, export.filter) == (("d@e.f",), "previous_day", None)
    (tmp_path / "calve.dev.yaml").write_text("exports: null")
    assert load_deployment(path, "dev").exports == ()


def test_a_job_of_several_parts_becomes_as_many_jobs_of_the_same_settings(tmp_path: Path) -> None:
    def loaded(jobs: str) -> Deployment:
        path = tmp_path / "calve.yaml"
        tables = "".join(f"  t{n}: {{topic: t.{n}, job: main}}\n" for n in range(12))
        path.write_text(f"name: t\n{NAMED}{jobs}\ntables:\n{tables}  b: {{topic: b, job: big}}\n")
        return load_deployment(path)

    whole = loaded("jobs: {main: {workers: {max: 3}}, big: }")
    assert loaded("jobs: {main: {workers: {max: 3}, count: 1}, big: }") == whole
    parts = loaded("jobs: {main: {workers: {max: 3}, count: 3}, big: }")
    assert [each.settings.job for each in parts.jobs] == ["main-1", "main-2", "main-3", "big"]
    assert parts.jobs[-1] == whole.jobs[-1]
    for n, job in enumerate(parts.jobs[:3], 1):
        expected = [each for each in whole.jobs[0].settings.tables if part_of(each.topic, 3) == n]
        assert list(job.settings.tables) == expected
        assert (job.settings.share, job.settings.of) == (Share("main", n, 3), "main")
        assert job.workers == whole.jobs[0].workers


def test_a_part_without_tables_is_no_job_unless_a_pattern_may_find_some(tmp_path: Path) -> None:
    path = tmp_path / "calve.yaml"
    path.write_text(f"name: t\n{NAMED}jobs: {{main: {{count: 16}}}}\n{TABLES}")
    assert only_job(load_deployment(path)).settings.job == f"main-{part_of('t', 16)}"
    both = "tables:\n  a: {topic: t}\n  'p_{1}': {topics: 'p\\.(.*)'}\n"
    path.write_text(path.read_text().replace(TABLES, both))
    jobs = [each.settings for each in load_deployment(path).jobs]
    assert [each.job for each in jobs] == [f"main-{n}" for n in range(1, 17)]
    assert [len(each.tables) for each in jobs].count(1) == 1
