"""Which engine makes the rows of a table: the columnar one wherever it can do what the table asks, else the one of rows.

Both make the same rows and the same figures. Why a table is not columnar is told in sentences: by `calve plan`, and by the job
when it opens the table.
"""

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
    """The columnar engine cannot make a table, or not surely the same; the message says why, as a reason does."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """The engine of a table, and why it is not the columnar one."""

    engine: EngineName
    reasons: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.engine}: {'; '.join(self.reasons)}" if self.reasons else self.engine


def of_settings(table: Table) -> tuple[str, ...]:
    """Why calve.yaml alone keeps a table from being columnar; none where the schemas of its records decide."""
    modes = [name for name in MODES if getattr(table, name) is not None]
    formats = [part.format for part in (table.value, table.key) if part]
    return tuple(reasons(modes, formats, (each.kind for each in table.steps)))


def reasons(modes: Iterable[str], formats: Iterable[str], steps: Iterable[str]) -> Iterable[str]:
    """The same of a table with these modes, formats of values and keys, and kinds of steps, as calve.yaml names them."""
    yield from (f"its mode is {each}" for each in modes)
    yield from (f"its records are {FORMATS[each]}" for each in dict.fromkeys(formats) if each in FORMATS)
    yield from (f"it has the step {each}" for each in dict.fromkeys(steps) if each == "lookup")


def choose(table: str, wanted: EngineChoice, why_not: tuple[str, ...]) -> Chosen:
    """The engine that calve.yaml wants, or can have.

    Raises:
        Suspended: `engine_unsupported`: it wants none but the columnar one.
    """
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
