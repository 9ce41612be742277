"""What is measured besides throughput: each gives rows of a table, none where the sizes leave it out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from bench.freshness import freshness
from bench.growing import commits, many
from bench.kills import kills
from bench.modes import modes
from bench.scene import Scene, System
from bench.sizes import Sizes
from cli.console import Console

Section = Callable[[Scene, Console, Sequence[System], Sizes], Iterable[dict[str, Any]]]
SECTIONS: dict[str, Section] = {
    "freshness": freshness,
    "commits": commits,
    "topics": many,
    "kills": kills,
    "modes": modes,
}
