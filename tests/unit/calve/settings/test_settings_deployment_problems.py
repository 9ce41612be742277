"""What cannot be deployed is refused, all of it at once, with the line, the reason and the cure."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calve.config.job import Job, Kafka, Lake, Registry
from calve.config.spark_conf import OWN_SETTINGS, spark_conf
from calve.errors import ConfigError
from calve.settings import load, load_deployment
from calve.settings.model import SECTIONS
from calve.settings.resolving import StackDefaults

REST = "registry: {url: https://r}\ntables: {trades: {topic: t}}\n"
NAMED = "kafka: {bootstrap_servers: 'b:1'}\n"
ARN = "arn:aws:kafka:eu-west-1:000000000000:cluster/main/0a1b-2"
EXPORT = "table: trades, schedule: rate(1 day), recipients: [a@b.c]"


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def refused(text: str, *, named: str = f"name: t\n{NAMED}") -> str:
    path = Path("calve.yaml")
    path.write_text(f"{named}{text}\n{REST}", encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_deployment(path)
    return narrow(caught.value)


def narrow(error: ConfigError) -> str:
    """The message without the blanks that align its columns."""
    return re.sub("(?<=[^\\n]) {3,}", "  ", str(error))


def test_every_problem_is_listed_at_once_with_line_key_reason_and_cure() -> None:
    Path("calve.yaml").write_text(
        """name: t
kafka: {msk: {create: serverless}, auth: {type: sasl_scram, secret: env:K}}
jobs:
  main: {worker: G.1x, workers: {min: 1}, run: schedule(crom(0 6 * * * *))}
alerts: {emails: [ops]}
tables: {trades: {topic: t}}
exports:
  weekly:
    table: trade
    schedule: cron(0 6 * * MON)
    time_zone: Europe/Vilnus
    recipients: []
