"""An operation that nobody requests costs nothing, and takes no measurement from the round around it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from calve.requests.time_travel import RollbackRequest
from calve.table.position import Position
from calve.table.summary import TRAVEL
from glue_jobs.operations import operation
from glue_jobs.operations.operation import Operation, handle

WAITING = {TRAVEL: RollbackRequest("1", "2026-01-31", "ada", "rollback", 7).to_json()}


class Noted(Operation[RollbackRequest, str]):
    kind = RollbackRequest

    def run(self, request: RollbackRequest) -> str:
        return f"{request.snapshot} by {self.meter}"

    def refused(self, request: RollbackRequest | None, why: str) -> str:
        return why

    def answer(self, answer: str) -> None:
        self.said = answer


def noted(properties: dict[str, str]) -> Noted:
    main, services = SimpleNamespace(properties=properties), SimpleNamespace(lake="lake")
    table: Any = SimpleNamespace(main=main, services=services)
    return Noted(table, Position({}, "r", "w", "t"))


def test_only_a_request_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    meters: list[str] = []

    def meter(lake: str) -> str:
        meters.append(lake)
        return f"meter of {lake}"

    monkeypatch.setattr(operation, "CostMeter", meter)
    assert not handle(noted({}))
    assert meters == []
    asked = noted(WAITING)
    assert handle(asked)
    assert (asked.said, meters) == ("7 by meter of lake", ["lake"])


def test_a_request_that_cannot_be_read_is_answered() -> None:
    asked = noted({TRAVEL: "{}"})
    assert not handle(asked)
    assert "not one that this release understands" in asked.said
