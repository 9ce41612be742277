"""calve's engines and bare Spark: programs in Python that start a JVM."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from bench.metering import Metered
from bench.scene import Follower, Lap, Run, Scene, System, run_program
from calve.config.job import Table

ROUND_S = 0.2
"""What a small round takes."""


@dataclass(frozen=True, slots=True)
class Calve(Follower):
    """`calve ingest` by one of its engines."""

    engine: Literal["rows", "columnar"] = "rows"

    def run(self, scene: Scene, laps: Sequence[Lap]) -> Run:
        settings = scene.settings([Table(each.table, each.topic.name, engine=self.engine) for each in laps])
        command = [sys.executable, "-m", "bench.programs.calve_job", str(settings)]
        return run_program(scene, command, laps[0].table, len(laps))

    @contextmanager
    def following(self, scene: Scene, topic: str, table: str, round_s: float) -> Iterator[Metered]:
        """The promise that leaves room for a round of that length: what a user of calve would ask for."""
        target_s = round_s + ROUND_S
        settings = scene.settings([Table(table, topic, engine=self.engine, freshness_s=target_s)])
        command = [sys.executable, "-m", "glue_jobs.ingest", "--settings-file", str(settings)]
        with scene.metered(command, table, marks=False) as running:
            yield running


def engines(systems: Sequence[System], *, all_of_them: bool) -> list[Calve]:
    """Of calve's engines among the systems all, or the last."""
    found = [each for each in systems if isinstance(each, Calve)]
    return found if all_of_them else found[-1:]


@dataclass(frozen=True, slots=True)
class BareSpark(Follower):
    """The shortest Spark program that does it."""

    kind: Literal["batch", "streaming"] = "batch"

    def run(self, scene: Scene, laps: Sequence[Lap]) -> Run:
        settings = scene.settings([Table(each.table, each.topic.name) for each in laps])
        command = [sys.executable, "-m", "bench.programs.spark_job", self.kind, str(settings)]
        return run_program(scene, command, laps[0].table, len(laps))

    @contextmanager
    def following(self, scene: Scene, topic: str, table: str, round_s: float) -> Iterator[Metered]:
        settings = scene.settings([Table(table, topic, freshness_s=round_s)])
        command = [sys.executable, "-m", "bench.programs.spark_job", "follow", str(settings)]
        with scene.metered(command, table, marks=False) as running:
            yield running
