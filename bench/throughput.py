"""Records per CPU second: all systems read the same topic in turn, round after round."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence

from bench import checking
from bench.results import Measured
from bench.scene import Scene, System
from bench.topics import Topic, create_table, drop_table, fill
from bench.workloads.workload import Workload
from cli.console import Console

LAPS = 2
DISTURBED = 0.2
"""A process is measured once more where others used more of the machine than that."""


def throughput(
    scene: Scene, console: Console, workload: Workload, systems: Sequence[System], count: int, rounds: int
) -> Iterator[Measured]:
    """Measure every system that reads the workload's format."""
    name = f"{workload.name}_{uuid.uuid4().hex[:6]}"
    with console.progress().task(f"producing {workload.name}", total=count, unit="records") as task:
        topic = fill(scene.job, name, workload, count, task.update)
    reading = [each for each in systems if workload.type in each.formats]
    bench = _Bench(scene, console, topic)
    for number in range(1, rounds + 1):
        turn = number % len(reading) if reading else 0
        for system in (*reading[turn:], *reading[:turn]):
            found = bench.measured(system, number)
            if found.disturbance > DISTURBED:
                console.event("measured again", system=system.name, others=f"{found.disturbance:.0%}")
                found = min(found, bench.measured(system, number), key=lambda each: each.disturbance)
            yield found


class _Bench:
    """A topic, and what the first system has made of it: the others have to make the same."""

    def __init__(self, scene: Scene, console: Console, topic: Topic) -> None:
        self._scene, self._console, self._topic = scene, console, topic
        self._first: tuple[System, checking.Table] | None = None
        self._number = 0

    def measured(self, system: System, number: int) -> Measured:
        """Run a system once, with tables of its own, and check those.

        Raises:
            RuntimeError: a table is not what it should be.
        """
        self._number += 1
        topic = self._topic
        tables = [f"{topic.name}_{system.name}_{self._number}_{lap}" for lap in range(1, LAPS + 1)]
        if not system.makes_tables:
            for table in tables:
                create_table(self._scene.job, topic.name, table)
        with self._console.progress().task(f"{topic.workload.name}: {system.title}, round {number}"):
            run = system.run(self._scene, topic, tables)
            checked = [self._checked(system, table) for table in tables] if system.keeps else []
            for table in tables if system.keeps else ():
                drop_table(self._scene.job, table)
        return Measured(
            topic.workload.name,
            system.name,
            number,
            topic.count,
            topic.bytes,
            run.start,
            run.laps,
            run.peak_bytes,
            checked[-1].files if checked else 0,
            checked[-1].bytes if checked else 0,
        )

    def _checked(self, system: System, table: str) -> checking.Table:
        found = checking.read(self._scene.job.lake, table, system.kafka)
        first = self._first[1] if self._first else None
        if wrong := checking.problem(found, self._topic, first):
            than = f" than those of {self._first[0].title}" if self._first else ""
            raise RuntimeError(f"{system.title}, table {table}: {wrong}{than}")
        self._first = self._first or (system, found)
        return found
