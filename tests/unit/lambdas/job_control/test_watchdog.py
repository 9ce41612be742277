"""A continuous job that ends by no one's will is started again, ever later, and not for ever; every other end is respected."""

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from calve.errors import ConfigError
from lambdas.aws import Schedules
from lambdas.function import from_variables
from lambdas.job_control import handler
from lambdas.job_control.watchdog import (
    BUSY_DELAY_S,
    DEPLOY_DELAY_S,
    EXPIRED_DELAY_S,
    FIRST_DELAY_S,
    LONGEST_DELAY_S,
    Act,
    Ended,
    Environment,
    Verdict,
    Watchdog,
)
from tests.alarms import embedded, failed, goes_off
from tests.unit.lambdas.context import ARN, Context
from tests.unit.lambdas.job_control.world import CONTROL, JOB, World

ROLE = "arn:aws:iam::123456789012:role/scheduler"
RESTARTS = 5
BROKEN = ("FAILED", "TIMEOUT", "ERROR")


@pytest.fixture
def dog(world) -> Watchdog:
    CONTROL.write(world.s3, "g1")
    later = Schedules(world.scheduler, "trading", ROLE, ARN)
    return Watchdog(world.jobs, world.s3, later, frozenset({JOB}), RESTARTS)


def ended(run: str, state: str = "FAILED", checks: int = 0) -> Ended:
    return Ended(JOB, run, state, checks)


def see(dog: Watchdog, *event, **more) -> Verdict:
    return dog.handle(ended(*event, **more), datetime.now(UTC))


def fail(world: World, times: int, state: str = "FAILED") -> str:
    """So many short runs in a row; returns the newest."""
    return [world.run(state, age_s=60 * (times - n), lasted_s=10, generation="g1") for n in range(times)][-1]


@pytest.mark.parametrize("state", [*BROKEN, "SUCCEEDED"])
def test_the_first_end_is_followed_by_a_run_at_once(world, dog, state) -> None:
    run = world.run(state, generation="g1")
    verdict = see(dog, run, state)
    assert (verdict.act, verdict.failures) == (Act.RESTART, 1)
    assert list(world.states().values()) == [state, "STARTING"]
    assert world.newest().arguments["--generation"] == "g1"
    assert world.schedules() == []


@pytest.mark.parametrize("state", ["STOPPED", "STOPPING", "WAITING", "STARTING", "RUNNING", "UNHEARD_OF"])
def test_a_run_that_was_stopped_stays_stopped_and_other_states_call_for_nothing(world, dog, state) -> None:
    run = world.run("STOPPED", generation="g1")
    assert see(dog, run, state).act == Act.NOTHING
    assert list(world.states()) == [run]


def test_a_run_that_a_hand_over_left_is_replaced_once_it_has_stopped(world, dog) -> None:
    run = world.run("STOPPED", generation="g0")
    CONTROL.write(world.s3, "g1", [run])
    assert see(dog, run, "STOPPED").act == Act.RESTART
    assert world.newest().arguments["--generation"] == "g1"
    world.turn(world.newest().job_run_id, "STOPPED")
    assert see(dog, world.newest().job_run_id, "STOPPED").act == Act.NOTHING


@pytest.mark.parametrize("state", ["SUCCEEDED", "TIMEOUT", "EXPIRED"])
def test_the_end_of_a_long_run_is_no_failure(world, dog, state) -> None:
    run = world.run(state, age_s=9000, generation="g1")
    verdict = see(replace(dog, restarts=0), run, state, checks=1)
    assert (verdict.act, verdict.failures) == (Act.RESTART, 0)


def test_a_run_that_maintenance_ended_is_left_to_glue_for_a_while(world, dog) -> None:
    run = world.run("EXPIRED", age_s=90_000, generation="g1")
    assert (see(dog, run, "EXPIRED").act, list(world.states())) == (Act.LATER, [run])
    assert delay_s(world.schedules()[0]) == pytest.approx(EXPIRED_DELAY_S, abs=5)
    assert see(dog, run, "EXPIRED", checks=1).act == Act.RESTART


def test_a_run_that_glue_started_after_maintenance_is_enough(world, dog) -> None:
    run = world.run("EXPIRED", age_s=90_000, generation="g1")
    world.run("RUNNING", generation="g1")
    assert see(dog, run, "EXPIRED", checks=1).act == Act.NOTHING


@pytest.mark.parametrize("state", [*BROKEN, "SUCCEEDED"])
def test_runs_that_keep_ending_are_restarted_ever_later_and_then_no_more(world, dog, state) -> None:
    run, verdicts = fail(world, 1, state), []
    for _ in range(RESTARTS + 1):
        verdicts.append(see(dog, run, state))
        if verdicts[-1].act == Act.LATER:
            assert see(dog, run, state, checks=1).act == Act.RESTART
        run = world.newest().job_run_id
        world.turn(run, state)
    assert [verdict.delay_s for verdict in verdicts] == [0, 60, 120, 240, 480, 0]
    assert (verdicts[-1].act, verdicts[-1].failures) == (Act.EXHAUSTED, RESTARTS + 1)
    assert len(world.states()) == 1 + RESTARTS


