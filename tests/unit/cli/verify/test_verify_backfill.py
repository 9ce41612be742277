"""What a backfill has read again is proved by how it was read then."""

from __future__ import annotations

from typing import Any

import pytest

from calve.table.position import Ledger, Offsets, TopicKey
from cli.verify.claim import Round
from cli.verify.reading import DecoderByRound

TOPIC = TopicKey("c", "t")
NOW, UNKNOWN = {"steps": "now"}, {"steps": "earlier"}


def round_(
    start: Offsets, to: Offsets, read_with: dict[str, str], remade: dict[int, tuple[int, int]] | None = None
) -> Round:
    return Round(TOPIC, start, to, Ledger(), read_with=read_with, remade=remade or {}, snapshot=1)


def backfill(first: int, to: int, read_with: dict[str, str]) -> Round:
    return round_({}, {0: 9}, read_with, {0: (first, to)})


@pytest.mark.parametrize(
    ("newer", "provable"),
    [
        ([], {0: 6}),
        ([backfill(0, 6, NOW)], {}),
        ([backfill(0, 5, NOW)], {0: 6}),
        ([backfill(3, 9, NOW)], {0: 3}),
        ([backfill(3, 9, UNKNOWN), backfill(0, 9, NOW)], {0: 9}),
        ([backfill(0, 9, NOW), backfill(3, 9, UNKNOWN)], {0: 9}),
    ],
)
def test_a_round_that_is_not_understood_any_more_counts_unless_all_of_it_was_made_anew(
    newer: list[Round], provable: Offsets
) -> None:
    rounds = [
        *newer,
        round_({0: 6}, {0: 9}, NOW),
        round_({0: 3}, {0: 6}, UNKNOWN),
        round_({0: 0}, {0: 3}, UNKNOWN),
    ]
    decoder: Any = object()
    epochs = DecoderByRound(rounds, lambda read_with: None if read_with == UNKNOWN else decoder)
    assert epochs.provable_from() == provable
