"""A deployed exports stack in moto: bucket, tables, secret, topic; the handlers run against it as Lambda would call them."""

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from io import StringIO
from typing import Any

import boto3
import pytest
from boto3 import Session
from botocore.client import BaseClient
from botocore.config import Config
from moto import mock_aws

from calve.config.publishing import Export, topic_parameter
from lambdas.tokens import Keys
from tests.unit.lambdas.context import Context

BUCKET, PREFIX, REGION = "lake", "exports/", "eu-north-1"
URL = "https://links.example"
FOLDER = f"{PREFIX}weekly_trades/2026-11-02_2026-11-09/1"
RUN = f"{FOLDER}/0a1b2c3d"
FILE = "weekly_trades_2026-11-02_2026-11-09.csv"
EXPORT = Export(
    name="weekly_trades",
    database="trading",
    table="stock_trades",
    time_column="traded_at",
    schedule="cron(0 6 ? * MON *)",
    recipients=("ann@example.com", "bob@example.com"),
    time_zone="Europe/Vilnius",
    reply_to="data-team@example.com",
    sender="calve@example.com",
)


def manifest(export: Export = EXPORT, *, count: int = 1, **changes: Any) -> dict[str, Any]:
    """A manifest as csv_export writes it."""
    names = [FILE] if count == 1 else [FILE.replace(".csv", f"_part{n:02}.csv") for n in range(1, count + 1)]
    return {
        "format": 1,
        "export": asdict(export),
        "window": {"from": "2026-11-02T00:00:00+02:00", "to": "2026-11-09T00:00:00+02:00"},
        "snapshot_id": "42",
        "rows": 12345,
        "content": {"rows": 12345, "hash": "c0ffee"},
        "parts": [
            {"key": f"{RUN}/{name}", "rows": 12345 // count, "size_bytes": 1_234_567, "sha256": "ab" * 32}
            for name in names
        ],
        "schema": [{"name": "symbol", "type": "string"}],
        "complete": True,
        "ingested_until": "2026-11-09T00:00:12+02:00",
        "correction": False,
        "redefined": False,
        "created_at": "2026-11-09T06:00:31+02:00",
    } | changes


@dataclass
class World:
    """What the tests prepare and look at."""

    keys: Keys
    secret: str
    topic: str
    queue: str
    calls: list[tuple[str, str]] = field(default_factory=list)
    heard: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    """What was put on the event bus: names and details."""

    def client(self, service: str) -> Any:
        return boto3.client(service)

    def write(
        self, document: dict[str, Any], *, key: str = f"{FOLDER}/manifest.json", files: bool = True
    ) -> dict[str, Any]:
        """Put a manifest with its files; return the event of it."""
        s3 = self.client("s3")
        for part in document["parts"] if files else ():
            s3.put_object(Bucket=BUCKET, Key=part["key"], Body=b"symbol\r\nACME\r\n")
        etag = s3.put_object(Bucket=BUCKET, Key=key, Body=json.dumps(document).encode())["ETag"].strip('"')
        detail = {"bucket": {"name": BUCKET}, "object": {"key": key, "etag": etag, "size": 1}}
        return {"id": "e1", "source": "aws.s3", "detail-type": "Object Created", "detail": detail}

    def notify(self, event: dict[str, Any]) -> None:
        from lambdas.export_notify.handler import handle

        handle(event, Context())

    def request(self, path: str, method: str = "GET") -> dict[str, Any]:
        from lambdas.download.handler import handle

        http = {
            "method": method,
            "path": path,
            "protocol": "HTTP/1.1",
            "sourceIp": "203.0.113.7",
            "userAgent": "x",
        }
        event = {
            "version": "2.0",
            "routeKey": "$default",
            "rawPath": path,
            "rawQueryString": "",
            "headers": {"host": "links.example"},
            "requestContext": {"http": http, "requestId": "r", "stage": "$default"},
            "isBase64Encoded": False,
        }
        answer: dict[str, Any] = handle(event, Context())
        return answer

    def published(self) -> list[dict[str, Any]]:
        """What the topic has sent, and forget it."""
        sqs = self.client("sqs")
        found = []
        while messages := sqs.receive_message(QueueUrl=self.queue, MaxNumberOfMessages=10).get("Messages"):
            for message in messages:
                found.append(json.loads(message["Body"]))
                sqs.delete_message(QueueUrl=self.queue, ReceiptHandle=message["ReceiptHandle"])
        return found

    def mailed(self) -> list[Any]:
        """What SES has sent."""
        from moto.ses.models import ses_backends

        return list(ses_backends["123456789012"][REGION].sent_messages)

    def rows(self) -> list[dict[str, Any]]:
        return list(self.client("dynamodb").scan(TableName="links")["Items"])

    def change(self, link_id: str, **values: Any) -> None:
        """Set attributes of a link's row, in DynamoDB's notation."""
        self.client("dynamodb").update_item(
            TableName="links",
            Key={"id": {"S": link_id}},
            UpdateExpression="SET " + ", ".join(f"#{name} = :{name}" for name in values),
            ExpressionAttributeNames={f"#{name}": name for name in values},
            ExpressionAttributeValues={f":{name}": value for name, value in values.items()},
        )

    def store_keys(self, keys: Keys) -> None:
        self.client("secretsmanager").put_secret_value(SecretId=self.secret, SecretString=keys.to_json())


def table(client: Any, name: str) -> None:
    client.create_table(
        TableName=name,
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )


@cache
def client(service: str, configured: bool) -> Any:
    """A client takes longer to make than most tests to run."""
    config = Config(signature_version="s3v4", s3={"addressing_style": "virtual"}) if configured else None
    return Session().client(service, config=config)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    for name in ("AWS_ENDPOINT_URL", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {
        "AWS_DEFAULT_REGION": REGION,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "POWERTOOLS_TRACE_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(
        boto3, "client", lambda service, config=None, **_: client(service, config is not None)
    )
    with mock_aws():
        yield prepared(monkeypatch)
    forget()


def prepared(monkeypatch: pytest.MonkeyPatch) -> World:
    dynamodb, sns, sqs, ses = (boto3.client(name) for name in ("dynamodb", "sns", "sqs", "sesv2"))
    boto3.client("s3").create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION})
    table(dynamodb, "links")
    table(dynamodb, "idempotency")
    keys = Keys.first()
    secret = boto3.client("secretsmanager").create_secret(Name="link-keys", SecretString=keys.to_json())[
        "ARN"
    ]
    topic = sns.create_topic(Name="weekly_trades")["TopicArn"]
    queue = sqs.create_queue(QueueName="mails")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn)
    boto3.client("ssm").put_parameter(
        Name=topic_parameter("trading", "weekly_trades"), Type="String", Value=topic
    )
    ses.create_email_identity(EmailIdentity="calve@example.com")
    for name, value in {
        "LINKS_TABLE": "links",
        "IDEMPOTENCY_TABLE": "idempotency",
        "LINK_KEYS_SECRET": secret,
        "LAKE_BUCKET": BUCKET,
        "EXPORTS_PREFIX": PREFIX,
        "CALVE_NAME": "trading",
        "AWS_REGION": REGION,
        "DOWNLOAD_URL": f"{URL}/",
    }.items():
        monkeypatch.setenv(name, value)
    forget()
    world = World(keys, secret, topic, queue)
    original = BaseClient._make_api_call

    def spied(self: Any, operation: str, parameters: Any) -> Any:
        world.calls.append((self.meta.service_model.service_name, operation))
        for entry in parameters["Entries"] if operation == "PutEvents" else ():
            world.heard.append((entry["DetailType"], json.loads(entry["Detail"])))
        return original(self, operation, parameters)

    monkeypatch.setattr(BaseClient, "_make_api_call", spied)
    return world


def forget() -> None:
    from lambdas.download.handler import downloads
    from lambdas.export_notify.handler import parts
    from lambdas.keys.link import rotation

    for cached in (downloads, parts, rotation):
        cached.cache_clear()


@pytest.fixture
def ses_export() -> Export:
    return replace(EXPORT, channel="ses")


@pytest.fixture
def logged(world: World, capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[[], str]]:
    """Everything that the functions have written since the last look: log lines, metrics, anything else."""
    from lambdas.download import handler as download
    from lambdas.export_notify import handler as export_notify
    from lambdas.keys import link as link_keys

    lines = StringIO()
    handlers = [each for module in (download, export_notify, link_keys) for each in module.logger.handlers]
    streams = [each.setStream(lines) for each in handlers]

    def look() -> str:
        text = lines.getvalue() + "".join(capsys.readouterr())
        lines.seek(0)
        lines.truncate()
        return text

    yield look
    for handler, stream in zip(handlers, streams, strict=True):
        handler.setStream(stream)
