"""`calve console`: the page of `calve status`, served on this machine alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Annotated
from urllib.parse import parse_qs, quote, urlsplit

import typer

from calve.errors import CalveError, ConfigError
from cli.config import Common, load_jobs
from cli.embedded.processes import HOST
from cli.look.page.page import page
from cli.look.status.overview import Overview, look

PortOption = Annotated[
    int, typer.Option("--port", "-p", min=0, max=65_535, help="A port of 127.0.0.1; 0: a free one.")
]
OpenOption = Annotated[bool, typer.Option("--open", help="Open it in the browser.")]
KEPT_S = 3.0
"""A page is asked for again after a search or a reload: the same look serves it for so long."""
TABLE = "/table"


def console(*, given: Common, port: PortOption = 8765, open: OpenOption = False) -> None:
    """Serve a page of the deployment on this machine: trouble first, every table, and the history of each.

    It only reads what `calve status` reads. Nobody but a browser on this machine can ask for it. Ctrl-C ends it.

    Examples:
      calve console --open
      calve console --env prod
    """
    [name] = {each.name for each in load_jobs(given.config, given.env)}
    pages = Pages(lambda table: look(given.config, given.env, [table] if table else ()), name)
    try:
        server = ThreadingHTTPServer((HOST, port), handler(pages))
    except OSError as error:
        raise ConfigError(f"port {port} cannot be used: {error.strerror}", fix="--port 0") from None
    address = f"http://{HOST}:{server.server_port}/"
    given.console.event(f"calve console of {name}", at=address, ends="Ctrl-C")
    given.console.document({"name": name, "url": address})
    if open:
        typer.launch(address)
    with server:
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            given.console.event("the console has ended")


class Pages:
    """Pages by table; the empty name is the list. A look is at most `KEPT_S` old, and only one runs at a time."""

    def __init__(self, look: Callable[[str], Overview], name: str) -> None:
        self._look, self._name = look, name
        self._made: dict[str, tuple[float, str]] = {}
        self._lock = threading.Lock()

    def of(self, table: str) -> str:
        """The page. Raises CalveError: there is no such table, or a system does not answer."""
        with self._lock:
            at, text = self._made.get(table, (0.0, ""))
            if not text or time.monotonic() - at > KEPT_S:
                text = page(
                    self._look(table), self._name, link=lambda name: f"{TABLE}?name={quote(name)}", home="/"
                )
                self._made = {table: (time.monotonic(), text)}
            return text


def handler(pages: Pages) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """Answers GET of the two addresses. Another name of this machine in `Host` is that of a page elsewhere: refused."""

        def do_GET(self) -> None:
            asked = urlsplit(self.path)
            [table] = parse_qs(asked.query).get("name", [""])[:1]
            host, _, _ = self.headers.get("Host", "").partition(":")
            if host not in (HOST, "localhost"):
                self._answer(HTTPStatus.MISDIRECTED_REQUEST, "only for this machine\n", "text/plain")
            elif asked.path not in ("/", TABLE) or (asked.path == TABLE) != bool(table):
                self._answer(HTTPStatus.NOT_FOUND, "there is no such page\n", "text/plain")
            else:
                try:
                    self._answer(HTTPStatus.OK, pages.of(table), "text/html")
                except CalveError as error:
                    self._answer(HTTPStatus.SERVICE_UNAVAILABLE, f"{error}\n", "text/plain")

        def _answer(self, status: HTTPStatus, text: str, kind: str) -> None:
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing: the terminal is the operator's."""

    return Handler
