"""What verification says: checks with figures, and findings that name partition, offsets and data files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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


class Findings:
    """Findings of the same kind in one partition, put together. A row that was written by hand may have no place."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str, int | None, tuple[str, ...]], tuple[set[int], set[str]]] = {}

    def add(
        self,
        check: str,
        message: str,
        partition: int | None,
        offset: int | None,
        files: Iterable[str] = (),
        columns: tuple[str, ...] = (),
    ) -> None:
        offsets, named = self._found.setdefault((check, message, partition, columns), (set(), set()))
        offsets.update([] if offset is None else [offset])
        named.update(files)

    def findings(self) -> list[Finding]:
        return [
            Finding(check, message, partition, tuple(ranges(sorted(offsets))), tuple(sorted(files)), columns)
            for (check, message, partition, columns), (offsets, files) in self._found.items()
        ]


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


def ranges(offsets: list[int]) -> Iterator[tuple[int, int]]:
    """Offsets, sorted, as ranges [from, to) of neighbours."""
    start = previous = None
    for offset in offsets:
        if start is None or previous is None:
            start = offset
        elif offset > previous + 1:
            yield start, previous + 1
            start = offset
        previous = offset
    if start is not None and previous is not None:
        yield start, previous + 1
