"""The crash matrix of `test_crash` for tables that keep one record of each key, or totals: what is left out, deleted or added up
is a part of what must hold.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from calve.modes.mode import Mode
from tests.integration.crash.test_crash import CRITICAL, abandoned, killed, overtaken
from tests.integration.support.crashing import (
    CHANGES,
    FIRSTS,
    POINTS,
    POINTS_OF_TOTALS,
    POINTS_OF_UPSERTS,
    PROVOKED,
    TOTALS,
    UPSERTS,
    VERSIONS,
    Scene,
)
from tests.integration.support.engine import Engine, at, each_time

slow = pytest.mark.full
MODES = {
    "upsert": UPSERTS,
    "change_data": CHANGES,
    "history": VERSIONS,
    "deduplicate": FIRSTS,
    "aggregate": TOTALS,
}
MASKED: dict[str, Any] = {
    "masked": {"masked": True},
    "masked upsert": {"mode": UPSERTS, "masked": True},
    "masked change_data": {"mode": CHANGES, "masked": True},
    "masked history": {"mode": VERSIONS, "masked": True},
}
SCENES = {name: {"mode": mode} for name, mode in MODES.items()} | MASKED
scenes = pytest.mark.parametrize("settings", SCENES.values(), ids=SCENES)


@slow
@scenes
def test_the_next_job_mends_what_one_has_left(engine: Engine, settings: dict[str, Any]) -> None:
    abandoned(engine, "publish.committed", **settings)


@slow
@scenes
def test_jobs_die_at_every_point_of_a_later_round(engine: Engine, settings: dict[str, Any]) -> None:
    mode = settings.get("mode")
    points = POINTS if mode in (None, FIRSTS) else POINTS_OF_TOTALS if mode is TOTALS else POINTS_OF_UPSERTS
    scene = Scene(engine, **settings)
    scene.produce()
    scene.work()
    for point in sorted(points, key=lambda each: each in PROVOKED):
        if point in PROVOKED:
            PROVOKED[point](scene)
        scene.foreign = point.startswith("reject.")
        scene.produce()
        scene.die(point)
    scene.finish()


@slow
@scenes
def test_a_job_that_was_overtaken_changes_nothing_any_more(engine: Engine, settings: dict[str, Any]) -> None:
    points = ("stage.end", "reject.end", "publish.begin", "publish.committed", "release.appended")
    overtaken(engine, *points, **settings)


@slow
@scenes
def test_processes_that_are_killed_are_mended_by_the_next(
    engine: Engine, tmp_path: Path, settings: dict[str, Any]
) -> None:
    killed(engine, (*CRITICAL, "stage.end", "table.created"), tmp_path, again=True, **settings)


def compacted(engine: Engine, point: str, mode: Mode = UPSERTS) -> None:
    """Another's compaction replaces all data files of a table whose rows are replaced while a round stands at the point.

    It does so again before the round's second commit. The round writes its deletes again, and reads no record again.
    """
    scene = half_done(engine, mode)
    compactions: list[str] = []
    staged: list[str] = []
    committed: list[str] = []

    def compact(table: str) -> None:
        engine.compact(table)
        compactions.append(table)

    with (
        at(point, compact),
        at("publish.redone", compact),
        each_time("stage.begin", staged.append),
        each_time("publish.committed", committed.append),
    ):
        scene.work()
    scene.finish()
    assert len(compactions) == 2
    assert len(staged) == len(committed), "a round was done again"


def half_done(engine: Engine, mode: Mode) -> Scene:
    """A table with rows whose keys the topic has again."""
    scene = Scene(engine, mode=mode)
    scene.produce()
    scene.work()
    scene.produce()
    return scene


by_key = pytest.mark.parametrize(
    "mode", [pytest.param(UPSERTS, id="upsert"), pytest.param(TOTALS, id="aggregate", marks=slow)]
)


@by_key
@pytest.mark.parametrize("point", [pytest.param(each, marks=slow) for each in ("stage.end", "publish.begin")])
def test_a_compaction_in_the_middle_of_a_round_costs_only_its_deletes(
    engine: Engine, point: str, mode: Mode
) -> None:
    """apache/iceberg #7627: position deletes of files that are gone would leave the old rows beside the new ones."""
    compacted(engine, point, mode)


@slow
@by_key
def test_a_job_that_dies_after_it_wrote_its_deletes_again_is_mended(engine: Engine, mode: Mode) -> None:
    scene = half_done(engine, mode)
    with at("publish.begin", lambda _: engine.compact(scene.topic)):
        scene.die("publish.redone")
    scene.finish()


@slow
def test_a_round_is_done_again_after_others_have_changed_a_row(engine: Engine) -> None:
    """Its totals are those of the older row: they would undo the change."""
    scene = half_done(engine, TOTALS)
    change = "UPDATE {t} SET n = n + 1000 WHERE _kafka_key = X'302D30'"
    with at("publish.begin", lambda _: engine.sql(change, scene.topic)):
        scene.work()
    found = {key: count for key, count, _ in scene.totals()}
    expected = {key: count for key, count, _ in scene.expected_totals()}
    assert found == expected | {b"0-0": expected[b"0-0"] + 1000}
