"""The crash matrix of `test_crash` for tables that hold the newest record of each key: deletions are a part of what must hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.crashing import POINTS_OF_UPSERTS, PROVOKED, Scene
from tests.integration.engine import Engine, at
from tests.integration.test_crash import CRITICAL, abandoned, killed, overtaken

slow = pytest.mark.full


@pytest.mark.parametrize("point", ["publish.committed"])
def test_an_upsert_table_is_mended_by_the_next_job(engine: Engine, point: str) -> None:
    abandoned(engine, point, keyed=True)


@slow
def test_jobs_die_at_every_point_of_a_later_round_of_an_upsert_table(engine: Engine) -> None:
    scene = Scene(engine, keyed=True)
    scene.produce()
    scene.work()
    for point in sorted(POINTS_OF_UPSERTS, key=lambda each: each in PROVOKED):
        if point in PROVOKED:
            PROVOKED[point](scene)
        scene.foreign = point.startswith("reject.")
        scene.produce()
        scene.die(point)
    scene.finish()


@slow
def test_upserts_that_others_overtake_anywhere_change_nothing(engine: Engine) -> None:
    points = ("stage.end", "reject.end", "publish.begin", "publish.committed", "release.appended")
    overtaken(engine, *points, keyed=True)


@slow
def test_upsert_processes_that_are_killed_are_mended_by_the_next(engine: Engine, tmp_path: Path) -> None:
    killed(engine, (*CRITICAL, "stage.end", "table.keyed"), tmp_path, again=True, keyed=True)


def compacted(engine: Engine, point: str) -> None:
    """Another's compaction replaces all data files while a round stands at the point."""
    scene = Scene(engine, keyed=True)
    scene.produce()
    scene.work()
    scene.produce()
    with at(point, lambda _: engine.compact(scene.topic)):
        scene.work()
    scene.finish()


@pytest.mark.parametrize("point", [pytest.param("stage.end", marks=slow), "publish.begin"])
def test_a_compaction_in_the_middle_of_a_round_costs_nothing_but_the_round(
    engine: Engine, point: str
) -> None:
    """apache/iceberg #7627: position deletes of files that are gone would leave the old rows beside the new ones."""
    compacted(engine, point)
