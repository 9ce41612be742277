"""How long a pause of a table holds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from calve.requests.requests import Pause
from calve.table.summary import PAUSED

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def held(until: datetime | None) -> Pause | None:
    pause = Pause("id", "at", "ann", "why", until.isoformat() if until else None)
    return Pause.of({PAUSED: pause.to_json()}, NOW)


def test_a_pause_holds_until_its_end_or_until_it_is_taken_away() -> None:
    assert Pause.of({}, NOW) is None
    assert held(None) is not None
    assert held(NOW + timedelta(seconds=1)) is not None
    assert held(NOW) is None


def test_what_cannot_be_read_is_a_pause_all_the_same() -> None:
    for text in ("", "[]", '{"new": 1}', '{"id": "i", "at": "a", "by": "b", "until": "2027"}'):
        assert Pause.of({PAUSED: text}, NOW) is not None


def test_its_words_say_who_until_when_and_why() -> None:
    assert Pause("i", "a", "ann", "why", "2027").words == "by ann until 2027: why"
    assert Pause("i", "a", "ann").words == "by ann"
