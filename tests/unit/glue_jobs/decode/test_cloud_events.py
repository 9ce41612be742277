"""CloudEvents as the specification has them, and the job and `calve verify` open any record alike."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from calve.decoding.decode_plan import event_columns
from calve.schema.columns import HEADERS
from cli.verify import topic
from cli.verify.formats.cloud_events import Events
from cli.verify.formats.fields import Unreadable
from glue_jobs.columns.arrow_types import arrow_type
from glue_jobs.columns.buffers import spans_of
from glue_jobs.decode.machines.cloud_events import fault, opened

COLUMN = arrow_type(event_columns("event"))[0]
Header = tuple[str, bytes | None]
Record = tuple[bytes | None, list[Header]]
BASE = {"specversion": "1.0", "id": "7", "source": "/shop", "type": "sold"}
NAMED: list[Header] = [(f"ce_{name}", text.encode()) for name, text in BASE.items()]
STRUCTURED: list[Header] = [("content-type", b"application/cloudevents+json; charset=UTF-8")]
BAD = "bad"


def structured(**members: Any) -> Record:
    return json.dumps(BASE | members).encode(), STRUCTURED


def raw(text: str) -> Record:
    return f'{{"specversion":"1.0","source":"/shop","type":"sold",{text}}}'.encode(), STRUCTURED


def by_job(records: list[Record], *, framed: bool = False) -> list[Any]:
    """Of each record its data and attributes; or why it is no event."""
    values = pa.array([value for value, _ in records], pa.binary())
    lists = [[{"key": name, "value": value} for name, value in headers] or None for _, headers in records]
    found = opened(spans_of(values), pa.array(lists, arrow_type(HEADERS)), framed=framed)
    made: list[Any] = [None] * len(records)
    for record, code in zip(found.bad.tolist(), found.codes.tolist(), strict=True):
        made[record] = fault(code)
    spans = found.spans
    for record, attributes in zip(spans.records.tolist(), found.column.to_pylist(), strict=True):
        at, size = spans.places[record], spans.sizes[record]
        made[record] = None if size < 0 else spans.data[at : at + size].tobytes(), attributes
    return made


def by_verify(records: list[Record], *, framed: bool = False) -> list[Any]:
    events = Events(COLUMN, framed=framed, read=True)
    values = [value for value, _ in records]
    held: list[Any] = [headers or None for _, headers in records]
    found = events.of(topic.Records(keys=values, values=values, headers=held), values)
    array = events.array([None if isinstance(each, Unreadable) else each[1] for each in found])
    made = zip(found, array.to_pylist(), strict=True)
    return [BAD if isinstance(each, Unreadable) else (each[0], fields) for each, fields in made]


def attributes(**more: Any) -> dict[str, Any]:
    return {each.name: None for each in COLUMN.type} | BASE | more


GOOD: list[tuple[Record, tuple[bytes | None, dict[str, Any] | None]]] = [
    ((b"\x00\xff", NAMED), (b"\x00\xff", attributes())),
    (
        (
            b"7",
            [*NAMED, ("content-type", b"application/json"), ("ce_traceparent", b"00-a"), ("other", b"\xff")],
        ),
        (b"7", attributes(datacontenttype="application/json", extensions=[("traceparent", "00-a")])),
    ),
    (
        (b"", [*NAMED, ("ce_time", b"2026-11-02T10:00:00.123456789+02:00"), ("ce_id", b"8")]),
        (b"", attributes(id="8", time=datetime(2026, 11, 2, 8, 0, 0, 123456, UTC))),
    ),
    ((b"", [*NAMED, ("ce_x", b"\xff"), ("ce_x", None), ("ce_id", b"8")]), (b"", attributes(id="8"))),
    ((None, NAMED), (None, attributes())),
    ((None, []), (None, None)),
    ((None, STRUCTURED), (None, None)),
    (structured(data={"a": [1, None]}), (b'{"a": [1, None]}'.replace(b"None", b"null"), attributes())),
    (structured(), (None, attributes())),
    (structured(data=None, subject=None, x=None), (None, attributes())),
    (
        structured(data="a\n", datacontenttype="text/plain"),
        (b"a\n", attributes(datacontenttype="text/plain")),
    ),
    (structured(data="a"), (b'"a"', attributes())),
    (
        (
            structured(data=1)[0],
            [*NAMED, ("ce_x", b"1"), ("content-type", b"Application/CloudEvents+JSON \t")],
        ),
        (b"1", attributes()),
    ),
    (
        structured(data="a", datacontenttype="Application/X+JSON ;v=1"),
        (b'"a"', attributes(datacontenttype="Application/X+JSON ;v=1")),
    ),
    (
        structured(**{f"x{n:03}": "" for n in range(99, -1, -1)}),
        (None, attributes(extensions=[(f"x{n:03}", "") for n in range(100)])),
    ),
    (structured(data_base64="AAH/"), (b"\x00\x01\xff", attributes())),
    (
        raw('"\\u0069d":"\\u20ac\\/", "n": 1.50, "t":true,"data" : 1e2 '),
        (b"1e2", attributes(id="€/", extensions=[("n", "1.50"), ("t", "true")])),
    ),
]


@pytest.mark.parametrize(("record", "wanted"), GOOD)
def test_good_events(record: Record, wanted: Any) -> None:
    assert by_job([record]) == by_verify([record]) == [wanted]


def test_good_events_of_both_kinds_in_one_batch() -> None:
    """The order of the extensions' rows is that of the records, whatever kinds follow each other."""
    for some in (GOOD, GOOD[::-1]):
        given = [record for record, _ in some]
        assert by_job(given) == by_verify(given) == [wanted for _, wanted in some]


