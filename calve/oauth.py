"""OAuth 2.0 client credentials (RFC 6749, 4.4): a token from a token endpoint, renewed before it expires."""

from __future__ import annotations

import ssl
import threading
import time
import urllib.parse

from calve import http_client
from calve.errors import Fatal

UNSTATED_LIFE_S = 300
RENEWED_AFTER = 0.8


class Tokens:
    """Tokens of one client; safe to share between threads."""

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
        """`settings` names, in messages, what of calve.yaml they come from."""
        self._settings = settings
        self._url = url
        self._server = f"the token endpoint {url}"
        form = {"grant_type": "client_credentials"} | ({"scope": scope} if scope else {})
        self._headers = {
            **http_client.basic(*(urllib.parse.quote_plus(each) for each in (client_id, client_secret))),
            "Content-Type": "application/x-www-form-urlencoded",
            "Accept": "application/json",
        }
        self._body = urllib.parse.urlencode(form).encode()
        self._tls = tls
        self._token: str | None = None
        self._renew_at = 0.0
        self._lock = threading.Lock()

    def current(self) -> str:
        """A token that holds.

        Raises:
            Fatal: the endpoint refused the client, or gave no token.
            Retryable: it did not answer.
        """
        with self._lock:
            if self._token is None or time.monotonic() >= self._renew_at:
                self._token = self._new()
            return self._token

    def refused(self, token: str) -> None:
        """Do not use this token again."""
        with self._lock:
            if self._token == token:
                self._token = None

    def _new(self) -> str:
        found = http_client.ask(
            self._url,
            server=self._server,
            method="POST",
            headers=self._headers,
            body=self._body,
            tls=self._tls,
        )
        if found.status != 200:
            raise Fatal(
                f"{self._server} refused the client (HTTP {found.status})", fix=f"check {self._settings}"
            )
        answer = found.json()
        token = answer.get("access_token") if isinstance(answer, dict) else None
        if not isinstance(token, str) or not token:
            raise Fatal(f"{self._server} gave no access token", fix=f"check {self._settings}")
        life_s = answer.get("expires_in")
        life_s = float(life_s) if isinstance(life_s, int | float | str) and life_s else UNSTATED_LIFE_S
        self._renew_at = time.monotonic() + RENEWED_AFTER * life_s
        return token