def test_the_delay_has_an_upper_limit(world, dog) -> None:
    assert see(replace(dog, restarts=20), fail(world, 9)).delay_s == LONGEST_DELAY_S


def test_no_restart_is_tried_where_none_is_allowed(world, dog) -> None:
    run = world.run("FAILED", age_s=9000, generation="g1")
    assert (see(replace(dog, restarts=0), run).act, list(world.states())) == (Act.EXHAUSTED, [run])


def test_a_schedule_waits_for_the_restart_and_then_deletes_itself(world, dog) -> None:
    run = fail(world, 2)
    assert see(dog, run).act == Act.LATER
    [schedule] = world.schedules()
    assert delay_s(schedule) == pytest.approx(FIRST_DELAY_S, abs=5)
    assert (schedule["ActionAfterCompletion"], schedule["ScheduleExpressionTimezone"]) == ("DELETE", "UTC")
    assert (schedule["Target"]["Arn"], schedule["Target"]["RoleArn"]) == (ARN, ROLE)
    detail = json.loads(schedule["Target"]["Input"])["detail"]
    assert Ended.parse(detail) == ended(run, checks=1)
    assert len(world.states()) == 2


def delay_s(schedule) -> float:
    at = datetime.strptime(schedule["ScheduleExpression"], "at(%Y-%m-%dT%H:%M:%S)").replace(tzinfo=UTC)
    return (at - datetime.now(UTC)).total_seconds()


def test_a_run_longer_than_an_hour_begins_the_count_anew(world, dog) -> None:
    for n in range(RESTARTS):
        world.run("FAILED", age_s=9000 - n, lasted_s=1, generation="g1")
    long = world.run("FAILED", age_s=3700, lasted_s=3690, generation="g1")
    assert see(dog, long) == Verdict(Act.RESTART, "the run ended as FAILED", 1)


def test_an_older_long_run_and_what_was_before_it_do_not_count(world, dog) -> None:
    for age_s, lasted_s in ((30_000, 10), (29_000, 20_000), (8000, 10)):
        world.run("FAILED", age_s=age_s, lasted_s=lasted_s, generation="g1")
    assert see(dog, world.newest().job_run_id).failures == 1


@pytest.mark.parametrize(
    "between", [{"state": "STOPPED", "generation": "g1"}, {"state": "SUCCEEDED", "generation": "g0"}]
)
def test_an_operators_stop_and_a_deploy_begin_the_count_anew(world, dog, between) -> None:
    for age_s in (500, 400, 300):
        world.run("FAILED", age_s=age_s, lasted_s=10, generation="g1")
    world.run(age_s=200, lasted_s=10, **between)
    assert see(dog, world.run("FAILED", age_s=100, lasted_s=10, generation="g1")).failures == 1


def test_an_event_that_comes_twice_starts_one_run_and_makes_one_schedule(world, dog) -> None:
    first = world.run("FAILED", age_s=100, lasted_s=10, generation="g1")
    assert [see(dog, first).act for _ in range(2)] == [Act.RESTART, Act.NOTHING]
    second = world.newest().job_run_id
    world.turn(second, "FAILED")
    assert [see(dog, second).act for _ in range(2)] == [Act.LATER, Act.LATER]
    assert len(world.schedules()) == 1
    assert [see(dog, second, checks=1).act for _ in range(2)] == [Act.RESTART, Act.NOTHING]
    assert len(world.states()) == 3


def test_an_event_of_an_older_run_calls_for_nothing(world, dog) -> None:
    old = world.run("FAILED", age_s=500, generation="g1")
    world.run("STOPPED", age_s=100, generation="g1")
    assert see(dog, old) == Verdict(Act.NOTHING, "a newer run exists")
    assert len(world.states()) == 2


def test_nothing_is_started_beside_a_run_in_progress(world, dog) -> None:
    world.run("RUNNING", age_s=500, generation="g1")
    assert see(dog, world.run("FAILED", age_s=100, generation="g1")).act == Act.NOTHING
    assert len(world.states()) == 2


def test_an_event_that_is_ahead_of_glues_list_is_looked_at_again(world, dog) -> None:
    run = world.run("RUNNING", generation="g1")
    assert see(dog, run) == Verdict(Act.LATER, "Glue has no capacity for the run now", 1, BUSY_DELAY_S)
    world.turn(run, "FAILED")
    assert see(dog, run, checks=1).act == Act.RESTART


def test_a_second_look_that_is_too_early_makes_another_schedule(world, dog) -> None:
    run = world.run("RUNNING", generation="g1")
    see(dog, run)
    see(dog, run, checks=1)
    assert len(world.schedules()) == 2


