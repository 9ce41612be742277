"""Duplicates as `verify` tells them, against a reader who goes through the records in the order in which rounds read them."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calve.table.position import Ledger, Position, TopicKey
from cli.verify.claim import Claim, Round
from cli.verify.keyed.deduplicate import Firsts
from cli.verify.rows import Rows

TOPIC = TopicKey("c", "t")
PARTITIONS = 2

Place = tuple[int, int]


@dataclass(frozen=True)
class Record:
    key: int
    partition: int
    at: int


Rounds = list[list[Record]]

records = st.builds(Record, st.integers(0, 2), st.integers(0, PARTITIONS - 1), st.integers(0, 12))
histories = st.lists(st.lists(records, max_size=8), max_size=4)


def placed(rounds: Rounds) -> list[list[tuple[Place, Record]]]:
    ends = [0] * PARTITIONS
    found: list[list[tuple[Place, Record]]] = []
    for each in rounds:
        found.append([])
        for record in each:
            found[-1].append(((record.partition, ends[record.partition]), record))
            ends[record.partition] += 1
    return found


def kept(rounds: Rounds, window: int | None) -> set[Place]:
    """The places of the rows: each record that no row before it is near."""
    rows: dict[int, list[int]] = {}
    places: set[Place] = set()
    for each in placed(rounds):
        come_to: dict[tuple[int, int], int] = {}
        ranked = []
        for (partition, offset), record in each:
            group = record.key, partition
            come_to[group] = max(come_to.get(group, 0), record.at)
            ranked.append((come_to[group], partition, offset, record))
        for _, partition, offset, record in sorted(ranked, key=lambda r: r[:3]):
            near = rows.setdefault(record.key, [])
            if not any(window is None or abs(record.at - other) < window for other in near):
                near.append(record.at)
                places.add((partition, offset))
    return places


def claim_of(rounds: Rounds, *, known: int) -> Claim:
    """The history of the last `known` rounds."""
    made, at = [], dict.fromkeys(range(PARTITIONS), 0)
    for number, each in enumerate(rounds):
        start = dict(at)
        for record in each:
            at[record.partition] += 1
        made.append(Round(TOPIC, start, dict(at), Ledger(), snapshot=number))
    left = tuple(reversed(made[len(made) - known :]))
    position = Position({TOPIC: at}, "r", "w", "t")
    return Claim(position, TOPIC, {}, at, known == len(made), Ledger(), left)


def asked(
    rounds: Rounds, held: set[Place], window: int | None, *, known: int | None = None
) -> tuple[set[Place], dict[tuple[str, int], list[int]]]:
    """Places of duplicates, and rows that are too near to each other."""
    claim = claim_of(rounds, known=len(rounds) if known is None else known)
    firsts = Firsts(window, claim, {})
    everything = sorted(pair for each in placed(rounds) for pair in each)
    rows = [pair for pair in everything if pair[0] in held]
    firsts.hold(held_rows(rows), own=True)
    keys, partitions, offsets, moments = _columns(everything)
    firsts.add([Rows("", partitions, offsets, [keys], keys, timestamps=moments)])
    duplicates = {place for place, _ in everything} - firsts.places()
    assert firsts.duplicates() == len(duplicates)
    assert firsts.places(duplicates) == set()
    return duplicates, firsts.doubled()


def held_rows(pairs: list[tuple[Place, Record]]) -> Rows:
    keys, partitions, offsets, moments = _columns(pairs)
    return Rows("f", partitions, offsets, [], keys, timestamps=moments)


def _columns(pairs: list[tuple[Place, Record]]) -> tuple[pa.Array, ...]:
    return (
        pa.array([record.key for _, record in pairs], pa.uint64()),
        pa.array([place[0] for place, _ in pairs], pa.int32()),
        pa.array([place[1] for place, _ in pairs], pa.int64()),
        pa.array([record.at for _, record in pairs], pa.timestamp("us", tz="UTC")),
    )


@pytest.mark.parametrize("window", [None, 3])
@given(rounds=histories)
def test_what_is_no_row_is_a_duplicate_and_nothing_else_is(rounds: Rounds, window: int | None) -> None:
    places = {place for each in placed(rounds) for place, _ in each}
    held = kept(rounds, window)
    assert asked(rounds, held, window) == (places - held, {})


@given(rounds=histories, data=st.data())
def test_any_other_choice_of_rows_is_noticed(rounds: Rounds, data: st.DataObject) -> None:
    """Without a window, every other set of rows has a row too many, or lacks one that is called none."""
    places = sorted(place for each in placed(rounds) for place, _ in each)
    held = kept(rounds, None)
    other = set(data.draw(st.lists(st.sampled_from(places), unique=True))) if places else set()
    duplicates, doubled = asked(rounds, other, None)
    assert (duplicates == set(places) - other and not doubled) == (other == held)


@given(rounds=histories, known=st.integers(0, 4))
def test_an_expired_history_makes_no_row_wrong(rounds: Rounds, known: int) -> None:
    held = kept(rounds, None)
    places = {place for each in placed(rounds) for place, _ in each}
    assert asked(rounds, held, None, known=min(known, len(rounds))) == (places - held, {})


@pytest.mark.parametrize("window", [None, 3])
def test_a_record_without_a_row_near_it_must_be_a_row(window: int | None) -> None:
    duplicates, _ = asked([[Record(1, 0, 5), Record(1, 0, 6), Record(2, 1, 6)]], {(0, 0)}, window)
    assert duplicates == {(0, 1)}


def test_rows_of_an_earlier_topic_come_before_all() -> None:
    firsts = Firsts(None, claim_of([[Record(1, 0, 5)]], known=1), {})
    firsts.hold(held_rows([((0, 0), Record(1, 0, 9))]), own=False)
    keys, partitions, offsets, moments = _columns([((0, 0), Record(1, 0, 5)), ((0, 1), Record(2, 0, 5))])
    firsts.add([Rows("", partitions, offsets, [keys], keys, timestamps=moments)])
    assert firsts.places() == {(0, 1)}


def test_a_letter_that_came_back_was_read_when_it_came_back() -> None:
    """Its record lies before one of the same key that a round had read by then."""
    rounds = [[Record(1, 0, 1), Record(1, 0, 2)]]
    claim = claim_of(rounds, known=1)
    redrive = Round(TOPIC, {}, {0: 2, 1: 0}, Ledger(), round="back", snapshot=2)
    claim = Claim(claim.position, TOPIC, {}, claim.to, True, Ledger(), claim.rounds, (redrive,))
    pairs = [pair for each in placed(rounds) for pair in each]
    for held, wanted in (((0, 1), {(0, 1)}), ((0, 0), {(0, 0), (0, 1)})):
        firsts = Firsts(None, claim, {(0, 0): "back"})
        firsts.hold(held_rows([each for each in pairs if each[0] == held]), own=True)
        keys, partitions, offsets, moments = _columns(pairs)
        firsts.add([Rows("", partitions, offsets, [keys], keys, timestamps=moments)])
        assert firsts.places() == wanted
        assert firsts.duplicates() == 0


def test_a_row_without_a_place_that_somebody_wrote_is_no_earlier_row() -> None:
    firsts = Firsts(None, claim_of([[Record(1, 0, 5)]], known=1), {})
    keys, partitions, offsets, moments = _columns([((0, 0), Record(1, 0, 5))])
    nowhere = Rows("f", pa.nulls(1, pa.int32()), pa.nulls(1, pa.int64()), [], keys, timestamps=moments)
    firsts.hold(nowhere, own=True)
    firsts.add([Rows("", partitions, offsets, [keys], keys, timestamps=moments)])
    assert firsts.places() <= {(0, 0)}
    assert firsts.doubled() == {}
