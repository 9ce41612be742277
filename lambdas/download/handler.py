"""The answers to requests at a link's address.

A mailed link must work for days, and mail scanners open every link. So GET shows a page and counts nothing. Only the page's
button, a POST, counts a download and redirects to the file, by an S3 URL that is valid for a minute.
The pages are HTML with one style sheet: no script, no font, no image is loaded. Paths, headers and answers are never logged or
traced: they hold tokens.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from html import escape
from http import HTTPStatus
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import boto3
from aws_lambda_powertools import Logger, Tracer
from aws_lambda_powertools.utilities.data_classes import LambdaFunctionUrlEvent, event_source
from aws_lambda_powertools.utilities.parameters import SecretsProvider
from aws_lambda_powertools.utilities.parameters.exceptions import GetParameterError
from aws_lambda_powertools.utilities.typing import LambdaContext
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from calve.outputs.metrics import LINK_DOWNLOADS, LINK_FAULTS, LINK_PAGES, Metric
from lambdas import formatting
from lambdas.function import add_alone, from_variables
from lambdas.links import Link, Links, Part
from lambdas.tokens import MAX_LENGTH, BadKeys, Keyring, reference

SERVICE = "download"
logger = Logger(service=SERVICE, log_uncaught_exceptions=False)
tracer = Tracer(service=SERVICE)

STYLE = Path(__file__).with_name("page.css").read_text(encoding="utf-8")
_STYLE_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()

SAFE = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Robots-Tag": "noindex, nofollow",
    "Strict-Transport-Security": "max-age=63072000",
}

_DOCUMENT = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<main>
{body}
</main>
</body>
</html>
"""


def headers(form_target: str | None = None) -> dict[str, str]:
    """Headers of a page. With `form_target` its forms may post to their own address and be redirected there."""
    forms = f"'self' {form_target}" if form_target else "'none'"
    policy = (
        f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; form-action {forms}; "
        "base-uri 'none'; frame-ancestors 'none'"
    )
    return SAFE | {"Content-Type": "text/html; charset=utf-8", "Content-Security-Policy": policy}


def render(link: Link, numbers: Sequence[int], token: str | None = None) -> str:
    """The page of these parts, numbered from 1.

    With `token`, each part's button posts to `TOKEN/NUMBER`, else to the page itself.
    """
    parts = [link.parts[number - 1] for number in numbers]
    which = f" · part {numbers[0]} of {len(link.parts)}" if len(numbers) < len(link.parts) else ""
    whose = "you alone" if link.recipient else "the recipients of this export"
    body = [
        f"<h1>{escape(link.title)}</h1>",
        f'<p class="lead">{escape(link.window)}{which}</p>',
        _state(link),
        *(
            _button(part, f"Download part {number}", f"{token}/{number}")
            if token
            else _button(part, "Download CSV", None)
            for number, part in zip(numbers, parts, strict=True)
        ),
        "<dl>",
        _fact("Time zone", link.time_zone),
        _fact("Rows", f"{sum(part.rows for part in parts):,}"),
        _fact("Size", formatting.size(sum(part.size_bytes for part in parts))),
        _fact("Link expires", formatting.clock(link.expires_at, link.time_zone)),
        *(
            _fact(f"SHA-256 of part {number}" if token else "SHA-256", part.sha256, "hash")
            for number, part in zip(numbers, parts, strict=True)
        ),
        "</dl>",
        f"<footer>This link is meant for {whose}: please do not pass it on.</footer>",
    ]
    return _document(f"{link.title}, {link.window}", "\n".join(body))


def _state(link: Link) -> str:
    if link.complete:
        note = (
            '<p class="state complete"><strong>Complete.</strong> Every record of this window is in it.</p>'
        )
    else:
        upto = f", ingested up to {escape(link.ingested_until)}" if link.ingested_until else ""
        note = f'<p class="state incomplete"><strong>Incomplete</strong>{upto}. Records may be missing.</p>'
    if link.correction:
        note += '\n<p class="state correction"><strong>Correction.</strong> It replaces the earlier file.</p>'
    return note


def _button(part: Part, verb: str, action: str | None) -> str:
    target = f' action="{escape(action)}"' if action else ""
    what = f"{formatting.rows(part.rows)} · {formatting.size(part.size_bytes)}"
    return (
        f'<form method="post"{target}>\n<button type="submit"><span class="verb">{verb}</span> '
        f'<span class="what">{what}</span></button>\n<p class="file">{escape(part.file)}</p>\n</form>'
    )


def _fact(name: str, value: str, kind: str = "") -> str:
    marked = f' class="{kind}"' if kind else ""
    return f"<div><dt>{escape(name)}</dt><dd{marked}>{escape(value)}</dd></div>"


def _document(title: str, body: str) -> str:
    return _DOCUMENT.format(title=escape(title), style=STYLE, body=body)


URL_LIFE_S = 60
_PATH = re.compile(rf"/([A-Za-z0-9_.-]{{1,{MAX_LENGTH}}})(?:/([1-9][0-9]{{0,3}}))?", re.ASCII)
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")


@dataclass(frozen=True, slots=True)
class Settings:
    """The function's variables."""

    links_table: str
    link_keys_secret: str
    lake_bucket: str


