"""How much is measured: one workload of few systems, what is published, or all of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Name = Literal["quick", "default", "full"]


@dataclass(frozen=True, slots=True)
class Sizes:
    """records: of each workload of throughput. A workload without them is left out. large: of the topic that fast systems read
    when they are warm. rounds: processes of each system. again: measure a process once more if others were busy. modes, keys:
    tables by key, and their sizes. seconds: of producing at a fixed rate. topics, topic_records: of many small topics.
    kill_records: of the topic whose job is killed. systems: the ones to measure if none is named; empty: all.
    """

    name: Name
    records: dict[str, int]
    large: dict[str, int]
    rounds: int = 1
    again: bool = True
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
    {"trades": 500_000},
    {"trades": 4_000_000},
    again=False,
    systems=("calve_columnar", "spark_streaming", "limit_parquet"),
)
LEFT_OUT = "one workload and three systems; no freshness, commits, topics, kills or tables by key"
"""What a quick run does not measure beside the default one."""
DEFAULT = Sizes(
    "default",
    {"trades": 3_000_000, "orders": 300_000},
    {"trades": 20_000_000, "orders": 2_000_000},
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
        "orders_json": 200_000,
        "trades_protobuf": 3_000_000,
        "orders_protobuf": 200_000,
    },
    {
        "trades": 20_000_000,
        "orders": 2_000_000,
        "wide": 600_000,
        "trades_json": 20_000_000,
        "orders_json": 1_500_000,
        "trades_protobuf": 20_000_000,
        "orders_protobuf": 2_000_000,
    },
    rounds=2,
    modes=("upsert", "masked", "history", "deduplicate", "aggregate"),
    keys=(1_000_000, 4_000_000, 16_000_000),
    seconds=30,
    commits=1_000,
    topics=100,
    kill_records=6_000_000,
)
SIZES: dict[str, Sizes] = {each.name: each for each in (QUICK, DEFAULT, FULL)}
