"""The page of `calve console` and `calve status --html`: what it says, and that it says it to nobody else."""

from __future__ import annotations

import http.client
import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from http.server import ThreadingHTTPServer

import pytest

from calve.errors import CalveError
from cli.look.health import TableStatus
from cli.look.page.command import Pages, handler
from cli.look.page.page import page
from cli.look.status.overview import History, Overview
from tests.unit.cli.look.test_status_screen import ORDERS

NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)
HOSTILE = '<script>alert("x")</script>'


def status(name: str, **more: object) -> TableStatus:
    return replace(ORDERS, table=f"shop.{name}", **more)  # type: ignore[arg-type]


def overview(*tables: TableStatus, **more: object) -> Overview:
    return replace(Overview(NOW, list(tables)), **more)  # type: ignore[arg-type]


def test_every_text_is_escaped_and_nothing_is_loaded_from_elsewhere() -> None:
    text = page(overview(status("a", topic=HOSTILE, reason=HOSTILE, state="suspended")), HOSTILE)
    assert HOSTILE not in text
    assert text.count("&lt;script&gt;") >= 3
    assert re.findall(r'(?:src|href)="(?!#|data:,)[^"]*"', text) == []
    assert "default-src &#39;none&#39;" in text or "default-src 'none'" in text


def test_trouble_comes_first_with_its_next_command_and_urgent_tables_first() -> None:
    bad = status(
        "zebra", state="suspended", reason="its schema changed", fix="calve plan", code="schema_changed"
    )
    text = page(overview(status("ant"), bad), "trading")
    assert text.index("its schema changed") < text.index("calve plan") < text.index('id="tables"')
    rows = re.findall(r'<tr data-state="(\w+)"', text)
    assert rows == ["suspended", "running"]


def test_the_page_of_a_table_has_its_history_and_no_list() -> None:
    text = page(overview(status("ant"), history=History()), "trading", home="/")
    assert '<a href="/">calve</a>' in text
    assert 'id="tables"' not in text
    assert "<dt>freshness</dt>" in text


@pytest.fixture
def port() -> Iterator[int]:
    def look(table: str) -> Overview:
        if table == "absent":
            raise CalveError("calve.yaml has no table absent", fix="calve tables lists them")
        return overview(status("ant"), history=History() if table else None)

    with ThreadingHTTPServer(("127.0.0.1", 0), handler(Pages(look, "trading"))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def asked(port: int, path: str, *, host: str = "127.0.0.1", method: str = "GET") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request(method, path, headers={"Host": f"{host}:{port}"})
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


@pytest.mark.parametrize(
    ("path", "status_code", "says"),
    [
        ("/", 200, "/table?name=ant"),
        ("/table?name=ant", 200, "<dt>freshness</dt>"),
        ("/table?name=absent", 503, "calve tables lists them"),
        ("/table", 404, "no such page"),
        ("/etc/passwd", 404, "no such page"),
    ],
)
def test_the_console_answers_its_two_addresses(port: int, path: str, status_code: int, says: str) -> None:
    code, text = asked(port, path)
    assert code == status_code
    assert says in text


def test_a_page_elsewhere_and_a_request_that_changes_get_nothing(port: int) -> None:
    """A name that resolves to 127.0.0.1 would let another site's page read the answer (DNS rebinding)."""
    assert asked(port, "/", host="evil.example")[0] == 421
    assert asked(port, "/", method="POST")[0] == 501
