"""A curve as lines of text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

BLOCKS = " ▁▂▃▄▅▆▇█"
BROADEST = 3


def plot(values: Sequence[float], *, width: int, height: int, label: Callable[[float], str]) -> list[str]:
    """Bars from 0 up to the greatest value, the oldest at the left; where they are too many, a bar is the greatest of several."""
    broad = max(1, min(BROADEST, width // max(1, len(values))))
    bars = [each for each in _binned(values, width) for _ in range(broad)]
    top = max(bars, default=0.0)
    steps = [round(each / top * height * 8) if top else 0 for each in bars]
    steps = [step or (1 if each > 0 else 0) for step, each in zip(steps, bars, strict=True)]
    margin = max(len(label(top)), len(label(0.0)))
    lines = []
    for row in reversed(range(height)):
        axis = label(top) if row == height - 1 else label(0.0) if row == 0 else ""
        lines.append(
            f"{axis:>{margin}} ┤" + "".join(BLOCKS[max(0, min(8, step - 8 * row))] for step in steps)
        )
    return lines


def _binned(values: Sequence[float], width: int) -> list[float]:
    if len(values) <= width:
        return list(values)
    edges = [n * len(values) // width for n in range(width + 1)]
    return [max(values[a:b]) for a, b in pairwise(edges)]
