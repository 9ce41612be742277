"""OAuth 2.0 client credentials (RFC 6749, 4.4): a token from a token endpoint, renewed before it expires."""

from __future__ import annotations

import base64
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

from calve.errors import Fatal
from calve.http_json import ask

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
        self._server = f"the token endpoint {url}"
        pair = ":".join(urllib.parse.quote_plus(each) for each in (client_id, client_secret))
        form = {"grant_type": "client_credentials"} | ({"scope": scope} if scope else {})
        headers = {
            "Authorization": "Basic " + base64.b64encode(pair.encode()).decode(),
            "Content-Type": "application/x-www-form-urlencoded",
            "Accept": "application/json",
        }
        body = urllib.parse.urlencode(form).encode()
        self._request = urllib.request.Request(url, body, headers, method="POST")  # noqa: S310 checked with the settings
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
        try:
            answer = ask(self._request, self._tls, self._server)
        except urllib.error.HTTPError as error:
            error.close()
            raise Fatal(
                f"{self._server} refused the client (HTTP {error.code})",
                fix=f"check {self._settings}",
            ) from None
        token = answer.get("access_token") if isinstance(answer, dict) else None
        if not isinstance(token, str) or not token:
            raise Fatal(f"{self._server} gave no access token", fix=f"check {self._settings}")
        life_s = answer.get("expires_in")
        life_s = float(life_s) if isinstance(life_s, int | float | str) and life_s else UNSTATED_LIFE_S
        self._renew_at = time.monotonic() + RENEWED_AFTER * life_s
        return token
