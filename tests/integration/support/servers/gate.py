"""A reverse proxy on the loopback interface: it stands before a real server, and its heirs interfere."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self
from urllib.parse import urlsplit

OF_THE_CONNECTION = {"connection", "keep-alive", "transfer-encoding", "content-length", "expect"}


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


class Gate:
    """Passes every request on; `answer` is what an heir overrides. Use it as a context manager."""

    def __init__(self, upstream: str) -> None:
        parts = urlsplit(upstream)
        assert parts.hostname == "127.0.0.1"
        self._upstream = (parts.hostname, parts.port)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}{parts.path}"

    def answer(self, request: Request) -> Answer | None:
        """The answer to a request; None closes the connection without one."""
        return self.pass_on(request)

    def pass_on(self, request: Request) -> Answer:
        """What the real server answers."""
        connection = HTTPConnection(*self._upstream, timeout=60)
        try:
            connection.putrequest(request.method, request.path, skip_host=True, skip_accept_encoding=True)
            for name, value in request.headers.items():
                if name.lower() not in OF_THE_CONNECTION:
                    connection.putheader(name, value)
            connection.putheader("Content-Length", str(len(request.body)))
            connection.endheaders(request.body)
            response = connection.getresponse()
            return Answer(response.status, dict(response.getheaders()), response.read())
        finally:
            connection.close()

    def __enter__(self) -> Self:
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        ).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def _handler(gate: Gate) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if self.headers.get("Transfer-Encoding") == "chunked":
                body = b"".join(iter(self.chunk, b""))
            answer = gate.answer(Request(self.command, self.path, dict(self.headers), body))
            if answer is None:
                self.close_connection = True
                return
            self.send_response_only(answer.status)
            for name, value in answer.headers.items():
                if name.lower() not in OF_THE_CONNECTION:
                    self.send_header(name, value)
            head = self.command == "HEAD"
            length = answer.headers.get("Content-Length", "0") if head else str(len(answer.body))
            self.send_header("Content-Length", length)
            self.end_headers()
            if not head:
                self.wfile.write(answer.body)

        def chunk(self) -> bytes:
            """The next part of a body that comes in parts; the last one is empty."""
            found = self.rfile.read(int(self.rfile.readline().partition(b";")[0], 16))
            self.rfile.readline()
            return found

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = serve

        def log_message(self, *_: object) -> None:
            pass

    return Handler
