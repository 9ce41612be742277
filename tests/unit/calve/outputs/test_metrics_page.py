"""docs/metrics.md has every metric of the list, and says what it measures and when it is bad."""

from __future__ import annotations

import re
from pathlib import Path

from calve.outputs.metrics import METRICS, Function, Log, Metric

PAGE = Path(__file__).parents[4] / "docs" / "metrics.md"


def source(metric: Metric) -> str:
    match metric.source:
        case Log(event, None):
            return f"`{event}`"
        case Log(event, key):
            return f"`{key}` of `{event}`"
        case Function(folder):
            return f"`{folder}`"
        case service:
            return f"`{service.namespace}`"


def test_the_page_has_the_metrics_of_the_list() -> None:
    lines = re.findall(r"^\| (`.*) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    cells = [line.split(" | ") for line in lines]
    assert [row[:4] for row in cells] == [
        [f"`{each.name}`", each.unit, ", ".join(f"`{name}`" for name in each.dimensions) or "-", source(each)]
        for each in METRICS
    ]
    assert all(len(row) == 6 and row[4] and row[5] for row in cells)
