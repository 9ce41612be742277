"""The checks of what people see and get: logs, metrics, alarms, mails, links, keys."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from calve.errors import CalveError
from calve.names import log_prefix
from calve.outputs import metrics
from calve.outputs.metrics import METRICS, Log
from cli.account import Resource, resources
from cli.config import Common
from cli.embedded import aws
from cli.exports import Exports
from cli.prove.report import NotCheckedError
from cli.prove.scene import EXPORT, TRADES, Scene
from cli.run.stack import LINK, lines_behind, request

JOB = "main"
NOT_OF_THE_JOB = (metrics.TOPICS_NOT_KEPT, metrics.EXPECTATIONS_MISSED, metrics.MAINTENANCE_FAILED)
BY_TABLE = (metrics.FRESHNESS, metrics.LAG, metrics.ROWS)
ROUND = '{ $.event = "round.committed" }'


def made_of(scene: Scene, kind: str, *stacks: str) -> Iterator[Resource]:
    """The resources of a type in all stacks, or in these."""
    for stack in stacks or [name.removeprefix(f"{scene.name}-") for name, _ in scene.stacks()]:
        for each in resources(scene.account, f"{scene.name}-{stack}"):
            if each.type == kind:
                yield each


def log_groups(scene: Scene) -> str:
    """Those of jobs by their names, and those that each function says that it writes to."""
    client, there = scene.client("logs"), set()
    for page in client.get_paginator("describe_log_groups").paginate():
        there |= {each["logGroupName"] for each in page["logGroups"]}
    of_jobs = {each.id for each in made_of(scene, "AWS::Logs::LogGroup", "ingest", "maintenance")}
    of_jobs = {each for each in of_jobs if each.startswith("/calve/")}
    of_functions = set()
    for each in made_of(scene, "AWS::Lambda::Function"):
        made = scene.client("lambda").get_function_configuration(FunctionName=each.id)
        of_functions.add(made["LoggingConfig"]["LogGroup"])
    if not of_jobs or not of_functions:
        raise CalveError("the stacks name no log group")
    if missing := sorted((of_jobs | of_functions) - there):
        raise CalveError(f"missing: {', '.join(missing)}")
    return f"{len(of_jobs)} of jobs and {len(of_functions)} of functions are there, as {job_log(scene)}"


def job_log(scene: Scene) -> str:
    return f"{log_prefix(scene.name, JOB)}/output"


def log_lines(scene: Scene) -> str:
    """The job's events are lines of its log group, and their rows are those of the tables."""
    if scene.stack:
        raise NotCheckedError("the job ran here and wrote a file")
    pages = scene.client("logs").get_paginator("filter_log_events")

    def all_there() -> str | None:
        found = pages.paginate(logGroupName=job_log(scene), filterPattern=ROUND)
        lines = [json.loads(each["message"]) for page in found for each in page["events"]]
        taken = sum(each["rows"] for each in lines)
        return f"{len(lines)} events of rounds with {taken:,} rows" if taken == scene.applied else None

    return scene.wait(f"looking for {scene.applied:,} rows in the log", all_there)


def metric_filters(scene: Scene) -> str:
    """A filter for every metric that comes from the job's log."""
    pages = scene.client("logs").get_paginator("describe_metric_filters")
    found = set()
    for page in pages.paginate(logGroupName=job_log(scene)):
        for each in page["metricFilters"]:
            found |= {made["metricName"] for made in each["metricTransformations"]}
    of_log = [each for each in METRICS if isinstance(each.source, Log) and each not in NOT_OF_THE_JOB]
    wanted = {f"{each.name}.{JOB}" for each in of_log} | {each.name for each in BY_TABLE}
    if missing := sorted(wanted - found):
        raise CalveError(f"missing: {', '.join(missing)}")
    return f"{len(wanted)} metrics have their filters"


def metric_values(scene: Scene) -> str:
    """CloudWatch's sum of rows is that of the tables."""
    if scene.stack:
        raise NotCheckedError("the emulator applies no metric filters")
    name, client = f"{metrics.ROWS.name}.{JOB}", scene.client("cloudwatch")

    def equal() -> str | None:
        answer = client.get_metric_statistics(
            Namespace=f"calve/{scene.name}",
            MetricName=name,
            StartTime=scene.began,
            EndTime=datetime.now(UTC) + timedelta(minutes=5),
            Period=300,
            Statistics=["Sum"],
        )
        total = sum(each["Sum"] for each in answer["Datapoints"])
        return f"{name} adds up to {total:,.0f}" if total == scene.applied else None

    return scene.wait(f"waiting for {scene.applied:,} rows in CloudWatch", equal)


