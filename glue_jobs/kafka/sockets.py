"""Sockets for kafka-python's way of reading: until nothing is there, 4 KiB at a time.

These receive as much as has come, which takes a third off the cost of fetching; through TLS that makes no difference. And they
tell of a connection's end only after what came before it was handed over, which would be lost: why a broker refuses a password.
"""

from __future__ import annotations

import socket
import ssl

from kafka.net.inet import KafkaNetSocket

RECEIVE_BYTES = 1 << 18
URL = "direct://"
"""As kafka-python's `proxy_url`: no proxy, but these sockets."""


class _Ending:
    """unread: whether something came that may not have been handed over."""

    unread = False

    def ended_after(self, data: bytes) -> bytes:
        if not data and self.unread:
            self.unread = False
            raise BlockingIOError
        self.unread = bool(data)
        return data


class _Socket(socket.socket, _Ending):
    def recv(self, size: int, flags: int = 0) -> bytes:
        return self.ended_after(super().recv(max(size, RECEIVE_BYTES), flags))


class TlsSocket(ssl.SSLSocket, _Ending):
    """For `ssl.SSLContext.sslsocket_class`."""

    def recv(self, size: int = 4096, flags: int = 0) -> bytes:
        return self.ended_after(super().recv(size, flags))


class _Sockets(KafkaNetSocket):  # type: ignore[misc]
    SCHEMES = ("direct",)

    def socket(
        self, family: int = socket.AF_UNSPEC, sock_type: int = socket.SOCK_STREAM, proto: int = 0
    ) -> socket.socket:
        return _Socket(family, sock_type, proto)
