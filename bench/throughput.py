"""Records per CPU second: all systems read the same topic in turn, round after round."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence

from bench import checking
from bench.results import Failure, Measured
from bench.scene import Lap, Scene, System
from bench.topics import Topic, create_table, drop_table, fill
from bench.workloads.workload import Workload
from cli.console import Console

DISTURBED = 0.2
"""A process is measured once more where others used more of the machine than that."""


def throughput(
    scene: Scene, console: Console, workload: Workload, systems: Sequence[System], count: int, rounds: int
) -> Iterator[Measured | Failure]:
    """Measure every system that reads the workload's format; one that fails does not keep the others from it."""
    name = f"{workload.name}_{uuid.uuid4().hex[:6]}"
    with console.progress().task(f"producing {workload.name}", total=count, unit="records") as task:
        topic = fill(scene.job, name, workload, count, task.update)
    idle = fill(scene.job, f"{name}_idle", workload, workload.partitions, lambda _: None)
    reading = [each for each in systems if workload.type in each.formats]
    bench = _Bench(scene, console, topic, idle)
    for number in range(1, rounds + 1):
        turn = number % len(reading) if reading else 0
        for system in (*reading[turn:], *reading[:turn]):
            try:
                yield bench.least_disturbed(system, number)
            except Exception as error:  # noqa: BLE001 whatever it is, the others are measured
                yield Failure(workload.name, system.name, number, f"{type(error).__name__}: {error}")


class _Bench:
    """A topic, and what the first system has made of it: the others have to make the same. idle: one that is all but empty."""

    def __init__(self, scene: Scene, console: Console, topic: Topic, idle: Topic) -> None:
        self._scene, self._console, self._topic, self._idle = scene, console, topic, idle
        self._first: tuple[System, checking.Table] | None = None
        self._number = 0

    def least_disturbed(self, system: System, number: int) -> Measured:
        """Measure a system, and once more where others were busy."""
        found = self.measured(system, number)
        if found.disturbance <= DISTURBED:
            return found
        self._console.event("measured again", system=system.name, others=f"{found.disturbance:.0%}")
        return min(found, self.measured(system, number), key=lambda each: each.disturbance)

    def measured(self, system: System, number: int) -> Measured:
        """Run a system once, with tables of its own, and check those.

        Raises:
            RuntimeError: a table is not what it should be.
        """
        self._number += 1
        topics = (self._topic, self._idle, self._idle, self._topic)
        name = f"{self._topic.name}_{system.name}_{self._number}"
        laps = [Lap(topic, f"{name}_{place}") for place, topic in enumerate(topics)]
        if not system.makes_tables:
            for lap in laps:
                create_table(self._scene.job, lap.topic.name, lap.table)
        with self._console.progress().task(f"{self._topic.workload.name}: {system.title}, round {number}"):
            run = system.run(self._scene, laps)
            checked = [self._checked(system, lap) for lap in laps] if system.keeps else []
        cold, *idle, warm = run.laps
        return Measured(
            self._topic.workload.name,
            system.name,
            number,
            self._topic.count,
            self._topic.bytes,
            run.start,
            cold,
            tuple(idle),
            warm,
            run.peak_bytes,
            checked[-1].files if checked else 0,
            checked[-1].bytes if checked else 0,
        )

    def _checked(self, system: System, lap: Lap) -> checking.Table:
        """Read the table, then drop it."""
        lake, first = self._scene.job.lake, self._first if lap.topic is self._topic else None
        found = checking.read(lake, lap.table, system.kafka)
        if wrong := checking.problem(found, lap.topic, first[1] if first else None):
            than = f" than those of {first[0].title}" if first else ""
            raise RuntimeError(f"{system.title}, table {lap.table}: {wrong}{than}")
        if lap.topic is self._topic:
            self._first = self._first or (system, found)
        drop_table(self._scene.job, lap.table)
        return found
