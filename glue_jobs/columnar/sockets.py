"""Sockets that receive as much as has come: kafka-python asks for 4 KiB at a time, which costs more than all else in fetching.

Through TLS that makes no difference.
"""

from __future__ import annotations

import socket

from kafka.net.inet import KafkaNetSocket

RECEIVE_BYTES = 1 << 18
URL = "direct://"
"""As kafka-python's `proxy_url`: no proxy, but these sockets."""


class _Socket(socket.socket):
    def recv(self, size: int, flags: int = 0) -> bytes:
        return super().recv(max(size, RECEIVE_BYTES), flags)


class _Sockets(KafkaNetSocket):  # type: ignore[misc]
    SCHEMES = ("direct",)

    def socket(
        self, family: int = socket.AF_UNSPEC, sock_type: int = socket.SOCK_STREAM, proto: int = 0
    ) -> socket.socket:
        return _Socket(family, sock_type, proto)
