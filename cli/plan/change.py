"""What would happen to one thing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from cli.plan.consequences import Consequence
    from cli.plan.written import Difference

Kind = Literal["+", "~", "=", "-"]
KINDS: dict[Kind, str] = {"+": "new", "~": "changed", "=": "same", "-": "no longer configured"}


@dataclass(frozen=True, slots=True)
class Change:
    """`note` says what the kind alone does not, `undecided` which fields are to be decided on, `engine` what makes the rows of a
    table, and why (`calve.engines.Chosen`). entry: the entry with `topics` that it is a table of.
    """

    section: str
    name: str
    kind: Kind
    differences: tuple[Difference, ...] = ()
    note: str = ""
    undecided: tuple[str, ...] = ()
    consequences: tuple[Consequence, ...] = ()
    engine: str | None = None
    entry: str | None = None

    @property
    def breaking(self) -> bool:
        return any(each.breaking for each in self.consequences)
