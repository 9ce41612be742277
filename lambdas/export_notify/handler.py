"""EventBridge -> `handle`: makes the links of a new file and mails them, or mails that an export failed.

A delivery is one file to one recipient or topic. It runs at most once at a time and is recorded when it is done, so a repeated
event sends nothing again. The guarantee is *at least once*: if the process crashes after the mail and before the record, the
delivery is repeated after the function's timeout. The recipient then gets a second mail with a link of its own; both links work.
No mail, link or address is logged.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import boto3
from aws_lambda_powertools import Logger, Metrics, Tracer
from aws_lambda_powertools.utilities.data_classes import EventBridgeEvent, event_source
from aws_lambda_powertools.utilities.data_classes.s3_event import S3EventBridgeNotificationEvent
from aws_lambda_powertools.utilities.idempotency import (
    DynamoDBPersistenceLayer,
    IdempotencyConfig,
    idempotent_function,
)
from aws_lambda_powertools.utilities.parameters import SecretsProvider
from aws_lambda_powertools.utilities.typing import LambdaContext

from calve.config.publishing import Export, export_readers, topic_parameter
from calve.errors import Fatal
from calve.outputs.announcement import Announcement, export_created
from calve.outputs.metrics import MAILS_FAILED, MAILS_SENT, NOTICES
from lambdas import formatting
from lambdas.export_notify import mail
from lambdas.export_notify.mail import DAY_S, Access, Failure, Mail, Manifest
from lambdas.function import NAMESPACE, add, announce, from_variables
from lambdas.links import Link, Links, recipient_hash
from lambdas.tokens import Keyring, new_link_id, reference, sign

logger = Logger(service="export_notify")
tracer = Tracer(service="export_notify")
metrics = Metrics(namespace=NAMESPACE, service="export_notify")


@dataclass(frozen=True, slots=True)
class Settings:
    """The function's variables."""

    idempotency_table: str
    exports_prefix: str
    calve_name: str
    aws_region: str
    # Empty where no export has a public link.
    links_table: str = ""
    link_keys_secret: str = ""
    download_url: str = ""


@dataclass(frozen=True, slots=True)
class Notifier:
    """Sends mails. `ssm`, `sns` and `ses` (version 2) are AWS clients."""

    settings: Settings
    keyring: Keyring
    links: Links
    ssm: Any
    sns: Any
    ses: Any
    clock: Callable[[], float]

    def new_file(self, manifest: Manifest, bucket: str, recipient: str | None) -> dict[str, str]:
        """Mail the addresses of a file; returns what logs say of them."""
        if manifest.export.link_kind == "public":
            access, facts = self._public(manifest, recipient)
        else:
            region = self.settings.aws_region
            policy = f"{export_readers(self.settings.calve_name)}-{region}"
            access, facts = mail.by_console(manifest, bucket, region, policy), {}
        self.send(manifest.export, recipient, mail.new_file(manifest, access))
        return facts

    def _public(self, manifest: Manifest, recipient: str | None) -> tuple[Access, dict[str, str]]:
        """Make a link. Its row is written before the mail leaves, and stays if sending fails: the mail may have left."""
        if not self.settings.links_table:
            raise Fatal("no export has a public link now", fix=f"calve export run {manifest.export.name}")
        link, token = self._link(manifest, recipient)
        self.links.add(link)
        url = f"{self.settings.download_url.rstrip('/')}/{token}"
        return mail.by_link(link, url), {"link": reference(link.id)}

    def created(self, manifest: Manifest, bucket: str) -> Announcement:
        """The event of a new file: names and counts, no link and no address."""
        return export_created(
            self.settings.calve_name,
            manifest.export,
            manifest.window.to_json(),
            {
                "bucket": bucket,
                "manifest": manifest.key,
                "files": [{"key": part.key, "size_bytes": part.size_bytes} for part in manifest.parts],
                "rows": manifest.rows,
                "snapshot_id": manifest.snapshot_id,
                "complete": manifest.complete,
                "correction": manifest.correction,
                "created_at": manifest.created_at.isoformat(),
            },
        )

    def _link(self, manifest: Manifest, recipient: str | None) -> tuple[Link, str]:
        export, now = manifest.export, int(self.clock())
        keys = self.keyring.keys()
        link = Link(
            id=new_link_id(),
            key_id=keys.current,
            export=export.name,
            manifest=manifest.key,
            parts=manifest.parts,
            recipient=recipient and recipient_hash(recipient),
            created_at=now,
            expires_at=min(now + export.link_days * DAY_S, int(manifest.kept_until)),
            max_downloads=export.max_downloads * len(manifest.parts),
            title=formatting.title(export.name),
            window=str(manifest.window),
            time_zone=export.time_zone,
            rows=manifest.rows,
            complete=manifest.complete,
            ingested_until=manifest.ingested_until,
            correction=manifest.correction,
        )
        return link, sign(keys, link.id, link.expires_at)

    def send(self, export: Export, recipient: str | None, message: Mail) -> None:
        """Send to a recipient; None is the export's topic."""
        if recipient is None:
            topic = self._topic(export.name)
            self.sns.publish(TopicArn=topic, Subject=message.subject, Message=message.text)
            return
        subject, text, html = (
            {"Data": each, "Charset": "UTF-8"} for each in (message.subject, message.text, message.html)
        )
        self.ses.send_email(
            FromEmailAddress=export.sender,
            Destination={"ToAddresses": [recipient]},
            ReplyToAddresses=[export.reply_to] if export.reply_to else [],
            Content={"Simple": {"Subject": subject, "Body": {"Text": text, "Html": html}}},
        )

    def _topic(self, export: str) -> str:
        parameter = topic_parameter(self.settings.calve_name, export)
        try:
            return str(self.ssm.get_parameter(Name=parameter)["Parameter"]["Value"])
        except self.ssm.exceptions.ParameterNotFound as error:
            raise Fatal(f"the export {export} has no topic", fix="deploy the exports stack") from error


