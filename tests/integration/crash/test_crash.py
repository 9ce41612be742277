"""The crash matrix: jobs die at every point there is, in the first round and in later ones, with rejects in all of them, and
others work on the same table meanwhile. The next job starts from nothing but the table and the topic.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any, get_args

import pytest
from pyspark.sql import SparkSession

from calve.config.job import Service
from glue_jobs.iceberg import staging
from glue_jobs.iceberg.catalog import Lake, Table
from glue_jobs.process import faults
from glue_jobs.process.faults import STEPS
from tests.integration.support.crashing import (
    NOT_AT_FIRST,
    OF_CONFLICT,
    OF_EMIT,
    OF_FOREIGN,
    OF_FORGET,
    OF_INFERENCE,
    OF_MAINTENANCE,
    OF_S3_TABLES,
    OF_TRAVEL,
    OF_UPKEEP,
    ONCE,
    POINTS,
    PROVOKED,
    UPSERTS,
    Scene,
    ask_for_redrive,
    forget,
    forget_marks,
    mix_and_roll_back,
    run_job,
)
from tests.integration.support.engine import Engine, at
from tests.integration.support.homes import at_home

CRITICAL = ("publish.begin", "publish.committed", "release.appended")
"""Between these lie the commits of an ordinary round that has rejects."""
COMMITTED = (
    "publish.committed",
    "publish.end",
    "release.begin",
    "release.appended",
    "branch.dropped",
    "release.end",
    "emit.begin",
    "emit.end",
    "state.written",
    "idle.tagged",
    "idle.noted",
)
"""Whoever stands here has published its round."""
AROUND = {
    "prepare": ("table.created",),
    "reject": ("reject.discarded", "reject.restaged", "dead_letters.created", "reject.staged"),
    "publish": ("publish.committed",),
    "release": ("release.appended", "branch.dropped"),
}
FIRST_ROUND = tuple(p for step in STEPS for p in (f"{step}.begin", *AROUND.get(step, ()), f"{step}.end"))
"""What a first round passes, in order, where a record has an id of another subject; all versions make the table at once."""
EFFECTS_ONLY = tuple(point for point in POINTS if not point.endswith((".begin", ".end")))
"""Behind each of these a catalog has something new. At a point between two of them it is as at the first one."""
RIVALS = ("stage.begin", "reject.end", "publish.begin", "publish.committed", "release.appended")

slow = pytest.mark.long
OTHERS: tuple[Service, ...] = tuple(home for home in get_args(Service) if home != "glue")
everywhere = pytest.mark.parametrize(
    ("home", "points"),
    [
        pytest.param("glue", POINTS, id="glue-every point", marks=slow),
        *(pytest.param(home, EFFECTS_ONLY, id=home, marks=slow) for home in OTHERS),
        *(pytest.param(home, POINTS, id=f"{home}-every point", marks=pytest.mark.full) for home in OTHERS),
    ],
)


@pytest.fixture(autouse=True)
def no_fault_is_left() -> Iterator[None]:
    yield
    assert faults.handlers == {}


@everywhere
def test_jobs_die_at_every_point_of_a_first_round(
    engine: Engine, home: Service, points: Sequence[str], tmp_path: Path
) -> None:
    """As long as none has published, every round is the first."""
    with at_home(engine, home, tmp_path) as moved:
        scene = Scene(moved, foreign=True)
        scene.evolve()
        early = scene.produce(early=True)
        for point in (each for each in FIRST_ROUND if each in points):
            if home == "s3tables" and point.endswith(".created"):
                scene.die(*OF_S3_TABLES)
            scene.die(point)
            scene.assert_nothing_early()
            if point in COMMITTED:
                break
        scene.evolve()
        scene.fates[early] = "unknown_schema_id"
        scene.finish()


@everywhere
def test_jobs_die_at_every_point_of_a_later_round(
    engine: Engine, home: Service, points: Sequence[str], tmp_path: Path
) -> None:
    with at_home(engine, home, tmp_path) as moved:
        scene = Scene(moved)
        scene.produce()
        scene.work()
        for point in sorted(points, key=lambda each: each in PROVOKED):
            if point in PROVOKED:
                PROVOKED[point](scene)
            scene.foreign = point in OF_FOREIGN
            scene.produce()
            scene.die(point)
        scene.finish()


def abandoned(engine: Engine, point: str, **settings: Any) -> None:
    """Jobs die at the point in the first round, while they recover from that, and in a later round. `settings`: of `Scene`."""
    scene = Scene(engine, foreign=point in OF_FOREIGN, **settings)
    if point in NOT_AT_FIRST:
        scene.produce()
        scene.work()
    else:
        early = scene.produce(early=True)
        scene.die(point)
        scene.assert_nothing_early()
        scene.evolve()
        scene.fates[early] = "unknown_schema_id" if point in COMMITTED else None
    if point not in ONCE:
        scene.die(point)
        scene.assert_nothing_early()
    if point in PROVOKED:
        PROVOKED[point](scene)
    scene.produce()
    scene.die(point, 1 if point in ONCE else 2)
    scene.finish()


@slow
@pytest.mark.parametrize("point", ["reject.end", "publish.committed", "release.appended"])
def test_jobs_that_die_at_the_same_point_are_mended_by_the_next(engine: Engine, point: str) -> None:
    """All points are passed by `killed`; these are where test_crash_mutants takes a rule away."""
    abandoned(engine, point)


def overtaken(engine: Engine, *points: str, **settings: Any) -> None:
    """Another job does all there is to do while one stands still at the point; then that one goes on.

    Of several points, those that drop the table must come before those that have published: what was unknown then is known
    to the next table.
    """
    scene = Scene(engine, **settings)
    scene.produce()
    scene.work()

    def other(_: str) -> None:
        scene.evolve()
        scene.work()

    for point in points:
        if point in PROVOKED:
            PROVOKED[point](scene)
        scene.foreign = point in OF_FOREIGN
        early = scene.produce(early=True)
        scene.fates[early] = "unknown_schema_id" if point in COMMITTED else None
        stand_still(scene, point, other)
    scene.finish()


def stand_still(scene: Scene, point: str, other: Callable[[str], None]) -> None:
    with at(point, other):
        state = scene.loop()
        assert point not in faults.handlers, "the point was not passed"
    assert state == "running" or scene.code() == "lost_race", state


@pytest.mark.full
@pytest.mark.parametrize(
    "points",
    [
        [each for each in POINTS if each in PROVOKED],
        [each for each in POINTS if each not in PROVOKED],
    ],
    ids=["provoked", "ordinary"],
)
def test_a_job_that_was_overtaken_changes_nothing_any_more(engine: Engine, points: list[str]) -> None:
    overtaken(engine, *points)


@pytest.mark.parametrize(
    "stands_at",
    [pytest.param(each, marks=slow if each == "publish.begin" else pytest.mark.full) for each in RIVALS],
)
def test_a_job_goes_on_where_another_has_died(engine: Engine, stands_at: str) -> None:
    scene = Scene(engine)
    scene.produce()
    scene.work()
    for dies_at in RIVALS:
        scene.produce()

        def other(_: str, point: str = dies_at) -> None:
            scene.produce()
            scene.die(point)

        stand_still(scene, stands_at, other)
        scene.work()
    scene.finish()


def killed(engine: Engine, points: Sequence[str], logs: Path, *, again: bool, **settings: Any) -> None:
    """A process with a table for each point is killed when every table stands at its own; then the next process.

    `again`: the next one is killed as well, while it recovers, and one in a later round.
    """
    scenes = {point: Scene(engine, foreign=point in OF_FOREIGN, **settings) for point in points}

    def run(name: str, at_points: Sequence[str], nth: Callable[[str], int]) -> None:
        log = logs / f"{name}.log"
        fault = ",".join(f"{point}:{nth(point)}@{scenes[point].topic}" for point in at_points)
        code = run_job(engine, [each.table for each in scenes.values()], log, fault=fault or None)
        assert code == (-signal.SIGKILL if fault else 0), (
            f"{name}: exit code {code}\n{log.read_text()[-5000:]}"
        )

    for scene in scenes.values():
        scene.produce()
    run("first round", [point for point in points if point not in NOT_AT_FIRST], lambda _: 1)
    if again:
        run("recovery", [point for point in points if point not in ONCE], lambda _: 1)
    for point, scene in scenes.items():
        if point in PROVOKED:
            scene.work()  # a request of the killed process may arrive when this one has looked: the round after it mends that
            PROVOKED[point](scene)
        scene.produce()
    if again:
        run("later round", points, lambda point: 1 if point in ONCE else 2)
    run("end", [], lambda _: 0)
    for scene in scenes.values():
        scene.assert_exact()


@pytest.mark.long
def test_a_process_that_is_killed_is_mended_by_the_next(engine: Engine, tmp_path: Path) -> None:
    killed(engine, CRITICAL, tmp_path, again=False)


@pytest.mark.full
def test_processes_that_are_killed_at_any_point_are_mended_by_the_next(
    engine: Engine, tmp_path: Path
) -> None:
    killed(engine, POINTS, tmp_path, again=True)


EFFECTS = (
    *(staging.commit, staging.stage, staging.discard, Lake.create),
    *(Table.evolve, Table.set_tag, Table.set_properties, Table.drop_branch),
)


@contextmanager
def traced() -> Iterator[list[str]]:
    """The names of the points that this thread passes, and of the effects, in capitals, that it has on the lake."""
    codes = {each.__code__: each.__name__.upper() for each in EFFECTS}
    seen: list[str] = []

    def look(frame: FrameType, what: str, result: object) -> None:
        if what != "return":
            return
        if frame.f_code is faults.point.__code__:
            seen.append(frame.f_locals["name"])
        elif frame.f_code is SparkSession.sql.__code__:
            seen.append("SQL")
        elif frame.f_code in codes and not (frame.f_code is staging.commit.__code__ and result is None):
            seen.append(codes[frame.f_code])

    sys.setprofile(look)
    try:
        yield seen
    finally:
        sys.setprofile(None)


@slow
def test_points_stand_between_all_effects_of_a_job(engine: Engine) -> None:
    scene = Scene(engine, foreign=True)
    scene.produce()
    with traced() as seen:
        scene.work()
    passed = [each for each in seen if not each.isupper()]
    assert tuple(passed[: len(FIRST_ROUND)]) == FIRST_ROUND
    assert passed[-2:] == ["idle.tagged", "idle.noted"]
    scene.foreign = False
    arrangements = (
        *(Scene.evolve, mix_and_roll_back, lambda scene: scene.die("reject.end"), forget),
        *(forget_marks, ask_for_redrive),
    )
    for arrange in arrangements:
        scene.produce()
        arrange(scene)
        with traced() as more:
            scene.work()
        seen += ["the next job", *more]
    scene = Scene(engine, mode=UPSERTS)
    for mode in (UPSERTS, None, UPSERTS):
        scene.mode = mode
        scene.produce()
        with traced() as more:
            scene.work()
        seen += ["the next job", *more]
    elsewhere = {
        *OF_CONFLICT,
        *OF_INFERENCE,
        *OF_S3_TABLES,
        *OF_EMIT,
        *OF_FORGET,
        *OF_UPKEEP,
        *OF_TRAVEL,
        *OF_MAINTENANCE,
    }
    assert set(faults.POINTS) - elsewhere <= set(seen)
    assert [pair for pair in pairwise(seen) if "".join(pair).isupper()] == []
