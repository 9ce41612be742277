"""A receiver of OpenLineage events: it takes JSON at one path, with a key, as Marquez does."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PATH = "/api/v1/lineage"
KEY = "k-7f3a"


@dataclass
class Receiver:
    """url: of the server. events: in the order of their arrival. status: of its answers; 201 takes the event."""

    url: str = ""
    events: list[dict[str, Any]] = field(default_factory=list)
    status: int = 201
    lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, job: str, kind: str = "COMPLETE") -> list[dict[str, Any]]:
        """The events of a job, of one type."""
        with self.lock:
            return [each for each in self.events if (each["job"]["name"], each["eventType"]) == (job, kind)]


@contextmanager
def serving(key: str | None = KEY) -> Iterator[Receiver]:
    """key: that it asks for; None: it asks for none."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            known = key is None or self.headers.get("Authorization") == f"Bearer {key}"
            status = 404 if self.path != PATH else receiver.status if known else 401
            if status == 201:
                with receiver.lock:
                    receiver.events.append(body)
            self.send_response(status)
            if status == 302:
                self.send_header("Location", f"{receiver.url}/login")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_GET(self) -> None:
            """A login page, which answers anybody."""
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """A test reads the events instead."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
