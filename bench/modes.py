"""What a round of a table by key costs as the table grows."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from typing import Any

from bench.metering import Spent
from bench.scene import Scene, System
from bench.sizes import Sizes
from calve.config.job import Table
from cli.console import Console

CHANGES, ROUNDS = 100_000, 9


def modes(scene: Scene, console: Console, systems: Sequence[System], sizes: Sizes) -> list[dict[str, Any]]:
    """A row for each mode and size: CPU seconds of a round, and of an append of the same records."""
    if not any(each.name == "calve_rows" for each in systems):
        return []
    return [row for mode in sizes.modes for row in _of_mode(scene, console, mode, sizes.keys)]


def _of_mode(scene: Scene, console: Console, mode: str, keys: Sequence[int]) -> list[dict[str, Any]]:
    settings = scene.settings([Table(f"modes_{mode}", "none")])
    command = [sys.executable, "-m", "bench.programs.modes", mode, str(settings), str(CHANGES), str(ROUNDS)]
    spent: dict[tuple[int, str], list[Spent]] = {}
    with (
        console.progress().task(f"{mode} as the table grows"),
        scene.metered([*command, *map(str, keys)], f"modes-{mode}") as running,
    ):
        for _ in range(len(keys) * ROUNDS * 2):
            begin = running.mark()
            before = running.read()
            running.answer()
            running.mark()
            spent.setdefault((begin["size"], begin["mode"]), []).append(Spent.between(before, running.read()))
            running.answer()
    return [_row(mode, size, spent[size, "append"], spent[size, mode]) for size in keys]


def _row(mode: str, size: int, append: Sequence[Spent], by_key: Sequence[Spent]) -> dict[str, Any]:
    plain, keyed = (statistics.median(each.cpu_s for each in group) for group in (append, by_key))
    return {
        "mode": mode,
        "keys in the table": f"{size:,}",
        "changes": f"{CHANGES:,}",
        "append CPU s": round(plain, 2),
        "round CPU s": round(keyed, 2),
        "ratio": round(keyed / plain, 1),
        "wall s": round(statistics.median(each.wall_s for each in by_key), 1),
    }
