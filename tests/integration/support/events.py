"""The events of the job, as docs/events.md promises them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[3] / "docs" / "events.md"

Event = dict[str, Any]


def documented() -> dict[str, set[str]]:
    """Event -> its keys."""
    found: dict[str, set[str]] = {}
    for section in PAGE.read_text().split("\n### ")[1:]:
        name, _, body = section.partition("\n")
        rows = re.findall(r"^\| (`.*?`) \|", body.partition("\n## ")[0], re.MULTILINE)
        keys = {key for row in rows for key in re.findall(r"`(\w+)`", row)}
        found[name.strip("`")] = {"time", "event"} | keys
    return found


def assert_as_documented(events: list[Event]) -> None:
    expected = documented()
    for each in events:
        assert set(each) == expected[each["event"]], each["event"]
