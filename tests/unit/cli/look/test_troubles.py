"""What is wrong is said with its cure, the most urgent first."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calve.config.topics import NotKept
from cli.look.health import TableStatus, Trouble, Urgency, Waiting, troubles, urgency
from lambdas.publish_states import PublishState, State, Target

NOW = datetime(2026, 1, 2, tzinfo=UTC)
FINE = TableStatus(
    "main",
    "shop.orders",
    "orders",
    "running",
    commit_age_s=2.0,
    lag_records=0,
    lag_s=0.0,
    lag_source="kafka",
    freshness_target_s=60.0,
)
SUSPENDED = replace(
    FINE,
    state="suspended",
    code="offsets_expired",
    reason="offsets 3..9 are gone",
    fix="set `on_expired_offsets`",
    since=(NOW - timedelta(hours=2)).isoformat(),
)
LATE = replace(FINE, lag_records=1234, lag_s=300.0)
SYNCED = PublishState(Target.SNOWFLAKE, "shop.orders", State.SYNCED, since_ms=0)


def of(*tables: TableStatus) -> list[Trouble]:
    return troubles(tables, [], [], NOW)


def test_nothing_is_wrong_with_a_table_that_keeps_its_promise() -> None:
    assert of(FINE, replace(FINE, lag_records=9, lag_s=59.0)) == []
    assert troubles([], [SYNCED], [], NOW) == []


def test_a_stopped_table_is_told_with_reason_and_the_cure_that_the_job_wrote() -> None:
    (found,) = of(SUSPENDED)
    assert found.urgency is Urgency.STOPPED
    assert found.what == "suspended for 2h: offsets_expired: offsets 3..9 are gone"
    assert found.fix == "set `on_expired_offsets`"


@pytest.mark.parametrize(
    ("table", "urgent", "said", "cure"),
    [
        (
            LATE,
            Urgency.LATE,
            "late: 1,234 records wait, the oldest for 5m; 1m promised",
            "calve status orders",
        ),
        (replace(LATE, freshness_missed="capacity"), Urgency.LATE, "more arrives", "workers"),
        (
            replace(LATE, commit_age_s=7200.0, lag_s=7000.0),
            Urgency.STOPPED,
            "no commit for 2h",
            "calve ingest",
        ),
        (
            replace(LATE, commit_age_s=None, lag_s=7000.0),
            Urgency.STOPPED,
            "nothing was ever committed",
            "calve ingest",
        ),
        (
            replace(LATE, state="ended", since=(NOW - timedelta(hours=2)).isoformat(), fix="calve ingest"),
            Urgency.STOPPED,
            "the job ended 2h ago, and 1,234 records wait",
            "calve ingest",
        ),
        (
            replace(FINE, state="paused", reason="by Ann", fix="calve resume orders"),
            Urgency.NOTE,
            "paused by Ann",
            "calve resume orders",
        ),
        (
            replace(FINE, reason="topic orders does not exist", fix="make the topic"),
            Urgency.STOPPED,
            "does not exist",
            "make the topic",
        ),
        (
            replace(FINE, dead_letters={"malformed": 3}),
            Urgency.NOTE,
            "3 dead letters: 3 malformed",
            "dead-letters list",
        ),
        (replace(FINE, lost=7), Urgency.NOTE, "7 offsets were gone", "retention.ms"),
    ],
)
def test_every_trouble_has_a_cure(table: TableStatus, urgent: Urgency, said: str, cure: str) -> None:
    (found,) = of(table)
    assert found.urgency is urgent
    assert said in found.what
    assert cure in (found.fix or "")


def test_a_job_that_has_ended_in_order_and_one_that_begins_are_no_trouble() -> None:
    assert of(replace(FINE, state="ended", fix="calve ingest")) == []
    begun = replace(LATE, state="starting", commit_age_s=None, since=NOW.isoformat(), lag_s=7000.0)
    assert of(begun) == []
    assert len(of(replace(begun, since=(NOW - timedelta(hours=1)).isoformat()))) == 1


def test_what_the_job_reported_is_no_proof_that_it_stopped_until_it_is_silent() -> None:
    told = replace(
        FINE, lag_source="job", lag_as_of=(NOW - timedelta(minutes=9)).isoformat(), commit_age_s=9e5
    )
    assert of(told) == []
    (found,) = of(replace(told, lag_as_of=(NOW - timedelta(hours=1)).isoformat()))
    assert (found.urgency, found.what[:28]) == (Urgency.LATE, "its job last said something ")


def test_a_request_that_nobody_answers_is_told_after_a_while() -> None:
    asked = replace(FINE, waiting=(Waiting("redrive", (NOW - timedelta(seconds=90)).isoformat()),))
    assert of(asked) == []
    (found,) = troubles([asked], [], [], NOW + timedelta(minutes=2))
    assert found.what == "its redrive has waited for a job for 3m30s"


def test_what_cannot_be_published_and_topics_without_a_table_are_told() -> None:
    failed = replace(
        SYNCED, state=State.FAILED, since_ms=int(NOW.timestamp() * 1000) - 60_000, reason="denied"
    )
    left_out = NotKept("a.b", "entry", "its table would be twice", "give it a table of its own")
    found = troubles([], [failed], [left_out], NOW)
    assert [each.where for each in found] == ["orders in snowflake", "a.b"]
    assert found[0].what == "failed for 1m: denied"


def test_tables_with_one_trouble_are_named_together() -> None:
    pending = [replace(FINE, table=f"shop.t{n}", state="pending") for n in range(9)]
    (found,) = of(*pending)
    assert found.where == "t0, t1, t2 and 6 more"


@given(st.permutations([FINE, SUSPENDED, LATE, replace(FINE, lost=1), replace(FINE, state="pending")]))
def test_the_most_urgent_come_first_whatever_the_order_of_the_tables(tables: list[TableStatus]) -> None:
    order = list(Urgency)
    told = [order.index(each.urgency) for each in of(*tables)]
    assert told == sorted(told)
    assert min(tables, key=lambda each: urgency(each, NOW)) == SUSPENDED


def test_a_promise_that_the_last_commit_broke_is_told_though_nothing_waits_any_more() -> None:
    slow = replace(FINE, freshness_missed="catalog", freshness_p95_s=90.0)
    (found,) = of(slow)
    assert (found.urgency, found.fix) == (
        Urgency.LATE,
        "see the catalog's limits, or promise a little less: `freshness`",
    )
    assert found.what.startswith(
        "late: records of the last commit were 1m30s old; 1m promised: commits take long"
    )
    assert of(replace(slow, commit_age_s=3600.0)) == []
    assert of(replace(slow, freshness_missed="outage")) == []


def test_an_expectation_that_too_few_records_meet_is_a_note() -> None:
    (found,) = of(replace(FINE, expectations_missed=("`price > 0` holds for 97 % of the records",)))
    assert (found.urgency, found.what) == (Urgency.NOTE, "`price > 0` holds for 97 % of the records")
    assert found.fix == f"correct the source of the records; calve dead-letters list {FINE.name}"
