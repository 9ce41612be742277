"""What calve is to reach, as ratios in one run and as bounds, and what was measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bench.results import Figures, Results, Spread, figures
from bench.systems.all import TITLES

OURS, STREAM, CONNECT, LIMIT = "calve_columnar", "spark_streaming", "connect", "limit_parquet"
RATES = {
    "trades": (1_200, 5),
    "trades_json": (900, 5),
    "trades_protobuf": (1_100, 5),
    "orders": (120, 5),
    "orders_json": (80, 5),
    "orders_protobuf": (120, 5),
}
"""Thousand records per CPU second, and how many times those of Spark streaming."""
TIMES_CONNECT = {"trades": 6, "orders": 7}
P99_MS = {1.0: 1_200, 0.2: 500}
"""By seconds from round to round."""
TOPIC_CPU_MS = 400
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Verdict:
    """`measured` is to be at least, or at most, `goal`."""

    workload: str
    what: str
    goal: float
    measured: Spread
    at_most: bool = False
    doubt: str | None = None
    """Why `measured` proves nothing."""

    @property
    def state(self) -> str:
        if self.unresolved:
            return f"not resolved: {self.unresolved}"
        return "met" if self.met else "missed"

    @property
    def unresolved(self) -> str | None:
        """Why the figure says neither that the target is met nor that it is missed; None if it does."""
        found, away = self.measured, abs(self.measured.median - self.goal)
        if self.doubt is None and found.most - found.least > away:
            return f"measured {found.least:,.4g} to {found.most:,.4g}"
        return self.doubt

    @property
    def met(self) -> bool:
        if self.unresolved:
            return False
        found = self.measured.median
        return found <= self.goal if self.at_most else found >= self.goal


def verdicts(results: Results) -> list[Verdict]:
    """Of the targets for which everything was measured."""
    found = figures(results.throughput)
    of = {name: {each.system: each for each in found if each.workload == name} for name in RATES}
    others = results.others
    return [
        *(
            verdict
            for name, systems in of.items()
            if OURS in systems
            for verdict in _throughput(name, systems)
        ),
        *_freshness(others.get("freshness", [])),
        *_commits(others.get("commits", [])),
        *map(_topics, others.get("topics", [])),
        *(verdict for row in others.get("kills", []) for verdict in _kills(row)),
    ]


def _throughput(name: str, systems: Mapping[str, Figures]) -> Iterator[Verdict]:
    thousands, spark = RATES[name]
    ours, stream, sink = systems[OURS], systems.get(STREAM), systems.get(CONNECT)
    rate, doubt = ours.warm / _one(1_000), _doubt(ours, systems.get(LIMIT))
    yield Verdict(name, "thousand records per CPU second", thousands, rate, doubt=doubt)
    if stream:
        times, short = ours.warm / stream.warm, doubt or stream.too_short
        yield Verdict(name, "times Spark streaming", spark, times, doubt=short)
    if sink and name in TIMES_CONNECT:
        times, short = ours.warm / sink.warm, doubt or sink.too_short
        yield Verdict(name, "times Iceberg Kafka Connect", TIMES_CONNECT[name], times, doubt=short)
    if sink and name == "trades":
        yield Verdict(name, "times Iceberg Kafka Connect, both all in", 9, ours.all_in / sink.all_in)
    if stream and name == "trades":
        broker = _one(ours.broker_s_per_million / stream.broker_s_per_million)
        size = _one(ours.bytes_per_row / stream.bytes_per_row)
        yield Verdict(name, "of the broker's CPU under Spark streaming", 1 / 20, broker, at_most=True)
        yield Verdict(name, "of the bytes of Spark's files", 0.75, size, at_most=True)


def _doubt(ours: Figures, limit: Figures | None) -> str | None:
    """Why our rate cannot be that of the records. Nothing is faster than its own parts."""
    if limit and not ours.too_short and not limit.too_short and ours.warm.median > limit.warm.median:
        return f"above its own limit of {limit.warm.median / 1000:,.0f}"
    return ours.too_short


def _freshness(rows: list[dict[str, Any]]) -> Iterator[Verdict]:
    ours = {row["rounds s"]: row for row in rows if row["system"] == TITLES[OURS]}
    for seconds, goal in P99_MS.items():
        if seconds in ours:
            what = f"ms to visible, p99, with rounds of {seconds} s"
            yield Verdict("freshness", what, goal, _one(ours[seconds]["p99 ms"]), at_most=True)
    for row in rows:
        if row["system"] == TITLES[STREAM] and 1.0 in ours and row["cores"]:
            cpu = ours[1.0]["cores"] / row["cores"]
            yield Verdict(
                "freshness", "of Spark streaming's CPU, both each second", 1, _one(cpu), at_most=True
            )


def _commits(rows: list[dict[str, Any]]) -> Iterator[Verdict]:
    if not rows:
        return
    young, old = rows[0], rows[-1]
    what = f"of what commit {young['commit']} took: commit {old['commit']}"
    yield Verdict("commits", what, 1.2, _one(old["commit ms"] / young["commit ms"]), at_most=True)
    yield Verdict("commits", "kB of metadata file", 60, _one(old["metadata kB"]), at_most=True)
    yield Verdict("commits", "ms to plan a scan", 50, _one(old["plan ms"]), at_most=True)


def _topics(row: Row) -> Verdict:
    what = f"CPU ms for each of {row['topics']} tables"
    return Verdict("topics", what, TOPIC_CPU_MS, _one(row["CPU ms/table"]), at_most=True)


def _kills(row: Row) -> Iterator[Verdict]:
    what = f"records lost or doubled by kills ({row['system']})"
    yield Verdict("kills", what, 0, _one(row["lost"] + row["doubled"]), at_most=True)
    yield Verdict("kills", f"s to recover ({row['system']})", 5, _one(row["recovery s"]), at_most=True)


def _one(value: float) -> Spread:
    return Spread.of([value])
