"""The page of `calve console` and `calve status --html`: what it says, and that it says it to nobody else."""

from __future__ import annotations

import http.client
import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from http.server import ThreadingHTTPServer

import pytest

from calve.errors import CalveError
from cli.exports import Delivered
from cli.look.cost.measured import Daily
from cli.look.health import TableStatus
from cli.look.page.command import Pages, handler
from cli.look.page.page import Addresses, page
from cli.look.status.metadata import SchemaVersion
from cli.look.status.overview import History, Overview
from tests.unit.cli.look.test_status_screen import ORDERS

NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)
HOSTILE = '<script>alert("x")</script>'


def status(name: str, **more: object) -> TableStatus:
    return replace(ORDERS, table=f"shop.{name}", **more)  # type: ignore[arg-type]


def overview(*tables: TableStatus, **more: object) -> Overview:
    return replace(Overview("shop", NOW, list(tables)), **more)  # type: ignore[arg-type]


def test_every_text_is_escaped_and_nothing_is_loaded_from_elsewhere() -> None:
    hostile = Delivered(HOSTILE, HOSTILE, 1, complete=False, created_at=NOW.isoformat(), links={HOSTILE: 1})
    bad = status("a", topic=HOSTILE, reason=HOSTILE, state="suspended")
    text = page(overview(bad, name=HOSTILE, exports=[hostile]))
    assert HOSTILE not in text
    assert text.count("&lt;script&gt;") >= 6
    assert re.findall(r'(?:src|href)="(?!#|data:,)[^"]*"', text) == []
    assert "default-src &#39;none&#39;" in text or "default-src 'none'" in text


def test_trouble_comes_first_with_its_next_command_and_urgent_tables_first() -> None:
    bad = status(
        "zebra", state="suspended", reason="its schema changed", fix="calve plan", code="schema_changed"
    )
    text = page(overview(status("ant"), bad))
    assert text.index("its schema changed") < text.index("calve plan") < text.index('id="tables"')
    rows = re.findall(r'<tr data-state="(\w+)"', text)
    assert rows == ["suspended", "running"]


def test_the_page_of_a_table_has_its_history_and_no_list() -> None:
    text = page(overview(status("ant"), history=History()), Addresses("/", "/"))
    assert '<a href="/">calve</a>' in text
    assert 'id="tables"' not in text
    assert "<dt>freshness</dt>" in text


def test_the_page_of_a_table_has_its_schema_versions_and_its_cost_a_day() -> None:
    began = datetime(2026, 11, 20, 8, tzinfo=UTC).timestamp()
    schemas = (SchemaVersion(1, 3, began, ("+ note string", "amount: int -> long")), SchemaVersion(0, 2))
    history = History(schemas=schemas, cost=Daily(0.4321, "2026-11-20T08:00:00+00:00"))
    text = page(overview(status("ant"), history=history))
    assert ">2026-11-20 08:00 UTC</td>" in text
    assert "+ note string, amount: int -&gt; long" in text
    assert "$0.43 a day" in text


def test_the_list_has_the_exports_with_the_state_of_their_links() -> None:
    made = (NOW - timedelta(hours=5)).isoformat()
    weekly = Delivered(
        "weekly",
        "16 to 22 November 2026",
        15,
        complete=True,
        created_at=made,
        links={"alive": 2, "expired": 1},
    )
    text = page(overview(exports=[weekly, Delivered("daily")]))
    row = re.search(r">weekly</td>.*", text)
    assert row
    assert all(each in row[0] for each in ("16 to 22 November", ">15<", "5h ago", "2 alive, 1 expired"))
    assert ">nothing yet</td>" in text


@pytest.fixture
def port() -> Iterator[int]:
    def look(table: str) -> Overview:
        if table == "absent":
            raise CalveError("calve.yaml has no table absent", fix="calve tables lists them")
        return overview(status("ant"), history=History() if table else None)

    with ThreadingHTTPServer(("127.0.0.1", 0), handler(Pages({"trading": look}))) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
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
        ("/table?of=other&name=ant", 404, "no such page"),
        ("/etc/passwd", 404, "no such page"),
    ],
)
def test_the_console_answers_its_two_addresses(port: int, path: str, status_code: int, says: str) -> None:
    code, text = asked(port, path)
    assert code == status_code
    assert says in text


def test_several_deployments_are_side_by_side_and_one_that_does_not_answer_stops_no_other() -> None:
    def unreachable(_: str) -> Overview:
        raise CalveError("Kafka does not answer", fix="open the port")

    bad = status("zebra", state="suspended", reason="its schema changed", fix="calve plan")
    pages = Pages({"shop dev": lambda _: overview(bad), "shop prod": unreachable})
    text = pages.at("/", "")
    assert text
    assert text.index("shop dev") < text.index("its schema changed") < text.index("shop prod")
    assert "Kafka does not answer" in text
    assert "open the port" in text
    of_dev = pages.at("/deployment", "of=shop+dev")
    assert of_dev
    assert 'href="/table?of=shop+dev&amp;name=zebra"' in of_dev
    assert pages.at("/table", "name=zebra") is None


def test_a_page_elsewhere_and_a_request_that_changes_get_nothing(port: int) -> None:
    """A name that resolves to 127.0.0.1 would let another site's page read the answer (DNS rebinding)."""
    assert asked(port, "/", host="evil.example")[0] == 421
    assert asked(port, "/", method="POST")[0] == 501
