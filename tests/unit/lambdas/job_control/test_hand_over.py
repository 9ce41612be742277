"""A deploy ends with the deployed generation running, a destroy with nothing running, and both within the time there is."""

import json
from dataclasses import replace

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError

from calve.errors import CalveError, ConfigError
from lambdas.function import from_properties
from lambdas.job_control import handler
from lambdas.job_control.hand_over import GRACE_S, POLL_S, Control, HandOver, Wanted
from tests.unit.lambdas.cloudformation import cloudformation
from tests.unit.lambdas.context import Context
from tests.unit.lambdas.job_control.world import CONTROL, JOB, Clock

PROPERTIES = {
    "JobName": JOB,
    "Continuous": "true",
    "ControlBucket": CONTROL.bucket,
    "ControlKey": CONTROL.key,
    "StatusKey": "_calve/status/trading/main.json",
    "Generation": "g1",
}
LEFT_S = 870.0


def wanted(generation: str = "g1", *, continuous: bool = True) -> Wanted:
    return Wanted(JOB, continuous, CONTROL.bucket, CONTROL.key, generation, PROPERTIES["StatusKey"])


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def work(world, clock) -> HandOver:
    return HandOver(world.jobs, world.s3, time_left_s=LEFT_S, clock=clock)


def test_the_first_deploy_into_a_shared_bucket_is_not_denied_what_is_not_there(world, work) -> None:
    def deny(params, **_):  # as S3 where a role may list a prefix alone
        if "Contents" not in world.s3.list_objects_v2(Bucket=params["Bucket"], Prefix=params["Key"]):
            raise ClientError({"Error": {"Code": "AccessDenied"}}, "GetObject")

    world.s3.meta.events.register("provide-client-params.s3.GetObject", deny)
    assert CONTROL.read(world.s3, "none yet") == "none yet"
    work.begin(wanted())
    assert CONTROL.read(world.s3, "none yet") == "g1"


def test_the_first_deploy_starts_a_continuous_job_with_its_generation(world, work) -> None:
    work.begin(wanted())
    assert world.control() == "g1"
    assert world.newest().arguments["--generation"] == "g1"
    assert list(world.states().values()) == ["STARTING"]


def test_a_scheduled_job_is_left_to_its_schedule(world, work) -> None:
    work.begin(wanted(continuous=False))
    assert (world.control(), world.states()) == ("g1", {})


def test_the_old_run_ends_by_itself_before_the_new_one_starts(world, work, clock) -> None:
    old = world.run(generation="g1")
    world.deploy("g2")
    clock.at(30, lambda: world.turn(old, "SUCCEEDED"))
    work.begin(wanted("g2"))
    assert world.control() == "g2"
    assert list(world.states().values()) == ["SUCCEEDED", "STARTING"]
    assert world.newest().arguments["--generation"] == "g2"
    assert world.stopped == []


def test_a_run_that_does_not_end_is_stopped_once_its_grace_is_over(world, clock) -> None:
    old = world.run(generation="g1")
    world.deploy("g2")
    world.stopping_state = "STOPPING"
    clock.at(700, lambda: world.turn(old, "STOPPED"))
    HandOver(world.jobs, world.s3, time_left_s=2000, clock=clock).begin(wanted("g2"))
    assert world.stopped == [old]
    assert GRACE_S <= clock.now <= 710
    assert list(world.states().values()) == ["STOPPED", "STARTING"]


def test_a_short_time_limit_shortens_the_grace(world, clock) -> None:
    old = world.run(generation="g1")
    world.deploy("g2")
    HandOver(world.jobs, world.s3, time_left_s=100, clock=clock).begin(wanted("g2"))
    assert world.stopped == [old]
    assert clock.now < 100


def test_a_run_that_cannot_be_stopped_is_left_to_the_watchdog_before_the_time_is_over(
    world, work, clock
) -> None:
    old = world.run(generation="g1")
    world.deploy("g2")
    world.stopping_state = "STOPPING"
    work.begin(wanted("g2"))
    assert LEFT_S - 2 * POLL_S < clock.now <= LEFT_S
    assert world.states() == {old: "STOPPING"}
    assert (world.control(), CONTROL.left(world.s3)) == ("g2", [old])


def test_so_is_one_that_a_rollback_must_replace_and_the_next_hand_over_forgets_it(world, work, clock) -> None:
    old = world.run("STOPPING", generation="g1")
    work.begin(wanted())  # the old generation again
    assert CONTROL.left(world.s3) == [old]
    world.turn(old, "STOPPED")
    HandOver(world.jobs, world.s3, time_left_s=LEFT_S, clock=clock).begin(wanted())
    assert CONTROL.left(world.s3) == []
    assert list(world.states().values()) == ["STOPPED", "STARTING"]


