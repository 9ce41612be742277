"""The embedded stack: `calve up`, `calve down`, `calve produce` to try a topic of your own, and `calve mail`.

The emulator keeps each mail that calve sends as a file.
"""

from __future__ import annotations

import re
import sys
import time
from email import policy
from email.message import EmailMessage
from email.parser import BytesParser
from pathlib import Path
from typing import Annotated

import typer
import urllib3
from confluent_kafka import KafkaError, Message, Producer

from calve.config.job import Kafka
from calve.errors import CalveError, ConfigError
from cli.config import Where, embedded_stack, found, load_jobs
from cli.console import Console, Output, OutputOption
from cli.embedded import aws
from cli.embedded.layout import Layout, project_root
from cli.embedded.stack import Stack, current
from cli.embedded.stack import down as stop_stack
from cli.embedded.stack import up as start_stack
from cli.kafka import client_properties
from cli.run.datagen.produce import create_topic

ENDPOINTS = (
    *("bootstrap_servers", "ssl_bootstrap_servers", "sasl_bootstrap_servers", "ca_file"),
    *("registry_url", "aws_endpoint", "bucket", "region", "logs"),
)


def up(*, output: OutputOption = Output.text) -> None:
    """Start the embedded stack, or reuse the one that runs.

    A real Kafka broker, a schema registry and an AWS emulator, on free ports of 127.0.0.1. It downloads the missing
    parts first, once. The stack outlives this command; `calve down` stops it.

    Example:
      calve up
    """
    console = Console(output)
    stack = start_stack(project_root(), console.progress())
    endpoints = {
        "kafka": stack.bootstrap_servers,
        "kafka tls": stack.ssl_bootstrap_servers,
        "kafka sasl": f"{stack.sasl_bootstrap_servers}  (user {stack.sasl_user}, PLAIN or SCRAM-SHA-512)",
        "registry": stack.registry_url,
        "aws": f"{stack.aws_endpoint}  (bucket {stack.bucket})",
        "logs": stack.logs,
    }
    console.panel("calve is up", endpoints | {"next": "calve init   calve demo   calve down"})
    console.document({name: getattr(stack, name) for name in ENDPOINTS})


def down() -> None:
    """Stop the embedded stack and drop its data; downloads stay.

    Example:
      calve down
    """
    stopped = stop_stack(project_root())
    Console().event("calve is down" if stopped else "nothing was up")


TopicArgument = Annotated[
    str, typer.Argument(metavar="TOPIC", help="The topic; it is made where it is absent.")
]
FileArgument = Annotated[
    Path | None, typer.Argument(metavar="FILE", help="Its lines; without it, those of standard input.")
]


def produce(topic: TopicArgument, file: FileArgument = None, *, given: Where) -> None:
    """Produce each line as the value of a record, byte for byte, without a key.

    They go to the Kafka of calve.yaml, or of `calve up` if there is no calve.yaml. Empty lines are left out.

    Example:
      calve produce orders orders.jsonl
    """
    config, stack = found(given.config), embedded_stack()
    if config.exists() or stack is None:
        job, *_ = load_jobs(config, given.env)
        kafka, region = job.kafka, job.lake.region
    else:
        kafka, region = Kafka(stack.bootstrap_servers), stack.region
    try:
        text = file.read_bytes() if file else sys.stdin.buffer.read()
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}", fix="name a file with lines") from None
    values = [line for line in text.splitlines() if line.strip()]
    faults: list[KafkaError] = []

    def delivered(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            faults.append(error)

    properties = client_properties(kafka, region)
    create_topic(topic, 1, properties)
    producer = Producer({**properties, "on_delivery": delivered})
    for value in values:
        producer.produce(topic, value)
        producer.poll(0)
    producer.flush()
    if faults:
        raise CalveError(f"{len(faults)} of {len(values)} records were not delivered: {faults[0].str()}")
    Console().table("produced", [{"topic": topic, "records": len(values)}])


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
