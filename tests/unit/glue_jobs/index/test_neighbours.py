"""Which rows of a table of versions a batch may change, against a search row by row."""

from __future__ import annotations

import random

import numpy as np

from glue_jobs.index.versions import from_before, next_to

Rows = list[tuple[int, int]]


def near(rows: Rows, records: Rows, *, after: bool) -> set[int]:
    """The numbers of rows of the greatest order before a record, of its own order, and of the next, or all after the first."""
    found = set()
    for key, order in (
        records if not after else [(key, min(o for k, o in records if k == key)) for key, _ in records]
    ):
        before = max((o for k, o in rows if k == key and o < order), default=None)
        following = min((o for k, o in rows if k == key and o > order), default=None)
        for number, (k, o) in enumerate(rows):
            if k == key and (o in (before, order, following) or (after and o >= order)):
                found.add(number)
    return found


def test_every_row_that_a_record_may_change_is_found() -> None:
    dice = random.Random(5)
    for _ in range(300):
        rows, records = (
            [(dice.randrange(4), dice.randrange(9)) for _ in range(dice.randrange(1, 20))] for _ in range(2)
        )
        held, read = (
            (np.array([k for k, _ in each]), np.array([o for _, o in each])) for each in (rows, records)
        )
        assert near(rows, records, after=False) <= set(np.flatnonzero(next_to(held, read)).tolist())
        assert near(rows, records, after=True) == set(np.flatnonzero(from_before(held, read)).tolist())
