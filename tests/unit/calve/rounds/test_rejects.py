"""What becomes of records that cannot be rows: policy and budget, decided from main's history alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calve.config.job import Budget, Table
from calve.errors import Suspended
from calve.rounds.dead_letter_policy import (
    Group,
    RejectCounts,
    Rejects,
    check_rejects,
    exceeded,
    limit,
    spent,
)
from calve.table.position import Ledger, Position, TopicKey
from calve.table.protocol import Commit
from calve.table.summary import encode

TOPIC = TopicKey("cluster", "topic")
TABLE = Table("trades", "stock.trades")
NOW = 1_000_000.0
FOUND = Rejects(
    {"malformed": 1, "incompatible_schema": 4, "unknown_schema_id": 2},
    (
        Group("incompatible_schema", "7", 4, 1, 40),
        Group("unknown_schema_id", "9", 2, 0, 3),
        Group("malformed", None, 1, 0, 5),
    ),
)


def commit(number: int, at: float, ledger: Ledger | None = None) -> Commit:
    """A round that was committed `at` seconds before now."""
    position = Position({TOPIC: {0: number}}, f"r{number}", "w", "trades")
    summary = encode(position=position, topic=TOPIC, start={}, ledger=ledger or Ledger(), metrics={})
    return Commit(number, number - 1 or None, summary, NOW - at)


def foreign(at: float) -> Commit:
    return Commit(99, 98, {"operation": "replace"}, NOW - at)


def ledger(records: int, rejects: int, *, skipped: bool = False) -> Ledger:
    reasons = {"malformed": rejects} if rejects else {}
    applied = records - rejects
    if skipped:
        return Ledger(span=records, consumed=records, applied=applied, skipped=reasons)
    return Ledger(span=records, consumed=records, applied=applied, dead_lettered=rejects, rejected=reasons)


def rounds(*figures: tuple[float, int, int]) -> list[Commit]:
    """Newest first: (seconds before now, records, rejects)."""
    return [commit(len(figures) - n, at, ledger(r, bad)) for n, (at, r, bad) in enumerate(figures)]


def check(table: Table, past: Sequence[Commit], records: int, rejects: int) -> None:
    check_rejects(
        table,
        past,
        now=NOW,
        read=RejectCounts(records, rejects),
        found=lambda: FOUND,
        misfit=lambda schema_id: f"subject s-value, price: misfit of {schema_id}",
    )


def test_a_commit_that_says_again_where_the_table_stands_does_not_hide_its_rejects() -> None:
    newest, *older = rounds((20, 100, 3), (30, 50, 1))
    again = {
        name: each for name, each in newest.summary.items() if name not in ("calve.from", "calve.ledger")
    }
    merged = replace(newest, id=99, parent=newest.id, summary=again)
    assert spent([merged, newest, *older], Budget(), now=NOW) == RejectCounts(150, 4)


def refusal(table: Table, past: Sequence[Commit], records: int, rejects: int) -> Suspended:
    with pytest.raises(Suspended) as caught:
        check(table, past, records, rejects)
    return caught.value


def with_budget(budget: Budget, table: Table = TABLE) -> Table:
    return replace(table, dead_letter_budget=budget)


@pytest.mark.parametrize("policy", ["dead_letter", "skip", "suspend"])
def test_a_round_without_rejects_is_always_published(policy: str) -> None:
    table = replace(TABLE, on_error=policy, dead_letter_budget=Budget(0.0, 0))  # type: ignore[arg-type]
    check(table, rounds((1, 10, 10)), 5, 0)


def test_suspend_stops_at_the_first_reject() -> None:
    error = refusal(replace(TABLE, on_error="suspend"), [], 1_000_000, 7)
    assert error.code == "record_rejected"
    assert error.message.startswith("7 of 1,000,000 records cannot be rows: 4 incompatible_schema, 2 unknown")
    assert "set on_error for table trades. dead_letter" in str(error.fix)


@pytest.mark.parametrize("policy", ["dead_letter", "skip"])
def test_beyond_the_budget_the_table_suspends(policy: str) -> None:
    table = replace(TABLE, on_error=policy)  # type: ignore[arg-type]
    good = rounds((1, 10_000, 0))
    check(table, good, 1_000, 1_000)
    error = refusal(table, good, 1_001, 1_001)
    assert error.code == "rejects_over_budget"


@pytest.mark.parametrize("policy", ["dead_letter", "skip"])
@pytest.mark.parametrize(
    ("past", "records", "rejects", "stops"),
    [
        pytest.param([], 99, 99, False, id="too few to tell"),
        pytest.param([], 100, 100, True, id="all of the first round"),
        pytest.param([], 1_000, 950, True, id="nearly all"),
        pytest.param([], 1_000, 949, False, id="fewer"),
        pytest.param(rounds((5, 60, 60)), 40, 40, True, id="all of the first two rounds"),
        pytest.param(rounds((5, 60, 40)), 140, 140, False, id="a part of the first round were rows"),
        pytest.param(
            rounds((9_999, 20_000, 19_999)), 900, 900, False, id="a person has let such records through"
        ),
    ],
)
def test_a_new_table_stops_where_nearly_all_of_its_records_are_rejects(
    policy: str, past: list[Commit], records: int, rejects: int, *, stops: bool
) -> None:
    table = replace(TABLE, on_error=policy)  # type: ignore[arg-type]
    if not stops:
        check(table, past, records, rejects)
        return
    error = refusal(table, past, records, rejects)
    assert error.code == "nearly_all_rejected"
    assert "records that table trades has read cannot be rows: 4 incompatible_schema" in error.message
    assert "`dead_letter_budget: {share: 100%}`" in str(error.fix)
    check(with_budget(Budget(share=1.0), table), past, records, rejects)


@pytest.mark.parametrize(
    ("reason", "message", "fix"),
    [
        ("incompatible_schema", "expected the message A, found the message B", "`value: {message: NAME}`"),
        ("incompatible_schema", None, "`value: {subject: NAME}`"),
        ("bad_magic", None, "`value: {format: json, schema: FILE}`"),
        ("truncated", None, "`value: {prefix: none}`"),
        ("malformed", "a: expected a double, found a string", "`value: {subject: NAME}`"),
        ("null_value", None, "`upsert`"),
        ("null_key", None, "name a key"),
        ("bad_change", None, "`change_data`"),
        ("key_malformed", None, "`key: {format: FORMAT}`"),
        ("step_failed", None, "correct the steps"),
    ],
)
def test_the_probable_cause_is_named_by_the_reason_of_most_records(
    reason: str, message: str | None, fix: str
) -> None:
    found = Rejects({"null_value": 1} | {reason: 99}, (Group(reason, "7", 99, 0, 3, message),))
    with pytest.raises(Suspended) as caught:
        check_rejects(
            TABLE, [], now=NOW, read=RejectCounts(100, 100), found=lambda: found, misfit=lambda _: "misfit"
        )
    assert fix in str(caught.value.fix)
    assert message is None or message in caught.value.message


def test_a_refusal_names_reasons_places_and_the_schemas_misfit() -> None:
    error = refusal(with_budget(Budget(0.01, 5)), rounds((60, 93, 2)), 7, 7)
    assert error.message == (
        "9 of 100 records of the last 1h cannot be rows, 2 of them in earlier rounds; the budget is 5: "
        "4 incompatible_schema, 2 unknown_schema_id, 1 malformed; such as topic stock.trades "
        "partition 1 offset 40 (incompatible_schema, schema id 7: subject s-value, price: misfit of 7), "
        "partition 0 offset 3 (unknown_schema_id, schema id 9), partition 0 offset 5 (malformed)"
    )
    assert "raise dead_letter_budget of table trades to {records: 9} at least" in str(error.fix)
    check(with_budget(Budget(0.01, 9)), rounds((60, 93, 2)), 7, 7)


def test_what_is_not_asked_for_is_not_looked_up() -> None:
    def forbidden() -> Rejects:
        raise AssertionError

    read = RejectCounts(10, 3)
    check_rejects(TABLE, [], now=NOW, read=read, found=forbidden, misfit=lambda _: "")


@pytest.mark.parametrize(
    ("budget", "records", "allowed"),
    [
        (Budget(), 0, 1_000),
        (Budget(), 100_000, 1_000),
        (Budget(), 1_000_000, 10_000),
        (Budget(0.29, 0), 100, 29),
        (Budget(0.07, 0), 100, 7),
        (Budget(1.0, 0), 2**50 + 1, 2**50 + 1),
        (Budget(0.0, 0), 10**9, 0),
    ],
)
def test_the_greater_of_share_and_number_counts(budget: Budget, records: int, allowed: int) -> None:
    assert limit(budget, records) >= allowed
    assert not exceeded(budget, RejectCounts(records, allowed))
    assert allowed == records or exceeded(budget, RejectCounts(records, limit(budget, records) + 1))


@pytest.mark.parametrize(
    ("past", "expected"),
    [
        pytest.param([], RejectCounts(), id="a new table"),
        pytest.param(
            rounds((10, 100, 3), (20, 50, 1)), RejectCounts(150, 4), id="the rounds within the time"
        ),
        pytest.param(rounds((10, 100, 3), (3_601, 50, 1)), RejectCounts(100, 3), id="none before"),
        pytest.param([foreign(5), *rounds((10, 9, 3))], RejectCounts(9, 3), id="others' commits say nothing"),
        pytest.param([commit(1, 10, ledger(9, 3, skipped=True))], RejectCounts(9, 3), id="skipped ones, too"),
        pytest.param(
            [commit(1, 5, ledger(9, 3)), commit(1, 10, ledger(9, 3))],
            RejectCounts(9, 3),
            id="a summary carried on is not a round of its own",
        ),
        pytest.param(
            rounds((5, 10, 1), (10, 2_000, 1_500), (20, 10, 2)),
            RejectCounts(10, 1),
            id="let through by a person",
        ),
        pytest.param(rounds((5, 9, 9), (10, 2_000, 900), (20, 500, 500)), RejectCounts(9, 9), id="together"),
    ],
)
def test_the_past_is_what_mains_history_says(past: list[Commit], expected: RejectCounts) -> None:
    assert spent(past, Budget(), now=NOW) == expected


def test_a_budget_that_was_raised_once_and_lowered_again_does_not_suspend_for_the_same_records() -> None:
    raised = with_budget(Budget(records=2_000))
    refusal(TABLE, [], 2_000, 2_000)
    check(raised, [], 2_000, 2_000)
    published = rounds((30, 2_000, 2_000))
    check(TABLE, published, 10, 1)
    refusal(TABLE, published, 1_001, 1_001)


Shape = tuple[float, int, float]
shapes = st.lists(st.tuples(st.floats(0, 600), st.integers(1, 500), st.floats(0, 1)), min_size=1, max_size=40)


def publish(shape: Sequence[Shape], budget: Budget) -> tuple[list[tuple[float, Ledger]], int]:
    """Rounds as a table publishes them: (when, ledger), oldest first; what is refused is not published."""
    published: list[tuple[float, Ledger]] = []
    clock, refused = 0.0, 0
    for wait, records, bad in shape:
        clock += wait
        made = ledger(records, int(records * bad))
        past = [replace(commit(n + 1, 0, each), committed_at=at) for n, (at, each) in enumerate(published)][
            ::-1
        ]
        before = spent(past, budget, now=clock)
        if made.dead_lettered and exceeded(budget, before + RejectCounts(records, made.dead_lettered)):
            refused += 1
        else:
            published.append((clock, made))
    return published, refused


@given(shapes, st.integers(0, 300))
def test_no_window_ever_holds_more_than_the_number_allowed(shape: list[Shape], records: int) -> None:
    budget = Budget(0.0, records, within_s=900)
    published, _ = publish(shape, budget)
    for end, _ in published:
        window = [each for at, each in published if end - budget.within_s <= at <= end]
        assert sum(each.dead_lettered for each in window) <= records


@given(shapes, st.integers(0, 300), st.floats(0, 1))
def test_whatever_was_published_a_round_that_fits_alone_is_not_refused_for_ever(
    shape: list[Shape], records: int, share: float
) -> None:
    """The time passes, and what is in the table is forgotten."""
    budget = Budget(share, records, within_s=900)
    published, _ = publish(shape, budget)
    past = [replace(commit(n + 1, 0, each), committed_at=at) for n, (at, each) in enumerate(published)][::-1]
    later = (published[-1][0] if published else 0.0) + 901
    assert spent(past, budget, now=later) == RejectCounts()


@given(shapes, st.integers(0, 300), st.floats(0, 1))
def test_the_past_alone_never_suspends_a_table(shape: list[Shape], records: int, share: float) -> None:
    """Under whatever budget it was published: the count of a budget's past is never beyond it."""
    past = [
        replace(commit(n + 1, 0, ledger(r, int(r * bad))), committed_at=NOW - 10 * n)
        for n, (_, r, bad) in enumerate(shape)
    ]
    budget = Budget(share, records)
    assert not exceeded(budget, spent(past, budget, now=NOW))


def test_the_schemas_that_records_were_skipped_for_are_told_by_their_id() -> None:
    assert FOUND.schemas == {"7": 4, "9": 2}


def test_records_of_other_tables_do_not_count_for_the_budget() -> None:
    filtered = Ledger(consumed=1000, applied=90, filtered=900, dead_lettered=10, rejected={"malformed": 10})
    assert spent([commit(1, 1, filtered)], Budget(1.0, 0), now=NOW) == RejectCounts(100, 10)
