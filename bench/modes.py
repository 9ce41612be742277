"""What a round of a table by key costs as the table grows."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from bench.metering import Spent
from bench.scene import Scene, System
from bench.sizes import Sizes
from calve.config.job import Table
from cli.console import Console

CHANGES, ROUNDS = 100_000, 9


def modes(scene: Scene, console: Console, systems: Sequence[System], sizes: Sizes) -> list[dict[str, Any]]:
    """A row for each mode and size: CPU seconds of a round, of an append of the same records, and of Spark's MERGE of them."""
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
        for _ in range(len(keys) * ROUNDS * (3 if mode == "upsert" else 2)):
            begin = running.mark()
            before = running.read()
            running.answer()
            running.mark()
            spent.setdefault((begin["size"], begin["mode"]), []).append(Spent.between(before, running.read()))
            running.answer()
    return [
        _row(mode, size, {name: spent.get((size, name), []) for name in ("append", mode, "merge")})
        for size in keys
    ]


def _row(mode: str, size: int, spent: Mapping[str, Sequence[Spent]]) -> dict[str, Any]:
    """spent: by the mode, by an append, and by Spark's MERGE, if that was measured."""
    medians = {name: statistics.median(e.cpu_s for e in group) for name, group in spent.items() if group}
    plain, keyed, merge = medians["append"], medians[mode], medians.get("merge")
    return {
        "mode": mode,
        "keys in the table": f"{size:,}",
        "changes": f"{CHANGES:,}",
        "append CPU s": round(plain, 2),
        "round CPU s": round(keyed, 2),
        "ratio": round(keyed / plain, 1),
        "Spark's MERGE CPU s": "" if merge is None else round(merge, 1),
        "wall s": round(statistics.median(each.wall_s for each in spent[mode]), 1),
    }