def test_a_run_that_ends_while_it_is_left_is_replaced_at_once(world, work, monkeypatch) -> None:
    old = world.run("STOPPING", generation="g1")
    write = type(CONTROL).write

    def ending(self, s3, generation, left=()) -> None:
        write(self, s3, generation, left)
        if left:
            world.turn(old, "STOPPED")

    monkeypatch.setattr(type(CONTROL), "write", ending)
    work.begin(wanted())
    assert list(world.states().values()) == ["STOPPED", "STARTING"]


def test_a_destroy_does_not_leave_a_run_that_cannot_be_stopped(world, work, clock) -> None:
    old = world.run("STOPPING", generation="g1")
    with pytest.raises(CalveError, match=f"{old} is STOPPING"):
        work.end(wanted())
    assert clock.now <= LEFT_S


@pytest.mark.parametrize("state", ["WAITING", "STARTING", "RUNNING"])
def test_a_run_of_this_generation_is_left_alone_when_cloudformation_asks_again(
    world, work, clock, state
) -> None:
    running = world.run(state, generation="g1")
    work.begin(wanted())
    work.begin(wanted())
    assert (world.states(), clock.now) == ({running: state}, 0)


def test_a_run_that_is_stopping_is_replaced_even_by_its_own_generation(world, work, clock) -> None:
    stopping = world.run("STOPPING", generation="g1")
    clock.at(20, lambda: world.turn(stopping, "STOPPED"))
    work.begin(wanted())
    assert list(world.states().values()) == ["STOPPED", "STARTING"]


def test_a_run_without_a_generation_counts_by_when_it_began(world, work, clock) -> None:
    by_hand = world.run()
    work.begin(wanted())
    assert world.states() == {by_hand: "RUNNING"}
    world.deploy("g2")
    clock.at(10, lambda: world.turn(by_hand, "SUCCEEDED"))
    work.begin(wanted("g2"))
    assert list(world.states().values()) == ["SUCCEEDED", "STARTING"]


def test_a_drain_does_not_stand_for_a_continuous_run(world, work, clock) -> None:
    drain = world.run(drain="true", generation="g1")
    clock.at(10, lambda: world.turn(drain, "SUCCEEDED"))
    work.begin(wanted())
    assert list(world.states().values()) == ["SUCCEEDED", "STARTING"]


def test_a_drain_of_a_scheduled_job_is_left_alone_and_a_continuous_run_is_not(world, work) -> None:
    drain = world.run(drain="true", generation="g1")
    work.begin(wanted(continuous=False))
    assert world.states() == {drain: "RUNNING"}
    world.turn(drain, "SUCCEEDED")
    endless = world.run(generation="g1")
    work.begin(wanted(continuous=False))
    assert world.stopped == [endless]


def test_a_run_of_a_definition_that_drains_is_a_drain(world, work) -> None:
    world.define(**{"--drain": "true"})
    run = world.run(generation="g1")
    work.begin(wanted(continuous=False))
    assert (world.states(), world.stopped) == ({run: "RUNNING"}, [])


def test_a_rollback_restores_the_old_generation(world, work, clock) -> None:
    first = world.run(generation="g1")
    world.deploy("g2")
    clock.at(10, lambda: world.turn(first, "SUCCEEDED"))
    work.begin(wanted("g2"))
    second = world.newest().job_run_id
    world.turn(second, "RUNNING")
    world.deploy("g1")
    clock.at(40, lambda: world.turn(second, "SUCCEEDED"))
    work.begin(wanted("g1"))
    assert world.control() == "g1"
    assert world.newest().arguments["--generation"] == "g1"
    assert list(world.states().values()) == ["SUCCEEDED", "SUCCEEDED", "STARTING"]


PARTS = [f"{JOB}-1", f"{JOB}-2"]


def of_parts(generation: str = "g1", *names: str) -> Wanted:
    parts = {name: [f"_calve/jobs/{name}.json", generation] for name in names or PARTS}
    return replace(wanted("whole"), parts=parts)


@pytest.fixture
def parts(world) -> None:
    for name in PARTS:
        world.add(name)


def states(world) -> list[list[str]]:
    """Of the runs of the job, then of each part."""
    return [list(world.states(name).values()) for name in (JOB, *PARTS)]


def controls(world) -> list[str | None]:
    """Of the job, then of each part."""
    return [world.control(), *(world.control(f"_calve/jobs/{name}.json") for name in PARTS)]


