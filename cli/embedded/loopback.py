"""The loopback interface: its free ports, and requests to servers of this machine, never through a proxy."""

from __future__ import annotations

import os
import socket
from contextlib import ExitStack

from calve import http_client

HOST = "127.0.0.1"


def free_ports(count: int) -> list[int]:
    """Return ports that nothing listens on; all are held open together, so they differ."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for free in sockets:
            free.bind((HOST, 0))
        return [free.getsockname()[1] for free in sockets]


def no_proxy() -> dict[str, str]:
    """Environment variables that let other clients, too, reach this machine directly."""
    hosts = (os.environ.get("NO_PROXY") or os.environ.get("no_proxy"), HOST, "localhost")
    return dict.fromkeys(("NO_PROXY", "no_proxy"), ",".join(filter(None, hosts)))


def call(url: str, *, method: str = "GET", body: bytes | None = None, timeout_s: float = 2.0) -> int:
    """Return the status of the answer; 0 when there was none."""
    headers = {"Content-Type": "application/json"} if body else {}
    try:
        return http_client.send(
            url, method=method, body=body, headers=headers, timeout_s=timeout_s, proxies=False
        ).status
    except http_client.NoAnswer:
        return 0
