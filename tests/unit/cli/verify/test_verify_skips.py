"""What `calve verify` makes of records that rounds say they skipped."""

from __future__ import annotations

import pytest

from calve.table.position import Ledger, TopicKey
from cli.verify.claim import Round
from cli.verify.counts import BY_SCHEMA, Skips
from cli.verify.topic import Records

TOPIC = TopicKey("cluster", "topic")
SPANS = {0: (0, 20)}


def round_(
    snapshot: int, start: int, to: int, skipped: dict[str, int], schemas: dict[str, int] | None = None
) -> Round:
    ledger = Ledger(skipped=skipped, skipped_schemas=schemas or {})
    return Round(TOPIC, {0: start}, {0: to}, ledger, snapshot=snapshot)


def skips(*rounds: Round, complete: bool = True) -> Skips:
    return Skips(rounds, complete)


def take(found: Skips, **offsets: str) -> list[bool]:
    """`at_3="malformed"`: the record at offset 3 cannot be decoded."""
    return [found.take((0, int(name[3:])), reason) for name, reason in offsets.items()]


def test_as_many_as_a_round_says_are_proved() -> None:
    found = skips(round_(2, 10, 20, {"malformed": 1}), round_(1, 0, 10, {"malformed": 2, "bad_magic": 1}))
    assert take(found, at_3="malformed", at_4="bad_magic", at_9="malformed", at_10="malformed") == [True] * 4
    assert list(found.findings(SPANS, compacted=False)) == []
    (check,) = found.checks(SPANS, compacted=False, failed=False)
    assert (check.state, check.figures) == ("proved", {"records": 4, "bad_magic": 1, "malformed": 3})


def test_nothing_skipped_is_no_check() -> None:
    found = skips(round_(1, 0, 20, {}))
    assert take(found, at_3="malformed") == [False]
    assert list(found.checks(SPANS, compacted=False, failed=False)) == []
    assert list(found.findings(SPANS, compacted=False)) == []


@pytest.mark.parametrize(
    "records",
    [
        {"at_3": "malformed"},
        {"at_3": "malformed", "at_4": "malformed", "at_5": "malformed"},
        {"at_3": "malformed", "at_4": "bad_magic"},
        {"at_3": "malformed", "at_4": "unknown_schema_id"},
        {},
    ],
    ids=["fewer", "more", "of another reason", "for its schema", "none"],
)
def test_another_number_than_the_round_says_is_a_finding(records: dict[str, str]) -> None:
    found = skips(round_(1, 0, 10, {"malformed": 2}))
    assert all(take(found, **records))
    (finding,) = found.findings(SPANS, compacted=False)
    assert finding.check == "skipped"
    assert "snapshot 1 says that it skipped 2 malformed" in finding.message


def test_a_schema_that_was_unknown_then_may_be_incompatible_now() -> None:
    found = skips(round_(1, 0, 10, {"unknown_schema_id": 1, "incompatible_schema": 1}))
    assert all(take(found, at_3="incompatible_schema", at_4="incompatible_schema"))
    assert list(found.findings(SPANS, compacted=False)) == []


def test_what_was_skipped_for_its_schema_is_known_by_the_schemas_id_in_its_round_alone() -> None:
    found = skips(
        round_(2, 10, 20, {}),
        round_(1, 0, 10, {"unknown_schema_id": 2}, {"7": 2, "-1": 1}),
    )
    records = Records(
        partitions=[0, 0, 0, 0, 0, 0],
        offsets=[2, 3, 4, 12, 5, 6],
        values=[
            b"\0\0\0\0\x07x",
            b"\0\0\0\0\x08x",
            b"\0\0\0\0\x07",
            b"\0\0\0\0\x07",
            None,
            b"\0\xff\xff\xff\xff",
        ],
    )
    assert found.for_their_schema(records) == {0, 2, 5}
    assert all(take(found, at_2=BY_SCHEMA, at_4=BY_SCHEMA))
    assert list(found.findings(SPANS, compacted=False)) == []


def test_rounds_that_kafka_does_not_hold_whole_are_never_called_proved() -> None:
    found = skips(round_(1, 0, 10, {"malformed": 3}))
    assert all(take(found, at_6="malformed"))
    late = {0: (5, 20)}
    assert list(found.findings(late, compacted=False)) == []
    states = {
        each.name: (each.state, each.figures["records"])
        for each in found.checks(late, compacted=False, failed=False)
    }
    assert states == {"skipped": ("proved", 3), "skipped earlier": ("not verifiable", 2)}
    assert all(take(found, at_7="malformed", at_8="malformed", at_9="malformed"))
    assert len(list(found.findings(late, compacted=False))) == 1
    assert len(list(found.findings(SPANS, compacted=True))) == 1


def test_where_ledgers_have_expired_an_undecodable_record_is_not_verifiable() -> None:
    found = skips(round_(2, 10, 20, {"malformed": 1}), complete=False)
    assert take(found, at_3="malformed", at_11="malformed") == [True, True]
    states = {each.name: each.state for each in found.checks(SPANS, compacted=False, failed=False)}
    assert states == {"skipped": "proved", "undecodable": "not verifiable"}
    assert list(found.findings(SPANS, compacted=False)) == []