@pytest.mark.usefixtures("parts")
def test_parts_start_once_the_job_that_they_replace_has_ended(world, work, clock) -> None:
    old = world.run(generation="g1")
    seen = []
    clock.at(30, lambda: seen.append((states(world), controls(world))))
    clock.at(40, lambda: world.turn(old, "SUCCEEDED"))
    work.begin(of_parts(), former=wanted())
    assert seen == [([["RUNNING"], [], []], [None, "g1", "g1"])]
    assert states(world) == [["SUCCEEDED"], ["STARTING"], ["STARTING"]]
    assert world.stopped == []


@pytest.mark.usefixtures("parts")
def test_a_rollback_ends_the_parts_before_the_former_job_starts(world, work, clock) -> None:
    work.begin(of_parts())
    runs = [next(iter(world.states(name))) for name in PARTS]
    for second, run in zip((10, 60), runs, strict=True):
        clock.at(second, lambda run=run: world.turn(run, "SUCCEEDED"))
    seen = []
    clock.at(30, lambda: seen.append(states(world)))
    work.begin(wanted(), former=of_parts())
    assert seen == [[[], ["SUCCEEDED"], ["STARTING"]]]
    assert states(world) == [["STARTING"], ["SUCCEEDED"], ["SUCCEEDED"]]
    assert controls(world) == ["g1", None, None]


@pytest.mark.usefixtures("parts")
def test_no_part_starts_while_another_still_has_the_former_tables(world, work, clock) -> None:
    for name in PARTS:
        world.jobs.start(name, "g0")
    first, second = (next(iter(world.states(name))) for name in PARTS)
    world.turn(first, "SUCCEEDED")
    seen = []
    clock.at(30, lambda: seen.append(states(world)))
    clock.at(40, lambda: world.turn(second, "SUCCEEDED"))
    work.begin(of_parts(), former=of_parts("g0"))
    assert seen == [[[], ["SUCCEEDED"], ["STARTING"]]]
    assert states(world) == [[], ["SUCCEEDED", "STARTING"], ["SUCCEEDED", "STARTING"]]


@pytest.mark.usefixtures("parts")
def test_a_part_that_is_no_longer_wanted_ends_and_an_unchanged_one_runs_on(world, work, clock) -> None:
    work.begin(of_parts())
    first, second = (next(iter(world.states(name))) for name in PARTS)
    clock.at(20, lambda: world.turn(second, "SUCCEEDED"))
    work.begin(of_parts("g1", PARTS[0]), former=of_parts())
    assert states(world) == [[], ["STARTING"], ["SUCCEEDED"]]
    clock.at(40, lambda: world.turn(first, "SUCCEEDED"))
    work.end(of_parts("g1", PARTS[0]))
    assert [world.control(f"_calve/jobs/{name}.json") for name in PARTS] == [None, None]


@pytest.mark.usefixtures("parts")
def test_a_part_that_glue_takes_long_to_stop_is_left_to_the_watchdog_and_the_others_start(
    world, work
) -> None:
    world.jobs.start(PARTS[1], "g0")
    world.stopping_state = "STOPPING"
    work.begin(of_parts(), former=of_parts("g0"))
    assert states(world) == [[], ["STARTING"], ["STOPPING"]]
    control = Control("lake", f"_calve/jobs/{PARTS[1]}.json")
    assert control.left(world.s3) == list(world.states(PARTS[1]))


@pytest.mark.usefixtures("parts")
def test_a_part_that_runs_on_is_named(world, work) -> None:
    world.jobs.start(PARTS[1], "g0")
    world.stopping_state = "RUNNING"
    with pytest.raises(CalveError, match=f"not handed over in time: job {PARTS[1]}: .* is RUNNING"):
        work.begin(of_parts(), former=of_parts("g0"))
    assert states(world)[1] == []


def test_a_start_that_glue_refuses_is_tried_again(world, work, clock, monkeypatch) -> None:
    """The watchdog may have been faster, or Glue may count the old run for a moment longer."""
    rival = []
    start = world.jobs.start

    def refused(name: str, generation: str) -> None:
        rival.append(world.run(generation="g1"))

    monkeypatch.setattr(world.jobs, "start", refused)
    clock.at(5, lambda: monkeypatch.setattr(world.jobs, "start", start))
    work.begin(wanted())
    assert list(world.states()) == rival


def test_a_start_whose_answer_is_lost_is_found_among_the_runs(world, work, monkeypatch) -> None:
    start = world.glue.start_job_run

    def unanswered(**about: object) -> None:
        start(**about)
        raise ReadTimeoutError(endpoint_url="https://glue")

    monkeypatch.setattr(world.glue, "start_job_run", unanswered)
    work.begin(wanted())
    assert len(world.states()) == 1


def test_a_run_says_what_it_runs_whatever_the_definition_says_by_then(world) -> None:
    world.jobs.start(JOB, "g9")
    assert world.newest().arguments["--generation"] == "g9"


