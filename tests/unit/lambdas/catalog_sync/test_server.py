"""What a server answers becomes a value, or an error of its own kind."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from calve.errors import Fatal, Retryable
from calve.http_client import Tokens
from calve.names import TableName
from lambdas.catalog_sync import catalog
from lambdas.catalog_sync.catalog import (
    Catalog,
    Conflict,
    NotFound,
    NotSupported,
    Server,
    Unanswered,
)
from lambdas.followers import Head

SAID = {"error": {"message": "no such thing", "type": "NoSuchTableException", "code": 404, "stack": ["x"]}}


class Scripted:
    """Answers what it is told to, in turn; `asked` is what arrived."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, Any]] = []
        self.asked: list[tuple[str, str, str | None, bytes]] = []
        scripted = self

        class Handler(BaseHTTPRequestHandler):
            def serve(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                scripted.asked.append((self.command, self.path, self.headers.get("Authorization"), body))
                if not scripted.answers:
                    return
                status, answer = scripted.answers.pop(0)
                text = b"" if answer is None else json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_POST = do_DELETE = serve

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        ).start()

    def end(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def scripted() -> Iterator[Scripted]:
    made = Scripted()
    yield made
    made.end()


@pytest.mark.parametrize(
    ("status", "method", "kind"),
    [
        (404, "GET", NotFound),
        (409, "POST", Conflict),
        (406, "POST", NotSupported),
        (501, "POST", NotSupported),
        (403, "GET", Fatal),
        (400, "POST", Fatal),
        (429, "POST", Retryable),
        (503, "POST", Retryable),
        (500, "GET", Retryable),
        (500, "POST", Unanswered),
        (504, "DELETE", Unanswered),
    ],
)
def test_every_refusal_is_of_a_kind(
    scripted: Scripted, status: int, method: str, kind: type[Exception]
) -> None:
    scripted.answers = [(status, SAID)]
    with pytest.raises(kind) as error:
        Server(scripted.url).ask(method, "/v1/x")
    assert type(error.value) is kind
    assert (
        str(error.value) == f"{method} {scripted.url}/v1/x: HTTP {status} NoSuchTableException: no such thing"
    )


@pytest.mark.parametrize(("method", "kind"), [("GET", Retryable), ("POST", Unanswered)])
def test_a_connection_that_ends_is_no_answer(scripted: Scripted, method: str, kind: type[Exception]) -> None:
    with pytest.raises(kind, match="does not answer") as error:
        Server(scripted.url).ask(method, "/v1/x")
    assert type(error.value) is kind


def test_a_server_that_is_silent_is_not_waited_for_forever(
    monkeypatch: pytest.MonkeyPatch, scripted: Scripted
) -> None:
    monkeypatch.setattr(catalog, "TIMEOUT_S", 0.2)
    hold = threading.Event()
    scripted.answers = _Held(hold)
    try:
        with pytest.raises(Unanswered, match="timed out"):
            Server(scripted.url).ask("POST", "/v1/x", {})
    finally:
        hold.set()


class _Held(list[Any]):
    def __init__(self, event: threading.Event) -> None:
        super().__init__([(200, {})])
        self._event = event

    def pop(self, *_: Any) -> Any:
        self._event.wait(5)
        return super().pop()


def test_a_token_that_is_refused_is_renewed_once(scripted: Scripted) -> None:
    tokens = Tokens(f"{scripted.url}/tokens", "id", "secret", scope="catalog")
    one, two = ({"access_token": each, "expires_in": 3600} for each in ("one", "two"))
    scripted.answers = [(200, one), (401, SAID), (200, two), (200, {"x": 1})]
    assert Server(scripted.url, tokens).ask("GET", "/v1/x") == {"x": 1}
    assert [each[2] for each in scripted.asked if each[1] == "/v1/x"] == ["Bearer one", "Bearer two"]
    scripted.answers = [(419, SAID), (200, one), (401, SAID)]
    with pytest.raises(Fatal, match="refused the token"):
        Server(scripted.url, tokens).ask("GET", "/v1/x")


def test_a_catalog_is_where_its_server_says(scripted: Scripted) -> None:
    scripted.answers = [
        (200, {"defaults": {"prefix": "a"}, "overrides": {"prefix": "ws/b"}}),
        (404, SAID),
        (204, None),
    ]
    catalog = Catalog(Server(scripted.url), "w w")
    assert catalog.find("name space", "tab/le") is None
    there = Head(TableName("n", "t"), "uuid", "s3://m", 1, 2)
    catalog.drop("n", there, 3)
    assert [each[:2] for each in scripted.asked] == [
        ("GET", "/v1/config?warehouse=w+w"),
        ("GET", "/v1/ws/b/namespaces/name%20space/tables/tab%2Fle?snapshots=refs"),
        ("DELETE", "/v1/ws/b/namespaces/n/tables/t?purgeRequested=false"),
    ]
