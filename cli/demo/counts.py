"""What must be in a table after a run, against what its readers find there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cli.datagen.plan import Fates
    from cli.demo.readers import Found


@dataclass(frozen=True, slots=True)
class Count:
    """One figure of a table, and what each reader says instead."""

    table: str
    figure: str
    expected: int
    found: Mapping[str, int]

    @property
    def state(self) -> str:
        """The count in a word."""
        return "differs" if self.differs else "exact"

    @property
    def differs(self) -> str | None:
        """The count in a sentence where any reader finds another figure than the one expected."""
        others = [
            f"{reader} finds {figure:,}" for reader, figure in self.found.items() if figure != self.expected
        ]
        return (
            f"{self.table}, {self.figure}: expected {self.expected:,}, {', '.join(others)}"
            if others
            else None
        )


def counts_of(
    table: str, fates: Fates, found: Mapping[str, Found], *, total: Mapping[str, int]
) -> list[Count]:
    """Every figure of a table. `total`: its rows by others than these readers; the first of them is believed."""

    def count(name: str, expected: int, figures: Mapping[str, int]) -> Count:
        return Count(table, name, expected, figures)

    counts = [
        count("applied", fates.applied, {name: each.rows for name, each in found.items()}),
        count("duplicates", fates.duplicates, {name: each.repeated for name, each in found.items()}),
    ]
    reasons = set(fates.dead_lettered).union(*(each.dead_letters for each in found.values()))
    for reason in sorted(reasons):
        figures = {name: each.dead_letters.get(reason, 0) for name, each in found.items()}
        counts.append(count(reason, fates.dead_lettered.get(reason, 0), figures))
    totals = {name: each.total for name, each in found.items()} | dict(total)
    return [*counts, count("rows in all", next(iter(total.values())), totals)]
