"""Chooses the engine of a table. Both make the same rows and counts; the columnar one is faster, and supports less."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from calve.config.job import EngineChoice, Table
from calve.config.steps import Flatten
from calve.errors import CalveError, Suspended

EngineName = Literal["columnar", "rows"]
MODES = ("upsert", "change_data", "history", "deduplicate", "aggregate")


class Unsupported(CalveError):
    """The columnar engine does not support a table. The message is the reason."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """The engine of a table, and the reasons why it is not the columnar one."""

    engine: EngineName
    reasons: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.engine}: {'; '.join(self.reasons)}" if self.reasons else self.engine


def of_settings(table: Table) -> tuple[str, ...]:
    """Reasons in calve.yaml against the columnar engine. None: the schemas of the records decide."""
    mode = table.mode
    found = [*reasons(each.kind for each in table.steps)]
    if mode.key and any(isinstance(each, Flatten) and each.explode for each in table.steps):
        found.append("a record makes several rows of its key")
    return tuple(found)


def reasons(steps: Iterable[str]) -> Iterable[str]:
    """The same for these kinds of steps, by their names in calve.yaml."""
    yield from (f"it has the step {each}" for each in dict.fromkeys(steps) if each == "lookup")


def choose(table: str, wanted: EngineChoice, why_not: tuple[str, ...]) -> Chosen:
    """The engine that calve.yaml requests, or the best one. Raises Suspended: `engine_unsupported`: it cannot be used."""
    if wanted == "rows":
        return Chosen("rows", ("calve.yaml says so",))
    if not why_not:
        return Chosen("columnar")
    if wanted == "columnar":
        raise Suspended(
            "engine_unsupported",
            f"table {table} cannot be made by the columnar engine: {'; '.join(why_not)}",
            fix="in calve.yaml, set its `engine` to auto or rows",
            at=("engine",),
        )
    return Chosen("rows", why_not)
