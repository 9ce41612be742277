"""The page of `calve console` with 3,000 tables, as a browser shows it: every look is kept as a picture in .calve/screenshots."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from http.server import ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import pytest

from cli.exports import Delivered
from cli.look.cost.measured import Daily
from cli.look.page.command import Pages, handler
from cli.look.status.metadata import SchemaVersion
from cli.look.status.overview import History, Overview
from tests.browser.chromium import Chromium
from tests.browser.test_page import CONTRAST, PICTURES
from tests.unit.cli.look.test_status_screen import ORDERS

pytestmark = pytest.mark.long
SCREENS = {"phone": (390, 844), "desktop": (1440, 900)}
NOW = datetime.now(UTC)
SHOWN = (
    "[...document.querySelectorAll('#tables tbody tr')].filter(r => !r.hidden).map(r => r.cells[0].innerText)"
)


class Rounds(History):
    """The figures of two hundred rounds, without their snapshots."""

    def figures(self, name: str) -> list[tuple[datetime, float]]:
        return [(NOW - timedelta(minutes=200 - n), 5.0 + n % 20) for n in range(200)]


ROUNDS = Rounds(
    schemas=(
        SchemaVersion(1, 9, NOW.timestamp(), ("+ note string", "amount: int -> long")),
        SchemaVersion(0, 8),
    ),
    cost=Daily(0.43, NOW.isoformat()),
)
EXPORTS = [
    Delivered(
        "weekly_sales", "16 to 22 November 2026", 15, True, NOW.isoformat(), {"alive": 2, "expired": 31}
    ),
    Delivered("daily_orders"),
]


def overview(of_each: int) -> Overview:
    names = [f"{kind}_{number}" for kind in ("orders", "payments", "clicks") for number in range(of_each)]
    made = [replace(ORDERS, table=f"shop.{name}", topic=name, rows=place) for place, name in enumerate(names)]
    stopped = {
        "state": "suspended",
        "code": "schema_changed",
        "reason": "its schema changed",
        "fix": "calve plan",
    }
    middle = len(made) // 2
    made[middle] = replace(made[middle], **stopped)  # type: ignore[arg-type]
    return Overview("shop", NOW, made, exports=EXPORTS)


def looking(of_each: int) -> Callable[[str], Overview]:
    def look(table: str) -> Overview:
        one = replace(ORDERS, table=f"shop.{table}")
        return Overview("shop", NOW, [one], history=ROUNDS) if table else overview(of_each)

    return look


@contextmanager
def serving(look: Callable[[str], Overview], labels: Sequence[str] = ("shop",)) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), handler(Pages(dict.fromkeys(labels, look)))) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:  # a test that failed would otherwise never end
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(looking(6)) as address:
        yield address


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("screen", SCREENS)
@pytest.mark.parametrize("path", ["", "table?name=orders_1"])
def test_the_console_looks_right(browser: Chromium, url: str, path: str, screen: str, scheme: str) -> None:
    width, height = SCREENS[screen]
    browser.look(width=width, height=height, dark=scheme == "dark", phone=screen == "phone")
    browser.open(url + path, scripts=True)
    browser.screenshot(PICTURES / f"console-{'table' if path else 'list'}-{screen}-{scheme}.png")
    assert browser.complaints == []
    assert browser.requests == [url + path]
    assert browser.value("document.documentElement.scrollWidth <= innerWidth")
    assert browser.value(CONTRAST) >= 4.5
    assert browser.value("document.querySelectorAll('.plot canvas').length") == (2 if path else 0)


@pytest.mark.parametrize("screen", SCREENS)
def test_deployments_side_by_side_look_right(browser: Chromium, screen: str) -> None:
    width, height = SCREENS[screen]
    browser.look(width=width, height=height, dark=False, phone=screen == "phone")
    with serving(looking(6), ["shop dev", "shop prod", "sales"]) as url:
        browser.open(url, scripts=True)
        browser.screenshot(PICTURES / f"console-several-{screen}.png")
        assert browser.complaints == []
        assert browser.value("document.querySelectorAll('article').length") == 3
        assert browser.value("document.documentElement.scrollWidth <= innerWidth")
        assert browser.value(CONTRAST) >= 4.5
        browser.open(browser.value("document.querySelector('article a').href"), scripts=True)
    assert browser.value(SHOWN)


def test_three_thousand_tables_are_searched_filtered_and_sorted(browser: Chromium) -> None:
    def do(script: str) -> Any:
        browser.value(f"(() => {{ {script} }})()")
        return SimpleNamespace(
            shown=browser.value(SHOWN), said=browser.value("document.querySelector('#shown').innerText")
        )

    type_ = (
        "const s = document.querySelector('#search'); s.value = '{}'; s.dispatchEvent(new Event('input'));"
    )
    browser.look(width=1440, height=900, dark=False, phone=False)
    with serving(looking(1000)) as url:
        browser.open(url, scripts=True)
    assert browser.value(SHOWN)[0] == "payments_500"  # the one with a trouble
    found = do(type_.format("clicks 77"))
    assert found.said == f"{len(found.shown)} of 3000"
    assert all("clicks" in name and "77" in name for name in found.shown)
    found = do("document.querySelectorAll('#tables th button')[6].click()")
    assert found.shown[0] == "clicks_977"  # by rows, the most first
    do(type_.format(""))
    state = "const s = document.querySelector('#state'); s.value = 'suspended'; s.dispatchEvent(new Event('change'));"
    assert do(state).shown == ["payments_500"]
    assert "state=suspended" in browser.value("location.hash")
