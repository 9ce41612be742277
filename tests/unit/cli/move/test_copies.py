"""Where a copy goes on, over random topics and mirrors: a place is right or it is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from calve.errors import CalveError
from calve.table.position import Offsets, TopicKey
from calve.table.protocol import TopicState
from cli.move.copies import Mark, Place, Search

COPY_BEGINS = 100


@dataclass
class Listed:
    """A topic of one partition as a list. first: the offset of its first record."""

    first: int
    records: Sequence[Mark]
    stamped: bool = True
    compacted: bool = False

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
        reached = max(reached, end := draw(st.integers(start, count)))
        numbers += range(start, end)
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
@given(st.integers(1, 40).flatmap(lambda contents: worlds(contents=contents)))
def test_no_record_is_lost_or_read_twice(world: World) -> None:
    try:
        found = world.place()
    except CalveError:
        return
    if world.held == 0:
        return
    behind = world.behind(found.offset)
    assert not [each for each in behind if each < world.held]
    assert {each for each in world.numbers if each >= world.held} == {*behind}


@settings(max_examples=500)
@given(worlds(contents=40, clean=True))
def test_a_mirror_that_has_passed_the_place_is_not_refused(world: World) -> None:
    if world.held > world.former.first:
        assert world.place().records in (0, 1)


def test_the_whole_copy_is_read_if_nothing_was() -> None:
    record = Mark(0, 0, b"a")
    assert World(Listed(0, [record]), Listed(0, [record]), 0, [0]).place() == Place(0, 0, 0, 0)
