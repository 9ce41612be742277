"""Makes the links of a new file and sends the mails.

A delivery is one file to one recipient or topic. It runs at most once at a time and is recorded when it is done, so a repeated
event sends nothing again. The guarantee is *at least once*: if the process crashes after the mail and before the record, the
delivery is repeated after the function's timeout. The recipient then gets a second mail with a link of its own; both links work.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

from calve.config.publishing import Export
from calve.errors import Fatal
from calve.outputs.announcement import Announcement, export_created
from lambdas import formatting
from lambdas.export_notify import mail
from lambdas.export_notify.mail import Failure, Mail, Manifest
from lambdas.links import Link, Links, recipient_hash
from lambdas.tokens import Keyring, new_link_id, reference, sign

DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class Settings:
    """The function's environment. `topics`: the SNS topic of each export that has one."""

    links_table: str
    idempotency_table: str
    keys_secret: str
    download_url: str
    exports_prefix: str
    deployment: str
    topics: dict[str, str]

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> Self:
        return cls(
            links_table=environment["LINKS_TABLE"],
            idempotency_table=environment["IDEMPOTENCY_TABLE"],
            keys_secret=environment["LINK_KEYS_SECRET"],
            download_url=environment["DOWNLOAD_URL"].rstrip("/"),
            exports_prefix=environment["EXPORTS_PREFIX"],
            deployment=environment["CALVE_NAME"],
            topics=json.loads(environment["MAIL_TOPICS"]),
        )


@dataclass(frozen=True, slots=True)
class Notifier:
    """Sends mails. `sns` and `ses` (version 2) are AWS clients."""

    settings: Settings
    keyring: Keyring
    links: Links
    sns: Any
    ses: Any
    clock: Callable[[], float]

    def destinations(self, export: Export) -> Iterator[str | None]:
        """The recipients, one delivery each; None is the export's topic."""
        return iter(export.recipients if export.channel == "ses" else (None,))

    def new_file(self, manifest: Manifest, recipient: str | None) -> str:
        """Make a link and mail it; returns how logs name the link.

        The row is written first, because a link must work when it is read. It stays if sending fails: the mail may have left.
        """
        link, token = self._link(manifest, recipient)
        self.links.add(link)
        self._send(
            manifest.export, recipient, mail.new_file(manifest, link, f"{self.settings.download_url}/{token}")
        )
        return reference(link.id)

    def created(self, manifest: Manifest, bucket: str) -> Announcement:
        """The event of a new file: names and counts, no link and no address."""
        return export_created(
            self.settings.deployment,
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

    def no_file(self, failure: Failure, recipient: str | None) -> None:
        self._send(failure.export, recipient, mail.no_file(failure))

    def _link(self, manifest: Manifest, recipient: str | None) -> tuple[Link, str]:
        export, now = manifest.export, int(self.clock())
        kept_until = int(manifest.created_at.timestamp()) + export.keep_days * DAY_S
        keys = self.keyring.keys()
        link = Link(
            id=new_link_id(),
            key_id=keys.current,
            export=export.name,
            manifest=manifest.key,
            parts=manifest.parts,
            recipient=recipient and recipient_hash(recipient),
            created_at=now,
            expires_at=min(now + export.link_days * DAY_S, kept_until),
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

    def _send(self, export: Export, recipient: str | None, message: Mail) -> None:
        if recipient is None:
            topic = self.settings.topics.get(export.name)
            if topic is None:
                raise Fatal(f"the export {export.name} has no topic", fix="deploy the exports stack")
            self.sns.publish(TopicArn=topic, Subject=message.subject, Message=message.text)
            return
        body = {
            "Text": {"Data": message.text, "Charset": "UTF-8"},
            "Html": {"Data": message.html, "Charset": "UTF-8"},
        }
        self.ses.send_email(
            FromEmailAddress=export.sender,
            Destination={"ToAddresses": [recipient]},
            ReplyToAddresses=[export.reply_to] if export.reply_to else [],
            Content={"Simple": {"Subject": {"Data": message.subject, "Charset": "UTF-8"}, "Body": body}},
        )
