"""When a table's next round begins: as late as its promise of freshness allows, since each round is a commit that costs.

Records that arrive evenly over a period between two looks at the topic, and are visible some latency after the second one, are
between `latency` and `latency + period` old then: the p95 is `latency + 0.95 period`. Where nothing keeps the promise, rounds
follow each other without a pause, and `Pace.missed` says why.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

Cause = Literal["capacity", "catalog", "source", "outage", "paused"]
P95 = 0.95
PLANNED = 0.9
"""The share of the promise that is planned with; the rest is for rounds that take longer than those before."""
KEPT = 8
FADES = 0.8
FIRST_S = 1.0
RECORD_S = 2e-5
"""A record's share of a round, until rounds of different sizes have shown it."""
MISSED = "missed"
"""In `calve.metrics`: why the round's records were older than promised; left out, and null in events, where they were not."""
SKEW_S = 1.0
"""How far the clocks of producers and of the job may be apart without a word about the source."""


class SeenTimes(Protocol):
    """Timestamps of a round's records, in epoch seconds; one in twenty is older than `late`."""

    @property
    def oldest(self) -> float | None: ...

    @property
    def median(self) -> float | None: ...

    @property
    def late(self) -> float | None: ...


@dataclass(frozen=True, slots=True)
class Timed:
    """A round that committed: its records, and the seconds from its begin until they were visible."""

    records: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Pace:
    """What a table's rounds have shown; all of it may be lost at any time.

    `promise_s`: None where nobody was promised anything, as in a job that drains its topics and ends. `level_at`: epoch seconds
    when the table last had all that its topic held; None since `behind` has kept it from that. `rate`: records a second that
    arrived lately.
    """

    promise_s: float | None = None
    rounds: tuple[Timed, ...] = ()
    record_s: float = RECORD_S
    commit_s: float = 0.0
    rate: float = 0.0
    level_at: float | None = None
    behind: Cause = "outage"

    def after(self, timed: Timed, commit_s: float) -> Pace:
        """What is known after one more round; `commit_s`: the catalog's share of it."""
        rounds = (*self.rounds, timed)[-KEPT:]
        return replace(self, rounds=rounds, record_s=_record_s(rounds, self.record_s), commit_s=commit_s)

    def level(self, at: float, records: int) -> Pace:
        """A round has read all that the topic held at a moment; `records` have arrived since it was so before."""
        since_s = at - self.level_at if self.level_at is not None else 0.0
        return replace(self, level_at=at, rate=records / since_s if since_s > 0 else self.rate)

    def interrupted(self, state: str) -> Pace:
        """No round runs; what arrives from now on is late for this reason, until the table is level again."""
        return replace(self, level_at=None, behind="paused" if state == "paused" else "outage")

    @property
    def fixed_s(self) -> float:
        """What a round takes whatever its size; a slow one is forgotten little by little."""
        newest_first = enumerate(reversed(self.rounds))
        taken = (FADES**age * (each.seconds - self.record_s * each.records) for age, each in newest_first)
        return max(taken, default=FIRST_S)

    def left_s(self, since_s: float, unread: int | None = None) -> float:
        """Seconds until the next round is due.

        It is `since_s` that the last one began; `unread` records have arrived since, or as many as before in such a time.
        """
        if self.promise_s is None:
            return 0.0
        rate = self.rate if unread is None else unread / max(since_s, 1e-3)
        period = (PLANNED * self.promise_s - self.fixed_s) / (P95 + self.record_s * rate)
        return max(0.0, period - since_s)

    def ages(
        self, seen: SeenTimes, *, published_at: float, round_s: float, commit_s: float
    ) -> dict[str, Any]:
        """How old a round's records are when they are visible, after a commit of `commit_s`, and why, if that is too old.

        `published_at`: when the commit began, in epoch seconds, `round_s` after the round.
        """
        visible = published_at + commit_s
        times = {"": seen.oldest, "_p50": seen.median, "_p95": seen.late}
        found: dict[str, Any] = {
            f"freshness{part}_s": round(visible - at, 3) if at else 0.0 for part, at in times.items()
        }
        return found | {MISSED: self._missed(found["freshness_p95_s"], visible, round_s, commit_s)}

    def _missed(self, p95_s: float, visible_at: float, round_s: float, commit_s: float) -> Cause | None:
        """Why a round's records are older than promised; None where they are not.

        Where the table was level when the last round began, all of them have arrived since: those that are older than that
        were late when they came.
        """
        if self.promise_s is None or p95_s <= self.promise_s:
            return None
        if self.level_at is None:
            return self.behind
        arrived_s = visible_at - self.level_at
        if arrived_s <= self.promise_s and p95_s > arrived_s + SKEW_S:
            return "source"
        return "catalog" if commit_s >= round_s else "capacity"


def _record_s(rounds: tuple[Timed, ...], known: float) -> float:
    """A record's share by least squares, where rounds differ enough in size to show it; never more than a round had for each."""
    sizes = [each.records for each in rounds]
    most = min((each.seconds / each.records for each in rounds if each.records), default=known)
    if max(sizes) < 2 * max(min(sizes), 1):
        return min(known, most)
    mean_n, mean_s = sum(sizes) / len(sizes), sum(each.seconds for each in rounds) / len(rounds)
    spread = sum((n - mean_n) ** 2 for n in sizes)
    together = sum((each.records - mean_n) * (each.seconds - mean_s) for each in rounds)
    return min(max(together / spread, 0.0), most)


LONGEST_BACKOFF_S = 60.0
FAILED_AFTER = 8


def backoff_s(failures: int) -> float:
    """The wait after so many failures, of which each doubles it."""
    return min(LONGEST_BACKOFF_S, 0.5 * 2.0 ** min(failures, 10))
