"""The proof of a table of another writer: offsets that are accepted are those where it stopped, whatever topic and table are."""

from __future__ import annotations

import json
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calve.errors import CalveError
from calve.schema.columns import field, struct
from cli.move.former import kind_of_event, place_columns
from cli.move.overlap import Place, RowsByContents


def judged(
    records: list[int], rows: list[int], to: int | None, *, first: int = 0, exact: bool = False
) -> Place:
    """records: contents of the topic's records from the offset `first` on."""
    table = RowsByContents(np.array(rows, np.uint64), exact=exact)
    offsets = np.arange(first, first + len(records))
    return table.judge(0, to, first, offsets, np.array(records, np.uint64))


@given(st.data(), st.lists(st.integers(0, 6), max_size=12))
def test_accepted_offsets_are_those_where_the_writer_stopped(data: st.DataObject, topic: list[int]) -> None:
    """The topic is whole; records may be alike."""
    stopped = data.draw(st.integers(0, len(topic)))
    proposed = data.draw(st.none() | st.integers(0, len(topic)))
    with suppress(CalveError):
        assert judged(topic, topic[:stopped], proposed).offset == stopped


@given(st.data(), st.permutations(range(12)))
def test_records_that_are_not_alike_prove_the_offset_after_expiry(
    data: st.DataObject, topic: list[int]
) -> None:
    stopped = data.draw(st.integers(0, len(topic)))
    first = data.draw(st.integers(0, len(topic)))
    proposed = data.draw(st.none() | st.integers(first, len(topic)))
    with suppress(CalveError):
        assert judged(topic[first:], topic[:stopped], proposed, first=first).offset == stopped


@given(st.data(), st.permutations(range(12)))
def test_rows_that_the_writer_lost_or_doubled_move_no_offset(data: st.DataObject, topic: list[int]) -> None:
    kept = data.draw(st.lists(st.sampled_from(topic), max_size=14))
    proposed = data.draw(st.none() | st.integers(0, len(topic)))
    held = [place for place, each in enumerate(topic) if each in kept]
    with suppress(CalveError):
        found = judged(topic, kept, proposed)
        assert found.offset == (held[-1] + 1 if held else 0)
        assert found.missing == found.offset - len(held)


@pytest.mark.parametrize("proposed", [3, None])
def test_a_plain_case_is_accepted(proposed: int | None) -> None:
    assert judged([4, 5, 6, 7], [4, 5, 6], proposed) == Place(0, 3, 3, 0)


@pytest.mark.parametrize(
    ("records", "rows", "to", "why"),
    [
        ([4, 5, 6], [4, 5], 3, "does not have the record of offset 2,"),
        ([4, 5, 6], [], 3, "no record before it"),
        ([4, 5, 6], [4, 5], 1, "has the record of offset 1,"),
        ([4, 5, 4], [4, 5], 2, "has the record of offset 2,"),
        ([4, 5, 4], [4, 5], 3, "does not have the record of offset 2,"),
        ([4, 4], [4], 1, "has the record of offset 1,"),
        ([4, 5], [4, 4, 5, 5], 2, "exactly once"),
    ],
)
def test_why_an_offset_is_refused(records: list[int], rows: list[int], to: int, why: str) -> None:
    with pytest.raises(CalveError, match=why):
        judged(records, rows, to)


def test_offsets_of_the_writer_itself_need_no_record_that_retention_deleted() -> None:
    assert judged([7], [4, 5], 2, first=2, exact=True) == Place(0, 2, 0, 0)
    for proposed in (2, None):
        with pytest.raises(CalveError, match="no longer holds"):
            judged([7], [4, 5], proposed, first=2)


def test_a_layout_counts_only_as_a_whole() -> None:
    nested = struct(field("partition", "int"), field("offset", "long"))
    assert place_columns(struct(field("$$partition", "int"))) is None
    assert place_columns(struct(field("_kafka_metadata", "string"))) is None
    found = place_columns(struct(field("_kafka_metadata", nested)))
    assert found is not None
    assert (found.writer, found.topic) == ("AutoMQ", None)


@pytest.mark.parametrize("event", [b"", b"{}", b"\xc2\x01\x00\x05{}", b"\xc2\x01\x00\x02[]"])
def test_other_bytes_are_no_event(event: bytes) -> None:
    assert kind_of_event(event) is None


def test_an_event_names_its_kind_in_its_schema() -> None:
    payload = {"type": "record", "name": "org.apache.iceberg.connect.events.DataWritten", "fields": []}
    schema = json.dumps({"type": "record", "fields": [{"name": "payload", "type": payload}]}).encode()
    assert kind_of_event(b"\xc2\x01" + len(schema).to_bytes(2, "big") + schema + b"...") == "DataWritten"