def test_a_job_that_is_being_deleted_is_not_started(world, dog) -> None:
    CONTROL.write(world.s3, None)
    assert see(dog, world.run("SUCCEEDED", generation="g1"), "SUCCEEDED").why == "the job is being deleted"
    assert len(world.states()) == 1


def test_a_job_that_is_gone_is_not_started(world, dog) -> None:
    run = world.run("FAILED", generation="g1")
    world.drop()
    assert see(dog, run).act == Act.NOTHING


def test_a_deploy_starts_its_job_itself_and_is_followed_up(world, dog) -> None:
    """It may fail before its hand-over, and CloudFormation does not roll back what it has not changed."""
    run = world.run("FAILED", generation="g1")
    world.deploy("g2")
    verdict = see(dog, run)
    assert (verdict.act, verdict.delay_s, list(world.states())) == (Act.LATER, DEPLOY_DELAY_S, [run])
    CONTROL.write(world.s3, "g2")
    assert see(dog, run, checks=1).act == Act.RESTART
    assert world.newest().arguments["--generation"] == "g2"


def test_a_job_without_a_control_object_is_kept_running(world, dog) -> None:
    world.s3.delete_object(Bucket=CONTROL.bucket, Key=CONTROL.key)
    assert see(dog, world.run("FAILED", generation="g1")).act == Act.RESTART


def test_a_scheduled_job_is_never_restarted(world, dog) -> None:
    run = world.run("FAILED", drain="true")
    verdict = see(replace(dog, continuous_jobs=frozenset()), run)
    assert (verdict.act, list(world.states())) == (Act.NOTHING, [run])


def event(run: str, state: str = "FAILED") -> dict:
    return {
        "version": "0",
        "id": "1",
        "source": "aws.glue",
        "detail-type": "Glue Job State Change",
        "account": "123456789012",
        "time": "2026-11-21T10:00:00Z",
        "region": "us-east-1",
        "resources": [],
        "detail": {"jobName": JOB, "severity": "ERROR", "state": state, "jobRunId": run, "message": "m"},
    }


@pytest.fixture
def deployed(world, monkeypatch):
    variables = {
        "CONTINUOUS_JOBS": f"{JOB},other",
        "RESTARTS": "1",
        "SCHEDULE_GROUP": "trading",
        "SCHEDULER_ROLE_ARN": ROLE,
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    handler._client.cache_clear()
    yield world
    handler._client.cache_clear()


def test_the_handler_restarts_and_when_exhausted_sets_the_alarms_metric(deployed, caplog, capsys) -> None:
    handler.watchdog(event(deployed.run("FAILED", age_s=100, lasted_s=10, generation="g1")), Context())
    assert list(deployed.states().values()) == ["FAILED", "STARTING"]
    assert "WatchdogExhausted" not in capsys.readouterr().out
    second = deployed.newest().job_run_id
    deployed.turn(second, "FAILED")
    handler.watchdog(event(second), Context())
    metric = json.loads(capsys.readouterr().out)
    assert (metric["WatchdogExhausted"], metric["job"], metric["service"]) == ([1.0], JOB, "job_control")
    [described] = metric["_aws"]["CloudWatchMetrics"]
    assert described["Namespace"] == "calve"
    assert [set(each) for each in described["Dimensions"]] == [{"service", "job"}]
    assert goes_off("job-given-up", embedded(json.dumps(metric)), job=JOB)
    assert [record.act for record in caplog.records] == ["restart", "exhausted"]
    assert len(deployed.states()) == 2


def test_a_watchdog_that_fails_is_told(deployed, monkeypatch) -> None:
    monkeypatch.setenv("RESTARTS", "many")
    with pytest.raises(ConfigError):
        handler.watchdog(event(deployed.run("FAILED", age_s=100, lasted_s=10, generation="g1")), Context())
    assert failed("watchdog-errors", "Watchdog")


def test_the_handler_takes_what_its_own_schedule_sends(deployed, monkeypatch) -> None:
    monkeypatch.setenv("RESTARTS", "5")
    run = fail(deployed, 2)
    handler.watchdog(event(run), Context())
    [schedule] = deployed.schedules()
    handler.watchdog(json.loads(schedule["Target"]["Input"]), Context())
    assert list(deployed.states().values()) == ["FAILED", "FAILED", "STARTING"]


@pytest.mark.parametrize("restarts", ["-1", "many", ""])
def test_an_environment_of_no_use_is_a_named_error(restarts) -> None:
    with pytest.raises(ConfigError, match="no CONTINUOUS_JOBS, SCHEDULE_GROUP, SCHEDULER_ROLE_ARN"):
        from_variables(Environment, {"RESTARTS": "5"})
    rest = {"CONTINUOUS_JOBS": "", "SCHEDULE_GROUP": "g", "SCHEDULER_ROLE_ARN": ROLE}
    with pytest.raises(ConfigError, match="RESTARTS"):
        from_variables(Environment, rest | {"RESTARTS": restarts})
    assert from_variables(Environment, rest | {"RESTARTS": "0"}).continuous_jobs == frozenset()
