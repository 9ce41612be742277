"""The interface of an operation: a request of an operator, which the job answers between two rounds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Generic, TypeVar

from calve.errors import LostRace
from calve.requests.requests import NOT_UNDERSTOOD, WaitingRequest
from calve.table.position import Position
from glue_jobs.iceberg.commit_cost import CostMeter
from glue_jobs.process.java import ENDING, problem
from glue_jobs.table.open_table import OpenTable

R = TypeVar("R", bound=WaitingRequest)
A = TypeVar("A")

RAISED: tuple[type[Exception], ...] = (LostRace, *ENDING)


class Operation(ABC, Generic[R, A]):
    """One class in one file, for one table at one position.

    kind: the request. changed: main may have changed, so every error is raised. meter: measures `run`.
    raised: errors of `run` that are no answer: the round ends by them, and the next one starts again.
    """

    kind: type[R]
    meter: CostMeter
    raised: ClassVar[tuple[type[Exception], ...]] = RAISED

    def __init__(self, table: OpenTable, base: Position) -> None:
        self.table = table
        self.base = base
        self.changed = False

    def pending(self) -> R | None:
        """The request that waits. Raises ValueError: it cannot be read. Raises Retryable: it cannot be run now."""
        return self.kind.pending(self.table.main.properties)

    @abstractmethod
    def run(self, request: R) -> A: ...

    @abstractmethod
    def refused(self, request: R | None, why: str) -> A:
        """The answer that says why not; request: None: it cannot be read."""

    @abstractmethod
    def answer(self, answer: A) -> None:
        """Replace the request by its answer, in one commit of properties."""


def handle(operation: Operation[R, A]) -> bool:
    """Run the request that waits, if any, and answer it; True if main may have changed.

    An error before main may have changed becomes the answer: an impossible request must not block the topic.
    Raises LostRace, Retryable: as a round.
    """
    try:
        request = operation.pending()
    except ValueError:
        operation.answer(operation.refused(None, NOT_UNDERSTOOD))
        return False
    if request is None:
        return False
    operation.meter = CostMeter(operation.table.services.lake)
    try:
        answer = operation.run(request)
    except operation.raised:
        raise
    except Exception as error:
        if operation.changed:
            raise
        answer = operation.refused(request, problem(error))
    operation.answer(answer)
    return True