"""
    )
    with pytest.raises(ConfigError) as caught:
        load_deployment(Path("calve.yaml"))
    assert (
        narrow(caught.value) == """calve.yaml: 11 problems
  calve.yaml  registry  is missing. Add `registry: {url: https://host}`
  calve.yaml:2  kafka.auth.secret  cannot be read where the deployed job runs. Keep it in AWS: aws:SECRET_ID
  calve.yaml:2  kafka.auth.type  "sasl_scram" cannot be used: MSK Serverless takes msk_iam only. """
        """Remove `auth`, which is then msk_iam
  calve.yaml:4  jobs.main.run  "crom(0 6 * * * *)" is not a schedule: "crom" is unknown. Did you mean "cron"?
  calve.yaml:4  jobs.main.worker  "G.1x" cannot be used. Did you mean "G.1X"? """
        """Use G.025X, G.1X, G.2X, G.4X, G.8X, G.12X, G.16X, R.1X, R.2X, R.4X or R.8X
  calve.yaml:4  jobs.main.workers.min  1 is too small. Use 2 or more
  calve.yaml:5  alerts.emails[0]  "ops" is not an e-mail address. Write it as "name@example.com"
  calve.yaml:9  exports.weekly.table  "trade" is not a table. Did you mean "trades"?
  calve.yaml:10  exports.weekly.schedule  "cron(0 6 * * MON)" is not a schedule: it has 5 fields, not 6. """
        """Write minutes, hours, day of month, month, day of week and year, such as cron(0 6 ? * MON *)
  calve.yaml:11  exports.weekly.time_zone  "Europe/Vilnus" is not a time zone. Did you mean "Europe/Vilnius"?
  calve.yaml:12  exports.weekly.recipients  is empty. Name at least one"""
    )


def test_a_cron_expression_that_needs_quotes_is_told_so() -> None:
    assert 'Put text with a "?", such as a cron expression, in quotes' in refused(
        "jobs: {main: {run: schedule(cron(0 6 ? * MON *))}}"
    )


@pytest.mark.parametrize(
    ("kafka", "problem"),
    [
        ("{}", "kafka.bootstrap_servers  is missing. Add `bootstrap_servers:`"),
        ("{msk: {}}", "kafka.msk  names no cluster. Use either `create: serverless` or `cluster: ARN`"),
        (f"{{msk: {{create: serverless, cluster: '{ARN}'}}}}", "kafka.msk  names two clusters"),
        ("{msk: {create: provisioned}}", '"provisioned" cannot be used. Use serverless'),
        ("{msk: {create: serverless}, bootstrap_servers: 'b:1'}", "has no use with `msk.create`"),
        ("{msk: {create: serverless}, auth: {}}", '"none" cannot be used: MSK Serverless takes msk_iam only'),
        (
            f"{{msk: {{cluster: '{ARN}'}}}}",
            "kafka.bootstrap_servers  is missing: the ARN does not contain it",
        ),
        (
            f"{{msk: {{cluster: '{ARN}'}}, bootstrap_servers: 'b:9198,c:9098'}}",
            "network  is missing: these brokers answer only inside their VPC. Add `network:`",
        ),
        ("{msk: {cluster: main}, bootstrap_servers: 'b:1'}", '"main" is not an ARN of an MSK cluster'),
        ("{msk: {creat: serverless}}", 'kafka.msk.creat  is not a known key. Did you mean "create"?'),
        ("{msk: serverless}", "kafka.msk  must be a mapping"),
    ],
)
def test_a_cluster_that_cannot_be_used_is_refused(kafka: str, problem: str) -> None:
    assert problem in refused(f"kafka: {kafka}", named="name: t\n")


@pytest.mark.parametrize(
    ("section", "problem"),
    [
        ("network: {subnets: [subnet-1]}", "network.subnets  has no use without `vpc`. Add `vpc: vpc-...`"),
        ("network: {security_groups: [sg-1]}", "network.security_groups  has no use without `vpc`"),
        (
            "network: {vpc: vpc-1}",
            "network.subnets  is missing: an existing VPC is described in full",
        ),
        (
            "network: {vpc: vpc-1, subnets: [subnet-1, subnet-2], availability_zones: [a]}",
            "network.availability_zones  has 1 entries for 2 subnets. Name one for each subnet",
        ),
        ("network: {vpc: main}", '"main" is not a VPC'),
        ("network: {vpc: vpc-1, subnets: [s]}", 'network.subnets[0]  "s" is not a subnet'),
        ("lake: {import_database: yes}", "lake.import_database  must be true or false"),
        (
            "jobs: {main: {workers: {min: 4, max: 3}}}",
            "jobs.main.workers.max  3 is less than `min`, which is 4",
        ),
        (
            "jobs: {main: {workers: {mini: 4}}}",
            'jobs.main.workers.mini  is not a known key. Did you mean "min"?',
        ),
        ("jobs: {main: {workers: 4}}", "jobs.main.workers  must be a mapping"),
        (
            "jobs: {main: {worker: G.025X, workers: {max: 4}}}",
            "jobs.main.workers.max  4 differs from `min`, and G.025X does not scale. Remove it",
        ),
        ("jobs: {main: {time_zone: UTC}}", "jobs.main.time_zone  has no use with continuous"),
        (
            "jobs: {main: {run: schedule(rate(1 day)), maintenance_window: 'Sun:3'}}",
            "jobs.main.maintenance_window  has no use with a schedule",
        ),
        ("jobs: {main: {run: contineous}}", '"contineous" is not a way to run. Did you mean "continuous"?'),
        (
            "jobs: {main: {run: rate(1 day)}}",
            '"rate(1 day)" is not a way to run. Write "schedule(rate(1 day))"',
        ),
        ("jobs: {main: {run: schedule(daily)}}", '"daily" is not a schedule. Write rate(6 hours)'),
        ("jobs: {main: {run: schedule(rate(0 hours))}}", '"rate(0 hours)" is not a schedule'),
        ("jobs: {main: {run: schedule(rate(6 hors))}}", '"hors" is not a unit. Did you mean "hours"?'),
        ("jobs: {main: {run: 'schedule(cron(0 6 * * * *))'}}", 'must be "?", the other not'),
        ("jobs: {main: {run: 'schedule(cron(0 6 ? * ? *))'}}", 'must be "?", the other not'),
        (
            "jobs: {main: {run: 'schedule(cron(60 6 ? * MON *))'}}",
            '"60" is not valid as minutes. Use * or 0 to 59',
        ),
        ("jobs: {main: {run: 'schedule(cron(0 6 ? * MOO *))'}}", "Use * or 1 to 7 or SUN to SAT"),
        ("jobs: {main: {run: 'schedule(cron(0 6-7-8 ? * 1 *))'}}", '"6-7-8" is not valid as hours'),
        ("jobs: {main: {run: 'schedule(cron(*/0 6 ? * 1 *))'}}", '"*/0" is not valid as minutes'),
        ("jobs: {main: {maintenance_window: 'Sunday:3'}}", 'Did you mean "Sun"?'),
        (
            "jobs: {main: {maintenance_window: 'Sun:24'}}",
            '"Sun:24" is not a maintenance window. Write a day and',
        ),
        ("jobs: {main: {conf: {a: b}}}", 'jobs.main.conf.a  "a" is not a Spark setting'),
        ("jobs: {main: {conf: {spark.speculation: true}}}", "is a setting of calve itself"),
        *(
            (
                f"jobs: {{main: {{conf: {{spark.sql.catalog.lake.{each}: s3://b/c}}}}}}",
                "is a setting of calve itself",
            )
            for each in ("table-override.write.data.path", "table-default.write.metadata.path")
        ),
        ("jobs: {main: {conf: {spark.x: [1]}}}", 'jobs.main.conf."spark.x"  must be text'),
        ("jobs: {main: {conf: {spark.x: a --conf b=c}}}", "contains a space"),
        ("alerts: {freshness: 5}", '"5" is not a duration'),
        ("alerts: {lag: 0}", "alerts.lag  0 is too small. Use 1 or more"),
        ("alerts: {emails: [a@b.c, A@b.c]}", 'alerts.emails[1]  "A@b.c" is named twice'),
        ("alerts: {email: a@b.c}", 'alerts.email  is not a known key. Did you mean "emails"?'),
    ],
)
def test_a_section_that_cannot_be_deployed_is_refused(section: str, problem: str) -> None:
    assert problem in refused(section)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ("link: {kind: console, days: 3}", "exports.e.link.days  has no use with `kind: console`"),
        ("link: {kind: console, max_downloads: 3}", "exports.e.link.max_downloads  has no use with"),
        ("link: {kind: private}", 'exports.e.link.kind  "private" cannot be used'),
        ("window: last_week", 'exports.e.window  "last_week" cannot be used'),
        ("filter: side is BUY", 'exports.e.filter  "side is BUY" cannot be read'),
        ("filter: side like '%Y'", "exports.e.filter  \"side like '%Y'\" cannot be read"),
        ("time_zone: Vilnius", '"Vilnius" is not a time zone. Did you mean "Europe/Vilnius"?'),
        ("time_zone: CEST", '"CEST" is not a time zone. Use the name of a region, such as Europe/Berlin'),
        ("time_zone: PDT", '"PDT" is not a time zone. Use the name of a region, such as Europe/Berlin'),
        (
            "time_column: _kafka.time",
            '.time_column  "_kafka.time" is not a column. Did you mean "_kafka.timestamp"?',
        ),
        ("columns: [a, A]", '.columns[1]  "A" is named twice'),
        ("columns: [a b]", '.columns[0]  "a b" is not a field path'),
        ("group_by: [a]", ".measures  is missing: `group_by` needs it. Add `measures: {rows: count}`"),
        ("columns: [a], measures: {n: count}", ".columns  has no use with `measures`"),
        ("measures: {n: summ(x)}", '.measures.n  "summ(x)" is not a measure. Did you mean "sum"?'),
        ("measures: {n: sum}", '.measures.n  "sum" names no column. Write "sum(column)"'),
        ("measures: {n.x: count}", '.measures."n.x"  "n.x" is not a column name'),
        ("measures: {n: count, N: count}", '.measures.N  "N" differs only by case'),
        ("group_by: [n], measures: {N: count}", '.measures.N  "N" is a column of `group_by` already'),
        ("measures: [count]", ".measures  must be a mapping"),
        (
            "measures: {n: count}, csv: {system_columns: true}",
            ".csv.system_columns  has no use with `measures`",
        ),
        ("channel: ses", ".sender  is missing: ses needs it"),
        ("channel: sns, sender: a@b.c", ".sender  has no use with sns. Remove it, or use `channel: ses`"),
        ('reply_to: "a@b.c, d@e.f"', ".reply_to  "),
        ('reply_to: "a@b.c\\nBcc: d@e.f"', ".reply_to  "),
        ("csv: {delimiter: '::'}", '.csv.delimiter  "::" is not a delimiter. Use a comma, a semicolon'),
        ("csv: {row_limit: 1048576}", ".csv.row_limit  1048576 is too large. Use 1,048,575 or less"),
        ("csv: {delimeter: ';'}", 'is not a known key. Did you mean "delimiter"?'),
        ("link: {days: 31}", ".link.days  31 is too large. Use 30 or less"),
        ("keep: 36h", '.keep  "36h" is not a number of whole days'),
        ("keep: 3d", ".keep  ends before the link does, which works for 7 days"),
        ("recheck_windows: 13", ".recheck_windows  13 is too large"),
        ("wait: 2", '.wait  "2" is not a duration'),
    ],
)
def test_an_export_that_cannot_be_used_is_refused(options: str, problem: str) -> None:
    assert problem in refused(f"exports: {{e: {{{EXPORT}, {options}}}}}")


def test_an_export_says_what_when_and_to_whom() -> None:
    message = refused("exports: {e: {}}")
    assert [key for key in ("table", "schedule", "recipients") if f"exports.e.{key}" in message] == [
        "table",
        "schedule",
        "recipients",
    ]


def test_names_that_grow_too_long_in_aws_are_refused() -> None:
    assert "name  is too long for the name of the bucket" in refused("", named=f"name: {'n' * 31}\n{NAMED}")
    long = "e" * 40
    message = refused(f"exports: {{{long}: {{{EXPORT}}}}}", named=f"name: {'n' * 30}\n{NAMED}")
    assert "its schedule, NAME-EXPORT, would have 71 characters. Shorten it by 7" in message


def test_what_a_deploy_cannot_make_must_be_named() -> None:
    Path("calve.yaml").write_text("name: t\ntables: {a: {topic: t}}")
    with pytest.raises(ConfigError) as caught:
        load_deployment(Path("calve.yaml"))
    message = str(caught.value)
    assert "kafka     is missing. Add `kafka: {bootstrap_servers: host:port}`, or `kafka: {msk:" in message
    assert "registry  is missing. Add `registry:" in message
    assert "lake.bucket" not in message
    assert "calve up" not in message


@pytest.mark.parametrize("secret", ["env:K", "file:k.json"])
def test_a_secret_of_this_machine_is_of_no_use_to_a_deployed_job(secret: str) -> None:
    kafka = f"kafka: {{bootstrap_servers: 'b:1', auth: {{type: sasl_plain, secret: '{secret}'}}}}\n"
    message = refused("", named=f"name: t\n{kafka}")
    assert "kafka.auth.secret  cannot be read where the deployed job runs. Keep it in AWS" in message
    load(Path("calve.yaml"), stack=StackDefaults(warehouse="s3://lake"))


def test_a_command_is_told_where_the_brokers_of_a_made_cluster_are() -> None:
    Path("calve.yaml").write_text(
        f"name: t\nlake: {{bucket: lake}}\nkafka: {{msk: {{create: serverless}}}}\n{REST}"
    )
    with pytest.raises(ConfigError, match=r"kafka\.msk\.create  does not name the brokers"):
        load(Path("calve.yaml"))


def test_no_setting_of_the_jobs_can_be_overruled() -> None:
    lake = Lake("d", "s3://b", endpoint="http://e", kms_key="arn:k", names_key=True)
    job = Job("n", "main", Kafka("b:1"), Registry("http://r"), lake, ())
    assert [name for name in spark_conf(job) if not OWN_SETTINGS.fullmatch(name)] == []


keys = st.sampled_from(sorted({key for section in SECTIONS.values() for key in section.model_fields} | {"a"}))
scalars = st.none() | st.booleans() | st.integers() | st.text("ab0. :-(),?*@", max_size=8)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(keys, inner, max_size=3)
)


@given(st.dictionaries(keys, values))
def test_whatever_stands_in_the_file_is_deployed_or_refused_with_a_reason(
    configuration: dict[str, object],
) -> None:
    path, reasons = Path("any.yaml"), []
    path.write_text(json.dumps(configuration), encoding="utf-8")
    try:
        load_deployment(path)
    except ConfigError as error:
        reasons.append(str(error))
    assert all(reasons)


def test_a_job_may_not_have_the_name_of_a_part_of_another() -> None:
    two = (
        "jobs: {main: {count: 3}, main-3: }\ntables: {a: {topic: a, job: main}, b: {topic: b, job: main-3}}\n"
    )
    Path("calve.yaml").write_text(f"name: t\n{NAMED}registry: {{url: https://r}}\n{two}")
    with pytest.raises(ConfigError) as caught:
        load_deployment(Path("calve.yaml"))
    assert "jobs.main-3  is also the name of a part of main, which has `count: 3`" in narrow(caught.value)
    Path("calve.yaml").write_text(Path("calve.yaml").read_text().replace("count: 3", "count: 2"))
    assert [job.settings.job for job in load_deployment(Path("calve.yaml")).jobs][-1] == "main-3"
    assert "jobs.main.count  17 is too large" in refused("jobs: {main: {count: 17}}")
