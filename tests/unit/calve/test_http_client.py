"""Every client of calve's beside a server that redirects elsewhere: what is elsewhere gets nothing."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from calve import http_client
from calve.errors import ConfigError, Fatal
from calve.http_client import NoAnswer, Tokens, origin, send
from calve.registry.confluent import ConfluentRegistry
from calve.secrets import HeldSecret, Redacted
from cli.embedded.kafka import write_certificates
from lambdas.catalog_sync.catalog import Server as CatalogServer
from lambdas.keys.cloud import Cloud
from lambdas.snowflake.sql_api import KeyPair, Session

Act = Callable[["Handler"], None]


class Site(ThreadingHTTPServer):
    """A server; `act` is what it does with each request, `asked` what came."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.scheme = "http"
        self.asked: list[tuple[str, str | None]] = []
        self.act: Act = lambda handler: handler.answer(200, b"{}")

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Site

    def serve(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.asked.append((self.path, self.headers.get("Authorization")))
        self.server.act(self)

    do_GET = do_POST = do_DELETE = do_PUT = serve

    def answer(self, status: int, body: bytes, length: int | None = None, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(tls: ssl.SSLContext | None = None) -> Iterator[Site]:
    with Site() as site:
        if tls is not None:
            site.scheme, site.socket = "https", tls.wrap_socket(site.socket, server_side=True)
        threading.Thread(target=site.serve_forever, args=(0.02,), daemon=True).start()
        yield site
        site.shutdown()


@pytest.fixture
def here() -> Iterator[Site]:
    with serving() as site:
        yield site


@pytest.fixture
def there() -> Iterator[Site]:
    with serving() as site:
        yield site


def redirect(to: str, status: int = 302) -> Act:
    return lambda handler: handler.answer(status, b"", Location=to)


def registry(url: str) -> None:
    ConfluentRegistry(url, secret=HeldSecret("env:LOGIN")).subjects()


def registry_by_token(url: str) -> None:
    class Token(Tokens):
        def current(self) -> str:
            return "hunter2"

    ConfluentRegistry(url, tokens=Token(url, "id", "hunter2")).subjects()


def tokens(url: str) -> None:
    Tokens(f"{url}/tokens", "id", "hunter2").current()


def catalog(url: str) -> None:
    CatalogServer(url).ask("GET", "/v1/config")


def cloud(url: str) -> None:
    Cloud(url, Redacted(username="ada", password="hunter2")).key("KEY")


def snowflake(url: str) -> None:
    Session(url, "org-account", "USER", KeyPair.generate(), "ROLE").execute("SELECT 1")


@pytest.mark.parametrize("client", [registry, registry_by_token, tokens, catalog, cloud, snowflake])
def test_no_client_follows_a_redirect_to_another_server(
    here: Site, there: Site, client: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGIN", json.dumps({"username": "ada", "password": "hunter2"}))
    here.act = redirect(there.url.replace("//", "//ada:hunter2@") + "/elsewhere?key=hunter2")
    with pytest.raises(ConfigError) as caught:
        client(here.url)
    assert there.asked == []
    message = str(caught.value)
    assert f"{here.url} redirects (HTTP 302) to another server, {there.url}," in message
    assert "hunter2" not in message
    assert len(here.asked) == 1


def test_a_redirect_from_https_to_http_of_the_same_host_is_not_followed(there: Site, tmp_path: Path) -> None:
    authorities, store = write_certificates(tmp_path)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(store)
    with serving(tls) as secure:
        secure.act = redirect(there.url)
        trusted = ssl.create_default_context(cafile=str(authorities))
        with pytest.raises(ConfigError, match=r"https://127.*redirects .* to another server, http://127"):
            send(secure.url, headers=http_client.basic("ada", "hunter2"), tls=trusted)
    assert there.asked == []


def test_a_redirect_within_the_server_is_followed_with_the_credentials(here: Site) -> None:
    def act(handler: Handler) -> None:
        if handler.path == "/old":
            return handler.answer(301, b"", Location=f"{here.url}/new")
        return handler.answer(200, b'{"x": 1}')

    here.act = act
    assert send(f"{here.url}/old", headers=http_client.bearer("t")).json() == {"x": 1}
    assert here.asked == [("/old", "Bearer t"), ("/new", "Bearer t")]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("https://a/x", "https://a:443/y", True),
        ("http://A.example", "http://a.EXAMPLE:80", True),
        ("https://a", "http://a", False),
        ("https://a", "https://a:8443", False),
        ("https://a.example", "https://b.a.example", False),
        ("https://[::1]:8081/x", "https://[::1]:8081", True),
    ],
)
def test_an_origin_is_scheme_host_and_port(one: str, other: str, same: bool) -> None:
    assert (origin(one) == origin(other)) is same
    assert origin("https://ada:hunter2@[::1]:8081/x?key=hunter2") == "https://[::1]:8081"


def test_an_answer_without_an_end_is_not_read_for_ever(here: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "LARGEST", 100)
    here.act = lambda handler: handler.answer(200, b"1" * 101)
    with pytest.raises(NoAnswer, match="does not answer: its answer is larger than 100 bytes"):
        send(here.url)


@pytest.mark.parametrize(
    ("body", "length", "why"),
    [(b"12", 3, "ended early"), (b"[" * 9999, None, "but no JSON"), (b"<html>", None, "HTTP 200, but no")],
)
def test_half_an_answer_and_what_is_no_json_are_no_answer(
    here: Site, body: bytes, length: int | None, why: str
) -> None:
    here.act = lambda handler: handler.answer(200, body, length)
    with pytest.raises(NoAnswer, match=why):
        send(here.url).json()


def test_a_refusal_is_an_answer_with_what_it_says(here: Site) -> None:
    here.act = lambda handler: handler.answer(422, b'{"error_code": 42201}')
    answer: Any = send(here.url, method="POST", body=b"{}")
    assert (answer.status, answer.json()) == (422, {"error_code": 42201})
    assert "42201" not in repr(answer)


def test_another_scheme_is_refused() -> None:
    with pytest.raises(Fatal, match="neither http nor https"):
        http_client.checked("file:///etc/passwd", "registry.url")