@dataclass(frozen=True, slots=True)
class Answer:
    """One HTTP answer. Its log entry names the link by its reference, never by its token; a refusal has no log entry."""

    status: HTTPStatus
    headers: dict[str, str]
    body: str = ""
    event: Literal["link.page", "link.download"] | None = None
    facts: dict[str, object] = field(default_factory=dict)


NOT_FOUND = Answer(
    HTTPStatus.NOT_FOUND,
    headers(),
    _document(
        "Link not found",
        """<h1>This link does not work</h1>
<p class="lead">It may have expired, been used up or been withdrawn, or a part of it was lost on its way here.</p>
<p>Copy the whole link from the mail and try again in a few minutes. If that does not help, ask for a new one: the mail
says whom.</p>""",
    ),
)


@dataclass(frozen=True, slots=True)
class Downloads:
    """Answers requests. `s3` must sign with version 4, or files under a KMS key cannot be read."""

    bucket: str
    keyring: Keyring
    links: Links
    s3: Any
    clock: Callable[[], float]

    def answer(self, method: str, path: str) -> Answer:
        """The page, the redirect to the file, or `NOT_FOUND`, which is the same for every reason.

        The token is checked before any request to AWS: without one, a caller learns nothing from the response time.
        """
        match = _PATH.fullmatch(path)
        if match is None or method not in ("GET", "HEAD", "POST"):
            return NOT_FOUND
        now = self.clock()
        claim = self.keyring.verify(match[1], now=now)
        link = self.links.find(claim.link_id) if claim else None
        if claim is None or link is None or link.key_id != claim.key_id or not link.alive(now):
            return NOT_FOUND
        numbers = [int(match[2])] if match[2] else list(range(1, len(link.parts) + 1))
        if numbers[-1] > len(link.parts) or not all(self._exists(link.parts[each - 1]) for each in numbers):
            return NOT_FOUND
        facts: dict[str, object] = {"link": reference(link.id), "export": link.export}
        if method != "POST":
            # Browsers apply form-action to a form's redirects too.
            url = urlsplit(self._url(link.parts[0]))
            html = render(link, numbers, match[1] if len(numbers) > 1 else None)
            return Answer(HTTPStatus.OK, headers(f"{url.scheme}://{url.netloc}"), html, "link.page", facts)
        if len(numbers) != 1 or not self.links.use(link.id, now=now):
            return NOT_FOUND
        part = link.parts[numbers[0] - 1]
        to_file = SAFE | {"Location": self._url(part)}
        return Answer(HTTPStatus.FOUND, to_file, "", "link.download", facts | {"file": part.file})

    def _exists(self, part: Part) -> bool:
        try:
            self.s3.head_object(Bucket=self.bucket, Key=part.key)
        except ClientError as error:
            # Without the right to list, S3 answers 403 for a missing object.
            if error.response["ResponseMetadata"]["HTTPStatusCode"] in (403, 404):
                return False
            raise
        return True

    def _url(self, part: Part) -> str:
        kind = "application/gzip" if part.key.endswith(".gz") else "text/csv; charset=utf-8"
        named = _UNSAFE.sub("_", part.file)
        params = {
            "Bucket": self.bucket,
            "Key": part.key,
            "ResponseContentDisposition": f'attachment; filename="{named}"',
            "ResponseContentType": kind,
            "ResponseCacheControl": "no-store",
        }
        return str(self.s3.generate_presigned_url("get_object", Params=params, ExpiresIn=URL_LIFE_S))


@cache
def downloads() -> Downloads:
    settings = from_variables(Settings, os.environ)
    keyring = Keyring(settings.link_keys_secret, SecretsProvider(boto3_client=boto3.client("secretsmanager")))
    # The bucket's regional host: the global one redirects, and a redirected signature is invalid.
    config = Config(signature_version="s3v4", s3={"addressing_style": "virtual"})
    return Downloads(
        bucket=settings.lake_bucket,
        keyring=keyring,
        links=Links(settings.links_table, boto3.client("dynamodb")),
        s3=boto3.client("s3", config=config),
        clock=time.time,
    )


@logger.inject_lambda_context(log_event=False)
@tracer.capture_lambda_handler(capture_response=False, capture_error=False)
@event_source(data_class=LambdaFunctionUrlEvent)
def handle(event: LambdaFunctionUrlEvent, context: LambdaContext) -> dict[str, Any]:
    """Answer one request. If a system is down, the answer is that of a missing link, and it counts as a fault."""
    method = event.request_context.http.method
    try:
        answer = downloads().answer(method, event.raw_path)
    except (ClientError, BotoCoreError, GetParameterError, BadKeys) as error:
        answer = NOT_FOUND
        logger.error("link.fault", extra={"kind": type(error).__name__})  # noqa: TRY400  a traceback could show the token
        _count(LINK_FAULTS)
    if answer.event:
        logger.info(answer.event, extra=answer.facts)
        _count({"link.page": LINK_PAGES, "link.download": LINK_DOWNLOADS}[answer.event])
    return {
        "statusCode": int(answer.status),
        "headers": answer.headers,
        "body": "" if method == "HEAD" else answer.body,  # HEAD gets the headers of GET
        "isBase64Encoded": False,
    }


def _count(metric: Metric) -> None:
    add_alone(metric, service=SERVICE, deployment=os.environ["CALVE_NAME"])
