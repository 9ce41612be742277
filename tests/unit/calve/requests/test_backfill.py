"""Which offsets a backfill makes anew."""

from __future__ import annotations

from dataclasses import replace

import pytest

from calve.config.job import Start
from calve.errors import CalveError
from calve.requests.time_travel import BackfillRequest, range_of, remade_json
from calve.table.protocol import Commit
from calve.table.summary import BACKFILL, REMADE, remade_of


def test_a_range_is_what_both_ends_name_and_the_table_has_read() -> None:
    held, begins = {0: 10, 1: 10, 2: 10}, {0: 0, 1: 0, 2: 9}
    assert range_of({0: 3, 1: 4}, {0: 8, 2: 9}, held=held, log_start=begins) == {0: (3, 8)}
    assert range_of({0: 3}, {0: 80}, held=held, log_start=begins) == {0: (3, 10)}
    assert range_of({0: 3, 1: 10, 9: 1}, {0: 9, 1: 99, 9: 9}, held=held, log_start=begins) == {0: (3, 9)}


@pytest.mark.parametrize(("start", "to"), [({0: 10}, {0: 12}), ({0: 3}, {0: 3}), ({5: 0}, {5: 3}), ({}, {})])
def test_a_range_without_records_of_the_table_is_refused(start: dict[int, int], to: dict[int, int]) -> None:
    with pytest.raises(CalveError, match="has read no records"):
        range_of(start, to, held={0: 10}, log_start={0: 0})


def test_a_range_that_the_topic_no_longer_holds_is_refused() -> None:
    with pytest.raises(CalveError, match="partition 0 begins at 4"):
        range_of({0: 3}, {0: 8}, held={0: 10}, log_start={0: 4})


def test_what_is_stored_is_read_as_it_was_meant() -> None:
    request = BackfillRequest("id", "at", "ann", Start("offsets", offsets={0: 3}), Start("timestamp", 7))
    assert BackfillRequest.pending({BACKFILL: request.to_json()}) == request
    assert BackfillRequest.pending({}) is None
    for unknown in ("[]", "{}", "no json", '{"start": {}, "to": 3}', '{"start": 1, "to": 3}'):
        with pytest.raises(ValueError, match=r"."):
            BackfillRequest.pending({BACKFILL: unknown})
    assert remade_of({REMADE: remade_json({1: (3, 8), 0: (0, 2)})}) == {0: (0, 2), 1: (3, 8)}
    assert remade_of({}) == {}


def test_a_request_that_a_commit_names_is_done() -> None:
    line = [Commit(2, 1, {}), Commit(1, None, {BACKFILL: "a"})]
    asked = BackfillRequest("a", "at", "ann", Start("offsets"), Start("offsets"))
    assert asked.done_by(line) == line[1]
    assert replace(asked, id="b").done_by(line) is None
