"""A registry behind TLS that asks its clients for certificates."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from calve.config.job import Registry
from calve.errors import ConfigError, Retryable
from calve.registry.registry import open_registry
from cli.embedded.kafka import write_certificates


class Subjects(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        data = json.dumps(["a-value"]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A handshake that fails is what some tests want."""


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    authorities, store = write_certificates(tmp_path)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authorities))
    tls.load_cert_chain(store)
    tls.verify_mode = ssl.CERT_REQUIRED
    key, end, certificates = store.read_text().partition("-----END PRIVATE KEY-----\n")
    monkeypatch.setenv("PAIR", json.dumps({"certificate": certificates, "key": key + end}))
    with Server(("127.0.0.1", 0), Subjects) as listening:
        listening.socket = tls.wrap_socket(listening.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=listening.serve_forever, args=(0.05,), daemon=True).start()
        yield Registry(f"https://127.0.0.1:{listening.server_address[1]}", ca_file=str(authorities))
        listening.shutdown()


def with_certificate(registry: Registry, reference: str = "env:PAIR") -> Registry:
    return Registry(registry.url, ca_file=registry.ca_file, client_certificate=reference)


def test_a_client_shows_its_certificate_and_leaves_no_file(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = tmp_path / "left"
    left.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(left))
    assert open_registry(with_certificate(registry)).subjects() == ["a-value"]
    assert list(left.iterdir()) == []


def test_a_client_without_a_certificate_is_refused(registry: Registry) -> None:
    with pytest.raises(Retryable, match="does not answer"):
        open_registry(registry).subjects()


def test_a_server_of_an_unknown_authority_is_not_believed(registry: Registry) -> None:
    with pytest.raises(Retryable, match="CERTIFICATE_VERIFY_FAILED"):
        open_registry(Registry(registry.url, client_certificate="env:PAIR")).subjects()


def test_what_is_no_certificate_is_a_configuration_error_that_shows_nothing_of_it(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAIR", json.dumps({"certificate": "hunter2", "key": "hunter2"}))
    with pytest.raises(ConfigError, match="no client certificate") as caught:
        open_registry(with_certificate(registry))
    assert "hunter2" not in str(caught.value)
