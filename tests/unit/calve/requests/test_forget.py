"""A request to forget somebody, what is noted of it, the audit record, and which columns tell a person."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calve.config.steps import Flatten, Mask, Rule, Step
from calve.requests.forget import (
    Condition,
    Entry,
    Found,
    Places,
    Request,
    began_at,
    column_problem,
    covers,
    masking_problem,
    places_of,
    position_after,
    to_json,
    united,
)
from calve.schema.columns import KAFKA, field, list_of, struct
from calve.table.position import TopicKey
from calve.table.protocol import Commit
from calve.table.summary import FORGET, FORGET_FOUND, FORGET_LEFT, FORGOTTEN, root
from tests.unit.calve.protocol_model.says import TOPIC, position

SCHEMA = struct(
    field("email", "string"),
    field("contact", struct(field("phone", "string"))),
    field("tags", list_of("string")),
    KAFKA,
)
places = st.lists(st.tuples(st.just(TOPIC), st.integers(0, 2), st.integers(0, 12))).map(places_of)


def test_a_request_is_read_as_it_was_written() -> None:
    request = Request("a", "2026-01-01T00:00:00+00:00", (Condition("email", "x"),), sealed="k1")
    assert Request.pending({FORGET: request.to_json()}) == request
    assert Request.pending({}) is None


def test_a_request_does_not_show_its_values() -> None:
    assert "hunter2" not in repr(Request("a", "b", (Condition("email", "hunter2"),)))


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"id": "hunter2", "where": [{"is": 1}]}'])
def test_what_is_no_request_is_an_error_that_quotes_nothing(text: str) -> None:
    with pytest.raises(ValueError, match="the request is not one") as caught:
        Request.pending({FORGET: text})
    assert caught.value.__context__ is None


def test_an_answer_counts_once_what_the_request_left_behind_is_gone() -> None:
    entry = Entry("a", "then", "now", rows=2, row_places=places_of([(TOPIC, 0, 4)]), since={"c/t": {0: 7}})
    properties = {FORGOTTEN: to_json([replace(entry, id="b"), entry])}
    assert Entry.of(properties, "a") == entry
    assert Entry.of(properties, "c") is None
    assert Entry.of(properties | {FORGET_LEFT: "a"}, "a") is None


def test_places_are_ranges() -> None:
    found = places_of([(TOPIC, 1, 3), (TOPIC, 0, 9), (TOPIC, 1, 2), (TOPIC, 1, 3), (TOPIC, 1, 5)])
    assert found == {str(TOPIC): {"0": [[9, 10]], "1": [[2, 4], [5, 6]]}}


@given(places, places)
def test_what_is_united_covers_both_and_is_written_as_one(these: Places, those: Places) -> None:
    both = united(these, those)
    assert covers(both, these)
    assert covers(both, those)
    assert united(those, these) == united(both, these) == both
    assert json.loads(json.dumps(both)) == both


def test_rows_that_were_found_before_are_not_counted_again() -> None:
    first = Found("a").with_rows(3, 2, places_of([(TOPIC, 0, 1), (TOPIC, 0, 2)]))
    noted = Found.of({FORGET_FOUND: first.with_exports(["m2", "m1", "m1"]).to_json()}, "a")
    assert noted.exports == ("m1", "m2")
    assert noted.with_rows(3, 2, places_of([(TOPIC, 0, 1), (TOPIC, 0, 2)])).rows == 3
    assert noted.with_rows(0, 0, {}) == noted
    assert noted.with_rows(1, 1, places_of([(TOPIC, 0, 7)])).rows == 4
    assert Found.of({FORGET_FOUND: first.to_json()}, "another") == Found("another")


def test_no_offset_moves_and_the_round_is_another() -> None:
    base = position("r1")
    after = position_after(base, round_id="x", writer="w")
    assert (after.round, after.writer, after.snapshot) == ("x", "w", None)
    assert replace(after, round=base.round, writer=base.writer, snapshot=base.snapshot) == base


def commits(*starts: dict[str, int]) -> list[Commit]:
    said = [
        {"calve.from": json.dumps({"c/t": each}), "calve.to": json.dumps({"c/t": {"0": 9}})}
        for each in starts
    ]
    return [Commit(n, n - 1, each) for n, each in reversed(list(enumerate(said, 2)))]


def test_where_a_table_began_is_told_by_its_history_or_by_what_was_noted() -> None:
    first = Commit(1, None, root(writer="", topic="t", round_id="0"))
    later = commits({"0": 3}, {"0": 5, "1": 0})
    assert began_at([*later, first], [], None) == {"c/t": {0: 3, 1: 0}}
    assert began_at(later, [], None) == {}
    noted = Entry("a", "", "", since={"c/t": {0: 2}})
    assert began_at(later, [noted, Entry("b", "", "")], None) == {"c/t": {0: 2, 1: 0}}


@pytest.mark.parametrize("column", ["email", "contact.phone", "_kafka.key"])
def test_a_column_with_a_single_value_tells_a_person(column: str) -> None:
    assert column_problem(SCHEMA, column) is None


@pytest.mark.parametrize(
    ("column", "problem"),
    [
        ("name", "the table has no column name"),
        ("contact", "contact is a struct"),
        ("tags", "tags is a list"),
        ("tags.element", "paths lead only through structs"),
        ("_kafka.headers", "_kafka.headers is a list"),
    ],
)
def test_any_other_column_tells_none(column: str, problem: str) -> None:
    assert problem in str(column_problem(SCHEMA, column))


def test_a_masked_column_tells_a_person_only_where_it_is_hashed() -> None:
    masked = Mask(
        fields={"email": Rule("hash"), "contact.phone": Rule("partial", 4)},
        tags={"PII": Rule("null")},
    )
    steps: tuple[Step, ...] = (masked, Flatten())
    tags = {"name": ("PII",), "email": ("PII",)}
    for column in ("email", "id", "_kafka.key"):
        assert masking_problem(steps, tags, column) is None
    assert "contact_phone is masked by partial" in str(masking_problem(steps, tags, "contact_phone"))
    assert "name is masked by null" in str(masking_problem(steps, tags, "name"))
    keyless = (replace(masked, key="null"),)
    assert "_kafka.key is masked by null" in str(masking_problem(keyless, {}, "_kafka.key"))


def test_incarnations_are_told_apart() -> None:
    other = TopicKey("c", "other")
    assert not covers(places_of([(TOPIC, 0, 1)]), places_of([(other, 0, 1)]))
