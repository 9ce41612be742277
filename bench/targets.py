"""What the columnar engine is to reach, as ratios in one run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bench.results import Figures

OURS, STREAM, CONNECT = "calve_columnar", "spark_streaming", "connect"
Systems = Mapping[str, Figures]


@dataclass(frozen=True, slots=True)
class Target:
    """`figure` is to be at least, or at most, `goal`; it is of the systems that `needs` names."""

    workload: str
    what: str
    goal: float
    figure: Callable[[Systems], float]
    needs: tuple[str, ...]
    at_most: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """A target and what was measured."""

    target: Target
    measured: float

    @property
    def met(self) -> bool:
        return self.measured <= self.target.goal if self.target.at_most else self.measured >= self.target.goal


def _thousands(systems: Systems) -> float:
    return systems[OURS].steady.median / 1000


def _steady(other: str) -> Callable[[Systems], float]:
    return lambda systems: systems[OURS].steady / systems[other].steady


def _rates(workload: str, thousands: float, spark: float, connect: float) -> list[Target]:
    return [
        Target(workload, "thousand records per CPU second", thousands, _thousands, (OURS,)),
        Target(workload, "times Spark streaming, steady", spark, _steady(STREAM), (OURS, STREAM)),
        Target(workload, "times Iceberg Kafka Connect, steady", connect, _steady(CONNECT), (OURS, CONNECT)),
    ]


TARGETS = (
    *_rates("trades", 1_200, 5, 6),
    Target(
        "trades",
        "times Iceberg Kafka Connect, all in",
        9,
        lambda systems: systems[OURS].all_in / systems[CONNECT].all_in,
        (OURS, CONNECT),
    ),
    Target(
        "trades",
        "of the broker's CPU that Spark streaming asks for",
        1 / 20,
        lambda systems: systems[OURS].broker_s_per_million / systems[STREAM].broker_s_per_million,
        (OURS, STREAM),
        at_most=True,
    ),
    Target(
        "trades",
        "of the bytes of Spark's files",
        0.75,
        lambda systems: systems[OURS].bytes_per_row / systems[STREAM].bytes_per_row,
        (OURS, STREAM),
        at_most=True,
    ),
    *_rates("orders", 130, 5, 7),
)


def verdicts(figures: Sequence[Figures]) -> list[Verdict]:
    """Of the targets whose systems were measured."""
    found = []
    for target in TARGETS:
        systems = {each.system: each for each in figures if each.workload == target.workload}
        if systems.keys() >= set(target.needs):
            found.append(Verdict(target, target.figure(systems)))
    return found
