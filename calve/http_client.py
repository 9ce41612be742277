"""calve's only HTTP client, of the standard library: credentials stay with the server that they were given to.

A redirect is followed within its origin (scheme, host and port) alone: another server would get the credentials, too.
`Tokens` are those of OAuth 2.0 client credentials (RFC 6749, 4.4): from a token endpoint, renewed before they expire.
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPResponse
from typing import Any
from urllib.parse import urlsplit

from calve.errors import ConfigError, Fatal, Retryable

TIMEOUT_S = 10
PAUSES_S = (0.2, 0.6)
LARGEST = 64 * 1024 * 1024
"""Bytes of an answer: a larger one is refused."""
PORTS = {"http": 80, "https": 443}


class NoAnswer(Retryable):
    """The server did not answer, or not as a server of its kind does; nobody knows whether it did what was asked."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server answers, whatever its status; `server` names it in messages."""

    server: str
    status: int
    body: bytes = field(repr=False)

    def json(self) -> Any:
        """Raises: NoAnswer: it is not JSON."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            raise NoAnswer(f"{self.server} does not answer: HTTP {self.status}, but no JSON") from None


def send(
    url: str,
    *,
    server: str | None = None,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
    tls: ssl.SSLContext | None = None,
    timeout_s: float = TIMEOUT_S,
    proxies: bool = True,
) -> Answer:
    """One request and its answer. `server` names it in messages; its origin does where there is none.

    Raises NoAnswer: there is no whole answer. ConfigError: the server redirects to another origin.
    """
    where = server or origin(url)
    request = urllib.request.Request(url, body, dict(headers or {}), method=method)  # noqa: S310 `checked` looked at it
    chosen = [urllib.request.HTTPSHandler(context=tls), _WithinOrigin()]
    if not proxies:
        chosen.append(urllib.request.ProxyHandler({}))
    try:
        with urllib.request.build_opener(*chosen).open(request, timeout=timeout_s) as answer:
            return Answer(where, answer.status, _read(answer))
    except urllib.error.HTTPError as refusal:
        said = b""
        with refusal, suppress(OSError, HTTPException):  # what it says may not arrive: the status counts
            said = refusal.read(LARGEST)
        return Answer(where, refusal.code, said)
    except urllib.error.URLError as error:
        raise NoAnswer(f"{where} does not answer: {error.reason}") from None
    except OSError as error:
        raise NoAnswer(f"{where} does not answer: {error}") from None
    except (HTTPException, ValueError) as error:  # their texts may hold the address, and with it a signature
        raise NoAnswer(f"{where} does not answer: {type(error).__name__}") from None


def send_json(url: str, message: object = None, *, headers: Mapping[str, str], **more: Any) -> Answer:
    """As `send`, where request and answer are JSON; None: a request without a body."""
    asked = {"Accept": "application/json", **headers}
    if message is None:
        return send(url, headers=asked, **more)
    asked["Content-Type"] = "application/json"
    return send(url, headers=asked, body=json.dumps(message).encode(), **more)


def ask(url: str, *, server: str, **more: Any) -> Answer:
    """As `send`, but HTTP 429 and 5xx are tried three times. Raises Retryable: it does not answer, or is overloaded."""
    for pause_s in (*PAUSES_S, None):
        answer = send(url, server=server, **more)
        if answer.status != 429 and answer.status < 500:
            return answer
        if pause_s is not None:
            time.sleep(pause_s)
    raise Retryable(f"{server} answered HTTP {answer.status}")


def basic(username: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode()}


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def checked(url: str, setting: str) -> str:
    """An address of a server. Raises Fatal: it is neither http nor https; `setting` of calve.yaml is where it comes from."""
    if urlsplit(url).scheme not in PORTS:
        raise Fatal(f'"{url}" is neither http nor https', fix=f"set {setting} in calve.yaml")
    return url.rstrip("/")


def origin(url: str) -> str:
    """Scheme, host and port of an address, without what else it holds."""
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    port = parts.port or PORTS.get(parts.scheme)
    return f"{parts.scheme}://{host}" + ("" if port == PORTS.get(parts.scheme) else f":{port}")


class _WithinOrigin(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        here, there = origin(req.full_url), origin(newurl)
        if here != there:
            raise ConfigError(
                f"{here} redirects (HTTP {code}) to another server, {there}, which would get the credentials",
                fix=f"if {there} is the server you mean, name it in calve.yaml in place of {here}",
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _read(answer: HTTPResponse) -> bytes:
    body = answer.read(LARGEST + 1)
    if len(body) > LARGEST:
        raise OSError(f"its answer is larger than {LARGEST:,} bytes")
    if answer.length:
        raise OSError("its answer ended early")
    return body


UNSTATED_LIFE_S = 300
RENEWED_AFTER = 0.8


class Tokens:
    """Tokens of one client; safe to share between threads. `settings` names their part of calve.yaml in messages."""

    def __init__(
        self,
        url: str,
        client_id: str,
        client_secret: str,
        *,
        scope: str | None = None,
        tls: ssl.SSLContext | None = None,
        settings: str = "registry.secret and registry.oauth",
    ) -> None:
        self._settings = settings
        self._url = url
        self._server = f"the token endpoint {url}"
        form = {"grant_type": "client_credentials"} | ({"scope": scope} if scope else {})
        self._headers = {
            **basic(*(urllib.parse.quote_plus(each) for each in (client_id, client_secret))),
            "Content-Type": "application/x-www-form-urlencoded",
            "Accept": "application/json",
        }
        self._body = urllib.parse.urlencode(form).encode()
        self._tls = tls
        self._token: str | None = None
        self._renew_at = 0.0
        self._lock = threading.Lock()

    def current(self) -> str:
        """A token that holds. Raises Fatal: the endpoint refused the client, or gave no token. Retryable: it did not answer."""
        with self._lock:
            if self._token is None or time.monotonic() >= self._renew_at:
                self._token = self._new()
            return self._token

    def refused(self, token: str) -> None:
        with self._lock:
            if self._token == token:
                self._token = None

    def _new(self) -> str:
        post = {"method": "POST", "headers": self._headers, "body": self._body, "tls": self._tls}
        found = ask(self._url, server=self._server, **post)
        fix = f"check {self._settings}"
        if found.status != 200:
            raise Fatal(f"{self._server} refused the client (HTTP {found.status})", fix=fix)
        answer = found.json()
        token = answer.get("access_token") if isinstance(answer, dict) else None
        if not isinstance(token, str) or not token:
            raise Fatal(f"{self._server} gave no access token", fix=fix)
        life_s = answer.get("expires_in")
        life_s = float(life_s) if isinstance(life_s, int | float | str) and life_s else UNSTATED_LIFE_S
        self._renew_at = time.monotonic() + RENEWED_AFTER * life_s
        return token
