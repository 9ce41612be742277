"""What the screens are made of: tables as broad as the terminal, curves, figures short enough, and the colours of states."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import pairwise

from rich.table import Table
from rich.text import Text

from cli.console import duration

MARKS = {
    "running": ("●", "green"),
    "pending": ("○", "yellow"),
    "starting": ("○", "cyan"),
    "retrying": ("↻", "yellow"),
    "ended": ("✓", "green"),
    "refused": ("✗", "bold red"),
    "paused": ("‖", "cyan"),
    "suspended": ("■", "bold yellow"),
    "failed": ("✗", "bold red"),
    "synced": ("●", "green"),
    "syncing": ("○", "yellow"),
}
UNKNOWN = ("?", "dim")
GAP, NARROW = 2, 1
BLOCKS = " ▁▂▃▄▅▆▇█"
BROADEST = 3


def fitted(
    columns: Mapping[str, Sequence[Text]], width: int, *, left: Collection[str], dispensable: Sequence[str]
) -> Table:
    """A table of cells by column; where there is no room for a column, it is left out whole.

    left: columns of words. dispensable: those that are left out, in this order.
    """
    shown = dict(columns)
    for name in dispensable:
        if _width(shown, NARROW) <= width:
            break
        shown.pop(name, None)
    gap = GAP if _width(shown, GAP) <= width else NARROW
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, gap, 0, 0))
    for name in shown:
        table.add_column(name, justify="left" if name in left else "right", no_wrap=True, overflow="ellipsis")
    for row in zip(*shown.values(), strict=True):
        table.add_row(*row)
    return table


def _width(columns: Mapping[str, Sequence[Text]], gap: int) -> int:
    return sum(gap + max([len(name), *(each.cell_len for each in cells)]) for name, cells in columns.items())


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


def short(count: int) -> str:
    """`999,999`, then `1.0M`, `1.2B`."""
    for unit, size in (("B", 1_000_000_000), ("M", 1_000_000)):
        if count >= size:
            return f"{count / size:,.1f}{unit}"
    return f"{count:,}"


def size(count: float) -> str:
    """`512 B`, `1.5 MB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:,.1f} TB"


def seconds(value: float | None) -> str:
    return "-" if value is None else duration(value)
