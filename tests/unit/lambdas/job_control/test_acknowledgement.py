"""A deploy waits until the new run has opened its tables. CloudFormation's reason of a failure is in the job's words."""

from datetime import UTC, datetime, timedelta

import pytest
from botocore.exceptions import ClientError

from calve.errors import CalveError
from calve.outputs.job_status import JobStatus, ReportedTable, Run, TableState
from lambdas.job_control import handler
from lambdas.job_control.acknowledgement import NOT_AWAITED, Acknowledgement
from tests.unit.lambdas.cloudformation import cloudformation
from tests.unit.lambdas.context import Context
from tests.unit.lambdas.job_control.test_hand_over import PROPERTIES, wanted
from tests.unit.lambdas.job_control.world import CONTROL, JOB, Clock

LEFT_S = 870.0
OPEN = ReportedTable("r", TableState("running"), made=True)
TRYING = ReportedTable("r", failures=3, why="topic trades does not exist")
REFUSED = ReportedTable("r", TableState("suspended", "schema_unsupported", "no column can hold a string"))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def work(world, clock) -> Acknowledgement:
    return Acknowledgement(world.jobs, world.s3, LEFT_S, clock)


def say(world, tables=None, *, generation="g1", began_s=0.0, opened=True, reason=None) -> None:
    """Write what a process says that began so many seconds ago."""
    now = datetime.now(UTC)
    began = (now - timedelta(seconds=began_s)).isoformat(timespec="seconds")
    run = Run(began, began, generation=generation, opened=began if opened else None, reason=reason, fix=None)
    body = JobStatus({"r": run}, tables or {}).to_json()
    world.s3.put_object(Bucket=CONTROL.bucket, Key=PROPERTIES["StatusKey"], Body=body)


def test_a_deploy_waits_until_the_run_has_opened_its_tables(world, work, clock) -> None:
    run = world.run("STARTING", age_s=2, generation="g1")
    clock.at(40, lambda: world.turn(run, "RUNNING"))
    clock.at(60, lambda: say(world, {"users": ReportedTable("r")}, opened=False))
    clock.at(90, lambda: say(world, {"users": OPEN}))
    assert work.wait(wanted()) == "1 of 1 tables are open"
    assert clock.now == 90


def test_a_report_that_is_not_there_yet_is_denied_in_a_shared_bucket_and_awaited(world, clock) -> None:
    """S3 answers so to a role that may list only a part of the bucket."""
    run = world.run(age_s=2, generation="g1")
    denied = Stubborn(world.s3)
    clock.at(20, lambda: say(world, {"users": OPEN}))
    assert Acknowledgement(world.jobs, denied, LEFT_S, clock).wait(wanted()) == "1 of 1 tables are open"
    assert (clock.now, denied.asked) == (20, 1)
    assert world.states() == {run: "RUNNING"}


class Stubborn:
    """S3 that denies an absent object."""

    def __init__(self, s3) -> None:
        self._s3, self.asked = s3, 0
        self.list_objects_v2 = s3.list_objects_v2

    def get_object(self, **about):
        self.asked += 1
        try:
            return self._s3.get_object(**about)
        except self._s3.exceptions.NoSuchKey:
            raise ClientError({"Error": {"Code": "AccessDenied", "Message": "denied"}}, "GetObject") from None


def test_a_bad_table_stops_no_deploy_in_which_others_are_open_and_is_named(world, work) -> None:
    world.run(age_s=2, generation="g1")
    say(world, {"users": OPEN, "trades": TRYING, "orders": REFUSED})
    assert work.wait(wanted()) == (
        "1 of 3 tables are open; trades: topic trades does not exist; "
        "orders: suspended, no column can hold a string"
    )


def test_an_old_run_that_does_not_stop_is_named(world, work) -> None:
    old = world.run("STOPPING", age_s=900, generation="g0")
    with pytest.raises(
        CalveError, match=f"no run was started, {old} is still STOPPING, and the time is over"
    ):
        work.wait(wanted())


def test_tables_that_are_all_suspended_end_the_deploy_at_once(world, work, clock) -> None:
    world.run(age_s=2, generation="g1")
    say(world, {"orders": REFUSED}, opened=False)
    with pytest.raises(CalveError, match="table orders: suspended, no column can hold a string"):
        work.wait(wanted())
    assert clock.now == 0


