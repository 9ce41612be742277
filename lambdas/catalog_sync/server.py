"""JSON over HTTP to a catalog's server, with OAuth client credentials; every refusal is an error of its own kind."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from calve import http_client
from calve.errors import CalveError, Fatal, Retryable
from calve.http_client import Tokens

TIMEOUT_S = 15
TOKEN_REFUSED = (401, 419)
DONE_NOTHING = (429, 503)
"""What a server says before it begins; after any other 5xx it may have done what it was asked."""
SAID = 300


class NotFound(CalveError):
    """There is no such table, namespace or other thing."""


class Conflict(CalveError):
    """It is there already, or something newer is."""


class NotSupported(Fatal):
    """The server has no such operation."""


class Unanswered(Retryable):
    """A change was asked for, and nobody knows whether it was made."""


class Server:
    """One server; safe to share between threads."""

    def __init__(self, uri: str, tokens: Tokens | None = None) -> None:
        self._uri = http_client.checked(uri, "publish.iceberg_rest.uri")
        self._tokens = tokens

    def ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """What the server answers; empty where it answers without a body. A token that it refuses is renewed once.

        Raises:
            NotFound, Conflict, NotSupported: see there. Fatal: it refuses. Retryable: it does not answer.
            Unanswered: the same of a request that changes something.
        """
        try:
            return self._ask(method, path, body, query)
        except _Unauthorized:
            return self._ask(method, path, body, query)

    def _ask(
        self, method: str, path: str, body: Mapping[str, Any] | None, query: Mapping[str, str] | None
    ) -> dict[str, Any]:
        token = self._tokens.current() if self._tokens else None
        headers = {"Accept": "application/json"}
        if token:
            headers |= http_client.bearer(token)
        if body is not None:
            headers["Content-Type"] = "application/json"
        try:
            answer = http_client.send(
                f"{self._uri}{path}" + (f"?{urlencode(query)}" if query else ""),
                method=method,
                headers=headers,
                body=None if body is None else json.dumps(body).encode(),
                timeout_s=TIMEOUT_S,
            )
            found: dict[str, Any] = answer.json() if answer.status < 300 and answer.body else {}
        except http_client.NoAnswer as error:
            raise (Retryable if method == "GET" else Unanswered)(error.message) from None
        if answer.status < 300:
            return found
        if answer.status in TOKEN_REFUSED and self._tokens and token:
            self._tokens.refused(token)
            raise _Unauthorized(f"{self._uri} refused the token (HTTP {answer.status})")
        raise _refusal(f"{method} {self._uri}{path}", method, answer.status, answer.body)


class _Unauthorized(Fatal):
    pass


def escaped(name: str) -> str:
    """A name as one part of a path."""
    return quote(name, safe="")


def _refusal(request: str, method: str, status: int, text: bytes) -> CalveError:
    message = f"{request}: HTTP {status} {_words(text)}".rstrip()
    match status:
        case 404:
            return NotFound(message)
        case 409:
            return Conflict(message)
        case 405 | 406 | 501:
            return NotSupported(message)
        case _ if status in DONE_NOTHING or (status >= 500 and method == "GET"):
            return Retryable(message)
        case _ if status >= 500:
            return Unanswered(message)
    return Fatal(message)


def _words(text: bytes) -> str:
    """What an answer of Iceberg's or Polaris' says went wrong."""
    try:
        error = json.loads(text)["error"]
        return f"{error['type']}: {error['message']}"[:SAID]
    except (ValueError, TypeError, KeyError):
        return ""
