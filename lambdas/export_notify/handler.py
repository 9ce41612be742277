"""EventBridge -> `Notifier`: a new manifest, or an export that failed. No mail, link or address is logged."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
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

from calve.config.publishing import Export
from calve.errors import Fatal
from calve.outputs.announcement import Announcement
from calve.outputs.metrics import MAILS_FAILED, MAILS_SENT, NOTICES
from lambdas.export_notify.mail import Failure, Manifest
from lambdas.export_notify.notify import DAY_S, Notifier, Settings
from lambdas.links import Links, recipient_hash
from lambdas.metering import NAMESPACE, add
from lambdas.tokens import Keyring

logger = Logger(service="export_notify")
tracer = Tracer(service="export_notify")
metrics = Metrics(namespace=NAMESPACE, service="export_notify")


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
    """Made once per process."""
    settings = Settings.read(os.environ)
    dynamodb = boto3.client("dynamodb")
    notifier = Notifier(
        settings=settings,
        keyring=Keyring(settings.keys_secret, SecretsProvider(boto3_client=boto3.client("secretsmanager"))),
        links=Links(settings.links_table, dynamodb),
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
    """Send the mails of an event."""
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
    key = str(
        event.detail.object["key"]
    )  # as it is: EventBridge does not URL-encode the key, unlike S3's own notifications
    notifier = parts().notifier
    if not key.startswith(notifier.settings.exports_prefix) or not key.endswith("/manifest.json"):
        raise Fatal(f"{key} is no manifest of an export")
    text = parts().s3.get_object(Bucket=bucket, Key=key)["Body"].read().decode()
    manifest = Manifest.parse(key, text)
    cause = {"bucket": bucket, "key": key, "etag": etag}
    try:
        _deliver(manifest.export, cause, lambda recipient: {"link": notifier.new_file(manifest, recipient)})
    finally:  # also if a mail failed
        _announce(notifier.created(manifest, bucket), cause)


def _announce(created: Announcement, cause: dict[str, str]) -> None:
    """Announce the file on EventBridge, once per file as far as that is known."""
    once = idempotent_function(
        _put_event,
        data_keyword_argument="cause",
        persistence_store=parts().store,
        config=parts().config,
        key_prefix="export_notify.announce",
    )
    once(cause=cause, created=created)


def _put_event(*, cause: dict[str, str], created: Announcement) -> None:
    del cause
    if parts().events.put_events(Entries=[created.entry()])["FailedEntryCount"]:
        raise Fatal("EventBridge did not take the event of a new file")


def _no_file(event: EventBridgeEvent) -> None:
    failure, notifier = Failure.parse(event.detail), parts().notifier

    def send(recipient: str | None) -> dict[str, str]:
        notifier.no_file(failure, recipient)
        return {}

    _deliver(failure.export, {"event": event.get_id}, send)


def _deliver(export: Export, cause: dict[str, str], send: Callable[[str | None], dict[str, str]]) -> None:
    """Send to each recipient, once per cause. A failed delivery does not stop the others."""
    once = idempotent_function(
        _send,
        data_keyword_argument="delivery",
        persistence_store=parts().store,
        config=parts().config,
        key_prefix="export_notify",
    )
    failed: list[Exception] = []
    for recipient in parts().notifier.destinations(export):
        delivery = cause | {"to": recipient_hash(recipient or "topic")}
        try:
            once(delivery=delivery, export=export, send=lambda to=recipient: send(to))
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
