"""The round's protocol under thousands of seeded schedules, run with the decisions of `calve.table.protocol`.

A failure prints the schedule's name, e.g. `Schedule("rollback", 38)`; `.run()` replays it. Every rule that the protocol rests on
is broken once, and the model must notice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from calve.table.position import Position
from calve.table.protocol import Commit, contains_round, locate
from tests.unit.calve.protocol_model.lake import Metadata, as_commit
from tests.unit.calve.protocol_model.schedule import KINDS, Broken, Schedule
from tests.unit.calve.protocol_model.world import PRODUCTION, Rules

SCHEDULES = 300
FULL_SCHEDULES = 3_000
BUDGET = 4_000
"""Schedules within which a broken rule must be noticed."""


def newest_first(table: Metadata) -> list[Commit]:
    return [as_commit(table.snapshots[at]) for at in sorted(table.snapshots, reverse=True)]


def beyond_by_offset(main: Position, letters: Position | None) -> bool:
    return letters is not None and any(
        offset > main.offsets.get(topic, {}).get(partition, 0)
        for topic, offsets in letters.offsets.items()
        for partition, offset in offsets.items()
    )


def lacks_the_round(main: Position, letters: Sequence[Commit]) -> bool:
    return main.dead_letters is not None and not contains_round(letters, main.dead_letters.round)


def tag_without_totals(ancestors: list[Commit], *, tagged: Commit | None, **found: Any) -> Position:
    total = {"total-records": ancestors[0].summary["total-records"]}
    trusted = tagged and replace(tagged, summary={**tagged.summary, **total})
    return locate(ancestors, tagged=trusted, **found)


BROKEN = {
    "publish without looking at the position": ("benign", Rules(may_publish=lambda *_: True)),
    "position from the newest snapshot, not from main's history": ("rollback", Rules(ancestors=newest_first)),
    "dead letters before main": ("expiry", Rules(main_first=False)),
    "branches dropped whatever main they were staged on": (
        "expiry",
        Rules(drop=lambda _, branches: branches),
    ),
    "dead letters read after main": ("compaction", Rules(letters_read_first=False)),
    "dead letters of a rollback deleted by offset, not by round": ("rollback", Rules(cleanup_by_round=False)),
    "rollback recognised by offsets, not by rounds": ("rollback", Rules(was_rolled_back=beyond_by_offset)),
    "dead letters appended wherever their round is missing": (
        "hostile",
        Rules(may_release=lacks_the_round),
    ),
    "a lost answer taken for a failure": ("benign", Rules(same_round_when_in_doubt=False)),
    "the topic not looked at again after it was read": ("hostile", Rules(recheck=lambda *_: None)),
    "a redrive that main does not name": ("benign", Rules(redrive_named=False)),
    "letters marked that a rollback has opened again": ("rollback", Rules(marks_withdrawn=False)),
    "merged without looking at the position": ("benign", Rules(may_merge=lambda *_: True)),
    "own expiry leaves what says nothing of the position": (
        "maintenance",
        Rules(expiry_keeps=lambda _, kept: kept),
    ),
    "a rollback tried again on what others have committed": ("travel", Rules(back_in_one_swap=False)),
    "the tag trusted after a rollback": ("maintenance", Rules(locate=tag_without_totals)),
}


def run(kind: str, seed: int, rules: Rules = PRODUCTION) -> Schedule:
    schedule = Schedule(kind, seed, rules)
    schedule.run()
    return schedule


def run_all(kind: str, seeds: range, rules: Rules = PRODUCTION) -> None:
    for seed in seeds:
        run(kind, seed, rules)


@pytest.mark.parametrize("kind", KINDS)
def test_every_offset_has_exactly_one_fate_in_every_schedule(kind: str) -> None:
    run_all(kind, range(SCHEDULES))


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
def test_every_offset_has_exactly_one_fate_in_very_many_schedules(kind: str) -> None:
    run_all(kind, range(SCHEDULES, FULL_SCHEDULES))


@pytest.mark.long
@pytest.mark.parametrize("rule", BROKEN)
def test_the_model_notices_a_broken_rule(rule: str) -> None:
    kind, rules = BROKEN[rule]
    with pytest.raises(Broken):
        run_all(kind, range(BUDGET), rules)


def test_a_schedule_replays_exactly() -> None:
    once, again = Schedule("hostile", 1), Schedule("hostile", 1)
    once.run()
    again.run()
    assert once.log == again.log


def test_schedules_exercise_what_they_are_for() -> None:
    steps = [step for seed in range(100) for step in run("maintenance", seed).log]
    for word in (
        "conflict",
        "unknown",
        "left over",
        "in doubt",
        "late request",
        "released",
        "again",
        "crashes",
        "merged",
        "expired",
        "postponed",
    ):
        assert any(word in step for step in steps), word
