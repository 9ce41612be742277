"""A deployment with exports on the shared stack: its operator, its analyst, and the topic that knows what a file must say."""

from __future__ import annotations

import base64
import csv
import io
import json
import re
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import fastavro
import urllib3
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.schema_registry import SchemaRegistryClient
from typer.testing import CliRunner

from cli.console import Console
from cli.datagen.plan import Plan, blocks
from cli.datagen.records import FRAME_BYTES, Encoder, register, rows, schema_text
from cli.deploy import app
from cli.embedded import aws
from cli.embedded.cdk import App
from cli.embedded.stack import Stack
from cli.exports import Exports
from cli.main import app as calve
from cli.progress import Progress
from cli.run_job import run as run_job
from lambdas import wording
from tests.integration.engine import until
from tests.integration.producing import Raw, create_topic, produce, unique

NAME = f"weekly{uuid.uuid4().hex[:6]}"  # a stack that stays up knows the files of an earlier session
JOB = f"{NAME}-main"
BUCKET = f"{NAME}-lake-{aws.ACCOUNT}-{aws.REGION}"
PARTITIONS = 2
SENDER = "reports@example.com"
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
        payload, _, _ = self.link.rpartition("/")[2].partition(".")
        return base64.urlsafe_b64encode(base64.urlsafe_b64decode(f"{payload}==")[1:17]).rstrip(b"=").decode()


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
    topic: str
    url: str
    encoder: Encoder
    queue: str = ""
    mails: list[Mail] = field(default_factory=list)

    def client(self, service: str) -> Any:
        return aws.client(service, self.stack.aws_endpoint)

    def produce(self, first: datetime, last: datetime, count: int, *, seed: int = 0) -> None:
        """Trades with the timestamps of producers, evenly from `first` to before `last`."""
        plan = Plan(self.topic, count, seed=seed)
        step = (last - first) / count
        trades = (row for block in blocks(plan) for row in rows(plan, block))
        records = (
            Raw(
                self.encoder.encode(row),
                row["userid"].encode(),
                n % PARTITIONS,
                timestamp_ms=int((first + n * step).timestamp() * 1000),
            )
            for n, row in enumerate(trades)
        )
        while batch := list(islice(records, 1000)):
            produce(self.stack.bootstrap_servers, self.topic, batch)

    def drain(self) -> None:
        """`calve run-job`."""
        assert run_job(self.stack, JOB, Console(), drain=True, memory="1g", quick=True) == 0

    def fire(self, export: str) -> None:
        """Have the deployed schedule's target invoked now, with the deployed schedule's input."""
        scheduler = self.client("scheduler")
        made = scheduler.get_schedule(Name=f"{NAME}-{export}", GroupName=NAME)
        at = datetime.now(UTC) + timedelta(seconds=1)
        scheduler.create_schedule(
            Name=f"now-{uuid.uuid4().hex[:8]}",
            GroupName=NAME,
            ScheduleExpression=f"at({at:%Y-%m-%dT%H:%M:%S})",
            FlexibleTimeWindow={"Mode": "OFF"},
            Target=made["Target"],
            ActionAfterCompletion="DELETE",
        )

    def run(self, export: str, first: date, last: date | None = None) -> dict[str, Any]:
        """`calve export run`, of these days; what became of the window."""
        window = f"{first}..{last or first}"
        return Exports.find(self.config, None).run(export, window, now=datetime.now(UTC))[0]

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
        self.queue = self.client("sqs").create_queue(QueueName=NAME)["QueueUrl"]
        sns = self.client("sns")
        for each in sns.list_topics()["Topics"]:
            if f":{NAME}-exports-" in each["TopicArn"]:
                arn = f"arn:aws:sqs:{aws.REGION}:{aws.ACCOUNT}:{NAME}"
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
        by_ses = [Mail(each["Subject"], each["BodyText"]) for each in outbox["messages"].get(aws.ACCOUNT, ())]
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
        answer = urllib3.request(method, url, redirect=False)
        headers = {name.lower(): value for name, value in answer.headers.items()}
        kept = {name: value for name, value in headers.items() if name not in OF_THE_REQUEST}
        return Answer(answer.status, kept, answer.data)

    def summary(self, start: datetime, end: datetime) -> list[list[str]]:
        """Trades and quantity by symbol and side, from the topic itself."""
        trades: Counter[tuple[str, str]] = Counter()
        quantity: Counter[tuple[str, str]] = Counter()
        for at, trade in self._records():
            if start <= at < end:
                group = (trade["symbol"], trade["side"])
                trades[group] += 1
                quantity[group] += trade["quantity"]
        return [
            ["symbol", "side", "trades", "quantity"],
            *([*group, str(trades[group]), str(quantity[group])] for group in sorted(trades)),
        ]

    def _records(self) -> Iterable[tuple[datetime, dict[str, Any]]]:
        consumer = Consumer(
            {
                "bootstrap.servers": self.stack.bootstrap_servers,
                "group.id": uuid.uuid4().hex,
                "enable.auto.commit": False,
            }
        )
        partitions = [TopicPartition(self.topic, number, 0) for number in range(PARTITIONS)]
        left = sum(consumer.get_watermark_offsets(each, timeout=10)[1] for each in partitions)
        consumer.assign(partitions)
        while left:
            for message in consumer.consume(1000, timeout=10):
                assert not message.error(), message.error()
                value = io.BytesIO((message.value() or b"")[FRAME_BYTES:])
                trade: Any = fastavro.schemaless_reader(value, self.encoder.schema, None)
                yield datetime.fromtimestamp(message.timestamp()[1] / 1000, UTC), trade
                left -= 1
        consumer.close()


def deploy_weekly(stack: Stack, folder: Path, progress: Progress) -> Deployment:
    """Deploy, with a topic that has a record about every five minutes of the two weeks before this one, and drain it."""
    topic = unique("trades")
    create_topic(stack.bootstrap_servers, topic, partitions=PARTITIONS)
    config = folder / "calve.yaml"
    config.write_text(CONFIG.replace("NAME", NAME).replace("TOPIC", topic).replace("SENDER", SENDER))
    made = app(stack, config)
    outputs = made.deploy(progress)
    found = Deployment(
        stack, made, config, topic, outputs[f"{NAME}-exports"]["DownloadUrl"], encoder(stack, topic)
    )
    found.listen()
    week = timedelta(days=7)
    monday = midnight(last_monday())
    found.produce(monday - week, monday + week + timedelta(hours=1), 4000)
    found.drain()
    return found


def encoder(stack: Stack, topic: str) -> Encoder:
    registry = SchemaRegistryClient({"url": stack.registry_url})
    plan = Plan(topic, 1)
    return register(registry, topic, schema_text("stock_trades"), next(rows(plan, next(iter(blocks(plan))))))


def parsed(body: bytes) -> list[list[str]]:
    return list(csv.reader(io.StringIO(body.decode(), newline=""), strict=True))


def midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)


def last_monday() -> date:
    """Where the week began that was last when this one began."""
    today = datetime.now(UTC).date()
    return today - timedelta(days=today.weekday() + 7)


def said(first: date, count: int) -> str:
    """These days as a subject says them."""
    return wording.ascii_only(wording.window(midnight(first), midnight(first + timedelta(days=count)), "UTC"))
