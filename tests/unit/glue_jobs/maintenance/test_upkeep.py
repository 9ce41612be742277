from collections.abc import Sequence
from typing import Any

from calve.outputs.emitting import Emitted
from calve.table.position import Ledger, Position, TopicKey
from calve.table.protocol import Commit
from calve.table.summary import carried_position, encode
from glue_jobs.iceberg.rewriting import OPEN_BYTES, Group
from glue_jobs.maintenance.between_rounds import (
    LEAST_COST,
    MERGED_AT_ONCE,
    MOST_UNSAID,
    affordable,
    needed,
)

TOPIC = TopicKey("c", "t")


class Sized:
    """A file of so many bytes, as Iceberg's scan task of it."""

    def __init__(self, size: int) -> None:
        self._size = size

    def file(self) -> Any:
        return self

    def fileSizeInBytes(self) -> int:
        return self._size


def group(*sizes: int) -> Group:
    return Group(tuple(map(Sized, sizes)), sum(sizes))


def position(n: int) -> Position:
    return Position({TOPIC: {0: n}}, f"r{n}", "w", "trades")


def _round(n: int) -> dict[str, str]:
    start = {TOPIC: {0: n - 1}}
    return encode(position=position(n), topic=TOPIC, start=start, ledger=Ledger(), metrics={})


def line(*kinds: str) -> list[Commit]:
    """Commits, the newest first: a `round`, a `merge` of the table as the round before it left it, or one of `others`."""
    found: list[Commit] = []
    last = 0
    for n, kind in enumerate(reversed(kinds), 1):
        summary: dict[str, str] = {}
        if kind == "round":
            last = n
            summary = _round(n)
        elif kind == "merge":
            summary = carried_position(_round(last))
        found.append(Commit(n, n - 1 or None, summary, sequence=n))
    return found[::-1]


def counts(chosen: Sequence[Group]) -> list[int]:
    return [len(each.tasks) for each in chosen]


def test_what_says_where_the_table_stands_is_needed() -> None:
    assert needed(line("round", "round")) == 1
    assert needed(line("others", "others", "merge", "round", "round")) == 3
    assert needed(line("others")) == 1


def test_what_has_not_been_emitted_is_needed() -> None:
    history = line("merge", "round", "others", "round", "round", "round")
    assert needed(history, Emitted.at(position(5))) == 1
    assert needed(history, Emitted.at(position(2))) == 4
    assert needed(history, Emitted.at(position(1))) == 5
    assert needed(history, Emitted("gone", {TOPIC: {0: 2}})) == 4
    assert needed(history, Emitted("gone", {TOPIC: {0: 9}})) == 1


def test_what_has_not_been_announced_is_needed_up_to_a_limit() -> None:
    history = line(*["round"] * 5)
    assert [needed(history, said=said) for said in (5, 4, 2, 0)] == [1, 1, 3, 5]
    assert needed(line(*["others"] * (MOST_UNSAID + 50), "round"), said=0) == MOST_UNSAID + 51
    assert needed(line("round", *["others"] * (MOST_UNSAID + 50)), said=0) == MOST_UNSAID


def test_groups_are_merged_as_far_as_the_time_allows() -> None:
    small, large = group(*[1_000] * 100), group(*[5_000_000] * MERGED_AT_ONCE)
    assert counts(affordable([small, small], 10 * OPEN_BYTES * 100)) == [100, 100]
    assert counts(affordable([small, small], 60 * OPEN_BYTES)) == [59]
    assert counts(affordable([large, small], 60 * OPEN_BYTES)) == [59]
    assert counts(affordable([large, large], 2**40)) == [MERGED_AT_ONCE] * 2
    assert affordable([], 2**40) == []


def test_a_few_tiny_files_are_merged_however_short_the_time_is() -> None:
    assert counts(affordable([group(*[100_000] * 64)] * 2, 1)) == [MERGED_AT_ONCE]
    assert affordable([group(*[LEAST_COST // 10] * MERGED_AT_ONCE)], 1) == []
