"""What was measured, as values that are kept as JSON, and the figures that are made of them."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from bench.metering import Spent
from bench.systems.all import TITLES

TICK_S = 0.01
LEAST_S = 0.25
"""A pass that takes less CPU beyond an empty one has no rate: what its JVM compiles meanwhile differs by as much."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One process of a system: its start, a cold pass over the topic, passes over one that is all but empty, a warm pass, and
    what the table of that one is.
    """

    workload: str
    system: str
    round: int
    count: int
    value_bytes: int
    start: Spent
    cold: Spent
    idle: tuple[Spent, ...]
    warm: Spent
    peak_bytes: int
    files: int
    table_bytes: int

    @property
    def disturbance(self) -> float:
        """The share of the machine that others used meanwhile."""
        return max(each.disturbance for each in (self.start, self.cold, self.warm))

    def steady(self, of: Callable[[Spent], float]) -> float:
        """What the warm pass took beyond what a table costs that has nothing to read; a tick at least."""
        return max(of(self.warm) - statistics.mean(map(of, self.idle)), TICK_S)


@dataclass(frozen=True, slots=True)
class Failure:
    """A process that did not do its work, or not right: it is told, and has no figure."""

    workload: str
    system: str
    round: int
    why: str


@dataclass(frozen=True, slots=True)
class Results:
    """All of a run. `facts`: machine, versions, commit, sizes. `others`: rows of tables by the name of the workload."""

    facts: dict[str, Any]
    throughput: list[Measured] = field(default_factory=list)
    others: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> Self:
        raw = json.loads(text)
        measured = [_measured(each) for each in raw["throughput"]]
        return cls(raw["facts"], measured, raw["others"], [Failure(**each) for each in raw["failures"]])


@dataclass(frozen=True, slots=True)
class Spread:
    """A figure over rounds."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        found = sorted(values)
        return cls(statistics.median(found), found[0], found[-1])

    def __truediv__(self, other: Spread) -> float:
        return self.median / other.median


@dataclass(frozen=True, slots=True)
class Figures:
    """A system on a workload. Rates are records per CPU second: `steady` of the warm pass without what an empty one takes, `warm`
    of all of it, `all_in` of the cold pass with the start of the process.
    """

    workload: str
    system: str
    rounds: int
    steady: Spread
    steady_cpu_s: float
    warm: Spread
    all_in: Spread
    start_cpu_s: float
    wall_s: float
    broker_s_per_million: float
    bytes_per_row: float
    value_bytes: float
    files: float
    peak_bytes: float
    disturbance: float

    @property
    def too_short(self) -> str | None:
        """Why the steady rate is none; None where it is one."""
        if self.steady_cpu_s >= LEAST_S:
            return None
        return f"{TITLES[self.system]} took {self.steady_cpu_s:.2f} CPU s: too few records"


def figures(measured: Sequence[Measured]) -> list[Figures]:
    """One for each workload and system, in the order in which they were first measured."""
    groups: dict[tuple[str, str], list[Measured]] = {}
    for each in measured:
        groups.setdefault((each.workload, each.system), []).append(each)
    return [_figures(*name, group) for name, group in groups.items()]


def _figures(workload: str, system: str, group: Sequence[Measured]) -> Figures:
    def median(value: Any) -> float:
        return float(statistics.median(map(value, group)))

    return Figures(
        workload,
        system,
        len(group),
        steady=Spread.of(each.count / each.steady(_cpu_s) for each in group),
        steady_cpu_s=median(lambda each: each.steady(_cpu_s)),
        warm=Spread.of(each.count / each.warm.cpu_s for each in group),
        all_in=Spread.of(each.count / (each.start.cpu_s + each.cold.cpu_s) for each in group),
        start_cpu_s=median(lambda each: each.start.cpu_s),
        wall_s=median(lambda each: each.warm.wall_s),
        broker_s_per_million=median(lambda each: each.steady(_broker_s) / each.count * 1e6),
        bytes_per_row=median(lambda each: each.table_bytes / each.count),
        value_bytes=median(lambda each: each.value_bytes / each.count),
        files=median(lambda each: each.files),
        peak_bytes=median(lambda each: each.peak_bytes),
        disturbance=max(each.disturbance for each in group),
    )


def _cpu_s(spent: Spent) -> float:
    return spent.cpu_s


def _broker_s(spent: Spent) -> float:
    return spent.broker_s


def _measured(raw: dict[str, Any]) -> Measured:
    parts: dict[str, Any] = {name: Spent(**raw[name]) for name in ("start", "cold", "warm")}
    return Measured(**(raw | parts | {"idle": tuple(Spent(**each) for each in raw["idle"])}))
