"""JSON over HTTP with the standard library: overload is waited out for a moment, everything else is the caller's."""

from __future__ import annotations

import json
import ssl
import time
import urllib.error
import urllib.request
from typing import Any

from calve.errors import Retryable

TIMEOUT_S = 10
PAUSES_S = (0.2, 0.6)


def ask(request: urllib.request.Request, tls: ssl.SSLContext | None, server: str) -> Any:
    """The JSON that a server answers; HTTP 429 and 5xx are tried three times. `server` names it in messages.

    Raises:
        Retryable: it does not answer, is overloaded, or answers something else.
        urllib.error.HTTPError: it answers with another status.
    """
    for pause_s in (*PAUSES_S, None):
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=tls) as answer:  # noqa: S310 https or http
                return json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code != 429 and error.code < 500:
                raise
            error.close()
            if pause_s is None:
                raise Retryable(f"{server} answered HTTP {error.code}") from None
            time.sleep(pause_s)
        except (OSError, ValueError) as error:
            raise Retryable(f"{server} does not answer: {error}") from None
    raise AssertionError
