"""What was measured, as values that are kept as JSON, and the figures that are made of them."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from bench.metering import Spent


@dataclass(frozen=True, slots=True)
class Measured:
    """One process of a system: its start, its laps, and what the table of the last lap is."""

    workload: str
    system: str
    round: int
    count: int
    value_bytes: int
    start: Spent
    laps: tuple[Spent, ...]
    peak_bytes: int
    files: int
    table_bytes: int

    @property
    def disturbance(self) -> float:
        """The share of the machine that others used meanwhile."""
        return max(each.disturbance for each in (self.start, *self.laps))


@dataclass(frozen=True, slots=True)
class Results:
    """All of a run. `facts`: machine, versions, commit, sizes. `others`: rows of tables by the name of the workload."""

    facts: dict[str, Any]
    throughput: list[Measured] = field(default_factory=list)
    others: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> Self:
        raw = json.loads(text)
        return cls(raw["facts"], [_measured(each) for each in raw["throughput"]], raw["others"])


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
    """A system on a workload. Rates are records per CPU second: `steady` of warm laps, `first` of the first without the start of
    the process, `all_in` of the first with it.
    """

    workload: str
    system: str
    rounds: int
    steady: Spread
    first: Spread
    all_in: Spread
    start_cpu_s: float
    wall_s: float
    broker_s_per_million: float
    bytes_per_row: float
    value_bytes: float
    files: float
    peak_bytes: float
    disturbance: float


def figures(measured: Sequence[Measured]) -> list[Figures]:
    """One for each workload and system, in the order in which they were first measured."""
    groups: dict[tuple[str, str], list[Measured]] = {}
    for each in measured:
        groups.setdefault((each.workload, each.system), []).append(each)
    return [_figures(*name, group) for name, group in groups.items()]


def _figures(workload: str, system: str, group: Sequence[Measured]) -> Figures:
    def median(value: Any) -> float:
        return float(statistics.median(map(value, group)))

    warm = [(each.count, lap) for each in group for lap in each.laps[1:] or each.laps]
    return Figures(
        workload,
        system,
        len(group),
        steady=Spread.of(count / lap.cpu_s for count, lap in warm),
        first=Spread.of(each.count / each.laps[0].cpu_s for each in group),
        all_in=Spread.of(each.count / (each.start.cpu_s + each.laps[0].cpu_s) for each in group),
        start_cpu_s=median(lambda each: each.start.cpu_s),
        wall_s=statistics.median(lap.wall_s for _, lap in warm),
        broker_s_per_million=statistics.median(lap.broker_s / count * 1e6 for count, lap in warm),
        bytes_per_row=median(lambda each: each.table_bytes / each.count),
        value_bytes=median(lambda each: each.value_bytes / each.count),
        files=median(lambda each: each.files),
        peak_bytes=median(lambda each: each.peak_bytes),
        disturbance=max(each.disturbance for each in group),
    )


def _measured(raw: dict[str, Any]) -> Measured:
    parts = {"start": Spent(**raw["start"]), "laps": tuple(Spent(**each) for each in raw["laps"])}
    return Measured(**(raw | parts))
