"""Values whose header names their schema: the kernel and `verify` join them alike, whatever the headers hold."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from calve.decoding.decode_plan import DecodePlan
from calve.schema.wire import BARE, GLUE, HEADERS
from cli.verify import topic
from cli.verify.formats.fields import CONFLUENT
from glue_jobs.kafka.batches import Batches, Span
from glue_jobs.kafka.records import named_array
from tests.record_batches import Record, written

NAMES = st.sampled_from([*HEADERS.values(), "__value_schema_i", "__value_schema_id2", ""])
HELD = st.one_of(
    st.none(),
    st.binary(max_size=20),
    st.builds(lambda magic, rest: magic + rest, st.sampled_from([b"\0", b"\1"]), st.binary(max_size=20)),
)
PARTS = st.one_of(st.none(), st.binary(max_size=8))
RECORDS = st.lists(st.tuples(PARTS, PARTS, st.lists(st.tuples(NAMES, HELD), max_size=4)), max_size=6)
Given = list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]]


@given(given=RECORDS)
def test_the_kernel_joins_header_and_value_as_verify_does(given: Given) -> None:
    records = [Record(n, value, key, tuple(headers)) for n, (key, value, headers) in enumerate(given)]
    batches = Batches.of(Span("t", 0, 0, max(1, len(records))), written(records) if records else b"", [])
    read = topic.Records(
        keys=[key for key, _, _ in given],
        values=[value for _, value, _ in given],
        headers=[headers or None for _, _, headers in given],
    )
    chunks = list(batches.records(1_000_000))
    assert sum(map(len, chunks)) == len(given)
    for chunk in chunks:
        for part in ("value", "key"):
            found, sizes, _ = named_array(chunk, part, DecodePlan((), wire=CONFLUENT))
            assert found.to_pylist() == CONFLUENT.of(read, part)
            received = read.values if part == "value" else read.keys
            assert sizes.tolist() == [-1 if each is None else len(each) for each in received]
            for wire in (BARE, GLUE):
                assert named_array(chunk, part, DecodePlan((), wire=wire))[0].to_pylist() == received
