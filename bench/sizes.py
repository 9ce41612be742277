"""How much is measured: one workload of few systems, what is published, or all of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Name = Literal["quick", "default", "full"]


@dataclass(frozen=True, slots=True)
class Sizes:
    """records, rounds: of each workload of throughput; one that has none is left out. modes, keys: tables by key, and what they
    grow to. seconds: of producing at a fixed rate. topics, topic_records: of many small topics. kill_records: of the topic whose
    job is killed. systems: those that are measured where none is named; none stands for all.
    """

    name: Name
    records: dict[str, int]
    rounds: dict[str, int]
    modes: tuple[str, ...] = ()
    keys: tuple[int, ...] = ()
    seconds: int = 0
    commits: int = 0
    topics: int = 0
    topic_records: int = 1_000
    kill_records: int = 0
    systems: tuple[str, ...] = ()


QUICK = Sizes(
    "quick",
    {"trades": 1_000_000},
    {"trades": 1},
    systems=("calve_columnar", "spark_streaming", "limit_parquet"),
)
DEFAULT = Sizes(
    "default",
    {"trades": 3_000_000, "orders": 150_000},
    {"trades": 1, "orders": 1},
    seconds=12,
    commits=100,
    topics=20,
    kill_records=1_500_000,
)
FULL = Sizes(
    "full",
    {
        "trades": 6_000_000,
        "orders": 600_000,
        "wide": 200_000,
        "trades_json": 3_000_000,
        "trades_protobuf": 3_000_000,
    },
    {"trades": 3, "orders": 3, "wide": 2, "trades_json": 2, "trades_protobuf": 2},
    modes=("upsert", "deduplicate", "aggregate"),
    keys=(1_000_000, 4_000_000, 16_000_000),
    seconds=30,
    commits=1_000,
    topics=100,
    kill_records=6_000_000,
)
SIZES: dict[str, Sizes] = {each.name: each for each in (QUICK, DEFAULT, FULL)}
