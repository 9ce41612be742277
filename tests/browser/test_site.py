"""The site that `make docs` makes, as a browser shows it from files: drawn diagrams, no wide page, and a search that finds."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.browser.chromium import Chromium

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("site")]
ROOT = Path(__file__).parents[2]
FOUND = (
    "[...document.querySelectorAll('#search-results ul.search > li > a')].map(a => a.getAttribute('href'))"
)
QUESTIONS = {
    "suspended": "dead-letters",
    "state of a table": "states",
    "rotate key": "keys",
    "forget person": "forget",
    "rollback": "time-machine",
    "dead letter": "dead-letters",
    "cost month": "cost",
    "upgrade": "upgrade",
    "small files": "maintenance",
    "csv export": "exports",
    "test an incident": "capture",
}
"""The words of somebody on call, and a page that must be among the first three."""


@pytest.fixture(scope="module")
def site() -> str:
    subprocess.run([sys.executable, ROOT / "docs/site/build.py"], check=True, timeout=600)
    return (ROOT / ".calve/site").as_uri()


def until(browser: Chromium, expression: str) -> None:
    for _ in range(300):
        if browser.value(expression):
            return
        time.sleep(0.1)
    raise TimeoutError(expression)


@pytest.mark.parametrize(("width", "phone"), [(390, True), (1440, False)])
@pytest.mark.parametrize(
    "page", ["docs/site/index", "README", "docs/modes", "docs/configuration", "docs/comparison"]
)
def test_a_page_fits_the_screen(browser: Chromium, site: str, page: str, width: int, phone: bool) -> None:
    browser.look(width=width, height=900, dark=phone, phone=phone)
    browser.open(f"{site}/{page}.html", scripts=True)
    assert browser.value("document.documentElement.scrollWidth") <= width
    assert browser.complaints == []
    assert [each for each in browser.requests if not each.startswith(("file:", "data:"))] == []


def test_diagrams_are_drawn(browser: Chromium, site: str) -> None:
    for page in ("README", "docs/security"):
        browser.open(f"{site}/{page}.html", scripts=True)
        until(browser, "document.querySelector('pre.mermaid svg .node') !== null")


@pytest.mark.parametrize("words", QUESTIONS)
def test_a_search_finds_the_page(browser: Chromium, site: str, words: str) -> None:
    browser.open(f"{site}/search.html?q={words.replace(' ', '+')}", scripts=True)
    until(browser, f"{FOUND}.length > 0")
    until(browser, "document.querySelector('#search-results').innerText.includes('found')")
    assert f"docs/{QUESTIONS[words]}.html" in browser.value(FOUND)[:3]
