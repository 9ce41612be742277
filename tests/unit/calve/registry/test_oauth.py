"""OAuth for a registry: a real token endpoint and a real registry in one HTTP server, which checks what it is sent."""

from __future__ import annotations

import base64
import json
import threading
import urllib.parse
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from calve import http_client
from calve.config.job import OAuth, Registry
from calve.errors import ConfigError, Fatal, Retryable
from calve.registry.confluent import ConfluentRegistry
from calve.registry.registry import open_registry

SECRET = {"client_id": "c:alve", "client_secret": "hunter2 &+"}


class Server(ThreadingHTTPServer):
    """`life_s` is what tokens say of themselves, `valid` those that the registry takes."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.life_s: object = 3600
        self.valid: set[str] = set()
        self.tokens: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.failing: list[int] = []
        self.answer: object = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.server.tokens.append({"form": dict(urllib.parse.parse_qsl(body)), **dict(self.headers)})
        if self.server.failing:
            return self._answer(self.server.failing.pop(0), {})
        pair = ":".join(urllib.parse.quote_plus(SECRET[key]) for key in ("client_id", "client_secret"))
        if self.headers["Authorization"] != "Basic " + base64.b64encode(pair.encode()).decode():
            return self._answer(401, {"error": "invalid_client"})
        token = f"token-{len(self.server.tokens)}"
        self.server.valid = {token}
        made = {"access_token": token, "token_type": "Bearer", "expires_in": self.server.life_s}
        return self._answer(200, self.server.answer or made)

    def do_GET(self) -> None:
        self.server.headers.append(dict(self.headers))
        kind, _, token = self.headers.get("Authorization", "").partition(" ")
        if kind != "Bearer" or token not in self.server.valid:
            return self._answer(401, {"error_code": 401})
        return self._answer(200, ["a-value"])

    def _answer(self, status: int, body: object) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("CLIENT", json.dumps(SECRET))
    monkeypatch.setattr("calve.http_client.PAUSES_S", (0.01, 0.01))
    with Server() as listening:
        threading.Thread(target=listening.serve_forever, args=(0.05,), daemon=True).start()
        yield listening
        listening.shutdown()


def settings(server: Server, **more: Any) -> Registry:
    return Registry(server.url, secret="env:CLIENT", oauth=OAuth(f"{server.url}/token", **more))


def test_a_token_is_asked_for_once_and_sent_with_what_confluent_cloud_wants(server: Server) -> None:
    registry = open_registry(settings(server, scope="a b", cluster="lsrc-1", identity_pool="pool-1"))
    assert [registry.subjects() for _ in range(3)] == [["a-value"]] * 3
    (asked,) = server.tokens
    assert asked["form"] == {"grant_type": "client_credentials", "scope": "a b"}
    assert asked["Content-Type"] == "application/x-www-form-urlencoded"
    for sent in server.headers:
        assert sent["Authorization"] == "Bearer token-1"
        named = {name.lower(): value for name, value in sent.items()}
        assert named["target-sr-cluster"] == "lsrc-1"
        assert named["confluent-identity-pool-id"] == "pool-1"


def test_a_token_is_renewed_before_it_expires(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr("calve.http_client.time.monotonic", lambda: clock[0])
    server.life_s = 100
    registry = open_registry(settings(server))
    for now, tokens in ((1000.0, 1), (1079.0, 1), (1081.0, 2), (1160.0, 2), (1162.0, 3)):
        clock[0] = now
        registry.subjects()
        assert len(server.tokens) == tokens


@pytest.mark.parametrize("life_s", [None, "", "600"])
def test_a_token_need_not_say_how_long_it_lives(server: Server, life_s: object) -> None:
    server.life_s = life_s
    assert open_registry(settings(server)).subjects() == ["a-value"]


def test_a_token_that_was_revoked_is_renewed_once(server: Server) -> None:
    registry = open_registry(settings(server))
    registry.subjects()
    server.valid = set()
    assert registry.subjects() == ["a-value"]
    assert len(server.tokens) == 2


def test_a_registry_that_takes_no_token_ends_the_job(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Handler, "do_GET", lambda self: self._answer(401, {}))
    with pytest.raises(Fatal, match="refused the credentials") as caught:
        open_registry(settings(server)).subjects()
    assert "token-" not in str(caught.value)
    assert len(server.tokens) == 2


def test_a_refused_client_ends_the_job_and_stands_in_no_message(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLIENT", json.dumps(SECRET | {"client_secret": "wrong-hunter3"}))
    with pytest.raises(Fatal, match=r"the token endpoint .* refused the client \(HTTP 401\)") as caught:
        open_registry(settings(server)).subjects()
    assert "hunter3" not in str(caught.value)
    assert len(server.tokens) == 1


@pytest.mark.parametrize("answer", [{"token": "x"}, {"access_token": ""}, ["x"]])
def test_an_endpoint_that_gives_no_token_ends_the_job(server: Server, answer: object) -> None:
    server.answer = answer
    with pytest.raises(Fatal, match="gave no access token"):
        open_registry(settings(server)).subjects()


def test_an_overloaded_endpoint_is_waited_for_a_moment(server: Server) -> None:
    server.failing = [503, 429]
    assert open_registry(settings(server)).subjects() == ["a-value"]
    assert len(server.tokens) == 3
    server.failing = [503] * 9
    with pytest.raises(Retryable, match="answered HTTP 503"):
        open_registry(settings(server)).subjects()
    assert len(server.tokens) == 6


def test_an_endpoint_that_is_away_is_tried_again_later(server: Server) -> None:
    away = Registry(server.url, secret="env:CLIENT", oauth=OAuth("http://127.0.0.1:1/token"))
    with pytest.raises(Retryable, match=r"the token endpoint .* does not answer"):
        open_registry(away).subjects()


def test_a_secret_without_a_client_is_a_configuration_error(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLIENT", json.dumps({"username": "u", "password": "p"}))
    with pytest.raises(ConfigError, match='has no "client_id"'):
        open_registry(settings(server))


def test_threads_share_one_token(server: Server) -> None:
    tokens = http_client.Tokens(f"{server.url}/token", SECRET["client_id"], SECRET["client_secret"])
    registry = ConfluentRegistry(server.url, tokens=tokens)
    threads = [threading.Thread(target=registry.subjects) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(server.tokens) == 1
