"""What verification says: checks with figures, and findings that name partition, offsets and data files."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

State = Literal["proved", "failed", "not verifiable"]
OffsetRange = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it must be. `offsets` are ranges [from, to); `columns` are those whose values differ."""

    check: str
    message: str
    partition: int | None = None
    offsets: tuple[OffsetRange, ...] = ()
    files: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()

    @property
    def where(self) -> str:
        """Partition and offsets in words, the last offset included; empty where the finding has no place."""
        if self.partition is None:
            return ""
        shown = [str(a) if b == a + 1 else f"{a}-{b - 1}" for a, b in self.offsets[:8]]
        more = f" and {len(self.offsets) - 8} more ranges" if len(self.offsets) > 8 else ""
        return f"partition {self.partition} offset {', '.join(shown)}{more}"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at; `figures` are for people, in the order to be shown."""

    name: str
    state: State
    figures: dict[str, int | str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PartitionDigest:
    """Rows and order-free hash of [from, to) as the table and as the topic have them."""

    partition: int
    start: int
    to: int
    rows: int
    table: str
    topic: str


@dataclass(frozen=True, slots=True)
class Verification:
    """The outcome. `ok`: nothing is wrong; `complete`: nothing was left unproved either.

    fault: why verification itself failed and could not check the table; it says nothing about the table.
    """

    table: str
    topic: str
    checks: tuple[Check, ...]
    findings: tuple[Finding, ...]
    digests: tuple[PartitionDigest, ...] = ()
    seconds: float = 0.0
    fault: str | None = None

    @property
    def ok(self) -> bool:
        return not self.findings and self.fault is None

    @property
    def complete(self) -> bool:
        return self.fault is None and all(check.state != "not verifiable" for check in self.checks)
