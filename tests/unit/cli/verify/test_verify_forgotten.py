"""Places of forgotten records, as `verify` takes them from the audit."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from calve.requests.forget import Entry, places_of, to_json
from calve.table.position import TopicKey
from calve.table.summary import FORGOTTEN
from cli.verify.rows import Forgotten, Spots
from tests.unit.cli.verify.test_verify_fold import Record, made

TOPIC, OTHER = TopicKey("c", "t"), TopicKey("c", "made again")
spots = st.sets(st.tuples(st.integers(0, 2), st.integers(0, 20)))


@given(spots, st.lists(st.tuples(st.integers(0, 3), st.integers(0, 22)), max_size=40))
def test_a_place_is_found_where_it_was_noted(
    noted: set[tuple[int, int]], asked: list[tuple[int, int]]
) -> None:
    found = Spots(places_of((TOPIC, *each) for each in noted), TOPIC)
    partitions, offsets = (np.array([each[n] for each in asked], np.int64) for n in (0, 1))
    assert found.masks(partitions, offsets).tolist() == [each in noted for each in asked]
    assert found.count == len(noted)


def test_the_entries_of_a_table_are_taken_together_for_each_incarnation_of_its_topic() -> None:
    entries = [
        Entry("a", "", "", row_places=places_of([(TOPIC, 0, 1)]), since={str(TOPIC): {0: 4}}),
        Entry("b", "", "", row_places=places_of([(TOPIC, 0, 2), (OTHER, 0, 9)])),
        Entry("c", "", "", letter_places=places_of([(TOPIC, 1, 5)])),
        Entry("d", "", "", problem="it could not be done"),
    ]
    found = Forgotten.of({FORGOTTEN: to_json(entries)}, TOPIC)
    assert list(found.rows.spans()) == [(0, 1, 3)]
    assert list(found.dead_letters.spans()) == [(1, 5, 6)]
    assert (found.requests, found.since) == (3, {0: 4})
    assert (found.rows.count, found.dead_letters.count) == (2, 1)
    assert Forgotten.of({}, TOPIC).requests == 0


def test_only_what_kafka_still_has_is_read_again() -> None:
    found = Spots(places_of((TOPIC, 0, offset) for offset in (1, 2, 3, 7)), TOPIC)
    assert list(found.within({0: (2, 5)})) == [{0: (2, 4)}]
    assert list(found.within({})) == []


def test_a_forgotten_row_leaves_no_older_one_in_its_place() -> None:
    records: list[Record] = [(1, None, False), (1, None, False), (2, None, False)]
    fold = made([(0, n, each) for n, each in enumerate(records)], ordered=False)
    assert fold.places() == {(0, 1), (0, 2)}
    fold.forgotten = Spots(places_of([(TOPIC, 0, 1)]), TOPIC)
    assert fold.places() == {(0, 2)}
