"""The one reader of a table's state: what it answers, and which command comes next."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta

import boto3
import pytest
from botocore.stub import Stubber

from calve.config.job import Job, Kafka, Lake, Registry
from calve.names import TableName
from calve.outputs.job_status import JobStatus, ReportedTable, Run, TableState
from cli import conditions
from cli.conditions import GONE_AFTER_S, Condition, Conditions, newest
from cli.look.health import Urgency, of_states

NOW = datetime(2026, 1, 2, tzinfo=UTC)
LAKE = Lake("trading", "s3://lake", region="eu-central-1")
SINCE = (NOW - timedelta(minutes=5)).isoformat()
ALIVE = Run(began=SINCE, at=NOW.isoformat())
OVER = replace(ALIVE, ended=NOW.isoformat())
REFUSED = TableState("suspended", "schema_unsupported", "a string has no columns", SINCE, "leave it out")
RUNNING = TableState("running", since=SINCE)
START = "start the job: calve ingest"


def condition(said: ReportedTable | None, run: Run = ALIVE, written: TableState | None = None) -> Condition:
    known = {"users": (said, run)} if said else {}
    return Conditions(reports=known).of_table("users", written, NOW)


def test_an_operator_is_denied_the_report_of_a_job_that_never_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    s3, job = boto3.client("s3", "eu-central-1"), Job("trading", "main", Kafka("b"), Registry("r"), LAKE, ())
    monkeypatch.setattr(conditions, "_s3", lambda _: s3)
    with Stubber(s3) as answers:
        answers.add_client_error("get_object", "AccessDenied", http_status_code=403)
        assert conditions.reported_by(job) == JobStatus()


@pytest.mark.parametrize(
    ("found", "state", "what", "fix"),
    [
        pytest.param(
            condition(ReportedTable("r", REFUSED)),
            "refused",
            "refused for 5m: schema_unsupported: a string has no columns",
            "leave it out",
            id="the job cannot make the table",
        ),
        pytest.param(
            condition(ReportedTable("r", REFUSED), OVER),
            "refused",
            "refused for 5m: schema_unsupported: a string has no columns",
            f"leave it out; then {START}",
            id="and the job has ended",
        ),
        pytest.param(
            condition(ReportedTable("r", REFUSED, made=True), written=REFUSED),
            "suspended",
            "suspended for 5m: schema_unsupported: a string has no columns",
            "leave it out",
            id="the table exists",
        ),
        pytest.param(
            condition(None, written=replace(REFUSED, fix=None)),
            "suspended",
            "suspended for 5m: schema_unsupported: a string has no columns",
            "docs/states.md has the fix for schema_unsupported",
            id="a release that only wrote into the table",
        ),
        pytest.param(
            condition(ReportedTable("r", TableState("failed", "retries_exhausted", "no answer", SINCE))),
            "failed",
            "failed for 5m: retries_exhausted: no answer",
            "docs/states.md has the fix for retries_exhausted",
            id="failed before the table was made",
        ),
        pytest.param(
            condition(
                ReportedTable("r"), replace(OVER, reason="Kafka refused the password", fix="check kafka.auth")
            ),
            "failed",
            "failed for 0s: job_failed: Kafka refused the password",
            "check kafka.auth",
            id="the job as a whole failed",
        ),
        pytest.param(
            condition(ReportedTable("r", failures=3, why="the registry does not answer")),
            "retrying",
            "retrying: 3 rounds failed: the registry does not answer",
            "wait; the job tries again by itself",
            id="its first round is tried again",
        ),
        pytest.param(
            condition(ReportedTable("r", failures=1, why="no topic", fix="make it"), OVER),
            "retrying",
            "retrying: 1 round failed: no topic",
            START,
            id="the job ended while it tried",
        ),
        pytest.param(
            condition(None), "pending", "not made yet: no job has read its topic yet", START, id="not begun"
        ),
        pytest.param(
            condition(ReportedTable("r"), OVER),
            "pending",
            "not made yet: no job has read its topic yet",
            START,
            id="the job ended before it began",
        ),
        pytest.param(
            condition(
                ReportedTable("r", RUNNING, made=True),
                replace(ALIVE, at=(NOW - timedelta(seconds=GONE_AFTER_S + 60)).isoformat()),
                RUNNING,
            ),
            "ended",
            "the job said nothing for 6m: it was killed, or cannot write into the lake",
            START,
            id="killed",
        ),
    ],
)
def test_each_answer_has_its_words_and_the_next_command(
    found: Condition, state: str, what: str, fix: str
) -> None:
    assert found.state == state
    (trouble,) = of_states([("users", found)], NOW)
    assert (trouble.where, trouble.what, trouble.fix) == ("users", what, fix)
    expected = {"pending": Urgency.NOTE, "retrying": Urgency.LATE}
    assert trouble.urgency is expected.get(state, Urgency.STOPPED)


@pytest.mark.parametrize(
    ("found", "state"),
    [
        (condition(ReportedTable("r")), "starting"),
        (condition(ReportedTable("r", RUNNING, made=True), written=RUNNING), "running"),
        (condition(ReportedTable("r", RUNNING, made=True), OVER, RUNNING), "ended"),
        (condition(None, written=RUNNING), "running"),
    ],
)
def test_what_is_in_order_is_no_trouble(found: Condition, state: str) -> None:
    assert found.state == state
    assert of_states([("users", found)], NOW) == []


def test_what_the_table_says_later_than_the_job_holds() -> None:
    """Jobs of earlier releases wrote into the table alone."""
    later = TableState("suspended", "not_ours", since=(NOW + timedelta(minutes=1)).isoformat())
    assert condition(ReportedTable("r", RUNNING, made=True), OVER, later).code == "not_ours"


def test_a_missing_table_is_told_with_its_reason() -> None:
    conditions = Conditions(reports={"users": (ReportedTable("r", REFUSED), OVER)})
    error = conditions.missing(TableName("shop", "users"))
    assert error.message == (
        "there is no table shop.users yet: refused: schema_unsupported: a string has no columns"
    )
    assert error.fix == f"leave it out; then {START}"
    assert conditions.missing(TableName("shop", "orders")).fix == START


def test_runs_keep_what_others_said_and_the_newest_word_counts() -> None:
    first = JobStatus().said_by(
        "a", OVER, {"users": ReportedTable("a", REFUSED), "orders": ReportedTable("a")}
    )
    second = first.said_by("b", ALIVE, {"orders": ReportedTable("b", RUNNING, made=True)})
    assert set(second.runs) == {"a", "b"}
    assert second.tables["users"] == ReportedTable("a", REFUSED)
    third = second.said_by("c", ALIVE, {"users": ReportedTable("c"), "orders": ReportedTable("c")})
    assert set(third.runs) == {"c"}
    older = replace(ALIVE, at=SINCE)
    deployed = JobStatus({"d": older}, {"users": ReportedTable("d"), "items": ReportedTable("d")})
    known = newest([deployed, second])
    assert {name: said.run for name, (said, _) in known.items()} == {
        "users": "a",
        "orders": "b",
        "items": "d",
    }


def test_a_status_survives_json_of_other_releases_and_of_nobody() -> None:
    status = JobStatus({"a": OVER}, {"users": ReportedTable("a", REFUSED, failures=2, why="no", fix="yes")})
    raw = json.loads(status.to_json())
    assert JobStatus.from_dict(raw) == status
    raw["runs"]["a"]["host"] = raw["tables"]["users"]["pace"] = raw["note"] = "of a later release"
    assert JobStatus.from_dict(raw) == status
    broken: list[dict[str, object]]
    broken = [{}, {"runs": [], "tables": {}}, {"runs": {"a": {}}, "tables": {}}, asdict(OVER)]
    for raw in broken:
        assert JobStatus.from_dict(raw) == JobStatus()
