"""Digests in summaries and files: what a commit says of its rows comes back as it was said."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calve.table.digests import (
    Claimed,
    DigestFile,
    RoundDigest,
    Sum,
    after_other_modes,
    digests_of,
    entry,
    together,
)
from calve.table.position import Ledger, Offsets, Position, TopicKey
from calve.table.protocol import Commit
from calve.table.summary import DIGEST, REMADE, encode

TOPIC = TopicKey("cluster", "topic")
UPSERT = json.dumps({"mode": "upsert", "key": [1]})
SUMS = st.builds(Sum, st.integers(1, 9), st.integers(0, 2**64 - 1), st.integers(0, 9), st.integers(10, 19))


def commit(
    number: int, start: Offsets, to: Offsets, sums: dict[int, Sum] | None, mode: str | None = None
) -> Commit:
    position = Position({TOPIC: to}, f"round{number}", "me", "topic", mode=mode)
    starts = {TOPIC: start} if start else {}
    summary = encode(position=position, topic=TOPIC, start=starts, ledger=Ledger(), metrics={})
    summary |= entry(sums)
    return Commit(number, number - 1, summary, 60.0 * number, number)


@given(st.dictionaries(st.integers(0, 3), SUMS))
def test_a_round_claims_the_offsets_that_it_read(sums: dict[int, Sum]) -> None:
    start, to = dict.fromkeys(range(4), 0) | {7: 5}, dict.fromkeys(range(4), 20) | {7: 5}
    found = RoundDigest.of(commit(1, start, to, sums))
    assert found is not None
    assert (found.round, found.sequence, found.at, found.replaces) == ("round1", 1, 60.0, False)
    none = Sum(0, 0, 0, 0)
    assert found.parts == {p: Claimed(0, 20, (each := sums.get(p, none)).rows, each.digest) for p in range(4)}
    assert RoundDigest.parse(found.line()) == found


def test_a_redrive_claims_the_range_of_its_rows_and_a_backfill_what_it_remade() -> None:
    sums = {1: Sum(2, 99, 5, 9)}
    redrive = RoundDigest.of(commit(1, {}, {1: 30}, sums))
    assert redrive is not None
    assert redrive.parts == {1: Claimed(5, 9, 2, 99)}
    made = commit(1, {}, {1: 30}, sums)
    remade = Commit(1, 0, {**made.summary, REMADE: json.dumps({"1": [4, 12], "2": [0, 3]})}, 60.0, 1)
    backfill = RoundDigest.of(remade)
    assert backfill is not None
    assert backfill.replaces
    assert backfill.parts == {1: Claimed(4, 12, 2, 99), 2: Claimed(0, 3, 0, 0)}
    assert RoundDigest.parse(backfill.line()) == backfill


def test_a_commit_without_a_digest_or_with_another_version_claims_nothing() -> None:
    assert RoundDigest.of(commit(1, {0: 0}, {0: 1}, None)) is None
    made = commit(1, {0: 0}, {0: 1}, {})
    assert RoundDigest.of(made) is not None
    other = {**made.summary, DIGEST: made.summary[DIGEST].replace('"v":1', '"v":2')}
    assert RoundDigest.of(Commit(1, 0, other)) is None
    with pytest.raises(ValueError, match="version 2"):
        DigestFile.parse('{"previous": null, "v": 2}\n')


@pytest.mark.parametrize(
    ("places", "left"),
    [
        ([[3, 4]], False),
        ([[0, 3], [7, 9]], True),
        ([[6, 8]], False),
        ([[0, 9]], False),
        ([[0, 1], [4, 5], [9, 10]], False),
        ([], True),
    ],
)
def test_a_range_with_a_forgotten_place_has_no_digest(places: list[list[int]], left: bool) -> None:
    found = RoundDigest("r", 1, 0.0, {0: Claimed(3, 7, 4, 99), 1: Claimed(0, 9, 9, 98)})
    blanked = found.without({"0": places})
    assert (blanked.parts[0].digest == 99) is left
    assert (blanked.parts[0].rows, blanked.parts[1].digest) == (4, 98)
    assert RoundDigest.parse(blanked.line()) == blanked


@given(st.lists(st.dictionaries(st.integers(0, 2), SUMS), max_size=4))
def test_sums_add_up(parts: list[dict[int, Sum]]) -> None:
    found = together(parts)
    for partition in {p for part in parts for p in part}:
        held = [part[partition] for part in parts if partition in part]
        assert found[partition].rows == sum(each.rows for each in held)
        assert found[partition].digest == sum(each.digest for each in held) % 2**64
        assert found[partition].first == min(each.first for each in held)
        assert found[partition].end == max(each.end for each in held)


def test_a_file_keeps_each_round_once_in_order() -> None:
    line = [commit(n, {0: n - 1}, {0: n}, {0: Sum(1, n, n - 1, n)}) for n in (4, 3, 2, 1)]
    first = DigestFile("before", ()).plus(digests_of(line[2:]))
    both = first.plus(digests_of(line))
    assert [each.round for each in both.digests] == ["round1", "round2", "round3", "round4"]
    assert DigestFile.parse(both.text()) == both
    assert DigestFile.parse(first.text()).previous == "before"


def test_a_mode_that_changes_rows_ends_the_line() -> None:
    line = [commit(n, {0: n - 1}, {0: n}, {}, mode=UPSERT if n == 2 else None) for n in (4, 3, 2, 1)]
    assert [each.id for each in after_other_modes(line)] == [4, 3]
    assert after_other_modes(line[:2]) == line[:2]