NO_HEADER = "it has no header ce_id, and no header content-type that says application/cloudevents+json"
OTHER_FORMAT = "the header content-type names another event format than application/cloudevents+json"
NOT_ONE = "the value is not one JSON object, although the header content-type says so"


@pytest.mark.parametrize(
    ("record", "why"),
    [
        ((b"1", []), NO_HEADER),
        ((b"1", [("ce_x", b"1"), ("content-type", b"application/json")]), NO_HEADER),
        ((b"1", [("ce_type", b"sold")]), '"id" is missing'),
        ((b"1", [*NAMED, ("ce_source", b"")]), '"source" is missing'),
        ((b"1", [*NAMED, ("ce_type", None)]), '"type" is missing'),
        ((b"1", [*NAMED, ("ce_subject", b"\xff")]), '"subject" is not UTF-8'),
        ((b"1", [*NAMED, ("ce_x", b"\xff")]), "an extension is not UTF-8"),
        ((b"1", [*NAMED, ("ce_time", b"yesterday")]), '"time" is not a time by RFC 3339'),
        ((b"", STRUCTURED), NOT_ONE),
        ((b"[]", STRUCTURED), NOT_ONE),
        (raw('"id":"7"}, {'), NOT_ONE),
        (raw('"id":"7",'), NOT_ONE),
        (raw('"id":"7","data":[1,]'), NOT_ONE),
        (raw('"id":"7","data":NaN'), NOT_ONE),
        (raw('"id":"\\ud800"'), NOT_ONE),
        (raw('"id":7'), '"id" is not a text'),
        (raw('"id":"7","subject":{}'), '"subject" is not a text'),
        (raw('"id":"7","x":[1]'), "an extension is not a text"),
        (raw('"id":"7","id":null'), '"id" is there twice'),
        (raw('"id":"7","x":null,"x":1'), "an extension is there twice"),
        (structured(**{f"x{n}": "" for n in range(101)}), "it has more than 100 extensions"),
        ((b"1", [*NAMED, *[("ce_x", None)] * 101]), "it has more than 100 extensions"),
        (structured(data=1, data_base64="AA=="), "both data and data_base64 are there"),
        (structured(data_base64="AA"), '"data_base64" is not Base64'),
        ((b"{}", [("content-type", b"application/cloudevents-batch+json")]), OTHER_FORMAT),
        ((structured()[0], [("content-type", b"application/cloudevents+json2")]), OTHER_FORMAT),
    ],
)
def test_bad_events(record: Record, why: str) -> None:
    assert by_job([record, GOOD[0][0]]) == [why, GOOD[0][1]]
    assert by_verify([record]) == [BAD]


def test_a_structured_event_has_no_schema_of_the_registry() -> None:
    [job], [verify] = (by([structured(data=1)], framed=True) for by in (by_job, by_verify))
    assert (job, verify) == (
        "a structured event cannot have a schema of the registry: only binary events are read here",
        BAD,
    )


NAMES = st.sampled_from(["id", "source", "type", "time", "x", "data", "data_base64", "datacontenttype", ""])
TEXTS = st.sampled_from(
    ["", "7", "2026-11-02T10:00:00Z", "AA==", "text/plain", "a/json", "é", "\ud83d\ude00"]
)
HEADER_NAMES = st.one_of(
    st.just("content-type"), NAMES.map("ce_{}".format), st.sampled_from(["ce_specversion", "c", "ce"])
)
HELD = st.one_of(
    st.none(),
    TEXTS.map(lambda text: text.encode(errors="replace")),
    st.just(b"\xff"),
    st.just(STRUCTURED[0][1]),
)
MEMBERS = st.lists(
    st.tuples(
        NAMES, st.one_of(TEXTS, st.none(), st.booleans(), st.integers(), st.floats(), st.just([{"a": 1}]))
    ),
    max_size=5,
)


@st.composite
def events(draw: st.DrawFn) -> Record:
    base = draw(st.sampled_from([NAMED, STRUCTURED, []]))
    headers = [*base, *draw(st.lists(st.tuples(HEADER_NAMES, HELD), max_size=3))]
    if base is not STRUCTURED:
        return draw(st.one_of(st.none(), st.binary(max_size=4))), headers
    members = [*BASE.items(), *draw(MEMBERS)]
    if draw(st.booleans()):
        members = members[draw(st.integers(0, 4)) :]
    blank = draw(st.sampled_from(["", " ", "\n"]))
    text = f",{blank}".join(f"{json.dumps(name)}{blank}:{json.dumps(value)}" for name, value in members)
    value = f"{blank}{{{blank}{text}{blank}}}{blank}".encode()
    if draw(st.integers(0, 3)) == 0:  # one byte otherwise
        place = draw(st.integers(0, len(value) - 1))
        value = value[:place] + draw(st.binary(max_size=2)) + value[place + 1 :]
    return value, headers


@given(records=st.lists(events(), max_size=8))
@example(records=[(b"{}", [("content-type", b"\xff")])])
def test_the_job_and_verify_open_any_record_alike(records: list[Record]) -> None:
    made = [BAD if isinstance(each, str) else each for each in by_job(records)]
    assert made == by_verify(records)
