"""What a request to the link's address is answered with.

A mailed link must survive for days, and mail scanners open every link they see. So GET shows a page and uses nothing up; only
the page's button, a POST, counts a download and leads on to the file, by a URL of S3 that lives a minute.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Literal, Self
from urllib.parse import urlsplit

from botocore.exceptions import ClientError

from lambdas.download import page
from lambdas.links import Links
from lambdas.tokens import MAX_LENGTH, reference

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lambdas.keyring import Keyring
    from lambdas.links import Link, Part

URL_LIFE_S = 60
_PATH = re.compile(rf"/([A-Za-z0-9_.-]{{1,{MAX_LENGTH}}})(?:/([1-9][0-9]{{0,3}}))?", re.ASCII)
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")


@dataclass(frozen=True, slots=True)
class Settings:
    """The function's environment."""

    links_table: str
    keys_secret: str
    bucket: str

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> Self:
        return cls(environment["LINKS_TABLE"], environment["LINK_KEYS_SECRET"], environment["LAKE_BUCKET"])


@dataclass(frozen=True, slots=True)
class Answer:
    """One HTTP answer. What may be logged names the link by its reference, never by its token; of a refusal it is nothing."""

    status: HTTPStatus
    headers: dict[str, str]
    body: str = ""
    event: Literal["link.page", "link.download"] | None = None
    facts: dict[str, object] = field(default_factory=dict)

    def as_event(self, method: str) -> dict[str, Any]:
        """The form that a Function URL expects; HEAD gets what GET gets, without the body."""
        body = "" if method == "HEAD" else self.body
        return {
            "statusCode": int(self.status),
            "headers": self.headers,
            "body": body,
            "isBase64Encoded": False,
        }


NOT_FOUND = Answer(HTTPStatus.NOT_FOUND, page.headers(), page.not_found())


@dataclass(frozen=True, slots=True)
class Downloads:
    """Answers requests. `s3` must sign with version 4, or files under a KMS key cannot be had."""

    bucket: str
    keyring: Keyring
    links: Links
    s3: Any
    clock: Callable[[], float]

    def answer(self, method: str, path: str) -> Answer:
        """The page, the way to the file, or `NOT_FOUND`: the same for every reason, so that it tells nothing.

        The token is checked before anything is looked up: whoever has none learns nothing from how long an answer takes, and
        costs no request to DynamoDB or S3.
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
        if method == "POST":
            return self._redirect(link, numbers, now)
        return self._page(link, numbers, match[1])

    def _page(self, link: Link, numbers: list[int], token: str) -> Answer:
        # A browser holds a form's redirects, too, to form-action.
        url = urlsplit(self._url(link.parts[0]))
        html = page.render(link, numbers, token if len(numbers) > 1 else None)
        return Answer(
            HTTPStatus.OK, page.headers(f"{url.scheme}://{url.netloc}"), html, "link.page", _facts(link)
        )

    def _redirect(self, link: Link, numbers: list[int], now: float) -> Answer:
        if len(numbers) != 1 or not self.links.use(link.id, now=now):
            return NOT_FOUND
        part = link.parts[numbers[0] - 1]
        headers = page.SAFE | {"Location": self._url(part)}
        return Answer(HTTPStatus.FOUND, headers, "", "link.download", _facts(link) | {"file": part.file})

    def _exists(self, part: Part) -> bool:
        try:
            self.s3.head_object(Bucket=self.bucket, Key=part.key)
        except ClientError as error:
            # Without the right to list, S3 calls a missing object forbidden.
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


def _facts(link: Link) -> dict[str, object]:
    return {"link": reference(link.id), "export": link.export}
