"""The deployed functions: what is set for them, and what they log."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from tests.integration.support.exporting import NAME, Deployment

OF_THE_PLATFORM = ("START RequestId:", "END RequestId:", "REPORT RequestId:")
MOST = 10_000
"""So many lines are listed at once, and the emulator lists no more."""


def function(weekly: Deployment, part: str) -> dict[str, Any]:
    """The function of this name, or the one of the deployment with this in its name."""
    pages = weekly.client("lambda").get_paginator("list_functions").paginate()
    named = {each["FunctionName"]: each for page in pages for each in page["Functions"]}
    if part in named:
        return dict(named[part])
    (found,) = (named[name] for name in named if name.startswith(f"{NAME}-") and part in name)
    return dict(found)


def settings(weekly: Deployment, part: str) -> dict[str, str]:
    return dict(function(weekly, part)["Environment"]["Variables"])


@dataclass
class Log:
    """What a function logs from now on, at the level that it has on AWS."""

    weekly: Deployment
    part: str
    _since: int = field(default_factory=lambda: time.time_ns() // 1_000_000)

    def __post_init__(self) -> None:
        self._group = function(self.weekly, self.part)["LoggingConfig"]["LogGroup"]

    def lines(self) -> list[str]:
        """Without those that Lambda itself writes."""
        found = self.weekly.client("logs").filter_log_events(logGroupName=self._group, startTime=self._since)
        assert len(found["events"]) < MOST
        said = [each["message"] for each in found["events"]]
        return [line for line in said if line and not line.startswith(OF_THE_PLATFORM)]

    def holding(self, text: str) -> list[str]:
        return [line for line in self.lines() if text in line]
