"""The text of a mail, plain and as HTML, for a new manifest or a failed window. It holds no data.

The HTML is laid out by old mail programs too: tables and inline styles, nothing that is loaded.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import datetime
from html import escape
from typing import Any, Self
from urllib.parse import quote

from calve.config.publishing import Export
from calve.errors import Fatal
from lambdas import formatting
from lambdas.links import Link, Part

FORMAT = 1
DAY_S = 86_400
_OWN_FILE = r"([A-Za-z0-9]+)/[A-Za-z0-9_-][A-Za-z0-9._-]*"
"""Run and name of a part, below its manifest's folder."""


@dataclass(frozen=True, slots=True)
class Window:
    """Half-open, in the export's zone."""

    start: datetime
    end: datetime
    time_zone: str

    def __str__(self) -> str:
        return formatting.window(self.start, self.end, self.time_zone)

    def to_json(self) -> dict[str, str]:
        return {"from": self.start.isoformat(), "to": self.end.isoformat()}

    @classmethod
    def of(cls, raw: dict[str, str], export: Export) -> Self:
        return cls(datetime.fromisoformat(raw["from"]), datetime.fromisoformat(raw["to"]), export.time_zone)


@dataclass(frozen=True, slots=True)
class Manifest:
    """The fields of `csv_export`'s manifest that a mail needs."""

    key: str
    export: Export
    window: Window
    rows: int
    parts: tuple[Part, ...]
    complete: bool
    ingested_until: str | None
    correction: bool
    redefined: bool
    created_at: datetime
    snapshot_id: str | None

    @property
    def kept_until(self) -> float:
        """When the bucket may delete the files, in seconds."""
        return self.created_at.timestamp() + self.export.keep_days * DAY_S

    @classmethod
    def parse(cls, key: str, text: str) -> Self:
        """Parse a manifest. Raises Fatal: another format, or files outside the folder of one run."""
        raw: dict[str, Any] = json.loads(text)
        if raw.get("format") != FORMAT:
            raise Fatal(
                f"{key} has format {raw.get('format')}, this release reads {FORMAT}", fix="deploy all stacks"
            )
        export = Export.from_json(json.dumps(raw["export"]))
        parts = tuple(Part(**{name: part[name] for name in Part.__slots__}) for part in raw["parts"])
        folder, runs = re.escape(key.rpartition("/")[0]), set()
        for part in parts:
            own = re.fullmatch(f"{folder}/{_OWN_FILE}", part.key, re.ASCII)
            if own is None:
                raise Fatal(f"{key} names {part.key}, which is no file of its folder")
            runs.add(own[1])
        if len(runs) != 1:
            raise Fatal(f"{key} does not name the files of one run")
        until = raw["ingested_until"]
        plain = ("rows", "complete", "correction", "redefined", "snapshot_id")
        return cls(
            key=key,
            export=export,
            window=Window.of(raw["window"], export),
            parts=parts,
            ingested_until=until and formatting.moment(datetime.fromisoformat(until), export.time_zone),
            created_at=datetime.fromisoformat(raw["created_at"]),
            **{name: raw[name] for name in plain},
        )


@dataclass(frozen=True, slots=True)
class Failure:
    """An export without a file; not `final`: it is tried again. `reason`: one line for people, without data."""

    export: Export
    window: Window | None
    reason: str
    final: bool

    @classmethod
    def parse(cls, detail: dict[str, Any]) -> Self:
        export = Export.from_json(json.dumps(detail["export"]))
        window = Window.of(detail["window"], export) if detail.get("window") else None
        return cls(export, window, " ".join(str(detail["reason"]).split())[:300], detail["final"])


SUBJECT_LENGTH = 99  # SNS: ASCII, fewer than 100 characters, one line
FINAL = "There is no file: the export failed. It is not tried again by itself."
NOT_FINAL = (
    "There is no file yet: the export failed. If it was started by its schedule, it is tried twice more within minutes. "
    "A file has a mail of its own then."
)
CONSOLE, CONSOLES = (
    "console.aws.amazon.com",
    {"cn-": "console.amazonaws.cn", "us-gov-": "console.amazonaws-us-gov.com"},
)
SUM, PATH = "SHA-256 of", "Path"
"""How facts begin that are long, without blanks, and to be copied."""
KAFKA_TIME = "_kafka.timestamp"
BY_KAFKA_TIME = "A record belongs to the window in which it reached Kafka (_kafka.timestamp): its table names no time of its own."


