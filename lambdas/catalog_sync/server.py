"""JSON over HTTP to a catalog's server, with OAuth client credentials; every refusal is an error of its own kind."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import quote, urlencode, urlsplit

from calve.errors import CalveError, Fatal, Retryable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from calve.oauth import Tokens

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
        if urlsplit(uri).scheme not in ("http", "https"):
            raise Fatal(
                f'"{uri}" is neither http nor https', fix="set publish.iceberg_rest.uri in calve.yaml"
            )
        self._uri = uri.rstrip("/")
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
            headers["Authorization"] = f"Bearer {token}"
        if body is not None:
            headers["Content-Type"] = "application/json"
        request = urllib.request.Request(  # noqa: S310 checked above
            f"{self._uri}{path}" + (f"?{urlencode(query)}" if query else ""),
            data=None if body is None else json.dumps(body).encode(),
            headers=headers,
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310
                text = answer.read()
            return json.loads(text) if text else {}
        except urllib.error.HTTPError as error:
            said = error.read()
            if error.code in TOKEN_REFUSED and self._tokens and token:
                self._tokens.refused(token)
                raise _Unauthorized(f"{self._uri} refused the token (HTTP {error.code})") from None
            _refuse(f"{method} {self._uri}{path}", method, error.code, said)
        except (OSError, ValueError, HTTPException) as error:
            kind = Retryable if method == "GET" else Unanswered
            raise kind(f"{self._uri} does not answer: {error}") from None


class _Unauthorized(Fatal):
    pass


def escaped(name: str) -> str:
    """A name as one part of a path."""
    return quote(name, safe="")


def _refuse(request: str, method: str, status: int, text: bytes) -> NoReturn:
    message = f"{request}: HTTP {status} {_words(text)}".rstrip()
    match status:
        case 404:
            raise NotFound(message)
        case 409:
            raise Conflict(message)
        case 405 | 406 | 501:
            raise NotSupported(message)
        case _ if status in DONE_NOTHING or (status >= 500 and method == "GET"):
            raise Retryable(message)
        case _ if status >= 500:
            raise Unanswered(message)
    raise Fatal(message)


def _words(text: bytes) -> str:
    """What an answer of Iceberg's or Polaris' says went wrong."""
    try:
        error = json.loads(text)["error"]
        return f"{error['type']}: {error['message']}"[:SAID]
    except (ValueError, TypeError, KeyError):
        return ""
