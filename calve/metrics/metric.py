"""What is known of a metric."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Unit = Literal["Count", "Seconds", "Bytes"]


@dataclass(frozen=True, slots=True)
class Log:
    """Lines of a job's log: those of `event`, None: all about a table. `key`: whose figure is taken; None: each line counts 1."""

    event: str | None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Function:
    """A folder of `lambdas/`, whose functions write the metric by themselves."""

    folder: str


@dataclass(frozen=True, slots=True)
class Service:
    """AWS measures it."""

    namespace: str


@dataclass(frozen=True, slots=True)
class Metric:
    """tells: what it is. bad: when it is, and what to do. peers: what others call it."""

    name: str
    unit: Unit
    source: Log | Function | Service
    dimensions: tuple[str, ...]
    tells: str
    bad: str
    peers: str = ""
