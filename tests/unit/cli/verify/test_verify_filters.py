"""What `calve verify` makes of records that rounds say belong to other tables."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from calve.table.position import Ledger, TopicKey
from cli.verify.claim import Round
from cli.verify.counts import FURTHER, Filters
from cli.verify.formats.fields import CONFLUENT, GLUE, Framing
from cli.verify.topic import Records

TOPIC = TopicKey("cluster", "topic")
SPANS = {0: (0, 20)}
SUBJECTS = {5: ["orders"], 7: ["payments"], 8: ["audits"], 9: ["orders", "audits"]}
UUIDS = {number: UUID(int=number) for number in SUBJECTS}


def round_(snapshot: int, start: int, to: int, schemas: dict[str, int], more: int = 0) -> Round:
    ledger = Ledger(filtered=sum(schemas.values()) + more, filtered_schemas=schemas)
    return Round(TOPIC, {0: start}, {0: to}, ledger, snapshot=snapshot)


def filters(
    *rounds: Round, complete: bool = True, shared: bool = True, framing: Framing = CONFLUENT
) -> Filters:
    return Filters(
        rounds,
        complete,
        framing,
        subjects_of=lambda frame: SUBJECTS.get(framing.schema_id(frame)),
        ours=lambda subjects: [each for each in subjects if each == "orders"],
        shared=shared,
    )


def records(**values: bytes | None) -> Records:
    """`at_3=b"..."`: the record at offset 3."""
    size = len(values)
    return Records(
        partitions=[0] * size,
        offsets=[int(name[3:]) for name in values],
        timestamp_types=[0] * size,
        timestamps_ms=[0] * size,
        keys=[None] * size,
        values=list(values.values()),
        headers=[None] * size,
    )


def value(schema_id: int) -> bytes:
    return b"\x00" + schema_id.to_bytes(4, "big") + b"payload"


def left(found: Filters, **values: bytes | None) -> list[int]:
    """The offsets of the records that are the table's."""
    made = records(**values)
    others = found.places(made)
    found.take(made, others)
    return made.without(others).offsets


def test_as_many_as_the_rounds_say_are_proved_and_are_no_rows() -> None:
    found = filters(round_(2, 10, 20, {"8": 1}), round_(1, 0, 10, {"7": 2, "8": 1}))
    mixed = {
        "at_1": value(7),
        "at_2": value(5),
        "at_3": None,
        "at_4": value(8),
        "at_5": b"\x00",
        "at_6": value(7),
    }
    assert left(found, **mixed, at_12=value(8), at_13=value(404)) == [2, 3, 5, 13]
    assert list(found.findings(SPANS, compacted=False)) == []
    (check,) = found.checks(SPANS, compacted=False, failed=False)
    assert (check.state, check.figures) == ("proved", {"records": 4, "schema 7": 2, "schema 8": 2})


def test_other_messages_of_the_tables_own_schemas_are_no_rows_and_its_own_message_is_one() -> None:
    rounds = [round_(2, 10, 20, {"5": 1}), round_(1, 0, 10, {"7": 1})]
    found = replace(filters(*rounds), other=lambda value: value.endswith(b"else"))
    other = value(5) + b"else"
    assert left(found, at_1=value(7), at_2=value(5), at_3=other, at_11=other, at_12=value(5)) == [2, 3, 12]
    assert list(found.findings(SPANS, compacted=False)) == []
    left(found, at_13=other)
    assert [each.check for each in found.findings(SPANS, compacted=False)] == ["filtered"]


@pytest.mark.parametrize(
    "values",
    [
        {"at_3": value(7)},
        {"at_3": value(7), "at_4": value(7), "at_5": value(7)},
        {"at_3": value(7), "at_4": value(8)},
    ],
    ids=["fewer", "more", "of another schema"],
)
def test_another_number_than_the_round_says_is_a_finding(values: dict[str, bytes | None]) -> None:
    found = filters(round_(1, 0, 20, {"7": 2}))
    left(found, **values)
    (finding,) = found.findings(SPANS, compacted=False)
    assert finding.check == "filtered"
    assert "snapshot 1 says that it left 2 of schema 7 to other tables" in finding.message


def test_a_record_of_another_table_that_its_round_did_not_filter_is_not_explained_away() -> None:
    found = filters(round_(2, 10, 20, {}), round_(1, 0, 10, {"7": 1}))
    assert left(found, at_3=value(7), at_12=value(7), at_4=value(8)) == [12, 4]
    assert found.foreign(value(7)[:5])
    assert not found.foreign(value(5)[:5])
    assert not found.foreign(value(9)[:5])
    assert not found.foreign(value(404)[:5])


@pytest.mark.parametrize("schema_id", [5, 9])
def test_records_of_the_tables_own_schemas_must_not_be_filtered(schema_id: int) -> None:
    found = filters(round_(1, 0, 20, {str(schema_id): 1}))
    left(found, at_3=value(schema_id))
    (finding,) = found.findings(SPANS, compacted=False)
    assert (
        f"left 1 records of schema {schema_id} to other tables; the schema is of subject orders"
        in finding.message
    )


def test_beyond_the_schemas_that_a_ledger_names_the_registry_tells_them() -> None:
    found = filters(round_(1, 0, 20, {"7": 1}, more=2))
    assert left(found, at_1=value(7), at_2=value(8), at_3=value(8), at_4=value(5)) == [4]
    assert list(found.findings(SPANS, compacted=False)) == []
    (check,) = found.checks(SPANS, compacted=False, failed=False)
    assert check.figures == {"records": 3, f"schema {FURTHER}": 2, "schema 7": 1}


def test_what_kafka_has_let_go_cannot_be_proved() -> None:
    found = filters(round_(1, 0, 20, {"7": 3}))
    left(found, at_15=value(7))
    late = {0: (10, 20)}
    assert list(found.findings(late, compacted=False)) == []
    *_, check = found.checks(late, compacted=False, failed=False)
    assert (check.name, check.state, check.figures["records"]) == ("filtered earlier", "not verifiable", 2)


def test_where_ledgers_have_expired_records_of_other_tables_are_not_verifiable() -> None:
    found = filters(round_(2, 10, 20, {}), complete=False)
    assert left(found, at_3=value(7), at_4=value(5)) == [4]
    (check,) = found.checks(SPANS, compacted=False, failed=False)
    assert (check.name, check.figures["records"]) == ("of other tables", 1)


def test_a_table_that_shares_its_topic_with_none_asks_the_registry_for_nothing() -> None:
    def asked(_: bytes) -> list[str]:
        raise AssertionError

    found = Filters([round_(1, 0, 20, {})], subjects_of=asked)
    assert left(found, at_3=value(7)) == [3]


def test_schemas_of_glue_are_told_by_their_uuid_whether_compressed_or_not() -> None:
    found = filters(round_(1, 0, 20, {str(UUIDS[7]): 2}), framing=GLUE)
    values = {f"at_{n}": start + UUIDS[7].bytes + b"x" for n, start in enumerate(GLUE.magics)}
    assert left(found, **values, at_9=b"\x03\x00" + UUIDS[5].bytes) == [9]
    assert list(found.findings(SPANS, compacted=False)) == []
