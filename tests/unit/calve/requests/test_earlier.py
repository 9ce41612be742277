"""What expires is summed up: whatever is cut away, and how often, the table says the same of its past."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from calve.config.job import Budget
from calve.requests.expired_history import MOST_SPANS, ExpiredHistory, earlier
from calve.requests.forget import began_at
from calve.requests.time_travel import remade_json
from calve.rounds.dead_letter_policy import spent
from calve.table.position import Ledger, Offsets, Position, TopicKey
from calve.table.protocol import Commit, complete_until
from calve.table.summary import EARLIER, REDRIVE, REMADE, carried_position, encode, root

TOPIC = TopicKey("c", "t")
BUDGET = Budget(0.5, 3, within_s=600.0)
"""Steps of ten seconds."""


def history(steps: list[tuple[str, int]]) -> list[Commit]:
    """Commits, the newest first: of each step what it is, and how many records it read with which of two schemas."""
    found = [Commit(1, None, root(writer="w", topic="trades", round_id="r1"))]
    offsets: Offsets = {}
    for n, (kind, records) in enumerate(steps, 2):
        start = {p: offsets.get(p, 0) for p in {0, n % 2, *offsets}}
        summary: dict[str, str] = {}
        if kind in ("round", "redrive", "backfill"):
            moved = kind == "round"
            offsets = {p: o + (records if moved and not p else 0) for p, o in start.items()}
            position = Position({TOPIC: offsets}, f"r{n}", "w", "trades")
            bad = n % 3
            ledger = Ledger(records + bad, records + bad, dead_lettered=bad) if moved else Ledger()
            metrics = {"read_with": {"value": str(records % 2)}, "complete_until": float(n)}
            summary = encode(
                position=position,
                topic=TOPIC,
                start={TOPIC: start} if moved else {},
                ledger=ledger,
                metrics=metrics,
            )
            if kind == "redrive":
                summary[REDRIVE] = "asked"
            elif kind == "backfill":
                summary[REMADE] = remade_json({0: (0, records)})
        elif kind == "merge" and offsets:
            summary = carried_position(found[0].summary)
        found.insert(0, Commit(n, n - 1, summary))
    return found


steps = st.lists(
    st.tuples(
        st.sampled_from(["round", "round", "redrive", "backfill", "merge", "others"]), st.integers(0, 5)
    ),
    max_size=12,
)


@given(steps, st.lists(st.integers(1, 8), min_size=1, max_size=4))
def test_the_past_is_the_same_however_it_was_cut(made: list[tuple[str, int]], cuts: list[int]) -> None:
    line = whole = history(made)
    properties: dict[str, str] = {}
    for cut in cuts:
        kept = min(cut, len(line))
        before = ExpiredHistory.of(properties, line)
        properties[EARLIER] = earlier(line, kept, before, BUDGET).to_json()
        assert told(line, properties) == told(whole, {})
        assert complete_until(line, properties) == complete_until(whole, {})
        line = line[:kept]
        assert told(line, properties) == told(whole, {})
        assert complete_until(line, properties) == complete_until(whole, {})
        assert began_at(line, [], ExpiredHistory.of(properties, line)) == began_at(whole, [], None)


def told(line: list[Commit], properties: dict[str, str]) -> tuple[object, ...]:
    """Whether the table is known from its birth, where each way of reading began and ended, and all of the ledgers."""
    known = ExpiredHistory.of(properties, line)
    all_of = earlier(line, 0, known, BUDGET)
    return all_of.born, all_of.spans, [each.remade for each in all_of.spans]


@given(steps)
def test_what_others_have_cut_away_is_not_known(made: list[tuple[str, int]]) -> None:
    line = history([*made, ("round", 1), ("round", 1)])
    properties = {EARLIER: earlier(line, 2, None, BUDGET).to_json()}
    assert ExpiredHistory.of(properties, line[:1]) is None
    assert ExpiredHistory.of(properties, [replace(line[0], id=99)]) is None
    again = earlier(line[:1], 1, None, BUDGET)
    assert not again.born
    assert again.spans == ()


def test_too_many_ways_of_reading_are_not_kept() -> None:
    line = history([("round", n % 2) for n in range(MOST_SPANS + 5)])
    found = earlier(line, 1, None, BUDGET)
    assert not found.born
    assert len(found.spans) == MOST_SPANS


@given(steps, st.lists(st.integers(1, 8), min_size=1, max_size=4), st.integers(0, 200))
def test_the_budget_of_dead_letters_remembers_what_expired(
    made: list[tuple[str, int]], cuts: list[int], late: int
) -> None:
    """Rounds are fifteen seconds apart, so that each is a step of its own, and what is spent is exact."""
    line = whole = [replace(each, committed_at=15.0 * each.id) for each in history(made)]
    now = 15.0 * (len(line) + late)
    properties: dict[str, str] = {}
    for cut in cuts:
        kept = min(cut, len(line))
        properties[EARLIER] = earlier(line, kept, ExpiredHistory.of(properties, line), BUDGET).to_json()
        line = line[:kept]
        known = ExpiredHistory.of(properties, line)
        assert known is not None
        assert spent(line, BUDGET, now=now, expired=known.spent) == spent(whole, BUDGET, now=now)


def test_many_rounds_are_few_steps_however_often_they_expire() -> None:
    line = [replace(each, committed_at=float(each.id)) for each in history([("round", 2)] * 900)]
    known: ExpiredHistory | None = None
    for end in range(5, len(line) + 1, 5):
        known = earlier(line[-end:], 1, known, BUDGET)
    assert known is not None
    assert len(known.spent) <= 61
    assert known.spent[-1].at - known.spent[0].at > 580
    assert sum(each.counts.records for each in known.spent) <= 3 * 620
