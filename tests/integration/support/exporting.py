"""A deployment with exports on the shared stack: its operator, its analyst, and the topic that knows what a file must say."""

from __future__ import annotations

import base64
import csv
import io
import json
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any

import urllib3
from typer.testing import CliRunner

from cli.config import Common
from cli.console import Console
from cli.embedded import aws
from cli.embedded.cdk import App
from cli.embedded.stack import Stack
from cli.exports import Exports
from cli.main import app as calve
from cli.progress import Progress
from cli.run.jobs import run_deployed as run_job
from lambdas import formatting
from tests.integration.support.engine import until
from tests.integration.support.records.producing import unique
from tests.integration.support.records.trades import Trades

NAME = f"weekly{uuid.uuid4().hex[:6]}"  # a stack that stays up knows the files of an earlier session
JOB = f"{NAME}-main"
FUNCTION = f"{NAME}-export"
BUCKET = f"{NAME}-lake-{aws.ACCOUNT}-{aws.REGION}"
SENDER = f"{NAME}@example.com"
CONFIG = """
name: NAME
jobs: {main: {}, idle: {}}
tables:
  TOPIC: {topic: TOPIC, job: main, freshness: 1s}
  absent: {topic: absent, job: idle}
exports:
  weekly_trades:
    table: TOPIC
    group_by: [symbol, side]
    measures: {trades: count, quantity: sum(quantity)}
    schedule: cron(0 6 ? * MON *)
    recipients: [analyst@example.com]
    link: {max_downloads: 2}
  hasty_trades:
    table: TOPIC
    schedule: cron(0 6 ? * MON *)
    wait: 3s
    channel: ses
    sender: SENDER
    recipients: [analyst@example.com]
  absent_trades:
    table: absent
    schedule: cron(0 6 ? * MON *)
    wait: 3s
    channel: ses
    sender: SENDER
    recipients: [analyst@example.com]
"""
LINK = re.compile(r"https://\S+\.lambda-url\.\S+")
OF_THE_REQUEST = ("date", "x-amzn-requestid", "x-amzn-trace-id")


@dataclass(frozen=True, slots=True)
class Mail:
    subject: str
    text: str

    @property
    def link(self) -> str:
        (found,) = LINK.findall(self.text)
        return str(found)

    @property
    def link_id(self) -> str:
        return link_id(self.link.rpartition("/")[2])


