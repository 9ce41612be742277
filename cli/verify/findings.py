"""The result of a verification: checks with figures, and findings with partition, offsets and data files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Literal

State = Literal["proved", "failed", "not verifiable"]
OTHERS = "earlier topic"
"""The check that counts rows of other incarnations of the topic: only their own cluster proves them."""
OffsetRange = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault. `offsets`: ranges [from, to); `columns`: those whose values differ."""

    check: str
    message: str
    partition: int | None = None
    offsets: tuple[OffsetRange, ...] = ()
    files: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()

    @property
    def where(self) -> str:
        """Partition and offsets in words, including the last offset; empty for a finding without a place."""
        if self.partition is None:
            return ""
        shown = [str(a) if b == a + 1 else f"{a}-{b - 1}" for a, b in self.offsets[:8]]
        more = f" and {len(self.offsets) - 8} more ranges" if len(self.offsets) > 8 else ""
        return f"partition {self.partition} offset {', '.join(shown)}{more}"


class Findings:
    """Groups findings of the same kind and partition. A row written by hand may have no place."""

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
            Finding(check, message, partition, ranges(offsets), tuple(sorted(files)), columns)
            for (check, message, partition, columns), (offsets, files) in self._found.items()
        ]


@dataclass(frozen=True, slots=True)
class Check:
    """One check; `figures` are for people, in the order of display."""

    name: str
    state: State
    figures: dict[str, int | str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PartitionDigest:
    """Row count and order-free hash of [from, to) on both sides."""

    partition: int
    start: int
    to: int
    rows: int
    table: str
    topic: str


@dataclass(frozen=True, slots=True)
class Verification:
    """The outcome. `ok`: no fault; `complete`: everything was proved.

    fault: why verification itself failed; it says nothing about the table.
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

    def with_former(self, former: Verification) -> Verification:
        """Both proofs of a moved table: by the cluster that it reads now, and by the former one."""
        left_out, others = self.figure(OTHERS), former.figure(OTHERS)
        whole = (left_out, others) == (former.figure("contents"), self.figure("contents"))
        own = [each for each in self.checks if not whole or each.name != OTHERS]
        older = [
            each for each in former.checks if each.name != "ledgers" and (not whole or each.name != OTHERS)
        ]
        return replace(
            self,
            checks=(*own, *(replace(each, name=f"former {each.name}") for each in older)),
            findings=(*self.findings, *(each for each in former.findings if each.check != "ledgers")),
            seconds=self.seconds + former.seconds,
            fault=self.fault or former.fault,
        )

    def figure(self, check: str) -> int | str:
        """The rows of a check; 0 without it."""
        return next((each.figures.get("rows", 0) for each in self.checks if each.name == check), 0)


def ranges(offsets: Iterable[int]) -> tuple[OffsetRange, ...]:
    """Offsets as ranges [from, to), in order."""
    runs = groupby(enumerate(sorted(set(offsets))), lambda pair: pair[1] - pair[0])
    found = ([offset for _, offset in run] for _, run in runs)
    return tuple((run[0], run[-1] + 1) for run in found)
