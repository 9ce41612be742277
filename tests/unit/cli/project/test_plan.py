"""The plan names what a deploy would change, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

import boto3
import pytest
from moto import mock_aws

from calve.config.deployment import Deployment, JobDeployment, LakeDeployment, Workers
from calve.config.job import Job, Kafka, Lake, Registry, Start, Table
from calve.config.maintenance import Maintenance, RowRetention
from calve.config.publishing import Csv, Emit, Export, IcebergRest, Measure, Publish
from calve.config.spark_conf import spark_conf
from calve.modes import aggregate
from calve.modes.aggregate import Aggregate, Window
from calve.modes.upsert import Deduplicate, Upsert
from calve.names import TableName
from calve.schema.columns import Transform, field, struct, with_ids
from cli.account import Account, Resource
from cli.console import Branch
from cli.look.cost.model import Load, bill, rates
from cli.project.plan.change import Change, Consequence, Difference, flat, of_table, terms
from cli.project.plan.changes import Bills, Part, bills, changes
from cli.project.plan.command import counted, exit_code, tree
from cli.project.plan.deployed import (
    Deployed,
    DeployedJob,
    DeployedTable,
    DeployedTarget,
    own,
    read_deployed,
)
from cli.spark import parse_conf
from lambdas.publish_states import PublishState, PublishStates, State, Target

TABLE = Table("trades", "stock.trades", partition_by=(Transform("at", "day"),))
SETTINGS = Job("t", "main", Kafka("b:1"), Registry("http://r"), Lake("t", "s3://lake"), (TABLE,))
JOB = JobDeployment(SETTINGS, workers=Workers(2, 4), conf={"spark.a": "1"})
EXPORT = Export("weekly", "t", "trades", "at", "cron(0 6 ? * MON *)", ("a@b.c",))
DEPLOYMENT = Deployment("t", (JOB,), LakeDeployment("t"), exports=(EXPORT,), region="eu-west-1")
GLUE_JOB = DeployedJob("G.1X", 4, None, "UTC", "Sun:3", {"spark.a": "1"}, SETTINGS, least=2)
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


def told(change: Change) -> list[tuple[bool, str]]:
    return [(each.breaking, each.text) for each in change.consequences]


def with_table(**options: Any) -> Deployment:
    """The deployment with another `trades`."""
    table = replace(TABLE, **options)
    return replace(DEPLOYMENT, jobs=(replace(JOB, settings=replace(SETTINGS, tables=(table,))),))


def deployed_with(table: Table) -> dict[str, DeployedJob]:
    """The job, deployed with another `trades`."""
    return {"main": replace(GLUE_JOB, settings=replace(SETTINGS, tables=(table,)))}


def differences(change: Change) -> dict[str, tuple[str, str]]:
    return {each.key: (each.deployed, each.configured) for each in change.differences}


def test_what_is_deployed_as_configured_is_the_same() -> None:
    assert planned() == {}
    assert [each.section for each in changes(DEPLOYMENT, SAME)] == ["lake", "jobs", "tables", "exports"]


@pytest.mark.parametrize(("tables", "kind"), [({}, "+"), (SAME.tables, "~")])
def test_a_table_of_another_writer_waits_until_it_is_adopted(tables: Any, kind: str) -> None:
    jobs = {} if kind == "+" else SAME.jobs
    change = planned(jobs=jobs, tables=tables, foreign=frozenset({"trades"}))["tables.trades"]
    said = "the job writes nothing to it until `calve adopt trades`: another writer made it"
    assert (change.kind, told(change)) == (kind, [(False, said)])


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
        jobs=SAME.jobs | {"old": replace(GLUE_JOB, settings=replace(SETTINGS, tables=()))},
        tables=SAME.tables | {"gone": DeployedTable("-", "-", 2, COLUMNS)},
        exports=SAME.exports | {"never": EXPORT},
    )
    assert {name: each.kind for name, each in found.items()} == {
        "jobs.old": "-",
        "tables.gone": "-",
        "exports.never": "-",
    }
    assert told(found["tables.gone"]) == [(True, "it stays, and no job writes it")]
    assert {name: each.breaking for name, each in found.items()} == {
        "jobs.old": False,
        "tables.gone": True,
        "exports.never": True,
    }


@pytest.mark.parametrize(
    ("job", "key", "before", "after"),
    [
        (replace(JOB, worker="G.2X"), "worker", "G.1X", "G.2X"),
        (replace(JOB, workers=Workers(2, 8)), "workers.max", "4", "8"),
        (replace(JOB, workers=Workers(3, 4)), "workers.min", "2", "3"),
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
        tables=(replace(TABLE, freshness_s=300.0, flush_bytes=1_000_000, emit=Emit("out")),),
    )
    found = planned(replace(DEPLOYMENT, jobs=(replace(JOB, settings=settings),)))
    assert differences(found["jobs.main"]) == {
        "kafka.bootstrap_servers": ("b:1", "c:1"),
        "kafka.auth": ("none", "tls"),
        "kafka.tls": ("false", "true"),
    }
    assert differences(found["tables.trades"]) == {
        "freshness": ("1m", "5m"),
        "flush_size": ("250,000,000 B", "1,000,000 B"),
        "emit.topic": ("-", "out"),
        "emit.format": ("-", "avro"),
        "emit.partitions": ("-", "6"),
        "emit.cleanup_policy": ("-", "delete"),
        "emit.schema_id": ("-", "prefix"),
    }
    assert not found["tables.trades"].breaking


def test_offsets_to_start_at_are_shown_by_partition() -> None:
    assert flat({"offsets": {0: 5}}, "start.") == {"start.offsets.0": "5"}


def test_a_table_that_a_job_gets_or_loses_is_one_line() -> None:
    users = replace(SETTINGS, tables=(Table("users", "users"),))
    found = planned(replace(DEPLOYMENT, jobs=(replace(JOB, settings=users),)))
    assert {name: (each.kind, each.note) for name, each in found.items()} == {
        "tables.users": ("+", "from users"),
        "tables.trades": ("-", ""),
    }


def test_a_table_that_its_job_has_not_made_yet_is_no_change() -> None:
    (found,) = (each for each in changes(DEPLOYMENT, replace(SAME, tables={})) if each.section == "tables")
    assert (found.kind, found.note) == ("=", "the job has not made it yet")


def test_a_table_that_moves_to_another_job_says_so() -> None:
    change = planned(jobs={"main": replace(GLUE_JOB, settings=None), "b": GLUE_JOB})["tables.trades"]
    assert differences(change) == {"job": ("b", "main")}
    assert told(change) == [(False, "one job goes on where the other ends")]


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
    assert [breaking for breaking, _ in told(change)] == [False, False]


def test_partition_fields_in_another_order_are_the_same() -> None:
    fields = (Transform("at", "day"), Transform("id", "bucket", 16))
    there = {"trades": DeployedTable("bucket(16, id), day(at)", "-", 2, COLUMNS)}
    jobs = deployed_with(replace(TABLE, partition_by=fields))
    assert planned(with_table(partition_by=fields), jobs=jobs, tables=there) == {}


UPSERT = Upsert(("id",), order_by="price")
BY_ID = UPSERT.note(COLUMNS)
HOURLY = Aggregate(
    ("id",),
    (aggregate.Measure("trades", "count(*)"), aggregate.Measure("total", "sum(price * 2)")),
    Window("at", 3_600_000),
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
            replace(HOURLY, window=None).note(COLUMNS),
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
                "the rows of the table cannot be identified: price is a double, which identifies no rows",
            ),
            "the job will suspend it: the rows of the table cannot be identified",
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
    assert note in found["tables.trades"].consequences[0].text
    assert found["tables.trades"].breaking
    empty = {"trades": DeployedTable("day(at)", "-", 2, COLUMNS, before, empty=True)}
    unread = planned(deployment, tables=empty).get("tables.trades")
    assert unread is None or not unread.consequences


def test_a_table_of_upserts_is_laid_out_in_buckets_where_nothing_else_is_said() -> None:
    table = replace(TABLE, upsert=replace(UPSERT, bucketed=True), partition_by=())
    deployment = replace(DEPLOYMENT, jobs=(replace(JOB, settings=replace(SETTINGS, tables=(table,))),))
    as_it_is = {"trades": DeployedTable("bucket(8, id)", "-", 2, COLUMNS, BY_ID)}
    assert "tables.trades" not in planned(deployment, jobs=deployed_with(table), tables=as_it_is)


def test_measures_of_a_table_are_shown_as_calve_yaml_has_them() -> None:
    shown = of_table(replace(TABLE, aggregate=HOURLY))
    assert shown["aggregate.measures"] == "trades: count(*), total: sum(price * 2)"
    assert shown["aggregate.window.column"] == "at"


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
    change = Change(
        "jobs",
        "main",
        "~",
        (Difference("worker", "G.1X", "G.2X"), Difference("run", "a", "b")),
        consequences=(Consequence("it goes", breaking=True), Consequence("it comes")),
    )
    same = Change("tables", "y", "=")
    found = [change, Change("tables", "x", "+", note="from y"), same]
    costs = Bills(1.0, 1234.5, (Part("Glue job main", 1.0, 1234.5),))
    assert list(tree("t", "account 1", found, costs, 1.0).lines()) == [
        "t  in account 1",
        "t  jobs  ~ main  worker  G.1X -> G.2X",
        "t  jobs  ~ main  run     a -> b",
        "t  jobs  ~ main  !  it goes",
        "t  jobs  ~ main  it comes",
        "t  tables  + x  from y",
        "t  cost  Glue job main  1.00 -> 1,234.50",
        "t  cost  all  1.00 -> 1,234.50 US dollars a month (+1,233.50), at 1 MB/s a topic",
    ]
    assert counted(found) == "1 new, 1 changed, 1 same, 1 breaking"
    assert list(tree("t", "account 1", [same], Bills(5.0, 5.0, ()), 0.5).lines()) == [
        "t  in account 1",
        "t  cost  all  5.00 US dollars a month, as now, at 0.5 MB/s a topic",
    ]
    assert list(Branch("alone", note="in a wood").lines()) == ["alone  in a wood"]


def test_the_exit_code_tells_changes_and_breaking_ones_apart() -> None:
    same, new = Change("tables", "x", "="), Change("tables", "x", "+")
    gone = Change("tables", "x", "-", consequences=(Consequence("", breaking=True),))
    assert [exit_code(each) for each in ([same], [same, new], [same, new, gone])] == [0, 3, 4]


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Iterator[Account]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    with mock_aws():
        yield Account("eu-west-1")


def glue_job(name: str, settings: str, kind: str = "gluestreaming") -> None:
    boto3.client("s3", "eu-west-1").put_object(Bucket="assets", Key=f"{name}.json", Body=settings)
    conf = spark_conf(SETTINGS) | JOB.conf
    boto3.client("glue", "eu-west-1").create_job(
        Name=name,
        Role="r",
        Command={"Name": kind, "ScriptLocation": "s3://assets/ingest.py"},
        DefaultArguments={
            "--conf": " --conf ".join(f"{key}={value}" for key, value in conf.items()),
            "--extra-files": f"s3://assets/other.txt,s3://assets/{name}.json",
            "--settings-file": f"{name}.json",
        },
        WorkerType="G.1X",
        NumberOfWorkers=4,
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


def test_an_account_is_read(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    stacks: dict[str, list[Resource]] = {}
    monkeypatch.setattr("cli.project.plan.deployed.resources", lambda _, stack: stacks.get(stack, []))
    s3, glue, scheduler = (boto3.client(each, "eu-west-1") for each in ("s3", "glue", "scheduler"))
    assert read_deployed(DEPLOYMENT, account) == Deployed("t")
    s3.create_bucket(Bucket="assets", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
    glue.create_database(DatabaseInput={"Name": "t"})
    glue_job("t-main", SETTINGS.to_json())
    glue_job("t-broken", "{}")
    glue_job("t-main-maintenance", SETTINGS.to_json(), "glueetl")
    glue_job("t-other-main", replace(SETTINGS, name="t-other").to_json())
    glue_job("someone", SETTINGS.to_json())
    for group in ("t", "t-jobs"):
        scheduler.create_schedule_group(Name=group)
    schedule("t-jobs", "t-main", "rate(6 hours)", {})
    schedule("t", "t-weekly", "cron(0 7 ? * MON *)", {"export": asdict(EXPORT)})
    schedule("t", "t-again", "at(2030-01-01T00:00:00)", {"export": asdict(replace(EXPORT, name="again"))})
    schedule("t", "t-foreign", "rate(1 day)", {"x": 1})
    assert read_deployed(DEPLOYMENT, account) == Deployed(
        "t",
        database_exists=True,
        jobs={
            "main": replace(
                GLUE_JOB,
                schedule="rate(6 hours)",
                time_zone="Asia/Tokyo",
                maintenance_window=None,
                least=None,
            )
        },
        exports={"weekly": replace(EXPORT, schedule="cron(0 7 ? * MON *)", time_zone="Asia/Tokyo")},
    )
    assert account.id() == "123456789012"


def test_targets_are_read_from_the_functions_that_publish(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    region = "eu-west-1"
    trust = json.dumps({"Version": "2012-10-17", "Statement": []})
    role = boto3.client("iam", region).create_role(RoleName="r", AssumeRolePolicyDocument=trust)["Role"][
        "Arn"
    ]
    told = {"CATALOG": REST.to_json(), "STATES_TABLE": "states"}
    boto3.client("lambda", region).create_function(
        FunctionName="follow",
        Runtime="python3.13",
        Role=role,
        Handler="h",
        Code={"ZipFile": b""},
        Environment={"Variables": told},
    )
    boto3.client("dynamodb", region).create_table(
        TableName="states",
        KeySchema=[
            {"AttributeName": "target", "KeyType": "HASH"},
            {"AttributeName": "table", "KeyType": "RANGE"},
        ],
        AttributeDefinitions=[{"AttributeName": each, "AttributeType": "S"} for each in ("target", "table")],
        BillingMode="PAY_PER_REQUEST",
    )
    states = PublishStates("states", boto3.client("dynamodb", region))
    states.put(PublishState(Target.ICEBERG_REST, "t.trades", State.SYNCED, 1))
    stacks = {
        "t-publish": [Resource("AWS::Lambda::Function", "Follow", "follow")],
        "t-kafka": [Resource("AWS::EC2::VPCEndpoint", "Glue", "vpce-1")],
    }
    monkeypatch.setattr("cli.project.plan.deployed.resources", lambda _, stack: stacks.get(stack, []))
    found = read_deployed(DEPLOYMENT, account)
    assert found.targets == {"iceberg_rest": DeployedTarget(REST, frozenset({"trades"}))}
    assert (found.cluster, found.endpoints) == (False, True)


def test_the_conf_of_calve_yaml_is_told_from_that_of_the_jobs() -> None:
    conf = spark_conf(SETTINGS) | {"spark.x": "a=b"}
    argument = " --conf ".join(f"{key}={value}" for key, value in conf.items())
    assert own(parse_conf(argument)) == {"spark.x": "a=b"}
    assert parse_conf("") == {}


SHORT = Maintenance(snapshots_s=3_600.0, dead_letters_s=86_400.0, rows=RowRetention("at", 7 * 86_400.0))


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ({}, {"topic": "other"}, [(True, "the job will suspend it: its rows are from the other topic")]),
        ({}, {"on_error": "skip"}, [(True, "records that fail to decode are counted, and no longer kept")]),
        ({}, {"start": Start("latest")}, [(False, "`start` is for topics that were never read: nothing is read again")]),
        ({}, {"freshness_s": 5.0}, []),
        ({}, {"emit": Emit("out")}, []),
        ({"emit": Emit("out")}, {}, [(True, "topic out gets no more rows")]),
        ({"emit": Emit("out")}, {"emit": Emit("other")}, [(True, "topic out gets no more rows")]),
        ({"emit": Emit("out")}, {"emit": Emit("out", "json")}, [(True, "the next records of topic out are written otherwise")]),
        (
            {"emit": Emit("out")},
            {"emit": Emit("out", schema_id="header")},
            [(True, "the next records of topic out are written otherwise")],
        ),
        (
            {},
            {"maintenance": SHORT},
            [
                (True, "rows are deleted whose at is older than 7d"),
                (True, "dead letters are deleted after 1d, redriven or not"),
                (True, "no query or rollback can use snapshots older than 1h, or beyond the newest 100"),
            ],
        ),
        ({"maintenance": SHORT}, {}, []),
        (
            {},
            {"maintenance": Maintenance(file_bytes=1)},
            [(False, "files are merged to that size from the next maintenance on")],
        ),
    ],
)  # fmt: skip
def test_what_follows_from_a_changed_table(
    before: dict[str, Any], after: dict[str, Any], said: list[tuple[bool, str]]
) -> None:
    (change,) = planned(with_table(**after), jobs=deployed_with(replace(TABLE, **before))).values()
    assert (change.name, change.kind, told(change)) == ("trades", "~", said)


def test_another_database_is_another_set_of_tables() -> None:
    settings = replace(SETTINGS, lake=Lake("other", "s3://lake"))
    (change,) = planned(replace(DEPLOYMENT, jobs=(replace(JOB, settings=settings),))).values()
    assert change.breaking
    assert "made again in the other database" in change.consequences[0].text


@pytest.mark.parametrize(
    ("options", "breaking", "text"),
    [
        ({"recipients": ("a@b.c", "d@e.f")}, False, "d@e.f gets a mail from the next run on"),
        ({"recipients": ("d@e.f",)}, True, "a@b.c gets no more mails"),
        ({"schedule": "rate(1 day)"}, False, "it arrives at other times"),
        ({"link_kind": "console"}, True, "readers of the next mails must sign in to AWS"),
        (
            {"columns": ("id", "price", "at")},
            False,
            "the next files have more columns, after the present ones",
        ),
        ({"columns": ("price",)}, True, "the content or the format of the next files changes"),
        ({"filter": "price > 1"}, True, "the content or the format of the next files changes"),
        ({"csv": Csv(delimiter=";")}, True, "the content or the format of the next files changes"),
    ],
)
def test_what_follows_from_a_changed_export(options: dict[str, Any], breaking: bool, text: str) -> None:
    before = replace(EXPORT, columns=("id", "price"))
    wanted = replace(DEPLOYMENT, exports=(replace(before, **options),))
    (change,) = planned(wanted, exports={"weekly": before}).values()
    assert change.breaking == breaking
    assert text in [each.text for each in change.consequences]


REST = IcebergRest("https://catalog", "w", secret="aws:x")
PUBLISH = Publish((TableName("t", "trades"),), ("shop_.*",), iceberg_rest=REST)


def test_a_new_target_names_its_tables() -> None:
    (change,) = planned(replace(DEPLOYMENT, publish=PUBLISH)).values()
    assert (change.section, change.name, change.kind, change.note) == (
        "publish",
        "iceberg_rest",
        "+",
        "of trades",
    )


@pytest.mark.parametrize(
    ("there", "tables", "shown", "breaking"),
    [
        (REST, {"trades", "shop_a"}, None, None),
        (REST, {"shop_a"}, {"tables": ("-", "trades")}, False),
        (REST, {"trades", "old"}, {"tables": ("old", "-")}, True),
        (replace(REST, namespace="n"), {"trades"}, {"namespace": ("n", "-")}, True),
        (replace(REST, update="notifications"), {"trades"}, {"update": ("notifications", "register")}, False),
        (None, {"trades"}, {"settings": ("not readable", "as in calve.yaml")}, False),
    ],
)
def test_tables_that_a_target_gets_or_loses_or_has_elsewhere(
    there: IcebergRest | None, tables: set[str], shown: dict[str, Any] | None, breaking: bool | None
) -> None:
    targets = {"iceberg_rest": DeployedTarget(there, frozenset(tables))}
    found = planned(replace(DEPLOYMENT, publish=PUBLISH), targets=targets).get("publish.iceberg_rest")
    assert (differences(found) if found else None, found.breaking if found else None) == (shown, breaking)


def test_a_target_that_is_no_longer_configured_loses_its_tables() -> None:
    (change,) = planned(targets={"iceberg_rest": DeployedTarget(REST, frozenset({"trades"}))}).values()
    assert (change.kind, told(change)) == (
        "-",
        [(True, "trades can no longer be read there; the data stays in the lake")],
    )


def test_the_bill_before_is_that_of_what_is_deployed() -> None:
    same = bills(DEPLOYMENT, SAME, Load(), rates())
    assert (same.parts, same.before) == ((), same.after)
    assert same.after == pytest.approx(bill(DEPLOYMENT, Load(), rates()).total("configured"))
    bigger = bills(replace(DEPLOYMENT, jobs=(replace(JOB, worker="G.2X"),)), SAME, Load(), rates())
    assert [each.part for each in bigger.parts] == ["Glue job main"]
    assert bigger.after > bigger.before == same.after
    first = bills(DEPLOYMENT, Deployed("t"), Load(), rates())
    assert (first.before, first.after) == (0.0, same.after)
    cluster = bills(DEPLOYMENT, replace(SAME, cluster=True, endpoints=True), Load(), rates())
    assert {each.part for each in cluster.parts} == {"MSK Serverless", "VPC endpoints"}
    daily = replace(DEPLOYMENT, jobs=(replace(JOB, schedule="rate(1 day)"),))
    by_schedule = replace(SAME, jobs={"main": replace(GLUE_JOB, schedule="rate(1 day)")})
    assert bills(daily, by_schedule, Load(), rates()).parts == ()
    assert bills(daily, SAME, Load(), rates()).after < same.after
    lost = replace(SAME, jobs={"main": replace(GLUE_JOB, settings=None)})
    assert bills(DEPLOYMENT, lost, Load(), rates()).unknown == ("main",)
