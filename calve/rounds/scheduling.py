"""When a table's next round begins: as late as its freshness target allows, because each round is a costly commit.

Assume records arrive evenly in a period between two looks at the topic, and are visible some latency after the second look.
Then they are between `latency` and `latency + period` old: the p95 is `latency + 0.95 period`.
If the target cannot be met, rounds follow each other without a pause, and `Schedule.ages` gives the cause.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

Cause = Literal["capacity", "catalog", "source", "outage", "paused"]
P95 = 0.95
PLANNED = 0.9
"""The part of the target to plan with. The rest is a reserve for slower rounds."""
KEPT = 8
FADES = 0.8
FIRST_S = 1.0
RECORD_S = 2e-5
"""The time per record, until rounds of different sizes have shown it."""
MISSED = "missed"
"""In `calve.metrics`: why the round missed the freshness target. If it did not: left out, and null in events."""
SKEW_S = 1.0
"""The allowed clock difference between producers and the job before the source is blamed."""


@dataclass(frozen=True, slots=True)
class Timed:
    """A committed round: its records, and the seconds from its start until they were visible."""

    records: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Schedule:
    """What a table's rounds have shown. All of it may be lost at any time.

    `target_s`: the freshness target; None without one, as in a job that drains its topics and ends.
    `level_at`: when the table last had everything in its topic (epoch seconds); None since `behind` prevented it.
    `rate`: recently arrived records per second.
    """

    target_s: float | None = None
    rounds: tuple[Timed, ...] = ()
    record_s: float = RECORD_S
    commit_s: float = 0.0
    rate: float = 0.0
    level_at: float | None = None
    behind: Cause = "outage"

    def after(self, timed: Timed, commit_s: float) -> Schedule:
        """The pace after one more round; `commit_s`: the catalog's part of it."""
        rounds = (*self.rounds, timed)[-KEPT:]
        return replace(self, rounds=rounds, record_s=_record_s(rounds, self.record_s), commit_s=commit_s)

    def level(self, at: float, records: int) -> Schedule:
        """The pace after a round that read everything in the topic at a time; `records` arrived since the last such round."""
        since_s = at - self.level_at if self.level_at is not None else 0.0
        return replace(self, level_at=at, rate=records / since_s if since_s > 0 else self.rate)

    def interrupted(self, state: str) -> Schedule:
        """The pace while no round runs. Records arriving now are late for this reason, until the table is level again."""
        return replace(self, level_at=None, behind="paused" if state == "paused" else "outage")

    @property
    def fixed_s(self) -> float:
        """The fixed time of a round, independent of its size. A slow round is forgotten gradually."""
        newest_first = enumerate(reversed(self.rounds))
        taken = (FADES**age * (each.seconds - self.record_s * each.records) for age, each in newest_first)
        return max(taken, default=FIRST_S)

    def left_s(self, since_s: float, unread: int | None = None) -> float:
        """Seconds until the next round; the last began `since_s` ago. `unread`: records since then; None: by the recent rate."""
        if self.target_s is None:
            return 0.0
        rate = self.rate if unread is None else unread / max(since_s, 1e-3)
        period = (PLANNED * self.target_s - self.fixed_s) / (P95 + self.record_s * rate)
        return max(0.0, period - since_s)

    def ages(
        self,
        times: tuple[float | None, float | None, float | None],
        *,
        published_at: float,
        round_s: float,
        commit_s: float,
    ) -> dict[str, Any]:
        """The age of a round's records when they are visible, after a commit of `commit_s`; and the cause if they are too old.

        times: of the oldest and the median record, and the time that 5 % are older than. `published_at`: when the commit began,
        `round_s` after the start of the round. All in epoch seconds.
        """
        visible = published_at + commit_s
        parts = zip(("", "_p50", "_p95"), times, strict=True)
        found: dict[str, Any] = {
            f"freshness{part}_s": round(visible - at, 3) if at else 0.0 for part, at in parts
        }
        return found | {MISSED: self._missed(found["freshness_p95_s"], visible, round_s, commit_s)}

    def _missed(self, p95_s: float, visible_at: float, round_s: float, commit_s: float) -> Cause | None:
        """Why a round's records missed the freshness target; None if they did not.

        If the table was level when the last round began, all records arrived since.
        Records older than that were late on arrival.
        """
        if self.target_s is None or p95_s <= self.target_s:
            return None
        if self.level_at is None:
            return self.behind
        arrived_s = visible_at - self.level_at
        if arrived_s <= self.target_s and p95_s > arrived_s + SKEW_S:
            return "source"
        return "catalog" if commit_s >= round_s else "capacity"


LEAST_PROMISE_S = 30.0


def lateness(p95_s: float, target_s: float) -> float:
    """A round's p95 as a multiple of the table's freshness target; a shorter target counts as 30 s."""
    return round(p95_s / max(target_s, LEAST_PROMISE_S), 2)


def _record_s(rounds: tuple[Timed, ...], known: float) -> float:
    """The time per record by least squares, if round sizes differ enough; at most the smallest average of a round.

    Rounds of like sizes whose times vary may show none at all, so what was known is forgotten gradually.
    """
    sizes = [each.records for each in rounds]
    most = min((each.seconds / each.records for each in rounds if each.records), default=known)
    if max(sizes) < 2 * max(min(sizes), 1):
        return min(known, most)
    mean_n, mean_s = sum(sizes) / len(sizes), sum(each.seconds for each in rounds) / len(rounds)
    spread = sum((n - mean_n) ** 2 for n in sizes)
    together = sum((each.records - mean_n) * (each.seconds - mean_s) for each in rounds)
    return min(max(together / spread, FADES * known), most)


LONGEST_BACKOFF_S = 60.0
FAILED_AFTER = 8


def backoff_s(failures: int) -> float:
    """The wait after this many failures. Each failure doubles it."""
    return min(LONGEST_BACKOFF_S, 0.5 * 2.0 ** min(failures, 10))