def test_glues_concurrency_limit_is_no_error(world) -> None:
    world.run()
    assert world.jobs.start(JOB, "g1") is None


@pytest.mark.parametrize("deployed", ["g1", None])
def test_a_job_that_is_not_deployed_at_this_generation_is_not_touched(world, work, deployed) -> None:
    running = world.run(generation="g1")
    if deployed is None:
        world.drop()
    with pytest.raises(CalveError, match=f"deployed at generation {deployed}, not g2"):
        work.begin(wanted("g2"))
    assert "Contents" not in world.s3.list_objects_v2(Bucket=CONTROL.bucket)
    assert not deployed or world.states() == {running: "RUNNING"}


def test_deleting_tells_the_run_to_end_and_waits_for_it(world, work, clock) -> None:
    running = world.run(generation="g1")
    clock.at(15, lambda: world.turn(running, "SUCCEEDED"))
    work.end(wanted())
    assert (world.control(), clock.now, world.stopped) == (None, 15, [])
    assert list(world.states().values()) == ["SUCCEEDED"]


def test_deleting_stops_a_run_that_does_not_end(world, work) -> None:
    running = world.run(generation="g1")
    work.end(wanted())
    assert world.states() == {running: "STOPPED"}


def test_deleting_does_not_fail_because_job_or_bucket_are_gone(world, work) -> None:
    world.drop()
    work.end(wanted())
    world.s3.delete_object(Bucket=CONTROL.bucket, Key=CONTROL.key)
    world.s3.delete_bucket(Bucket=CONTROL.bucket)
    work.end(wanted())


@pytest.mark.parametrize("name", sorted(PROPERTIES.keys() - {"StatusKey"}))
def test_a_missing_property_is_named(name) -> None:
    with pytest.raises(ConfigError, match=name):
        from_properties(Wanted, {key: value for key, value in PROPERTIES.items() if key != name})


def test_a_manner_that_does_not_exist_is_named() -> None:
    with pytest.raises(ConfigError, match="Continuous is yes"):
        from_properties(Wanted, PROPERTIES | {"Continuous": "yes"})


@pytest.fixture
def cfn(world):
    handler._client.cache_clear()
    with cloudformation() as side:
        yield side
    handler._client.cache_clear()


def test_the_handler_creates_updates_and_deletes_under_one_physical_id(world, cfn, caplog) -> None:
    handler.handle(cfn.request("Create", PROPERTIES), Context())
    assert list(world.states().values()) == ["STARTING"]
    update = cfn.request("Update", PROPERTIES, PhysicalResourceId=JOB, OldResourceProperties=PROPERTIES)
    handler.handle(update, Context())
    world.turn(world.newest().job_run_id, "SUCCEEDED")
    handler.handle(cfn.request("Delete", PROPERTIES, PhysicalResourceId=JOB), Context())
    assert [(a["Status"], a["PhysicalResourceId"]) for a in cfn.answers] == [("SUCCESS", JOB)] * 3
    assert world.control() is None
    assert caplog.messages == ["job.handed_over"] * 3
    assert "SECRET" not in str([vars(record) for record in caplog.records])


@pytest.mark.usefixtures("parts")
def test_the_handler_hands_a_job_over_to_its_parts_and_back(world, cfn) -> None:
    former = {key: value for key, value in PROPERTIES.items() if key != "StatusKey"}
    spread = former | {"Parts": json.dumps(of_parts().parts), "Generation": "whole"}
    handler.handle(cfn.request("Create", former), Context())
    world.turn(world.newest().job_run_id, "SUCCEEDED")
    there = cfn.request("Update", spread, PhysicalResourceId=JOB, OldResourceProperties=former)
    handler.handle(there, Context())
    assert states(world) == [["SUCCEEDED"], ["STARTING"], ["STARTING"]]
    for name in PARTS:
        world.turn(next(iter(world.states(name))), "SUCCEEDED")
    back = cfn.request("Update", former, PhysicalResourceId=JOB, OldResourceProperties=spread)
    handler.handle(back, Context())
    assert states(world)[0] == ["SUCCEEDED", "STARTING"]
    assert controls(world) == ["g1", None, None]
    assert [(a["Status"], a["PhysicalResourceId"]) for a in cfn.answers] == [("SUCCESS", JOB)] * 3


def test_the_handler_answers_with_the_reason_of_a_failure(world, cfn, caplog) -> None:
    handler.handle(cfn.request("Create", PROPERTIES | {"Generation": "g2"}), Context())
    [answer] = cfn.answers
    assert answer["Status"] == "FAILED"
    assert "deployed at generation g1, not g2" in answer["Reason"]
    assert [record.levelname for record in caplog.records] == ["ERROR"]
