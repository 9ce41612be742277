"""Where the benchmark happens, and what a system that is measured has to give."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from bench.metering import Metered, Reading, Spent, metered
from bench.programs.marks import LAP, READY
from bench.topics import Topic
from calve.config.job import Job, Table
from cli.embedded.stack import Stack
from cli.spark import spark_environment

MEMORY = "3g"
"""Of every JVM that is measured."""


@dataclass(frozen=True, slots=True)
class Scene:
    """The servers that all systems use alike, and a folder for what is passing. `job` has no tables of its own."""

    stack: Stack
    job: Job
    folder: Path

    def settings(self, tables: Sequence[Table]) -> Path:
        """A file with the job of these tables."""
        file = self.folder / f"{tables[0].name}.json"
        file.write_text(replace(self.job, tables=tuple(tables)).to_json())
        return file

    def log(self, name: str) -> Path:
        return self.stack.logs / "bench" / f"{name}.log"

    def metered(
        self, command: Sequence[str], name: str, *, marks: bool = True
    ) -> AbstractContextManager[Metered]:
        """Run a program that may start Spark."""
        return metered(command, self.environment(), stack=self.stack, log=self.log(name), marks=marks)

    def environment(self) -> dict[str, str]:
        """Of a program that may start Spark."""
        return spark_environment(self.stack, memory=MEMORY)


@dataclass(frozen=True, slots=True)
class Lap:
    """A topic that is to be brought into a table."""

    topic: Topic
    table: str


@dataclass(frozen=True, slots=True)
class Run:
    """A process of a system: its start, then lap after lap, the first of them cold."""

    start: Spent
    laps: tuple[Spent, ...]
    peak_bytes: int


@dataclass(frozen=True, slots=True)
class System(ABC):
    """Something that brings a topic into tables.

    formats: the types of schemas that it reads. keeps: it leaves tables, which it makes itself where it `makes_tables`.
    fast: its warm passes need the large topic, or they would be too short.
    kafka: the fields of `_kafka` that it can fill; all of them where it is None.
    """

    name: str
    title: str
    formats: frozenset[str] = frozenset({"AVRO"})
    keeps: bool = True
    makes_tables: bool = False
    fast: bool = False
    kafka: tuple[str, ...] | None = None

    @abstractmethod
    def run(self, scene: Scene, laps: Sequence[Lap]) -> Run:
        """Go one lap after the other, in one process."""


class Follower(System):
    """A system that also keeps a table fresh."""

    @abstractmethod
    def following(
        self, scene: Scene, topic: str, table: str, round_s: float
    ) -> AbstractContextManager[Metered]:
        """Keep the table as long as the block lasts, with a round about every so many seconds."""


def run_program(scene: Scene, command: Sequence[str], name: str, laps: int) -> Run:
    """Run a program that marks its start and its laps."""
    with scene.metered(command, name) as running:
        before = begun(running)
        readings = [before]
        for expected in (READY, *[LAP] * laps):
            found = running.mark()
            if found["mark"] != expected or {"failed", "suspended"} & set(found.get("states", ())):
                raise RuntimeError(f"{name}: {found}; see {running.log}")
            readings.append(running.read())
            running.answer()
        return run_of(readings, running)


def begun(running: Metered) -> Reading:
    """A reading as of the start of the program."""
    return replace(running.read(), cpu_s=0.0)


def run_of(readings: Sequence[Reading], running: Metered) -> Run:
    spent = [Spent.between(*each) for each in pairwise(readings)]
    return Run(spent[0], tuple(spent[1:]), running.peak_bytes)
