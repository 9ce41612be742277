"""The words of a mail, as plain text and as HTML: what there is, for when, until when, whom to ask. Never data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lambdas import wording
from lambdas.export_notify import html

if TYPE_CHECKING:
    from calve.export import Export
    from lambdas.export_notify.notice import Failure, Manifest
    from lambdas.links import Link

SUBJECT_LENGTH = 99  # SNS: ASCII, fewer than 100 characters, one line
FINAL = "There is no file: the export failed. It is not tried again by itself."
NOT_FINAL = (
    "There is no file yet: the export failed. If it was started by its schedule, it is tried twice more within minutes; "
    "a file that comes of it has a mail of its own."
)
KAFKA_TIME = "_kafka.timestamp"


@dataclass(frozen=True, slots=True)
class Mail:
    """One mail, in both forms; SNS takes the plain one alone."""

    subject: str
    text: str
    html: str


@dataclass(frozen=True, slots=True)
class Words:
    """A mail before it is laid out."""

    title: str
    lead: str
    notes: tuple[str, ...]
    buttons: tuple[tuple[str, str], ...]  # what it says, where it leads
    facts: tuple[tuple[str, str], ...]
    closing: tuple[str, ...]


def new_file(manifest: Manifest, link: Link, url: str) -> Mail:
    """The mail of a new file. `url` is the link's own address, with its token."""
    export, zone = manifest.export, manifest.export.time_zone
    words = Words(
        title=link.title,
        lead=link.window,
        notes=_notes(manifest),
        buttons=_buttons(link, url),
        facts=(
            ("Window", f"{link.window} ({zone})"),
            ("Rows", f"{manifest.rows:,}"),
            ("Size", wording.size(link.size_bytes)),
            ("Link expires", wording.moment(link.expires_at, zone)),
            *((f"SHA-256 of {part.file}", part.sha256) for part in manifest.parts),
        ),
        closing=(*_time_column(export), _owner(link), _whom_to_ask(export)),
    )
    return _mail(words, subject(link.title, link.window, wording.rows(manifest.rows), state=_state(manifest)))


def no_file(failure: Failure) -> Mail:
    """The mail that says that no file will come."""
    title = wording.title(failure.export.name)
    window = str(failure.window or "")
    words = Words(
        title=title,
        lead=window or "No file",
        notes=(
            FINAL if failure.final else NOT_FINAL,
            f"Reason: {failure.reason}",
        ),
        buttons=(),
        facts=(("Window", f"{window} ({failure.export.time_zone})"),) if window else (),
        closing=("Those who run it have been told as well.", _whom_to_ask(failure.export)),
    )
    return _mail(words, subject(title, window, "no file", state="Failed"))


def subject(title: str, window: str, what: str, *, state: str = "") -> str:
    """`Weekly trades, 2-8 November 2026: 12,345 rows`; a long title gives way, the rest never."""
    before = f"{state}: " if state else ""
    after = wording.ascii_only(f"{', ' if window else ''}{window}: {what}")
    name = " ".join(wording.ascii_only(title).split())
    room = SUBJECT_LENGTH - len(before) - len(after)
    return before + (name if len(name) <= room else f"{name[: room - 3]}...") + after


def _state(manifest: Manifest) -> str:
    if manifest.correction:
        return "Correction"
    if manifest.redefined:
        return "New settings"
    return "" if manifest.complete else "Incomplete"


def _notes(manifest: Manifest) -> tuple[str, ...]:
    notes = []
    if manifest.correction:
        notes.append("Correction: records arrived after the earlier file was made. This file replaces it.")
    if manifest.redefined:
        notes.append(
            "The settings of this export were changed after the earlier file was made. This file replaces it."
        )
    if not manifest.complete:
        upto = f", ingested up to {manifest.ingested_until}" if manifest.ingested_until else ""
        notes.append(f"Incomplete{upto}. Records of this window may be missing.")
    return tuple(notes)


def _buttons(link: Link, url: str) -> tuple[tuple[str, str], ...]:
    if len(link.parts) == 1:
        return (("Download CSV", url),)
    return tuple(
        (f"Download part {number} of {len(link.parts)} ({wording.rows(part.rows)})", f"{url}/{number}")
        for number, part in enumerate(link.parts, 1)
    )


def _time_column(export: Export) -> tuple[str, ...]:
    if export.time_column != KAFKA_TIME:
        return ()
    return (
        "A record belongs to the window in which it reached Kafka (_kafka.timestamp): its table names no time of its own.",
    )


def _owner(link: Link) -> str:
    whose = "you alone" if link.recipient else "the recipients of this export"
    return f"The link is meant for {whose}: please do not pass it on."


def _whom_to_ask(export: Export) -> str:
    return (
        f"Questions: {export.reply_to}"
        if export.reply_to
        else "Questions: ask those who set this export up for you."
    )


def _mail(words: Words, subject: str) -> Mail:
    return Mail(subject, _text(words), html.render(words))


def _text(words: Words) -> str:
    blocks = [f"{words.title}\n{words.lead}", *words.notes]
    blocks += [f"{label}:\n{url}" for label, url in words.buttons]
    if words.facts:
        blocks.append("\n".join(f"{name}: {value}" for name, value in words.facts))
    return "\n\n".join([*blocks, *words.closing]) + "\n"
