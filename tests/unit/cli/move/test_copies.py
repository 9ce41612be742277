"""Where a copy goes on, over random topics and mirrors: a place is right or it is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calve.errors import CalveError
from calve.table.position import Offsets, TopicKey
from calve.table.protocol import TopicState
from cli.move import copies
from cli.move.copies import Mark, Place, Search

COPY_BEGINS = 100


@dataclass
class Listed:
    """A topic of one partition as a list. first: the offset of its first record."""

    first: int
    records: Sequence[Mark]
    stamped: bool = True

    @property
    def topic(self) -> TopicState:
        end = self.first + len(self.records)
        return TopicState(TopicKey("c", "t"), "topic", {0: self.first}, {0: end})

    def begins(self, moments: Mapping[int, int], *, stamped: bool) -> Offsets:
        """As Kafka finds it: the first record with such a timestamp, whatever comes behind it."""
        found = {}
        for partition, moment in moments.items():
            later = (n for n, each in enumerate(self.records) if each.timestamp_ms >= moment or not stamped)
            found[partition] = self.first + next(later, len(self.records))
        return found

    def marks(self, spans: Mapping[int, tuple[int, int]], *, stamped: bool) -> dict[int, list[Mark]]:
        return {
            p: [*self.records[max(0, first - self.first) : max(0, end - self.first)]]
            for p, (first, end) in spans.items()
        }


@dataclass
class World:
    """numbers: of the former topic's records, as the copy has them; below 0: a record of its own."""

    former: Listed
    copy: Listed
    held: int
    numbers: list[int]

    def place(self) -> Place:
        search: Any = Search
        [found] = search(self.former, self.copy, {0: self.held}).places()
        assert isinstance(found, Place)
        return found

    def behind(self, offset: int) -> list[int]:
        return [each for each in self.numbers[offset - COPY_BEGINS :] if each >= 0]

    def contents(self, numbers: list[int]) -> Counter[bytes]:
        return Counter(self.former.records[each - self.former.first].digest for each in numbers)


@st.composite
def worlds(draw: st.DrawFn, *, contents: int, clean: bool = False) -> World:
    """contents: so many different records, besides expired ones. clean: the last run of the mirror passes the table's offset."""
    count = draw(st.integers(1, 30))
    expired = draw(st.integers(0, count))
    kinds = draw(st.permutations(range(count))) if contents >= count else None
    marks = []
    for number in range(count):
        kind = kinds[number] if kinds else draw(st.integers(0, contents - 1))
        marks.append(Mark(number, kind // 2, b"%d" % kind if number >= expired else b"expired %d" % number))
    held = draw(st.integers(expired, count))
    numbers: list[int] = []
    reached = began = draw(st.integers(0, expired))
    for _ in range(draw(st.integers(0, 3))):
        start = draw(st.integers(began, reached))
        reached = draw(st.integers(start, count))
        numbers += range(start, reached)
    if clean:
        numbers += range(draw(st.integers(began, max(began, min(reached, held - 1)))), count)
    for _ in range(draw(st.integers(0, 2))):
        numbers.insert(draw(st.integers(0, len(numbers))), -1)
    copied = [
        Mark(
            COPY_BEGINS + at,
            50 if number < 0 else marks[number].timestamp_ms,
            b"x%d" % at if number < 0 else marks[number].digest,
        )
        for at, number in enumerate(numbers)
    ]
    return World(Listed(expired, marks[expired:]), Listed(COPY_BEGINS, copied), held, numbers)


@settings(max_examples=1_500)
@given(st.integers(1, 40).flatmap(lambda contents: worlds(contents=contents)), st.sampled_from([1, 3, 1_000]))
def test_no_record_is_lost_or_read_twice(world: World, window: int) -> None:
    """window: so many records before the table's offset are read first."""
    with patch.object(copies, "WINDOW", window):
        try:
            found = world.place()
        except CalveError:
            return
    behind = world.behind(max(found.offset, COPY_BEGINS))
    assert not [each for each in behind if each < world.held]
    assert {each for each in world.numbers if each >= world.held} == {*behind}
    later = Counter(each.digest for each in world.former.records if each.offset >= world.held)
    assert world.contents(behind) <= later


@settings(max_examples=500)
@given(worlds(contents=40, clean=True))
def test_a_mirror_that_has_passed_the_place_is_not_refused(world: World) -> None:
    if world.held > world.former.first:
        assert world.place().records in (0, 1)


def listed(text: str, *, first: int = 0) -> Listed:
    """A record for each letter; all of one moment."""
    return Listed(first, [Mark(first + at, 5, each.encode()) for at, each in enumerate(text)])


@pytest.mark.parametrize(
    ("former", "copy", "held", "found"),
    [
        ("a", "a", 0, Place(0, 0, 0, 0)),
        ("abcd", "abd", 2, "record at offset 2"),
        ("abcd", "acd", 2, "record at offset 1"),
        ("abcd", "abcbcd", 1, "twice that the table lacks, up to offset 2"),
        ("abcd", "ababcd", 1, Place(0, 1, 103, 1)),
        ("aba", "aba", 3, Place(0, 3, 103, 2)),
        ("aa", "aa", 1, "all alike"),
    ],
)
def test_a_copy_that_lacks_or_repeats_records(former: str, copy: str, held: int, found: Place | str) -> None:
    world = World(listed(former), listed(copy, first=COPY_BEGINS if held else 0), held, [])
    if isinstance(found, Place):
        assert world.place() == found
        return
    with pytest.raises(CalveError, match=found):
        world.place()


def test_expired_records_may_be_alike() -> None:
    """The mirror has copied no more than two expired records: the same two are before the table's offset."""
    world = World(listed("bab", first=2), listed("ab", first=COPY_BEGINS), 5, [])
    with pytest.raises(CalveError, match="all alike"):
        world.place()
