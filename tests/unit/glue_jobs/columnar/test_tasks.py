"""How a round becomes tasks, and how these tell of errors."""

import pickle

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calve.config.masking_keys import Key
from calve.errors import CalveError, ConfigError, Fatal, LostRace, Retryable, Suspended
from calve.secrets import Redacted
from glue_jobs.engines.columnar.engine import tasks_for
from glue_jobs.engines.columnar.tasks import Work
from glue_jobs.kafka.connection import Access
from glue_jobs.kafka.fetching import planned
from glue_jobs.process.workers import TaskError

SPANS = st.dictionaries(
    st.integers(0, 20), st.tuples(st.integers(0, 10**6), st.integers(0, 10**5)), min_size=1
)


@given(SPANS, st.integers(1, 8))
def test_parts_are_of_one_size_and_hold_every_offset_once(
    spans: dict[int, tuple[int, int]], tasks: int
) -> None:
    start = {p: first for p, (first, _) in spans.items()}
    parts = planned(start, {p: first + size for p, (first, size) in spans.items()}, tasks)
    ranges = sorted((r.partition, r.start, r.to) for part in parts for r in part)
    held = {(p, start[p], start[p]) for p in start}
    for partition, first, to in ranges:
        assert first < to
        held.remove((partition, start[partition], first))
        held.add((partition, start[partition], to))
    assert held == {(p, first, first + size) for p, (first, size) in spans.items()}
    assert len(parts) <= tasks
    sizes = [sum(r.to - r.start for r in part) for part in parts]
    assert len(set(sizes[:-1])) <= 1
    assert not sizes or sizes[-1] <= sizes[0]
    assert all(len({r.partition for r in part}) == len(part) for part in parts)


def test_partitions_of_the_same_size_stay_whole() -> None:
    parts = planned(dict.fromkeys(range(6), 0), dict.fromkeys(range(6), 100), 2)
    assert [[(r.partition, r.start, r.to) for r in part] for part in parts] == [
        [(0, 0, 100), (1, 0, 100), (2, 0, 100)],
        [(3, 0, 100), (4, 0, 100), (5, 0, 100)],
    ]


def test_there_are_no_more_tasks_than_cores_and_none_for_a_few_bytes() -> None:
    assert [tasks_for(size, 4) for size in (0.0, 10e6, 40e6, 1e9)] == [1, 1, 2, 4]


@pytest.mark.parametrize(
    "error",
    [
        Suspended("offsets_expired", "they are gone", fix="look"),
        Retryable("no answer"),
        Fatal("no", fix="yes"),
        ConfigError("no"),
        LostRace("no"),
    ],
)
def test_an_error_of_calves_comes_back_as_it_was(error: CalveError) -> None:
    again = pickle.loads(pickle.dumps(TaskError.of(error))).error()
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert getattr(again, "code", None) == getattr(error, "code", None)


def test_of_any_other_error_the_text_is_not_told() -> None:
    with pytest.raises(pa.ArrowInvalid) as caught:
        pa.array(["4111 1111 1111 1111"]).cast(pa.int32())
    assert "4111" in str(caught.value)
    told = str(TaskError.of(caught.value).error())
    assert told.startswith("ArrowInvalid at ")
    assert "4111" not in told


def test_work_shows_no_secret() -> None:
    access = Access(Redacted({"sasl_plain_password": "hush"}), "key-1")
    work = Work(access, "t", "id", None, None, None, "s3://b/f", keys=(Key("k", 0, b"hush"),))  # type: ignore[arg-type]
    assert "hush" not in repr(work)