@dataclass(frozen=True, slots=True)
class Mail:
    """One mail in both forms; SNS uses only the plain one."""

    subject: str
    text: str
    html: str


@dataclass(frozen=True, slots=True)
class MailText:
    """The text of a mail before layout."""

    title: str
    lead: str
    notes: tuple[str, ...]
    buttons: tuple[tuple[str, str], ...]  # (text, URL)
    facts: tuple[tuple[str, str], ...]
    closing: tuple[str, ...]

    def mail(self, subject: str) -> Mail:
        blocks = [f"{self.title}\n{self.lead}", *self.notes]
        blocks += [f"{label}:\n{url}" for label, url in self.buttons]
        if self.facts:
            blocks.append("\n".join(f"{name}: {value}" for name, value in self.facts))
        return Mail(subject, "\n\n".join([*blocks, *self.closing]) + "\n", render(self))


@dataclass(frozen=True, slots=True)
class Access:
    """How a reader gets the files. action: the verb of a button. addresses: of each part."""

    action: str
    addresses: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]
    condition: str


def by_link(link: Link, url: str) -> Access:
    """The public function answers. `url`: the link's address, with its token."""
    count = len(link.parts)
    whose = "you alone" if link.recipient else "the recipients of this export"
    return Access(
        "Download",
        (url,) if count == 1 else tuple(f"{url}/{number}" for number in range(1, count + 1)),
        (("Link expires", formatting.moment(link.expires_at, link.time_zone)),),
        f"The link opens a page with a button. It is meant for {whose}: please do not pass it on.",
    )


def by_console(manifest: Manifest, bucket: str, region: str, policy: str) -> Access:
    """The console of S3 answers, to a reader who signs in to AWS and has the policy."""
    cloud = next((name for start, name in CONSOLES.items() if region.startswith(start)), CONSOLE)
    page = f"https://{region}.{cloud}/s3/object/{bucket}?region={region}&prefix="
    return Access(
        "Open",
        tuple(page + quote(part.key) for part in manifest.parts),
        (
            ("File kept until", formatting.moment(manifest.kept_until, manifest.export.time_zone)),
            *((PATH, f"s3://{bucket}/{part.key}") for part in manifest.parts),
        ),
        f"Sign in to AWS with a role that has the policy {policy}, then choose Download.",
    )


def new_file(manifest: Manifest, access: Access) -> Mail:
    """The mail of a new file."""
    export, zone, marks = manifest.export, manifest.export.time_zone, _marks(manifest)
    title, window, count = formatting.title(export.name), str(manifest.window), len(manifest.parts)
    labels = [f"{access.action} CSV"]
    if count > 1:
        labels = [
            f"{access.action} part {number} of {count} ({formatting.rows(part.rows)})"
            for number, part in enumerate(manifest.parts, 1)
        ]
    text = MailText(
        title=title,
        lead=window,
        notes=tuple(note for _, note in marks),
        buttons=tuple(zip(labels, access.addresses, strict=True)),
        facts=(
            ("Window", f"{window} ({zone})"),
            ("Rows", f"{manifest.rows:,}"),
            ("Size", formatting.size(sum(part.size_bytes for part in manifest.parts))),
            *access.facts,
            *((f"{SUM} {part.file}", part.sha256) for part in manifest.parts),
        ),
        closing=(
            *([BY_KAFKA_TIME] if export.time_column == KAFKA_TIME else []),
            access.condition,
            _whom_to_ask(export),
        ),
    )
    state = marks[0][0] if marks else ""
    return text.mail(subject(title, window, formatting.rows(manifest.rows), state=state))


def no_file(failure: Failure) -> Mail:
    """The mail of an export without a file."""
    title = formatting.title(failure.export.name)
    window = str(failure.window or "")
    text = MailText(
        title=title,
        lead=window or "No file",
        notes=(FINAL if failure.final else NOT_FINAL, f"Reason: {failure.reason}"),
        buttons=(),
        facts=(("Window", f"{window} ({failure.export.time_zone})"),) if window else (),
        closing=("The operators were notified, too.", _whom_to_ask(failure.export)),
    )
    return text.mail(subject(title, window, "no file", state="Failed"))


