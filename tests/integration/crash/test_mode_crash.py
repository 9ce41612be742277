"""The crash matrix of `test_crash` for tables that keep one record of each key, or totals: what is left out, deleted or added up
is a part of what must hold.
"""

from __future__ import annotations

from pathlib import Path

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
    Scene,
)
from tests.integration.support.engine import Engine, at

slow = pytest.mark.full
MODES = {"upsert": UPSERTS, "change_data": CHANGES, "deduplicate": FIRSTS, "aggregate": TOTALS}
modes = pytest.mark.parametrize("mode", MODES.values(), ids=MODES)


@slow
@modes
def test_the_next_job_mends_what_one_has_left(engine: Engine, mode: Mode) -> None:
    abandoned(engine, "publish.committed", mode=mode)


@slow
@pytest.mark.parametrize(
    ("mode", "points"),
    [
        (UPSERTS, POINTS_OF_UPSERTS),
        (CHANGES, POINTS_OF_UPSERTS),
        (FIRSTS, POINTS),
        (TOTALS, POINTS_OF_TOTALS),
    ],
    ids=MODES,
)
def test_jobs_die_at_every_point_of_a_later_round(
    engine: Engine, mode: Mode, points: tuple[str, ...]
) -> None:
    scene = Scene(engine, mode=mode)
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
@modes
def test_a_job_that_was_overtaken_changes_nothing_any_more(engine: Engine, mode: Mode) -> None:
    points = ("stage.end", "reject.end", "publish.begin", "publish.committed", "release.appended")
    overtaken(engine, *points, mode=mode)


@slow
@modes
def test_processes_that_are_killed_are_mended_by_the_next(engine: Engine, tmp_path: Path, mode: Mode) -> None:
    killed(engine, (*CRITICAL, "stage.end", "table.created"), tmp_path, again=True, mode=mode)


def compacted(engine: Engine, point: str, mode: Mode = UPSERTS) -> None:
    """Another's compaction replaces all data files of a table whose rows are replaced while a round stands at the point."""
    scene = Scene(engine, mode=mode)
    scene.produce()
    scene.work()
    scene.produce()
    with at(point, lambda _: engine.compact(scene.topic)):
        scene.work()
    scene.finish()


@pytest.mark.parametrize(
    "mode", [pytest.param(UPSERTS, id="upsert"), pytest.param(TOTALS, id="aggregate", marks=slow)]
)
@pytest.mark.parametrize("point", [pytest.param(each, marks=slow) for each in ("stage.end", "publish.begin")])
def test_a_compaction_in_the_middle_of_a_round_costs_nothing_but_the_round(
    engine: Engine, point: str, mode: Mode
) -> None:
    """apache/iceberg #7627: position deletes of files that are gone would leave the old rows beside the new ones."""
    compacted(engine, point, mode)
