"""What a table wears out by, and a job: a thousand commits, a hundred topics."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from bench import checking
from bench.metering import Spent
from bench.programs.commits import WINDOW
from bench.scene import Scene, System, run_program
from bench.sizes import Sizes
from bench.systems.spark import engines
from bench.topics import fill
from bench.workloads.trades import TRADES
from calve.config.job import Table
from cli.console import Console

EARLY, LATER = 20, 100


def commits(scene: Scene, console: Console, systems: Sequence[System], sizes: Sizes) -> list[dict[str, Any]]:
    """What a round of a few records costs, and the table's metadata, at commits far apart."""
    if not sizes.commits or not engines(systems, all_of_them=False):
        return []
    at = sorted({EARLY, LATER, sizes.commits})
    name = f"commits_{uuid.uuid4().hex[:6]}"
    command = [sys.executable, "-m", "bench.programs.commits", str(scene.settings([Table(name, name)]))]
    found = []
    with (
        console.progress().task("commits", total=sizes.commits) as task,
        scene.metered([*command, *map(str, at)], name) as running,
    ):
        for _ in at:
            running.mark()
            before = running.read()
            running.answer()
            told = running.mark()
            spent = Spent.between(before, running.read())
            running.answer()
            task.update(told["commit"])
            found.append(
                {
                    "commit": told["commit"],
                    "commit ms": round(told["commit_ms"]),
                    "round ms": round(1000 * spent.wall_s / WINDOW),
                    "round CPU ms": round(1000 * spent.cpu_s / WINDOW),
                    "metadata kB": round(told["metadata_bytes"] / 1000, 1),
                    "metadata files": told["metadata_files"],
                    "snapshots": told["snapshots"],
                    "data files": told["data_files"],
                    "plan ms": round(told["plan_ms"]),
                }
            )
    return found


def many(scene: Scene, console: Console, systems: Sequence[System], sizes: Sizes) -> list[dict[str, Any]]:
    """One job for all of many small topics."""
    calves = engines(systems, all_of_them=sizes.name == "full")
    if not calves or not sizes.topics:
        return []
    small, prefix = replace(TRADES, partitions=1), f"many_{uuid.uuid4().hex[:6]}"
    names = [f"{prefix}_{number}" for number in range(sizes.topics)]
    with console.progress().task("producing many topics", total=len(names)) as task:
        for number, name in enumerate(names, start=1):
            topic = fill(scene.job, name, small, sizes.topic_records, lambda _: None)
            task.update(number)
    found = []
    for system in calves:
        tables = [Table(f"{each}_{system.name}", each, engine=system.engine) for each in names]
        settings = str(scene.settings(tables))
        command = [sys.executable, "-m", "bench.programs.calve_job", settings, "together"]
        with console.progress().task(f"many topics: {system.title}"):
            run = run_program(scene, command, tables[0].name, 1)
            for table in tables:
                checked = checking.read(scene.job.lake, table.name)
                if wrong := checking.problem(checked, topic, None):
                    raise RuntimeError(f"table {table.name}: {wrong}")
        [lap] = run.laps
        found.append(
            {
                "system": system.title,
                "topics": len(names),
                "records": f"{len(names) * sizes.topic_records:,}",
                "wall s": round(lap.wall_s, 1),
                "CPU s": round(lap.cpu_s, 1),
                "CPU ms/table": round(1000 * lap.cpu_s / len(names)),
                "peak MB": round(run.peak_bytes / 1e6),
            }
        )
    return found
