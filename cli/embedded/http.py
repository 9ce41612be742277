"""Requests to servers of this machine: never through a proxy."""

from __future__ import annotations

import os
import urllib.error
import urllib.request

from cli.embedded.ports import HOST

_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def no_proxy() -> dict[str, str]:
    """Environment variables that let other clients, too, reach this machine directly."""
    hosts = (os.environ.get("NO_PROXY") or os.environ.get("no_proxy"), HOST, "localhost")
    return dict.fromkeys(("NO_PROXY", "no_proxy"), ",".join(filter(None, hosts)))


def call(url: str, *, method: str = "GET", body: bytes | None = None, timeout_s: float = 2.0) -> int:
    """Return the status of the answer; 0 when there was none."""
    headers = {"Content-Type": "application/json"} if body else {}
    request = urllib.request.Request(url, data=body, method=method, headers=headers)  # noqa: S310  loopback only
    try:
        with _opener.open(request, timeout=timeout_s) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code
    except OSError:
        return 0
