"""The download page as a browser shows it: every look is kept as a picture in .calve/screenshots."""

from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import CSV

pytestmark = pytest.mark.long
PICTURES = Path(__file__).parents[2] / ".calve" / "screenshots"
FILE = "weekly_trades_2026-11-02_2026-11-09.csv"
UNTIL = "Sunday, 8 November 2026, 22:15 (Europe/Vilnius)"
PAGES: dict[str, Any] = {
    "complete": {},
    "incomplete": {"complete": False, "ingested_until": UNTIL, "correction": True},
    "parts": {"parts": 3},
    "long": {"title": "Weekly_trades_of_every_symbol_" * 4},
    "none": None,
}
SCREENS = {"phone": (360, 740), "desktop": (1280, 900)}
# The lowest contrast between a text and what it stands on, by WCAG's formula.
CONTRAST = """(() => {
  const light = c => { const v = c.match(/[\\d.]+/g).slice(0, 3).map(x => x / 255)
    .map(x => x <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
    return 0.2126 * v[0] + 0.7152 * v[1] + 0.0722 * v[2]; };
  const ground = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
    if (!/, 0\\)$/.test(c)) return c; } return 'rgb(255, 255, 255)'; };
  return Math.min(...[...document.querySelectorAll('main *')]
    .filter(e => [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()))
    .map(e => { const [a, b] = [light(getComputedStyle(e).color), light(ground(e))];
      return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05); }));
})()"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("screen", SCREENS)
@pytest.mark.parametrize("name", PAGES)
def test_the_page_looks_right(browser, site, name, screen, scheme):
    changes = PAGES[name]
    width, height = SCREENS[screen]
    browser.look(width=width, height=height, dark=scheme == "dark", phone=screen == "phone")
    url = f"{site.url}/nothing" if changes is None else site.link(**changes)
    browser.open(url)
    browser.screenshot(PICTURES / f"{name}-{screen}-{scheme}.png")
    refused = ["Failed to load resource: the server responded with a status of 404 (Not Found)"]
    assert browser.complaints == (refused if changes is None else [])
    assert browser.requests == [url]
    assert browser.value("document.documentElement.scrollWidth <= innerWidth")
    assert browser.value(CONTRAST) >= 4.5
    dark = browser.value("Number(getComputedStyle(document.body).backgroundColor.match(/\\d+/)) < 100")
    assert dark == (scheme == "dark")


def test_the_buttons_are_large_enough_for_a_thumb_and_named(browser, site):
    browser.look(width=360, height=740, dark=False, phone=True)
    browser.open(site.link(parts=3))
    heights = browser.value(
        "[...document.querySelectorAll('button')].map(b => b.getBoundingClientRect().height)"
    )
    assert len(heights) == 3
    assert min(heights) >= 44
    assert browser.value("document.documentElement.lang") == "en"
    assert browser.value("document.querySelectorAll('h1').length") == 1


def test_a_click_downloads_the_file_from_its_other_origin(browser, site):
    browser.look(width=1280, height=900, dark=False, phone=False)
    browser.open(site.link())
    browser.click("button")
    assert browser.downloaded(FILE) == CSV
    assert browser.complaints == []


def test_the_keyboard_alone_downloads_the_file(browser, site):
    browser.look(width=1280, height=900, dark=False, phone=False)
    browser.open(site.link(parts=3))
    browser.press("Tab", 9)
    browser.press("Tab", 9)
    assert browser.value("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    browser.press("Enter", 13, "\r")
    assert browser.downloaded(FILE.replace(".csv", "_part02.csv")) == CSV