@dataclass(frozen=True, slots=True)
class Answer:
    """What a browser is given; `headers` without those that are of one request alone."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass
class Deployment:
    """What is deployed, and those who use it."""

    stack: Stack
    app: App
    config: Path
    trades: Trades
    url: str
    queue: str = ""
    mails: list[Mail] = field(default_factory=list)

    def client(self, service: str) -> Any:
        return aws.client(service, self.stack.aws_endpoint)

    def drain(self) -> None:
        """`calve run-job`."""
        assert run_job(self.stack, JOB, Console(), drain=True, memory="1g", quick=True) == 0

    def fire(self, export: str, times: int = 1) -> None:
        """Have the deployed schedule's target invoked now, with the deployed schedule's input."""
        made = self.client("scheduler").get_schedule(Name=f"{NAME}-{export}", GroupName=NAME)
        self.once(made["Target"], times)

    def once(self, target: Mapping[str, Any], times: int = 1) -> None:
        """Have a target invoked in a second; more `times` are of the same second, as by a scheduler that repeats itself."""
        at = f"{datetime.now(UTC) + timedelta(seconds=1):%Y-%m-%dT%H:%M:%S}"
        event = target.get("Input", "").replace("<aws.scheduler.scheduled-time>", f"{at}Z")
        for _ in range(times):
            self.client("scheduler").create_schedule(
                Name=f"now-{uuid.uuid4().hex[:8]}",
                GroupName=NAME,
                ScheduleExpression=f"at({at})",
                FlexibleTimeWindow={"Mode": "OFF"},
                Target={**target, "Input": event},
                ActionAfterCompletion="DELETE",
            )

    def run(self, export: str, first: date, last: date | None = None) -> dict[str, Any]:
        """`calve export run`, of these days; what became of the window."""
        window = f"{first}..{last or first}"
        return Exports.find(Common(self.config)).run(export, window, now=datetime.now(UTC))[0]

    def warm(self) -> None:
        """Have the export function started, which may take longer than a hasty export waits."""
        self.run("weekly_trades", canary_day() - timedelta(days=1))

    def calve(self, *words: str) -> Any:
        """A command's JSON."""
        result = CliRunner().invoke(calve, [*words, "--config", str(self.config), "--output", "json"])
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    def files(self) -> dict[str, bytes]:
        """Everything that exports have left in the bucket."""
        s3 = self.client("s3")
        found = s3.list_objects_v2(Bucket=BUCKET, Prefix="exports/").get("Contents", [])
        return {each["Key"]: s3.get_object(Bucket=BUCKET, Key=each["Key"])["Body"].read() for each in found}

    def listen(self) -> None:
        """Subscribe a queue to the mails' topic, as SNS sends no mail here; show SES its sender, whose outbox there is."""
        self.client("sesv2").create_email_identity(EmailIdentity=SENDER)
        self.queue, arn = aws.open_queue(NAME, self.stack.aws_endpoint)
        sns = self.client("sns")
        for each in sns.list_topics()["Topics"]:
            if f":{NAME}-exports-" in each["TopicArn"]:
                sns.subscribe(TopicArn=each["TopicArn"], Protocol="sqs", Endpoint=arn)

    def mail(self, subject: str) -> Mail:
        """The one mail with these words in its subject; waits for the first, by SNS or by SES."""
        until(lambda: self.mails_about(subject))
        (mail,) = self.mails_about(subject)
        return mail

    def mails_about(self, subject: str) -> list[Mail]:
        answer = self.client("sqs").receive_message(QueueUrl=self.queue, MaxNumberOfMessages=10)
        for message in answer.get("Messages", []):
            body = json.loads(message["Body"])
            self.mails.append(Mail(body["Subject"], body["Message"]))
            self.client("sqs").delete_message(QueueUrl=self.queue, ReceiptHandle=message["ReceiptHandle"])
        outbox = json.loads(self._get(f"{self.stack.aws_endpoint}/_ministack/ses/messages").body)
        by_ses = [
            Mail(each["Subject"], each["BodyText"])
            for each in outbox["messages"].get(aws.ACCOUNT, ())
            if each["Source"] == SENDER
        ]
        return [mail for mail in (*self.mails, *by_ses) if subject in mail.subject]

    def get(self, link: str) -> Answer:
        return self._get(aws.reachable(link, self.stack.aws_endpoint))

    def press(self, link: str) -> Answer:
        """The page's button."""
        return self._get(aws.reachable(link, self.stack.aws_endpoint), "POST")

    def download(self, link: str) -> list[list[str]]:
        """The rows of the file, with the header, as the button gives it."""
        answer = self.press(link)
        assert answer.status == 302, answer
        return parsed(self._get(answer.headers["location"]).body)

    def _get(self, url: str, method: str = "GET") -> Answer:
        answer = urllib3.request(method, url, redirect=False, retries=False, timeout=60)
        headers = {name.lower(): value for name, value in answer.headers.items()}
        kept = {name: value for name, value in headers.items() if name not in OF_THE_REQUEST}
        return Answer(answer.status, kept, answer.data)


def deploy_weekly(stack: Stack, folder: Path, progress: Progress) -> Deployment:
    """Deploy, with a topic that has a record about every five minutes of the two weeks before this one, and drain it."""
    trades = Trades(stack, unique("trades"))
    trades.create()
    config = folder / "calve.yaml"
    config.write_text(CONFIG.replace("NAME", NAME).replace("TOPIC", trades.topic).replace("SENDER", SENDER))
    made = App(stack, config)
    outputs = made.deploy(progress)
    found = Deployment(stack, made, config, trades, outputs[f"{NAME}-exports"]["DownloadUrl"])
    found.listen()
    week = timedelta(days=7)
    monday = midnight(last_monday())
    trades.produce(monday - week, monday + week + timedelta(hours=1), 4000)
    trades.produce_canary(midnight(canary_day()))
    found.drain()
    return found


def link_id(token: str) -> str:
    payload = base64.urlsafe_b64decode(f"{token.partition('.')[0]}==")
    return base64.urlsafe_b64encode(payload[1:17]).rstrip(b"=").decode()


def parsed(body: bytes) -> list[list[str]]:
    return list(csv.reader(io.StringIO(body.decode(), newline=""), strict=True))


def midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)


def last_monday() -> date:
    """Where the week began that was last when this one began."""
    today = datetime.now(UTC).date()
    return today - timedelta(days=today.weekday() + 7)


def canary_day() -> date:
    return last_monday() - timedelta(days=40)


def said(first: date, count: int) -> str:
    """These days as a subject says them."""
    return formatting.ascii_only(
        formatting.window(midnight(first), midnight(first + timedelta(days=count)), "UTC")
    )
