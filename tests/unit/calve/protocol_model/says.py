"""Commits, positions and topics in a few words, for tests of single decisions."""

from __future__ import annotations

from typing import Any

import pytest

from calve.errors import Suspended
from calve.table.position import Ledger, Offsets, Position, TopicKey
from calve.table.protocol import Commit, TopicState
from calve.table.summary import encode

TOPIC = TopicKey("cluster", "topic")
RECREATED = TopicKey("cluster", "topic-2")
ELSEWHERE = TopicKey("cluster-2", "topic")


def position(round_id: str = "r1", offsets: Offsets | None = None, **fields: Any) -> Position:
    held = {} if offsets is None else {TOPIC: offsets}
    return Position(offsets=held, round=round_id, writer="w", topic="trades", **fields)


def data(round_id: str, to: int = 5, **summary: str) -> dict[str, str]:
    encoded = encode(position=position(round_id, {0: to}), topic=TOPIC, start={}, ledger=Ledger(), metrics={})
    return encoded | {key.replace("_", "-"): value for key, value in summary.items()}


def history(*summaries: dict[str, str], cut: bool = False) -> list[Commit]:
    """Commits from the head towards the root."""
    count = len(summaries)
    oldest = 0 if cut else None
    return [Commit(count - i, count - i - 1 or oldest, summary) for i, summary in enumerate(summaries)]


def topic(log_start: Offsets, end: Offsets, key: TopicKey = TOPIC, **flags: bool) -> TopicState:
    return TopicState(key=key, name="trades", log_start=log_start, end=end, **flags)


def suspension(call: Any, *args: Any, **kwargs: Any) -> str:
    with pytest.raises(Suspended) as caught:
        call(*args, **kwargs)
    assert caught.value.message
    return caught.value.code


FOREIGN: dict[str, str] = {"total-records": "5"}
