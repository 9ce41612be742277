"""Figures short enough for a screen, and the colours of states."""

from __future__ import annotations

from cli.status import duration

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
