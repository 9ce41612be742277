"""Which commits prove which offsets: overlaps are one group, a backfill replaces, and counts say what differs."""

from __future__ import annotations

import numpy as np
import pytest

from calve.table.digests import Claimed, RoundDigest
from cli.verify.digests import AGED, CHANGED, CHECK, SHOWN, Group, Groups, _judged, grouped


def added(
    number: int, start: int, end: int, *, replaces: bool = False, digest: int | None = 10
) -> RoundDigest:
    return RoundDigest(f"r{number}", number, 0.0, {0: Claimed(start, end, end - start, digest)}, replaces)


def ranges(*digests: RoundDigest) -> list[tuple[int, int, int, int | None]]:
    return [(each.start, each.end, each.rows, each.digest) for each in grouped(digests).get(0, [])]


def test_rounds_are_groups_of_their_own_and_overlapping_ones_are_one() -> None:
    assert ranges(added(1, 0, 5), added(2, 5, 9)) == [(0, 5, 5, 10), (5, 9, 4, 10)]
    assert ranges(added(1, 0, 5), added(2, 5, 9), added(3, 3, 6)) == [(0, 9, 12, 30)]
    assert ranges(added(1, 0, 9), added(2, 2, 4), added(3, 9, 12)) == [(0, 9, 11, 20), (9, 12, 3, 10)]
    assert ranges(added(1, 0, 5), added(2, 4, 9, digest=None)) == [(0, 9, 10, None)]
    assert ranges(added(1, 0, 5, digest=2**64 - 1), added(2, 4, 9, digest=3)) == [(0, 9, 10, 2)]


def test_many_differences_are_counted() -> None:
    groups = Groups(grouped([added(n, n, n + 1) for n in range(SHOWN + 5)])[0], to=1_000)
    (check,), findings = _judged({0: groups}, {}, 0)
    assert (check.state, len(findings)) == ("failed", SHOWN + 1)
    assert findings[-1].message == "5 more ranges differ"


def test_a_backfill_replaces_the_rounds_inside_of_it_and_opens_those_across_its_ends() -> None:
    rounds = [added(1, 0, 5), added(2, 5, 9), added(3, 9, 12)]
    assert ranges(*rounds, added(4, 5, 9, replaces=True, digest=7)) == [
        (0, 5, 5, 10),
        (5, 9, 4, 7),
        (9, 12, 3, 10),
    ]
    assert ranges(*rounds, added(4, 4, 9, replaces=True, digest=7)) == [(0, 9, 10, None), (9, 12, 3, 10)]
    assert ranges(*rounds, added(4, 0, 12, replaces=True, digest=7)) == [(0, 12, 12, 7)]


def test_rows_are_counted_where_they_belong() -> None:
    groups = Groups(grouped([added(1, 2, 5), added(2, 8, 9)])[0], to=9)
    groups.add(np.array([2, 4, 3, 3, 0, 6, 8, 9, 100]), np.arange(9, dtype=np.uint64))
    assert [(each.found, each.sum) for each in groups.counted()] == [(4, 0 + 1 + 2 + 3), (1, 6)]
    assert (groups.uncovered, groups.beyond) == (2, 2)
    nothing = Groups([], to=0)
    nothing.add(np.array([0]), np.array([1], np.uint64))
    assert (nothing.uncovered, nothing.beyond) == (0, 1)


@pytest.mark.parametrize(
    ("found", "total", "aged", "outcome"),
    [
        (3, 10, 0, CHECK),
        (3, 11, 0, "rows of round r1 of 1970-01-01 00:00:00 UTC have other values now"),
        (3, 11, 9, "rows of round r1 of 1970-01-01 00:00:00 UTC have other values now"),
        (2, 10, 0, "round r1 of 1970-01-01 00:00:00 UTC added 3 rows, the table has 2"),
        (2, 10, 3, AGED),
        (4, 10, 3, "round r1 of 1970-01-01 00:00:00 UTC added 3 rows, the table has 4"),
    ],
)
def test_what_differs_is_said(found: int, total: int, aged: int, outcome: str) -> None:
    (group,) = grouped([added(1, 2, 5)])[0]
    group.found, group.sum = found, total
    assert group.outcome(aged) == outcome


def test_a_group_without_a_digest_is_open() -> None:
    assert Group(0, 1, 1, None, [added(1, 0, 1)]).outcome(0) == CHANGED
