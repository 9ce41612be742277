"""Chooses the engine of a table. Both make the same rows and counts; the columnar one is faster, and supports less."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from calve.config.job import EngineChoice, Table
from calve.errors import CalveError, Suspended

EngineName = Literal["columnar", "rows"]
FORMATS = {"json": "JSON", "protobuf": "Protobuf"}
MODES = ("upsert", "change_data", "deduplicate", "aggregate")


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
    modes = [name for name in MODES if getattr(table, name) is not None]
    formats = [part.format for part in (table.value, table.key) if part]
    return tuple(reasons(modes, formats, (each.kind for each in table.steps)))


def reasons(modes: Iterable[str], formats: Iterable[str], steps: Iterable[str]) -> Iterable[str]:
    """The same for these modes, formats of values and keys, and kinds of steps, by their names in calve.yaml."""
    yield from (f"its mode is {each}" for each in modes)
    yield from (f"its records are {FORMATS[each]}" for each in dict.fromkeys(formats) if each in FORMATS)
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
