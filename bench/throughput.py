"""Records per CPU second: all systems read the same topic in turn, round after round."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench import checking
from bench.results import Failure, Measured
from bench.scene import Lap, Scene, System
from bench.sizes import Sizes
from bench.topics import Topic, create_table, drop_table, fill
from bench.workloads.workload import Workload
from cli.console import Console

DISTURBED = 0.2
"""A process is measured once more if others used more of the machine than that."""
EMPTY, WARM = 2, 3
"""The numbers of passes."""


@dataclass(frozen=True, slots=True)
class Topics:
    """Topics with records of one workload. large: the one of fast systems. empty: has a record in each partition."""

    usual: Topic
    large: Topic
    empty: Topic

    @classmethod
    def filled(cls, scene: Scene, console: Console, workload: Workload, sizes: Sizes) -> Topics:
        name = f"{workload.name}_{uuid.uuid4().hex[:6]}"

        def topic(suffix: str, count: int) -> Topic:
            with console.progress().task(f"producing {workload.name}", total=count, unit="records") as task:
                return fill(scene.job, f"{name}{suffix}", workload, count, task.update)

        counts = sizes.records[workload.name], sizes.large[workload.name]
        return cls(topic("", counts[0]), topic("_large", counts[1]), topic("_empty", workload.partitions))


def throughput(
    scene: Scene, console: Console, workload: Workload, systems: Sequence[System], sizes: Sizes
) -> Iterator[Measured | Failure]:
    """Measure every system that reads the workload's format. If one fails, the others are measured."""
    topics = Topics.filled(scene, console, workload, sizes)
    reading = [each for each in systems if workload.type in each.formats]
    bench = _Bench(scene, console, topics)
    for number in range(1, sizes.rounds + 1):
        turn = number % len(reading) if reading else 0
        for system in (*reading[turn:], *reading[:turn]):
            try:
                measure = bench.least_disturbed if sizes.again else bench.measured
                yield measure(system, number)
            except Exception as error:  # noqa: BLE001 whatever it is, the others are measured
                yield Failure(workload.name, system.name, number, f"{type(error).__name__}: {error}")


class _Bench:
    """Topics, and the tables that the first system made of them: the other systems have to make the same."""

    def __init__(self, scene: Scene, console: Console, topics: Topics) -> None:
        self._scene, self._console, self._topics = scene, console, topics
        self._first: dict[str, tuple[System, checking.Table]] = {}
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
        usual, warm = self._topics.usual, self._topics.large if system.fast else self._topics.usual
        topics = (usual, *[self._topics.empty] * EMPTY, *[warm] * WARM)
        name = f"{usual.name}_{system.name}_{self._number}"
        laps = [Lap(topic, f"{name}_{place}") for place, topic in enumerate(topics)]
        if not system.makes_tables:
            for lap in laps:
                create_table(self._scene.job, lap.topic.name, lap.table)
        with self._console.progress().task(f"{usual.workload.name}: {system.title}, round {number}"):
            run = system.run(self._scene, laps)
            checked = [self._checked(system, lap) for lap in laps] if system.keeps else []
        return Measured(
            usual.workload.name,
            system.name,
            number,
            usual.count,
            warm.count,
            warm.bytes,
            run.start,
            cold=run.laps[0],
            empty=run.laps[1:-WARM],
            warm=run.laps[-WARM:],
            peak_bytes=run.peak_bytes,
            files=checked[-1].files if checked else 0,
            table_bytes=checked[-1].bytes if checked else 0,
        )

    def _checked(self, system: System, lap: Lap) -> checking.Table:
        """Read the table, then drop it."""
        lake, first = self._scene.job.lake, self._first.get(lap.topic.name)
        found = checking.read(lake, lap.table, system.kafka)
        if wrong := checking.problem(found, lap.topic, first[1] if first else None):
            than = f" than those of {first[0].title}" if first else ""
            raise RuntimeError(f"{system.title}, table {lap.table}: {wrong}{than}")
        self._first.setdefault(lap.topic.name, (system, found))
        drop_table(self._scene.job, lap.table)
        return found
