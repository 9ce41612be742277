"""A table's promise of freshness in its loop: what each round says of the pace, and the word that the promise was not kept."""

from __future__ import annotations

import time
from dataclasses import dataclass

from calve.log import event
from calve.pace import MISSED, Pace, Timed
from glue_jobs.outcome import Outcome

TELL_EVERY_S = 300.0
FIGURES = (
    "freshness_p50_s",
    "freshness_p95_s",
    "lag_records",
    "stage_ms",
    "round_ms",
)


@dataclass(slots=True)
class Promise:
    """What was told of a table's promise so far."""

    told: str | None = None
    told_at: float = 0.0

    def after(self, pace: Pace, outcome: Outcome, looked_at: float, who: dict[str, str]) -> Pace:
        """The pace that a round leaves behind, which began at `looked_at`, in epoch seconds.

        Where its records were too old, that is told: at once, when the cause is another, and every few minutes while it lasts.
        """
        records, found = outcome.ledger.consumed, pace
        if records:
            found = pace.after(Timed(records, _seconds(outcome)), outcome.commit_ms / 1000)
        if not outcome.more:
            found = found.level(looked_at, records)
        self._tell(pace, outcome, looked_at, who)
        return found

    def _tell(self, pace: Pace, outcome: Outcome, looked_at: float, who: dict[str, str]) -> None:
        cause, now = outcome.metrics.get(MISSED), time.monotonic()
        if outcome.snapshot is None or (cause == self.told and now - self.told_at < TELL_EVERY_S):
            return
        self.told, self.told_at = cause, now
        if cause is None:
            return
        took_s = _seconds(outcome)
        since_s = looked_at - pace.level_at if pace.level_at else 0.0
        event(
            "freshness.missed",
            **who,
            cause=cause,
            promise_s=pace.promise_s,
            **{name: outcome.metrics[name] for name in FIGURES},
            commit_ms=outcome.commit_ms,
            records=outcome.ledger.consumed,
            busy=round(took_s / max(took_s, since_s, 0.001), 2),
        )


def _seconds(outcome: Outcome) -> float:
    round_ms: int = outcome.metrics.get("round_ms", 0)
    return (round_ms + outcome.commit_ms) / 1000
