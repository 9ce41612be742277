"""What was measured, as values that are kept as JSON, and the figures that are made of them."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from bench.metering import Spent

MOST_EMPTY = 0.1
"""The largest share of a pass that may not depend on its records."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One process of a system: its start, a cold pass over `cold_count` records, passes over an almost empty topic, and warm
    passes over `count` records. value_bytes: of the warm topic. files, table_bytes: of the last table.
    """

    workload: str
    system: str
    round: int
    cold_count: int
    count: int
    value_bytes: int
    start: Spent
    cold: Spent
    empty: tuple[Spent, ...]
    warm: tuple[Spent, ...]
    peak_bytes: int
    files: int
    table_bytes: int

    @property
    def disturbance(self) -> float:
        """The largest share of the machine that others used during a pass."""
        return max(each.disturbance for each in (self.start, self.cold, *self.warm))


@dataclass(frozen=True, slots=True)
class Failure:
    """A process that failed, or made a wrong table. It has no figure."""

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


@dataclass(frozen=True, slots=True)
class Spread:
    """A figure over several passes."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        found = sorted(values)
        return cls(statistics.median(found), found[0], found[-1])

    def __truediv__(self, other: Spread) -> Spread:
        """The range is that of the worst and the best pair."""
        return Spread(self.median / other.median, self.least / other.most, self.most / other.least)


@dataclass(frozen=True, slots=True)
class Figures:
    """A system on a workload. Rates are records per CPU second of all its processes: `warm` of passes after the first one, with
    all that they take; `all_in` of the cold pass with the start of the process.

    empty_cpu_s: of a pass over an almost empty topic.
    """

    workload: str
    system: str
    count: int
    warm: Spread
    warm_cpu_s: float
    all_in: Spread
    start_cpu_s: float
    empty_cpu_s: float
    wall_s: float
    broker_s_per_million: float
    bytes_per_row: float
    value_bytes: float
    files: float
    peak_bytes: float
    disturbance: float

    @property
    def too_short(self) -> str | None:
        """Why the warm rate is not that of the records alone; None if it is."""
        share = self.empty_cpu_s / self.warm_cpu_s
        return f"{share:.0%} of a pass does not depend on records" if share > MOST_EMPTY else None


def figures(measured: Sequence[Measured]) -> list[Figures]:
    """One for each workload and system, in the order in which they were first measured."""
    groups: dict[tuple[str, str], list[Measured]] = {}
    for each in measured:
        groups.setdefault((each.workload, each.system), []).append(each)
    return [_figures(*name, group) for name, group in groups.items()]


def _figures(workload: str, system: str, group: Sequence[Measured]) -> Figures:
    def median(value: Callable[[Measured], float]) -> float:
        return float(statistics.median(map(value, group)))

    count, passes = group[0].count, [spent for each in group for spent in each.warm]
    return Figures(
        workload,
        system,
        count,
        warm=Spread.of(count / each.cpu_s for each in passes),
        warm_cpu_s=statistics.median(each.cpu_s for each in passes),
        all_in=Spread.of(each.cold_count / (each.start.cpu_s + each.cold.cpu_s) for each in group),
        start_cpu_s=median(lambda each: each.start.cpu_s),
        empty_cpu_s=statistics.median(spent.cpu_s for each in group for spent in each.empty),
        wall_s=statistics.median(each.wall_s for each in passes),
        broker_s_per_million=statistics.median(each.broker_s for each in passes) / count * 1e6,
        bytes_per_row=median(lambda each: each.table_bytes / each.count),
        value_bytes=median(lambda each: each.value_bytes / each.count),
        files=median(lambda each: each.files),
        peak_bytes=median(lambda each: each.peak_bytes),
        disturbance=max(each.disturbance for each in group),
    )
