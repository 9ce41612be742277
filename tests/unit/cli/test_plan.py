"""The plan names what a deploy would change, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

import boto3
import pytest
from moto import mock_aws

from calve import job
from calve.columns import field, struct, with_ids
from calve.deployment import Deployment, JobDeployment, LakeDeployment, Workers
from calve.export import Export, Measure
from calve.job import Aggregate, Deduplicate, Job, Kafka, Lake, Registry, Table, Transform, Upsert
from calve.modes import noted
from calve.spark_conf import spark_conf
from cli.account import Account
from cli.console import Branch
from cli.plan.account import own_conf, read
from cli.plan.changes import Change, Deployed, DeployedJob, DeployedTable, Difference, changes, terms, written
from cli.plan.command import tree

TABLE = Table("trades", "stock.trades", partition_by=(Transform("at", "day"),))
SETTINGS = Job("t", "main", Kafka("b:1"), Registry("http://r"), Lake("t", "s3://lake"), (TABLE,))
JOB = JobDeployment(SETTINGS, workers=Workers(2, 4), conf={"spark.a": "1"})
EXPORT = Export("weekly", "t", "trades", "at", "cron(0 6 ? * MON *)", ("a@b.c",))
DEPLOYMENT = Deployment("t", (JOB,), LakeDeployment("t"), exports=(EXPORT,), region="eu-west-1")
GLUE_JOB = DeployedJob("G.1X", 4, None, "UTC", "Sun:3", {"spark.a": "1"}, SETTINGS)
COLUMNS = with_ids(
    struct(field("id", "long"), field("price", "double"), field("_kafka", struct(field("key", "binary"))))
)
SAME = Deployed(
    "t", True, {"main": GLUE_JOB}, {"trades": DeployedTable("day(at)", "-", 2, COLUMNS)}, {"weekly": EXPORT}
)


def planned(deployment: Deployment = DEPLOYMENT, **deployed: Any) -> dict[str, Change]:
    """What is not the same, by section and name."""
    found = changes(deployment, replace(SAME, **deployed))
    return {f"{each.section}.{each.name}": each for each in found if each.kind != "="}


def differences(change: Change) -> dict[str, tuple[str, str]]:
    return {each.key: (each.deployed, each.configured) for each in change.differences}


def test_what_is_deployed_as_configured_is_the_same() -> None:
    assert planned() == {}
    assert [each.section for each in changes(DEPLOYMENT, SAME)] == ["lake", "jobs", "tables", "exports"]


def test_in_an_empty_account_everything_is_new() -> None:
    found = changes(DEPLOYMENT, Deployed("t"))
    assert [(each.name, each.kind) for each in found] == [
        ("database t", "+"),
        ("main", "+"),
        ("trades", "+"),
        ("weekly", "+"),
    ]


def test_what_is_no_longer_configured_is_named() -> None:
    found = planned(
        jobs=SAME.jobs | {"old": GLUE_JOB},
        tables=SAME.tables | {"gone": DeployedTable("-", "-", 2, COLUMNS)},
        exports=SAME.exports | {"never": EXPORT},
    )
    assert {name: each.kind for name, each in found.items()} == {
        "jobs.old": "-",
        "tables.gone": "-",
        "exports.never": "-",
    }
    assert found["tables.gone"].note == "it stays, and no job writes it"


@pytest.mark.parametrize(
    ("job", "key", "before", "after"),
    [
        (replace(JOB, worker="G.2X"), "worker", "G.1X", "G.2X"),
        (replace(JOB, workers=Workers(2, 8)), "workers.max", "4", "8"),
        (replace(JOB, schedule="rate(6 hours)"), "run", "continuous", "rate(6 hours)"),
        (replace(JOB, maintenance_window="Mon:4"), "maintenance_window", "Sun:3", "Mon:4"),
        (replace(JOB, conf={"spark.a": "2"}), "conf.spark.a", "1", "2"),
        (replace(JOB, conf={}), "conf.spark.a", "1", "-"),
    ],
)
def test_each_change_of_a_job_is_named(job: JobDeployment, key: str, before: str, after: str) -> None:
    (change,) = planned(replace(DEPLOYMENT, jobs=(job,))).values()
    assert (change.kind, differences(change)) == ("~", {key: (before, after)})


def test_changed_settings_are_named_as_calve_yaml_names_them() -> None:
    settings = replace(
        SETTINGS,
        kafka=Kafka("c:1", "tls", tls=True),
        tables=(replace(TABLE, freshness_s=300.0, flush_bytes=1_000_000, sort_by=(Transform("x"),)),),
    )
    found = planned(replace(DEPLOYMENT, jobs=(replace(JOB, settings=settings),)))
    assert differences(found["jobs.main"]) == {
        "kafka.bootstrap_servers": ("b:1", "c:1"),
        "kafka.auth": ("none", "tls"),
        "kafka.tls": ("false", "true"),
        "tables.trades.freshness": ("1m", "5m"),
        "tables.trades.flush_size": ("250,000,000 B", "1,000,000 B"),
        "tables.trades.sort_by": ("-", "x"),
    }


def test_a_table_that_a_job_gets_or_loses_is_one_line() -> None:
    users = replace(SETTINGS, tables=(Table("users", "users"),))
    found = planned(replace(DEPLOYMENT, jobs=(replace(JOB, settings=users),)))
    assert differences(found["jobs.main"]) == {
        "tables.users": ("-", "from users"),
        "tables.trades": ("from stock.trades", "-"),
    }


def test_settings_that_cannot_be_read_are_a_change() -> None:
    (change,) = planned(jobs={"main": replace(GLUE_JOB, settings=None)}).values()
    assert differences(change) == {"settings": ("not readable", "as in calve.yaml")}


def test_a_layout_that_differs_is_named_and_stays() -> None:
    (change,) = planned(tables={"trades": DeployedTable("-", "price desc", 3, COLUMNS)}).values()
    assert differences(change) == {
        "partition_by": ("-", "day(at)"),
        "sort_by": ("price desc", "-"),
        "format_version": ("3", "2"),
    }
    assert change.note == "a table that exists keeps its layout"


UPSERT = Upsert(("id",), order_by="price")
BY_ID = noted(COLUMNS, UPSERT)
HOURLY = Aggregate(
    ("id",),
    (job.Measure("trades", "count(*)"), job.Measure("total", "sum(price * 2)")),
    job.Window("at", 3_600_000),
)


@pytest.mark.parametrize(
    ("table", "before", "shown", "note"),
    [
        (
            replace(TABLE, upsert=UPSERT),
            None,
            ("append", "upsert by id; newest by price"),
            "deletes the rows",
        ),
        (TABLE, BY_ID, ("upsert by id; newest by price", "append"), "the rows stay"),
        (
            replace(TABLE, deduplicate=Deduplicate(("id",), 1_500)),
            None,
            ("append", "deduplicate by id; within 1.5 s"),
            "the job will suspend it: table trades is to hold the first record of each key",
        ),
        (
            replace(TABLE, aggregate=HOURLY),
            noted(COLUMNS, replace(HOURLY, window=None)),
            (
                "aggregate by id; trades = count(*), total = sum(price * 2)",
                "aggregate by id; trades = count(*), total = sum(price * 2); each 3600 s of at",
            ),
            "the job will suspend it: table trades was made with other settings of `aggregate`",
        ),
        (
            replace(TABLE, upsert=Upsert(("price",))),
            None,
            (
                "append",
                "the rows of the table cannot be told apart: price is a double, which tells no rows apart",
            ),
            "the job will suspend it: the rows of the table cannot be told apart",
        ),
    ],
)
def test_a_change_of_mode_says_what_becomes_of_the_rows(
    table: Table, before: str | None, shown: tuple[str, str], note: str
) -> None:
    settings = replace(SETTINGS, tables=(table,))
    deployment = replace(DEPLOYMENT, jobs=(replace(JOB, settings=settings),))
    found = planned(deployment, tables={"trades": DeployedTable("day(at)", "-", 2, COLUMNS, before)})
    assert differences(found["tables.trades"]) == {"mode": shown}
    assert note in found["tables.trades"].note
    empty = {"trades": DeployedTable("day(at)", "-", 2, COLUMNS, before, empty=True)}
    assert "tables.trades" not in planned(deployment, tables=empty)


def test_a_table_of_upserts_is_laid_out_in_buckets_where_nothing_else_is_said() -> None:
    table = replace(TABLE, upsert=replace(UPSERT, bucketed=True), partition_by=())
    deployment = replace(DEPLOYMENT, jobs=(replace(JOB, settings=replace(SETTINGS, tables=(table,))),))
    as_it_is = {"trades": DeployedTable("bucket(8, id)", "-", 2, COLUMNS, BY_ID)}
    assert "tables.trades" not in planned(deployment, tables=as_it_is)


def test_measures_of_a_table_are_shown_as_calve_yaml_has_them() -> None:
    shown = written(replace(SETTINGS, tables=(replace(TABLE, aggregate=HOURLY),)))
    assert shown["tables.trades.aggregate.measures"] == "trades: count(*), total: sum(price * 2)"
    assert shown["tables.trades.aggregate.window.column"] == "at"


def test_each_change_of_an_export_is_named() -> None:
    export = replace(
        EXPORT, time_zone="Europe/Vilnius", wait_s=60.0, link_days=3, measures=(Measure("n", "count"),)
    )
    (change,) = planned(replace(DEPLOYMENT, exports=(export,))).values()
    assert differences(change) == {
        "time_zone": ("UTC", "Europe/Vilnius"),
        "wait": ("2h", "1m"),
        "link.days": ("7", "3"),
        "measures": ("-", "n: count"),
    }


def test_terms_are_written_as_in_calve_yaml() -> None:
    written = (Transform("at", "day"), Transform("id", "bucket", 16), Transform("price", descending=True))
    assert terms(written) == "day(at), bucket(16, id), price desc"


def test_the_tree_has_a_line_for_each_difference() -> None:
    change = Change("jobs", "main", "~", (Difference("worker", "G.1X", "G.2X"), Difference("run", "a", "b")))
    assert list(tree("t", "account 1", [change, Change("tables", "x", "+", note="from y")]).lines()) == [
        "t  jobs  ~ main  worker  G.1X -> G.2X",
        "t  jobs  ~ main  run     a -> b",
        "t  tables  + x  from y",
    ]
    assert list(Branch("alone", note="in a wood").lines()) == ["alone  in a wood"]


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Iterator[Account]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    with mock_aws():
        yield Account("eu-west-1")


def glue_job(name: str, settings: str, **options: Any) -> None:
    boto3.client("s3", "eu-west-1").put_object(Bucket="assets", Key=f"{name}.json", Body=settings)
    conf = spark_conf(SETTINGS) | JOB.conf
    boto3.client("glue", "eu-west-1").create_job(
        Name=name,
        Role="r",
        Command={"Name": "gluestreaming", "ScriptLocation": "s3://assets/ingest.py"},
        DefaultArguments={
            "--conf": " --conf ".join(f"{key}={value}" for key, value in conf.items()),
            "--extra-files": f"s3://assets/other.txt,s3://assets/{name}.json",
            "--settings-file": f"{name}.json",
        },
        WorkerType="G.1X",
        NumberOfWorkers=4,
        **options,
    )


def schedule(group: str, name: str, expression: str, target: object) -> None:
    arn = {"Arn": "arn:aws:lambda:eu-west-1:1:function:f", "RoleArn": "arn:aws:iam::1:role/r"}
    boto3.client("scheduler", "eu-west-1").create_schedule(
        Name=name,
        GroupName=group,
        ScheduleExpression=expression,
        ScheduleExpressionTimezone="Asia/Tokyo",
        FlexibleTimeWindow={"Mode": "OFF"},
        Target=arn | {"Input": json.dumps(target)},
    )


def test_an_account_is_read(account: Account) -> None:
    s3, glue, scheduler = (boto3.client(each, "eu-west-1") for each in ("s3", "glue", "scheduler"))
    assert read(DEPLOYMENT, account) == Deployed("t")
    s3.create_bucket(Bucket="assets", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
    glue.create_database(DatabaseInput={"Name": "t"})
    glue_job("t-main", SETTINGS.to_json())
    glue_job("t-broken", "{}")
    glue_job("t-other-main", replace(SETTINGS, name="t-other").to_json())
    glue_job("someone", SETTINGS.to_json())
    for group in ("t", "t-jobs"):
        scheduler.create_schedule_group(Name=group)
    schedule("t-jobs", "t-main", "rate(6 hours)", {})
    schedule("t", "t-weekly", "cron(0 7 ? * MON *)", {"export": asdict(EXPORT)})
    schedule("t", "t-again", "at(2030-01-01T00:00:00)", {"export": asdict(replace(EXPORT, name="again"))})
    schedule("t", "t-foreign", "rate(1 day)", {"x": 1})
    assert read(DEPLOYMENT, account) == Deployed(
        "t",
        database_exists=True,
        jobs={
            "main": replace(
                GLUE_JOB, schedule="rate(6 hours)", time_zone="Asia/Tokyo", maintenance_window=None
            )
        },
        exports={"weekly": replace(EXPORT, schedule="cron(0 7 ? * MON *)", time_zone="Asia/Tokyo")},
    )
    assert account.id() == "123456789012"


def test_the_conf_of_calve_yaml_is_told_from_that_of_the_jobs() -> None:
    conf = spark_conf(SETTINGS) | {"spark.x": "a=b"}
    argument = " --conf ".join(f"{key}={value}" for key, value in conf.items())
    assert own_conf(argument) == {"spark.x": "a=b"}
    assert own_conf("") == {}