@dataclass(frozen=True, slots=True)
class Parts:
    """The clients and settings of the handler."""

    notifier: Notifier
    s3: Any
    events: Any
    store: DynamoDBPersistenceLayer
    config: IdempotencyConfig


@cache
def parts() -> Parts:
    settings = from_variables(Settings, os.environ)
    dynamodb = boto3.client("dynamodb")
    notifier = Notifier(
        settings=settings,
        keyring=Keyring(
            settings.link_keys_secret, SecretsProvider(boto3_client=boto3.client("secretsmanager"))
        ),
        links=Links(settings.links_table, dynamodb),
        ssm=boto3.client("ssm"),
        sns=boto3.client("sns"),
        ses=boto3.client("sesv2"),
        clock=time.time,
    )
    return Parts(
        notifier,
        boto3.client("s3"),
        boto3.client("events"),
        DynamoDBPersistenceLayer(table_name=settings.idempotency_table, boto3_client=dynamodb),
        IdempotencyConfig(expires_after_seconds=30 * DAY_S, hash_function="sha256"),
    )


@logger.inject_lambda_context(log_event=False)
@tracer.capture_lambda_handler(capture_response=False)
@metrics.log_metrics
@event_source(data_class=EventBridgeEvent)
def handle(event: EventBridgeEvent, context: LambdaContext) -> None:
    add(metrics, NOTICES)
    parts().config.register_lambda_context(context)
    match event.source, event.detail_type:
        case "aws.s3", "Object Created":
            _new_file(S3EventBridgeNotificationEvent(event.raw_event))
        case "calve", "calve.export.failed":
            _no_file(event)
        case source, kind:
            raise Fatal(f'an event "{kind}" of {source} is not for this function')


def _new_file(event: S3EventBridgeNotificationEvent) -> None:
    bucket, etag = event.detail.bucket.name, event.detail.object.etag
    # As it is: EventBridge does not URL-encode the key, unlike S3's own notifications.
    key = str(event.detail.object["key"])
    notifier = parts().notifier
    if not key.startswith(notifier.settings.exports_prefix) or not key.endswith("/manifest.json"):
        raise Fatal(f"{key} is no manifest of an export")
    text = parts().s3.get_object(Bucket=bucket, Key=key)["Body"].read().decode()
    manifest = Manifest.parse(key, text)
    cause = {"bucket": bucket, "key": key, "etag": etag}
    try:
        _deliver(manifest.export, cause, lambda recipient: notifier.new_file(manifest, bucket, recipient))
    finally:  # also if a mail failed
        created = notifier.created(manifest, bucket)
        _once(_put_event, "cause", "export_notify.announce", cause=cause, created=created)


def _no_file(event: EventBridgeEvent) -> None:
    failure = Failure.parse(event.detail)

    def send(recipient: str | None) -> dict[str, str]:
        parts().notifier.send(failure.export, recipient, mail.no_file(failure))
        return {}

    _deliver(failure.export, {"event": event.get_id}, send)


def _put_event(*, cause: dict[str, str], created: Announcement) -> None:
    del cause
    announce(parts().events, created)


def _once(function: Callable[..., Any], key: str, prefix: str, **arguments: Any) -> Any:
    """Call the function once for each value of its argument `key`."""
    decorated = idempotent_function(
        function,
        data_keyword_argument=key,
        persistence_store=parts().store,
        config=parts().config,
        key_prefix=prefix,
    )
    return decorated(**arguments)


def _deliver(export: Export, cause: dict[str, str], send: Callable[[str | None], dict[str, str]]) -> None:
    """Send to each recipient, once per cause. A failed delivery does not stop the others."""
    failed: list[Exception] = []
    for recipient in export.recipients if export.channel == "ses" else (None,):
        delivery = cause | {"to": recipient_hash(recipient or "topic")}
        try:
            sending = partial(send, recipient)
            _once(_send, "delivery", "export_notify", delivery=delivery, export=export, send=sending)
        except Exception as error:  # noqa: BLE001  the first is raised below, when all have been tried
            logger.error("mail.failed", extra={"export": export.name, "kind": type(error).__name__})  # noqa: TRY400
            add(metrics, MAILS_FAILED)
            failed.append(error)
    if failed:
        raise failed[0]


def _send(*, delivery: dict[str, str], export: Export, send: Callable[[], dict[str, str]]) -> dict[str, str]:
    facts = send()
    logger.info("mail.sent", extra={"export": export.name, "channel": export.channel, **facts})
    add(metrics, MAILS_SENT)
    return facts
