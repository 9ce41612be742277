import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glue_jobs.engines.columnar.tasks import RANKS, Ages

MOMENTS = st.lists(st.integers(-(2**62), 2**62), min_size=1, max_size=50)


@given(st.lists(MOMENTS, min_size=1, max_size=5), st.sampled_from([0.05, 0.5]))
def test_few_records_are_remembered_each(chunks: list[list[int]], share: float) -> None:
    found = Ages.together(Ages.of(np.array(chunk, np.int64)) for chunk in chunks).percentile(share)
    every = sorted(moment for chunk in chunks for moment in chunk)
    assert found == next(m for n, m in enumerate(every, 1) if n >= share * len(every) * (1 - 1e-9))


@pytest.mark.parametrize("share", [0.05, 0.5])
def test_of_many_a_percentile_is_that_of_a_rank_at_most_a_two_hundredth_away(share: float) -> None:
    chance = np.random.default_rng(7)
    chunks = [chance.integers(0, 10**6, size) for size in (100_000, 65_536, 300, 7_000)]
    tasks = (Ages.together(map(Ages.of, part)).thinned() for part in (chunks[:2], chunks[2:]))
    ages = Ages.together(tasks)
    assert len(ages.timestamps) <= 2 * RANKS
    every = np.sort(np.concatenate(chunks))
    rank = np.searchsorted(every, ages.percentile(share) or 0)
    assert abs(rank / len(every) - share) <= 1 / 200


def test_no_records_have_no_age() -> None:
    assert Ages.together(()).percentile(0.5) is None
