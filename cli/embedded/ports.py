"""Free ports of the loopback interface."""

from __future__ import annotations

import socket
from contextlib import ExitStack

HOST = "127.0.0.1"


def free_ports(count: int) -> list[int]:
    """Return ports that nothing listens on; all are held open together, so they differ."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for free in sockets:
            free.bind((HOST, 0))
        return [free.getsockname()[1] for free in sockets]
