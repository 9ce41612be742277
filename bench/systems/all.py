"""The systems by name; a name of a group stands for all of it."""

from __future__ import annotations

from collections.abc import Sequence

from bench.scene import System
from bench.systems.connect import Connect
from bench.systems.limits import LIMITS
from bench.systems.spark import BareSpark, Calve

JSON_TOO = frozenset({"AVRO", "JSON"})
EVERY = JSON_TOO | {"PROTOBUF"}
SYSTEMS: tuple[System, ...] = (
    Calve("calve_rows", "calve, row engine", EVERY, makes_tables=True),
    Calve("calve_columnar", "calve, columnar engine", EVERY, makes_tables=True, fast=True, engine="columnar"),
    BareSpark("spark_batch", "bare Spark, batch", JSON_TOO),
    BareSpark("spark_streaming", "bare Spark, streaming", JSON_TOO, kind="streaming"),
    Connect("connect", "Iceberg Kafka Connect", kafka=("topic", "partition", "offset", "timestamp")),
    *LIMITS,
)
TITLES = {each.name: each.title for each in SYSTEMS}


def chosen(name: str | None, otherwise: Sequence[str] = ()) -> list[System]:
    """The systems whose name begins like this; without a name those that are named otherwise, or all.

    Raises:
        ValueError: there is none.
    """
    if not name and otherwise:
        return [each for each in SYSTEMS if each.name in otherwise]
    found = [each for each in SYSTEMS if each.name.startswith(name or "")]
    if not found:
        raise ValueError(f"no system is named {name}; there are {', '.join(TITLES)}")
    return found