def subscribe(scene: Scene) -> None:
    """A queue gets all that the export's readers and the operators get; nobody can confirm a mail here."""
    sqs, sns = scene.client("sqs"), scene.client("sns")
    topics = [each.id for each in made_of(scene, "AWS::SNS::Topic", "exports", "monitoring")]
    url = sqs.create_queue(QueueName=f"{scene.name}-mails")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    sending = {
        "Effect": "Allow",
        "Principal": {"Service": "sns.amazonaws.com"},
        "Action": "sqs:SendMessage",
        "Resource": arn,
        "Condition": {"ArnEquals": {"aws:SourceArn": topics}},
    }
    policy = json.dumps({"Version": "2012-10-17", "Statement": [sending]})
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"Policy": policy})
    for topic in topics:
        sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn)


def _heard(scene: Scene) -> list[dict[str, Any]]:
    """All messages until now, as SNS writes them."""
    sqs = scene.client("sqs")
    url = sqs.get_queue_url(QueueName=f"{scene.name}-mails")["QueueUrl"]
    answer = sqs.receive_message(QueueUrl=url, WaitTimeSeconds=2, MaxNumberOfMessages=10)
    for each in answer.get("Messages", []):
        sqs.delete_message(QueueUrl=url, ReceiptHandle=each["ReceiptHandle"])
        scene.heard.append(json.loads(each["Body"]))
    return scene.heard


def alarm(scene: Scene) -> str:
    """The malformed records set off the alarm on dead letters, and the operators' topic says so."""
    name, client = f"{scene.name}-{JOB}-dead-letters", scene.client("cloudwatch")
    how = "of the malformed records"
    if scene.stack:
        metric = {"MetricName": f"{metrics.REJECT_ROUNDS.name}.{JOB}", "Value": 1.0}
        client.put_metric_data(Namespace=f"calve/{scene.name}", MetricData=[metric])
        how = "by a value that was put here, since the emulator applies no metric filters"

    def told() -> bool:
        messages = [each["Message"] for each in _heard(scene) if each["Message"].startswith("{")]
        return any(json.loads(each).get("AlarmName") == name for each in messages)

    scene.wait("waiting for the alarm", told)
    [found] = client.describe_alarms(AlarmNames=[name])["MetricAlarms"]
    return f"{name} went off {how}, and is {found['StateValue']}; its topic delivered the message"


def mail(scene: Scene) -> str:
    """An export of the records' day is mailed. What SNS delivers to every subscriber is read from a queue."""
    window = f"{scene.day}..{scene.day}"
    exports = Exports.find(Common(scene.config))
    states = [each["status"] for each in exports.run(EXPORT, window, now=datetime.now(UTC))]
    if "failed" in states:
        raise CalveError(f"the export is {', '.join(states)}")

    def came() -> str | None:
        for each in _heard(scene):
            if link := LINK.search(each["Message"]):
                scene.link = link[0]
                return str(each["Subject"])
        return None

    subject = scene.wait("waiting for the mail", came)
    return f'"{subject}" with a link; nobody has seen it in an inbox'


def download(scene: Scene) -> str:
    """The link opens a page, and its button gives the file, which counts all trades of the table."""
    lines = lines_behind(_page(scene))
    total = sum(int(each["trades"]) for each in csv.DictReader(lines))
    expected = scene.fates[TRADES].applied
    if total != expected:
        raise CalveError(f"the file counts {total:,} trades, the table has {expected:,}")
    return f"the file has {len(lines) - 1} lines, which count {total:,} trades"


def _page(scene: Scene) -> str:
    if scene.link is None:
        raise NotCheckedError("no mail brought a link")
    return aws.reachable(scene.link, scene.stack.aws_endpoint) if scene.stack else scene.link


def rotation(scene: Scene) -> str:
    """The keys of the links change, and a link of before still opens."""
    client = scene.client("secretsmanager")
    [secret] = [each.id for each in made_of(scene, "AWS::SecretsManager::Secret", "exports")]

    def current() -> str:
        versions = client.describe_secret(SecretId=secret)["VersionIdsToStages"]
        return str(next(id for id, stages in versions.items() if "AWSCURRENT" in stages))

    before = current()
    client.rotate_secret(SecretId=secret)
    scene.wait("waiting for the new key", lambda: current() != before)
    request("GET", _page(scene), 200)
    return "a new version of the links' keys is in use, and the link of before opens"
