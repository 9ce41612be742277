"""`calve mail`: the mails that calve sent on this machine, and their links. The emulator keeps each mail as a file."""

from __future__ import annotations

import re
import time
from email import policy
from email.message import EmailMessage
from email.parser import BytesParser
from pathlib import Path
from typing import Annotated

import typer
import urllib3

from calve.errors import CalveError, ConfigError
from cli.console import Console, Output, OutputOption
from cli.embedded import aws
from cli.embedded.layout import Layout, project_root
from cli.embedded.stack import Stack, current

NumberArgument = Annotated[
    int | None, typer.Argument(metavar="NUMBER", help="A mail, by its number in the list.")
]
OpenOption = Annotated[bool, typer.Option("--open", help="Open it in the browser, as the recipient sees it.")]
PATIENCE_S = 10.0
LINK = re.compile(r'https://[^\s"<>]+\.lambda-url\.[^\s"<>]+')
"""In a text or in HTML."""
TIMEOUT_S = 60.0


def mail(
    number: NumberArgument = None, *, open: OpenOption = False, output: OutputOption = Output.text
) -> None:
    """List the mails that were sent on this machine, or show one.

    The emulator of `calve up` keeps them; nothing leaves this machine. Links lead to the emulator, so they work.

    Examples:
      calve mail
      calve mail 1 --open
    """
    stack = current(project_root())
    if stack is None:
        raise CalveError("the embedded stack is not up, and its mails are gone with it", fix="calve up")
    console, mails = Console(output), _awaited(stack)
    if number is None:
        rows = [
            {"mail": place, "sent": each["Date"], "to": each["To"], "subject": each["Subject"]}
            for place, each in enumerate(mails, 1)
        ]
        console.table("mails", rows)
        if not mails:
            console.say("No mail was sent yet. An export sends one: calve export run NAME")
        console.document({"mails": rows})
        return
    if not 1 <= number <= len(mails):
        raise ConfigError(f"there is no mail {number}", fix="calve mail lists them")
    shown = mails[number - 1]
    text, page = _part(shown, "plain", stack), _part(shown, "html", stack)
    console.quote(str(shown["Subject"]), text)
    place: Path | None = None
    if page:
        place = folder(stack) / f"{number}.html"
        place.write_text(page, encoding="utf-8")
        console.say(f"As HTML: {place}")
    if open:
        if place is None:
            raise CalveError(
                "this mail is plain text", fix="add `sender:` to the export: its mails are HTML then"
            )
        typer.launch(place.as_uri())
    console.document({"to": shown["To"], "subject": shown["Subject"], "text": text, "html": page})


def _awaited(stack: Stack) -> list[EmailMessage]:
    """The mails; if there is none, a moment later: an export that has just ended is announced first, and mailed then."""
    until = time.monotonic() + PATIENCE_S
    while not (found := kept(stack)) and time.monotonic() < until:
        time.sleep(0.2)
    return found


def folder(stack: Stack) -> Path:
    return Layout(stack.root).run / "aws" / "mails"


def kept(stack: Stack) -> list[EmailMessage]:
    """The mails in the order in which they were sent."""
    files = sorted(folder(stack).glob("*.eml"))
    return [BytesParser(EmailMessage, policy=policy.default).parsebytes(each.read_bytes()) for each in files]


def _part(mail: EmailMessage, kind: str, stack: Stack) -> str:
    """A mail's text, or its HTML, with links that this machine answers."""
    body = mail.get_body((kind,))
    text = str(body.get_content()) if body else ""
    return LINK.sub(lambda found: aws.reachable(found[0], stack.aws_endpoint), text)


def lines_behind(page: str) -> list[str]:
    """The lines of the file behind the button of a link's page, opened as a browser opens it."""
    request("GET", page, 200)
    address = request("POST", page, 302).headers["location"]
    return request("GET", address, 200).data.decode().splitlines()


def request(method: str, url: str, expected: int) -> urllib3.BaseHTTPResponse:
    answer = urllib3.request(method, url, redirect=False, timeout=TIMEOUT_S)
    if answer.status != expected:
        raise CalveError(f"{method} of the mail's link is answered with {answer.status}")
    return answer