def subject(title: str, window: str, what: str, *, state: str = "") -> str:
    """`Weekly trades, 2-8 November 2026: 12,345 rows`; only the title is shortened."""
    before = f"{state}: " if state else ""
    after = formatting.ascii_only(f"{', ' if window else ''}{window}: {what}")
    name = " ".join(formatting.ascii_only(title).split())
    room = SUBJECT_LENGTH - len(before) - len(after)
    return before + (name if len(name) <= room else f"{name[: room - 3]}...") + after


def _marks(manifest: Manifest) -> list[tuple[str, str]]:
    """What is special about the file: a word for the subject, and a note."""
    marks = []
    if manifest.correction:
        note = "Correction: records arrived after the earlier file was made. This file replaces it."
        marks.append(("Correction", note))
    if manifest.redefined:
        note = (
            "The settings of this export were changed after the earlier file was made. This file replaces it."
        )
        marks.append(("New settings", note))
    if not manifest.complete:
        upto = f", ingested up to {manifest.ingested_until}" if manifest.ingested_until else ""
        marks.append(("Incomplete", f"Incomplete{upto}. Records of this window may be missing."))
    return marks


def _whom_to_ask(export: Export) -> str:
    return (
        f"Questions: {export.reply_to}" if export.reply_to else "Questions: ask the operators of this export."
    )


FONT = "font-family:'Segoe UI',system-ui,-apple-system,Roboto,Helvetica,Arial,sans-serif"
NOTE = "margin:0 0 12px;padding:10px 14px;background:#fdf1d8;color:#7a4b00;border-radius:8px"
_BUTTON = (
    '<table role="presentation" cellpadding="0" cellspacing="0" style="margin:16px 0"><tr>'
    '<td style="background:#0b6a8f;border-radius:8px"><a href="{url}" style="display:inline-block;padding:14px 26px;'
    'color:#ffffff;font-weight:600;text-decoration:none">{label}</a></td></tr></table>'
)
_DOCUMENT = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="supported-color-schemes" content="light dark">
<title>{title}</title>
</head>
<body style="margin:0;padding:0;background:#eef3f7">
<table role="presentation" width="100%" cellpadding="0" cellspacing="0" style="background:#eef3f7">
<tr><td align="center" style="padding:24px 12px">
<table role="presentation" width="100%" cellpadding="0" cellspacing="0" style="max-width:560px;background:#ffffff;
border:1px solid #dbe4ec;border-top:4px solid #0b6a8f;border-radius:10px;{font};color:#14212d;font-size:16px;line-height:1.5">
<tr><td style="padding:32px">
{body}
</td></tr>
</table>
</td></tr>
</table>
</body>
</html>
"""


def render(text: MailText) -> str:
    """Lay out a mail; all text is escaped."""
    body = [
        f'<h1 style="margin:0;font-size:26px;line-height:1.2">{escape(text.title)}</h1>',
        f'<p style="margin:4px 0 20px;color:#526373;font-size:17px">{escape(text.lead)}</p>',
        *(f'<p style="{NOTE}">{escape(note)}</p>' for note in text.notes),
        *(_BUTTON.format(url=escape(url), label=escape(label)) for label, url in text.buttons),
    ]
    if text.facts:
        rows = "\n".join(_fact(name, value) for name, value in text.facts)
        body.append(
            '<table role="presentation" width="100%" cellpadding="0" cellspacing="0" style="margin:20px 0;'
            f'border-top:1px solid #dbe4ec">\n{rows}\n</table>'
        )
    body += [
        f'<p style="margin:0 0 8px;color:#526373;font-size:14px">{escape(line)}</p>' for line in text.closing
    ]
    return _DOCUMENT.format(title=escape(text.title), font=FONT, body="\n".join(body))


def _fact(name: str, value: str) -> str:
    cell = "padding:8px 0;border-bottom:1px solid #dbe4ec;vertical-align:top"
    if name.startswith((SUM, PATH)):
        mono = "font-family:Menlo,Consolas,monospace;font-size:12px;color:#14212d;word-break:break-all"
        return (
            f'<tr><td colspan="2" style="{cell};color:#526373;font-size:14px">{escape(name)}<br>'
            f'<span style="{mono}">{escape(value)}</span></td></tr>'
        )
    return (
        f'<tr><td style="{cell};color:#526373;padding-right:16px;white-space:nowrap">{escape(name)}</td>'
        f'<td align="right" style="{cell}">{escape(value)}</td></tr>'
    )
