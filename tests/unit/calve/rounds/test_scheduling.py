"""The schedule against a simulated topic and table: it keeps the freshness target with few commits, or names a cause."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from calve.rounds.scheduling import FIRST_S, MISSED, P95, PLANNED, Schedule, Timed

POLLS = 4


@dataclass
class Simulation:
    """A table whose rounds take `fixed_s` and `record_s` for each record, times what `slower` says; records come one by one,
    `gap_s(at)` seconds apart, and are `late_s` old then.
    """

    schedule: Schedule
    gap_s: Callable[[float], float]
    fixed_s: float
    record_s: float
    commit_s: float = 0.1
    late_s: float = 0.0
    slower: Callable[[int], float] = lambda _: 1.0
    now: float = 1_000_000.0
    arrived: list[float] = field(default_factory=list)
    read: int = 0
    p95s: list[float] = field(default_factory=list)
    causes: list[str | None] = field(default_factory=list)
    commits: list[float] = field(default_factory=list)

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self._round()

    def _arrive(self) -> None:
        if not self.arrived:
            self.arrived.append(self.now)
        while self.arrived[-1] <= self.now:
            self.arrived.append(self.arrived[-1] + self.gap_s(self.arrived[-1]))

    def _round(self) -> None:
        self._arrive()
        looked = self.now
        fresh = [at - self.late_s for at in self.arrived[self.read :] if at <= looked]
        if fresh:
            self.read += len(fresh)
            took = (self.fixed_s + self.record_s * len(fresh)) * self.slower(len(self.commits))
            self.now += took
            times = (fresh[0], fresh[len(fresh) // 2], fresh[len(fresh) // 20])
            ages = self.schedule.ages(
                times,
                published_at=self.now - self.commit_s,
                round_s=took - self.commit_s,
                commit_s=self.commit_s,
            )
            self.p95s.append(ages["freshness_p95_s"])
            self.causes.append(ages[MISSED])
            self.commits.append(self.now)
            self.schedule = self.schedule.after(Timed(len(fresh), took), self.commit_s)
        self.schedule = self.schedule.level(looked, len(fresh))
        self._wait(looked, self.schedule.left_s(self.now - looked))

    def _wait(self, looked: float, wait_s: float) -> None:
        until = self.now + max(wait_s, 0.01)
        step = max(wait_s, 0.01) / POLLS
        while self.now < until:
            self.now = min(until, self.now + step)
            self._arrive()
            unread = sum(at <= self.now for at in self.arrived[self.read :])
            until = min(until, self.now + self.schedule.left_s(self.now - looked, unread))


def steps(gap_s: float, at: float, seconds: float) -> Callable[[float], float]:
    """1x, then 10x for so many seconds, then 1x."""
    return lambda now: gap_s / 10 if at <= now < at + seconds else gap_s


@given(
    target_s=st.floats(2, 60),
    fixed_share=st.floats(0.02, 0.2),
    busy=st.floats(0, 0.03),
    jitter=st.lists(st.floats(0.9, 1.1), min_size=7, max_size=7),
)
def test_a_load_step_keeps_the_promise_with_about_as_few_commits_as_can(
    target_s: float, fixed_share: float, busy: float, jitter: list[float]
) -> None:
    fixed_s, gap_s = fixed_share * target_s, target_s / 100
    sim = Simulation(
        Schedule(target_s),
        steps(gap_s, 1_000_000 + 20 * target_s, 10 * target_s),
        fixed_s,
        busy * gap_s,
        commit_s=0.1 * fixed_s,
        slower=lambda n: jitter[n % 7],
    )
    assume(1.1 * (fixed_s * (1 + P95) / (1 - 11 * busy)) < 0.8 * target_s)
    sim.run(50 * target_s)
    warm = [p95 for at, p95 in zip(sim.commits, sim.p95s, strict=True) if at > 1_000_000 + 3 * target_s]
    late = [p95 for p95 in warm if p95 > target_s]
    assert len(late) <= 1, (
        "only the first round of a new size may show that records take longer than was thought"
    )
    longest = (target_s - fixed_s) / P95
    slowest, fastest = 1.1, 0.9
    new_size_s = slowest * 10 * busy * longest
    unforeseen_s = (slowest - fastest) * fixed_s + (1 - P95) * longest + gap_s
    assert max(warm) <= PLANNED * target_s + new_size_s + unforeseen_s
    assert len(sim.commits) <= 1.6 * 50 * target_s / longest + 5


def test_without_capacity_rounds_follow_each_other_and_the_cause_is_that() -> None:
    sim = Simulation(Schedule(4.0), lambda _: 0.01, fixed_s=1.0, record_s=0.009)
    sim.run(120)
    assert sim.causes[-1] == "capacity"
    assert sim.schedule.left_s(sim.schedule.rounds[-1].seconds) == 0


def test_a_slow_catalog_is_the_cause() -> None:
    sim = Simulation(Schedule(4.0), lambda _: 0.1, fixed_s=6.0, record_s=0, commit_s=5.0)
    sim.run(60)
    assert sim.causes[-1] == "catalog"


def test_records_that_come_late_are_the_sources_matter() -> None:
    sim = Simulation(Schedule(4.0), lambda _: 0.1, fixed_s=0.5, record_s=0, late_s=30)
    sim.run(60)
    assert set(sim.causes[2:]) == {"source"}


@pytest.mark.parametrize(
    ("state", "cause"), [("paused", "paused"), ("failed", "outage"), ("running", "outage")]
)
def test_what_waited_while_no_round_ran_is_late_for_that_reason_until_the_table_is_level(
    state: str, cause: str
) -> None:
    schedule = Schedule(4.0).level(100.0, 0).interrupted(state)
    times = (100.0, 110.0, 105.0)
    assert schedule.ages(times, published_at=200.0, round_s=1.0, commit_s=0.1)[MISSED] == cause
    assert (
        schedule.after(Timed(10, 1.0), 0.1).ages(times, published_at=200.0, round_s=1.0, commit_s=0.1)[MISSED]
        == cause
    )
    level = schedule.level(200.0, 10)
    assert not level.ages((201.0, 201.0, 201.0), published_at=202.0, round_s=1.0, commit_s=0.1)[MISSED]


def test_who_drains_was_promised_nothing() -> None:
    schedule = Schedule(None)
    assert schedule.ages((1.0, 1.0, 1.0), published_at=1e6, round_s=1.0, commit_s=1.0)[MISSED] is None
    assert schedule.left_s(0.0) == 0.0


def test_ages_are_those_at_the_end_of_the_commit() -> None:
    ages = Schedule(60.0).ages((90.0, 95.0, 91.0), published_at=100.0, round_s=1.0, commit_s=2.0)
    assert ages == {"freshness_s": 12.0, "freshness_p50_s": 7.0, "freshness_p95_s": 11.0, MISSED: None}
    nothing = Schedule(60.0).ages((None, None, None), published_at=100.0, round_s=1.0, commit_s=2.0)
    assert set(nothing.values()) == {0.0, None}


def test_a_slow_round_is_forgotten_little_by_little() -> None:
    schedule = Schedule(60.0)
    assert schedule.fixed_s == FIRST_S
    for seconds in (1.0, 20.0, 1.0, 1.0):
        schedule = schedule.after(Timed(10, seconds), 0.1)
    assert 10 < schedule.fixed_s < 15
    for _ in range(8):
        schedule = schedule.after(Timed(10, 1.0), 0.1)
    assert schedule.fixed_s == pytest.approx(1.0, abs=0.01)


def test_rounds_of_different_sizes_show_what_a_record_takes() -> None:
    schedule = Schedule(60.0)
    for records in (1_000, 10_000, 1_000, 20_000):
        schedule = schedule.after(Timed(records, 0.5 + 1e-4 * records), 0.1)
    assert schedule.record_s == pytest.approx(1e-4)
    assert schedule.fixed_s == pytest.approx(0.5)
    kept = schedule.after(Timed(20_000, 2.5), 0.1)
    for _ in range(8):
        kept = kept.after(Timed(20_000, 2.5), 0.1)
    assert kept.record_s == pytest.approx(1e-4)
