"""Which rules of a table left out or refused records, and whether enough records of the last hour met its expectations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, Self

from calve.config.steps import UNMET, Expect, Step, place
from calve.errors import Suspended
from calve.table.position import Ledger
from calve.table.protocol import Commit, each_round
from calve.table.summary import ledger_of, metrics_of

WITHIN_S = 3_600.0
"""The time whose rounds count for `at_least`."""


@dataclass(frozen=True, slots=True)
class Rules:
    """Counts of a round by rule (`name_of`), in its commit's metrics.

    left_out: records, or rows behind an explosion, that a step left out. unmet: records that do not meet an expectation.
    """

    left_out: Mapping[str, int] = field(default_factory=dict)
    unmet: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, steps: Sequence[Step], left_out: Mapping[int, int], unmet: Mapping[int, int]) -> Self:
        """Both by the number of the step."""
        named = (
            {name_of(steps, number): count for number, count in sorted(each.items()) if count}
            for each in (left_out, unmet)
        )
        return cls(*named)

    @classmethod
    def of_metrics(cls, metrics: Mapping[str, Any]) -> Self:
        return cls(metrics.get("left_out", {}), metrics.get("unmet", {}))

    def of_expectation(self, name: str) -> int:
        return self.left_out.get(name, 0) + self.unmet.get(name, 0)


def name_of(steps: Sequence[Step], number: int) -> str:
    """The condition of an expectation, which another expectation at its place does not share; else the step's place."""
    step = steps[number]
    return step.condition if isinstance(step, Expect) else place(steps, number)


@dataclass(frozen=True, slots=True)
class Missed:
    """An expectation that too few of the records of the last hour met. met, at_least: shares."""

    condition: str
    met: float
    at_least: float

    def __str__(self) -> str:
        return (
            f"`{self.condition}` holds for {_percent(self.met)} of the records of the last hour; at least"
            f" {_percent(self.at_least)} are expected"
        )


def check_rules(rules: Rules, ledger: Ledger) -> None:
    """Refuse a round whose counts by rule differ from the ledger. Raises Suspended: `ledger_imbalance`."""
    counted = sum(rules.left_out.values()), sum(rules.unmet.values())
    expected = ledger.filtered_by_steps + ledger.rows_filtered, _unmet(ledger)
    if counted != expected:
        text = f"its rules left out and refused {counted} records, and the ledger has {expected}"
        raise Suspended("ledger_imbalance", f"the round does not balance and was not published: {text}")


def missed(
    steps: Sequence[Step], past: Iterable[Commit], ledger: Ledger, rules: Rules, *, now: float
) -> tuple[Missed, ...]:
    """The missed expectations, with a round of this ledger. past: from the head of main towards the root."""
    expected = [each for each in steps if isinstance(each, Expect) and each.at_least is not None]
    if not expected:
        return ()
    recent = [(ledger, rules), *_recent(past, now)]
    records = sum(_judged(ledger, rules, steps) for ledger, rules in recent)
    found = []
    for each in expected:
        unmet = sum(rules.of_expectation(each.condition) for _, rules in recent)
        met = 1 - unmet / records if records else 1.0
        least = each.at_least or 0.0
        if met < least * (1 - 1e-12):  # 99.9 * 0.01 is more than 0.999
            found.append(Missed(each.condition, met, least))
    return tuple(found)


def require_expected(table: str, steps: Sequence[Step], found: Iterable[Missed]) -> None:
    """Refuse a round that misses an expectation which suspends. Raises Suspended: `expectation_missed`."""
    suspends = {each.condition for each in steps if isinstance(each, Expect) and each.suspends}
    if stopping := [each for each in found if each.condition in suspends]:
        raise Suspended(
            "expectation_missed",
            "; ".join(map(str, stopping)),
            fix=f"correct the source of the records, or the `expect` of table {table}, and start the job again",
            at=("expect",),
        )


def _recent(past: Iterable[Commit], now: float) -> Iterator[tuple[Ledger, Rules]]:
    """Ledger and rules of each round of the last hour."""
    for commit in each_round(takewhile(lambda each: now - each.committed_at <= WITHIN_S, past)):
        yield ledger_of(commit.summary), Rules.of_metrics(metrics_of(commit.summary))


def _judged(ledger: Ledger, rules: Rules, steps: Sequence[Step]) -> int:
    """The records that came to the expectations."""
    dropped = sum(
        rules.left_out.get(each.condition, 0) for each in steps if isinstance(each, Expect) and each.drop
    )
    return ledger.applied + ledger.deduplicated + _unmet(ledger) + dropped


def _unmet(ledger: Ledger) -> int:
    return ledger.rejected.get(UNMET, 0) + ledger.skipped.get(UNMET, 0)


def _percent(share: float) -> str:
    """Hundredths of percents, rounded down: of expected 100 %, 99.999 % is not 100 %."""
    return f"{int(share * 10_000 + 1e-6) / 100:g} %"
