"""What the machine could do at best: the parts of the columnar engine in one process, without Spark, table and commit."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from bench.scene import Lap, Run, Scene, System, run_program
from calve.config.job import Table


@dataclass(frozen=True, slots=True)
class Limit(System):
    """The path of a record as far as one of its parts."""

    step: str = ""

    def run(self, scene: Scene, laps: Sequence[Lap]) -> Run:
        settings = scene.settings([Table(each.table, each.topic.name) for each in laps])
        command = [sys.executable, "-m", "bench.programs.limits", self.step, str(settings)]
        return run_program(scene, command, laps[0].table, len(laps))


STEPS = {
    "fetch": "fetch",
    "parse": "fetch to places of records",
    "decode": "fetch to Arrow",
    "parquet": "fetch to Parquet",
}
LIMITS = tuple(
    Limit(f"limit_{step}", f"limit: {title}", keeps=False, makes_tables=True, fast=True, step=step)
    for step, title in STEPS.items()
)
