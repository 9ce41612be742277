"""What a table says of rows that left for their age, by its history and by its properties."""

from __future__ import annotations

from calve.config.maintenance import Retained, after, retained
from calve.table.position import TopicKey, encode_offsets
from calve.table.protocol import Commit
from calve.table.summary import RETAINED

TOPIC = TopicKey("c", "t")
STOOD = {"calve.to": encode_offsets({TOPIC: {0: 7}})}
FIRST = after(None, "at", 1_000, 3, STOOD)


def said(number: int, parent: int | None, found: Retained | None = None) -> Commit:
    return Commit(number, parent, {RETAINED: found.to_json()} if found else {})


def test_what_is_said_is_read_back_and_adds_up() -> None:
    assert Retained.from_json(FIRST.to_json()) == FIRST == Retained("at", 1_000, 3, {TOPIC: {0: 7}})
    assert after(FIRST, "at", 2_000, 4, STOOD).rows == 7


def test_the_newest_commit_counts_and_the_property_only_where_history_is_cut() -> None:
    noted = {RETAINED: after(FIRST, "at", 2_000, 4, STOOD).to_json()}
    assert retained([said(3, 2), said(2, 1, FIRST), said(1, None)], noted) == FIRST
    assert retained([said(3, 2), said(2, 1)], noted) == Retained.from_json(noted[RETAINED])
    assert retained([said(2, 1), said(1, None)], noted) is None
    assert retained([], noted) is None
