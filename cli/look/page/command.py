"""`calve console`: the pages of `calve status`, served on this machine alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Annotated
from urllib.parse import parse_qsl, urlencode, urlsplit

import typer

from calve.errors import CalveError, ConfigError
from cli.config import Common, load_jobs
from cli.embedded.processes import HOST
from cli.look.page.page import Addresses, Side, page, several_page
from cli.look.status.overview import Overview, look

DeploymentsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="FILE[:ENV]",
        help="Deployments to show side by side: the calve.yaml of each, and its environment. Else: -c and --env.",
    ),
]
PortOption = Annotated[
    int, typer.Option("--port", "-p", min=0, max=65_535, help="A port of 127.0.0.1; 0: a free one.")
]
OpenOption = Annotated[bool, typer.Option("--open", help="Open it in the browser.")]
KEPT_S = 3.0
"""A page is asked for again after a search or a reload: the same look serves it for so long."""
DEPLOYMENT, TABLE = "/deployment", "/table"
Look = Callable[[str], Overview]
"""Looks at one table, or, for the empty name, at all."""


def console(
    deployments: DeploymentsArgument = None,
    *,
    given: Common,
    port: PortOption = 8765,
    open: OpenOption = False,
) -> None:
    """Serve a page of the deployment on this machine: trouble first, every table, and the history of each.

    It only reads what `calve status` reads. Nobody but a browser on this machine can ask for it. Ctrl-C ends it.

    Examples:
      calve console --open
      calve console calve.yaml:dev calve.yaml:prod ../sales/calve.yaml
    """
    pages = Pages(_looks(deployments or [], given))
    try:
        server = ThreadingHTTPServer((HOST, port), handler(pages))
    except OSError as error:
        raise ConfigError(f"port {port} cannot be used: {error.strerror}", fix="--port 0") from None
    address = f"http://{HOST}:{server.server_port}/"
    given.console.event(f"calve console of {', '.join(pages.labels)}", at=address, ends="Ctrl-C")
    given.console.document({"deployments": pages.labels, "url": address})
    if open:
        typer.launch(address)
    with server:
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            given.console.event("the console has ended")


def _looks(texts: list[str], given: Common) -> dict[str, Look]:
    """A look at each deployment, by its name and environment. Raises ConfigError: two have the same."""
    found: dict[str, Look] = {}
    for config, env in map(_parsed, texts) if texts else [(given.config, given.env)]:
        name = load_jobs(config, env)[0].name
        label = f"{name} {env}" if env else name
        if label in found:
            raise ConfigError(f'"{label}" is named twice', fix="name each deployment once")

        def at(table: str, config: Path = config, env: str | None = env) -> Overview:
            return look(config, env, [table] if table else ())

        found[label] = at
    return found


def _parsed(text: str) -> tuple[Path, str | None]:
    file, _, env = text.partition(":")
    return Path(file), env or None


class Pages:
    """Pages of deployments, by label. A look is at most `KEPT_S` old, and only one runs at a time."""

    def __init__(self, looks: Mapping[str, Look]) -> None:
        self._looks = looks
        self._made: dict[tuple[str, str], tuple[float, str]] = {}
        self._lock = threading.Lock()

    @property
    def labels(self) -> list[str]:
        return list(self._looks)

    def at(self, path: str, query: str) -> str | None:
        """The page of an address; None: there is none. Raises CalveError: there is no such table, or a system does not answer."""
        given = dict(parse_qsl(query))
        alone = self.labels[0] if len(self.labels) == 1 else ""
        label, table = given.get("of", alone), given.get("name", "")
        wanted = {"/": not given, DEPLOYMENT: bool(label) and not table, TABLE: bool(label and table)}
        if not wanted.get(path) or (label and label not in self._looks):
            return None
        with self._lock:
            moment, text = self._made.get((label, table), (0.0, ""))
            if not text or time.monotonic() - moment > KEPT_S:
                text = self._page(label, table) if label else self._several()
                self._made = {(label, table): (time.monotonic(), text)}
            return text

    def _page(self, label: str, table: str) -> str:
        several = len(self._looks) > 1
        of = {"of": label} if several else {}
        deployment = f"{DEPLOYMENT}?{urlencode(of)}" if several else "/"
        addresses = Addresses("/", deployment, lambda name: f"{TABLE}?{urlencode(of | {'name': name})}")
        return page(self._looks[label](table), addresses)

    def _several(self) -> str:
        with ThreadPoolExecutor(len(self._looks)) as pool:
            return several_page(list(pool.map(self._side, self._looks)), datetime.now(UTC))

    def _side(self, label: str) -> Side:
        href = f"{DEPLOYMENT}?{urlencode({'of': label})}"
        try:
            return Side(label, href, self._looks[label](""))
        except CalveError as error:
            return Side(label, href, None, error)


def handler(pages: Pages) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """Answers GET of the pages. Another name of this machine in `Host` is that of a page elsewhere: refused."""

        def do_GET(self) -> None:
            asked = urlsplit(self.path)
            host, _, _ = self.headers.get("Host", "").partition(":")
            if host not in (HOST, "localhost"):
                self._answer(HTTPStatus.MISDIRECTED_REQUEST, "only for this machine\n", "text/plain")
                return
            try:
                text = pages.at(asked.path, asked.query)
            except CalveError as error:
                self._answer(HTTPStatus.SERVICE_UNAVAILABLE, f"{error}\n", "text/plain")
                return
            if text is None:
                self._answer(HTTPStatus.NOT_FOUND, "there is no such page\n", "text/plain")
            else:
                self._answer(HTTPStatus.OK, text, "text/html")

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
