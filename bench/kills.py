"""A catch-up whose job is killed again and again, with all its processes and without a warning."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import checking
from bench.scene import Scene, System
from bench.sizes import Sizes
from bench.systems.spark import engines
from bench.topics import fill
from bench.workloads.trades import TRADES
from calve.config.job import Table
from cli.console import Console

KILLS = 3
ROUNDS = 24
"""So many rounds a catch-up has, about."""
AFTER_S = 0.15
"""A job dies so long after a commit, each one a little later in the round that follows."""


def kills(scene: Scene, console: Console, systems: Sequence[System], sizes: Sizes) -> list[dict[str, Any]]:
    """What was lost or doubled, and how long the next job took from its start to its first commit."""
    calves = engines(systems, all_of_them=sizes.name == "full")
    if not calves or not sizes.kill_records:
        return []
    name = f"kills_{uuid.uuid4().hex[:6]}"
    topic = fill(scene.job, name, TRADES, sizes.kill_records, lambda _: None)
    found = []
    for system in calves:
        table = f"{name}_{system.name}"
        wanted = Table(table, name, engine=system.engine, flush_bytes=topic.bytes // ROUNDS)
        settings = scene.settings([wanted])
        recovered = []
        with console.progress().task(f"killed: {system.title}"):
            for kill in range(KILLS + 1):
                recovered.append(_live(scene, settings, table, kill))
        checked = checking.read(scene.job.lake, table)
        found.append(
            {
                "system": system.title,
                "records": f"{topic.count:,}",
                "kills": KILLS,
                "lost": topic.count - checked.places,
                "doubled": checked.rows - checked.places,
                "commits": checked.commits,
                "recovery s": round(max(each.first_commit_s for each in recovered[1:]), 1),
                "start of Spark s": round(max(each.start_s for each in recovered[1:]), 1),
            }
        )
    return found


@dataclass(slots=True)
class Life:
    """Seconds from the start of the process to that of the job, and from there to its first commit."""

    start_s: float = 0.0
    first_commit_s: float = 0.0


def _live(scene: Scene, settings: Path, table: str, number: int) -> Life:
    """Run the job; all but the last one are killed after their second commit."""
    life, commits, began = Life(), 0, time.monotonic()
    with _job(scene, settings, f"{table}-{number}") as process:
        for line in process.stdout or ():
            event = json.loads(line)["event"] if line.startswith("{") else None
            if event == "job.started":
                life.start_s = time.monotonic() - began
            if event != "round.committed":
                continue
            commits += 1
            if commits == 1:
                life.first_commit_s = time.monotonic() - began - life.start_s
            if commits == 2 and number < KILLS:
                time.sleep(AFTER_S * (number + 1))
                return life
        if process.wait():
            raise RuntimeError(f"the job of {table} ended with {process.returncode}")
    return life


@contextmanager
def _job(scene: Scene, settings: Path, log: str) -> Iterator[subprocess.Popen[str]]:
    """The job; whatever is left of it when the block ends is killed."""
    command = [sys.executable, "-m", "glue_jobs.ingest", "--settings-file", str(settings), "--drain"]
    with scene.log(log).open("w") as errors:
        process = subprocess.Popen(
            command,
            env=scene.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )
    with process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
