"""docs/metrics.md says what the list does."""

from __future__ import annotations

from pathlib import Path

from calve.outputs.metrics.page import page

PAGE = Path(__file__).parents[4] / "docs" / "metrics.md"


def test_the_page_is_the_one_that_the_list_writes() -> None:
    assert PAGE.read_text(encoding="utf-8") == page()