def test_tables_that_do_not_open_in_time_are_named(world, work, clock) -> None:
    world.run(age_s=2, generation="g1")
    say(world, {"trades": TRYING}, opened=False)
    with pytest.raises(
        CalveError, match=r"RUNNING, and the time is over.*table trades: topic trades does not"
    ):
        work.wait(wanted())
    assert LEFT_S - 10 < clock.now <= LEFT_S


def test_a_run_that_ends_before_is_a_failure_with_its_own_reason(world, work) -> None:
    world.run("FAILED", age_s=2, generation="g1")
    say(world, {"users": ReportedTable("r")}, opened=False, reason="Kafka refused the credentials")
    with pytest.raises(CalveError, match="ended as FAILED before; it says: Kafka refused the credentials"):
        work.wait(wanted())


def test_a_run_that_ends_without_a_word_is_a_failure_with_glues_reason(world, work, monkeypatch) -> None:
    world.run("FAILED", age_s=2, generation="g1")
    told = world.newest().as_dict() | {"ErrorMessage": "SystemExit: 2"}
    monkeypatch.setattr(world.newest(), "as_dict", lambda: told)
    with pytest.raises(CalveError, match="ended as FAILED before; it says: SystemExit: 2"):
        work.wait(wanted())


@pytest.mark.parametrize(("generation", "began_s"), [("g0", 0.0), ("g1", 600.0)])
def test_an_earlier_run_does_not_speak_for_this_one(world, work, generation, began_s) -> None:
    """Of an earlier generation, or of the same before a rollback."""
    world.run(age_s=60, generation="g1")
    say(world, {"users": OPEN}, generation=generation, began_s=began_s)
    with pytest.raises(CalveError, match="it said nothing"):
        work.wait(wanted())


def test_a_run_of_an_earlier_generation_is_not_taken_for_the_new_one(world, work, clock) -> None:
    world.run("SUCCEEDED", generation="g0")
    clock.at(30, lambda: world.run(age_s=2, generation="g1"))
    clock.at(60, lambda: say(world, {"users": OPEN}))
    work.wait(wanted())
    assert clock.now == 60


@pytest.fixture
def cfn(world, monkeypatch):
    monkeypatch.setattr(handler, "stack_status", lambda *_: "UPDATE_IN_PROGRESS")
    handler._client.cache_clear()
    with cloudformation() as side:
        yield side
    handler._client.cache_clear()


def request(cfn, kind: str):
    return cfn.request(kind, PROPERTIES, PhysicalResourceId=JOB)


def test_cloudformation_gets_the_sentence_and_a_delete_starts_and_ends_nothing(world, cfn, caplog) -> None:
    running = world.run(age_s=2, generation="g1")
    say(world, {"users": OPEN})
    for kind in ("Create", "Delete"):
        handler.acknowledge(request(cfn, kind), Context())
    first, last = cfn.answers
    assert (first["Status"], first["Data"]) == ("SUCCESS", {"Tables": "1 of 1 tables are open"})
    assert (last["Status"], world.states()) == ("SUCCESS", {running: "RUNNING"})
    assert caplog.messages == ["job.acknowledged"] * 2


def test_cloudformation_gets_the_jobs_words_as_the_reason(world, cfn) -> None:
    world.run("FAILED", age_s=2, generation="g1")
    say(world, opened=False, reason="Kafka refused the credentials")
    handler.acknowledge(request(cfn, "Update"), Context())
    (answer,) = cfn.answers
    assert answer["Status"] == "FAILED"
    assert "Kafka refused the credentials" in answer["Reason"]


def test_a_rollback_does_not_wait(world, cfn, monkeypatch) -> None:
    monkeypatch.setattr(handler, "stack_status", lambda *_: "UPDATE_ROLLBACK_IN_PROGRESS")
    monkeypatch.setattr(handler, "Acknowledgement", None)
    handler.acknowledge(request(cfn, "Update"), Context())
    (answer,) = cfn.answers
    assert (answer["Status"], answer["Data"]) == ("SUCCESS", {"Tables": NOT_AWAITED})
