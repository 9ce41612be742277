import json
import re
from dataclasses import replace

import pytest

from calve.config.publishing import Export
from calve.names import TableName
from calve.outputs.announcement import (
    ALERT,
    COMMITTED,
    EVOLVED,
    EXPORT_CREATED,
    EXPORT_FAILED,
    MAX_CHANGES,
    OVER_BUDGET,
    SUSPENDED,
    VERSION,
    Announcement,
    EventSource,
    export_created,
    export_failed,
    pattern,
    sent_to,
    table_of,
)
from calve.table.position import DeadLetterRound, Ledger, Position, TopicKey
from calve.table.protocol import Commit
from calve.table.summary import encode, root
from glue_jobs.outputs.outbox import MAX_BYTES, MAX_ENTRIES, first_batch
from tests.announcements import PAGE, SCHEMAS, assert_as_documented

TABLE = TableName("trading", "stock_trades")
SPEAKER = EventSource("trading", "main", TABLE)
FOUND = {
    "table_uuid": "f7b1",
    "metadata_location": "s3://lake/trading/stock_trades/metadata/00004-0f.gz.metadata.json",
}
TOPIC = TopicKey("c", "t")
EXPORT = Export(
    "weekly", "trading", "stock_trades", "created_at", "cron(0 6 ? * MON *)", ("ann@example.com",)
)
WINDOW = {"from": "2026-11-02T00:00:00+02:00", "to": "2026-11-09T00:00:00+02:00"}


def commit(**metrics):
    ledger = Ledger(
        span=12, consumed=11, gaps=1, applied=9, dead_lettered=2, rejected={"malformed": 2}, rows_appended=9
    )
    position = Position(
        {TOPIC: {0: 12}}, "r1", "w1", "stock_trades", dead_letters=DeadLetterRound("r1", 5, 2)
    )
    figures = {"lag_records": 3, "lag_s": 1.5, "complete_until": 1_800_000_000.25} | metrics
    summary = encode(position=position, topic=TOPIC, start={TOPIC: {0: 0}}, ledger=ledger, metrics=figures)
    return Commit(2**62 + 1, 2**62, summary, 1_800_000_001.0, 7, "append")


def said(found):
    assert_as_documented(found.kind, found.detail)
    assert table_of(found.detail) == TABLE
    return found.detail


def test_a_commit_is_told_with_its_figures_and_64_bits_as_text():
    detail = said(SPEAKER.committed(commit(), FOUND, again=False))
    assert (detail["snapshot_id"], detail["parent_id"]) == (str(2**62 + 1), str(2**62))
    assert detail["sequence_number"] == 7
    assert detail["committed_at"] == "2027-01-15T08:00:01.000Z"
    assert detail["complete_until"] == "2027-01-15T08:00:00.250Z"
    assert (detail["rows"], detail["records"]) == ({"appended": 9, "deleted": 0}, 11)
    assert (detail["dead_lettered"], detail["lag"]) == (2, {"records": 3, "seconds": 1.5})
    assert (detail["round"], detail["counts"], detail["again"]) == ("r1", None, False)


def test_counts_are_those_of_the_snapshot():
    counts = {"column": "flag", "values": {"LARGE_TRADE": 2}, "other": 7}
    assert said(SPEAKER.committed(commit(counts=counts), FOUND, again=True))["counts"] == counts


def test_a_commit_with_rows_that_operators_must_hear_of_names_column_and_values():
    counts = {"column": "flag", "values": {"LARGE_TRADE": 2, "ODD": 1}, "other": 7}
    watching = replace(SPEAKER, alert_on=("LARGE_TRADE", "LOST", "ODD"))
    assert (
        said(watching.committed(commit(counts=counts), FOUND, again=False))["alert"]
        == "flag LARGE_TRADE, ODD"
    )
    for other in ({"counts": counts | {"values": {"FINE": 9}}}, {}):
        assert "alert" not in said(watching.committed(commit(**other), FOUND, again=False))


def test_what_was_live_and_what_is_told_again_differ_in_that_alone():
    live, again = (SPEAKER.committed(commit(), FOUND, again=each).detail for each in (False, True))
    assert {key for key in live if live[key] != again[key]} == {"again"}


@pytest.mark.parametrize(
    "summary", [{}, root(writer="w", topic="t", round_id="r0")], ids=["of another", "the first"]
)
def test_a_commit_without_a_ledger_has_no_figures(summary):
    made = Commit(5, None, summary, 1_800_000_000.0, 1, "replace")
    detail = said(SPEAKER.committed(made, FOUND, again=False))
    assert [detail[key] for key in ("parent_id", "rows", "records", "dead_lettered", "lag")] == [None] * 5


def test_many_changes_of_columns_are_cut_and_say_so():
    changes = [f"add c{n}" for n in range(MAX_CHANGES + 3)]
    found = SPEAKER.evolved(changes, FOUND, schema_id=12)
    assert found.kind == EVOLVED
    detail = said(found)
    assert (len(detail["changes"]), detail["further_changes"], detail["schema_id"]) == (MAX_CHANGES, 3, "12")


def test_a_table_over_its_budget_is_told_by_two_names():
    found = SPEAKER.stopped("suspended", "rejects_over_budget", "too many", None)
    assert [each.kind for each in found] == [SUSPENDED, OVER_BUDGET]
    assert {said(each)["code"] for each in found} == {"rejects_over_budget"}
    [one] = SPEAKER.stopped("failed", "retries_exhausted", "x" * 5_000, "y" * 5_000)
    assert one.kind == SUSPENDED
    said(one)


def test_exports_are_told():
    delivered = {"bucket": "b", "manifest": "exports/w/manifest.json", "rows": 3, "snapshot_id": "4"}
    delivered |= {"files": [{"key": "exports/w/a.csv", "size_bytes": 9}], "complete": True}
    delivered |= {"correction": False, "created_at": "2026-11-09T04:00:00+00:00"}
    created = export_created("trading", EXPORT, WINDOW, delivered)
    assert created.kind == EXPORT_CREATED
    assert "ann@example.com" not in json.dumps(said(created))
    for window in (WINDOW, None):
        failed = export_failed("trading", EXPORT, window, reason="no table", final=True)
        assert failed.kind == EXPORT_FAILED
        assert said(failed)["export"]["recipients"] == ["ann@example.com"]


def test_the_nearest_commit_says_what_was_sent():
    unsaid, older = commit(), commit(announced=4)
    assert sent_to([unsaid, older, commit(announced=3)]) == 4
    assert sent_to([unsaid, replace(unsaid, summary={})]) == 0


def test_every_name_has_a_schema_and_every_key_a_meaning():
    assert set(SCHEMAS) == {COMMITTED, EVOLVED, SUSPENDED, OVER_BUDGET, EXPORT_CREATED, EXPORT_FAILED}
    for schema in SCHEMAS.values():
        assert schema["properties"]["version"]["const"] == VERSION
        assert all(each.get("description") for each in schema["properties"].values())
        missing = set(schema["properties"]) - set(schema["required"])
        assert missing <= {ALERT}, "a rule asks whether it is there"


def test_the_examples_of_the_page_are_true():
    page = PAGE.read_text()
    assert all(f"announcements/{name}.json" in page for name in SCHEMAS)
    examples = [json.loads(each) for each in re.findall(r"```json\n(.*?)```", page, re.DOTALL)]
    events = [each for each in examples if "detail-type" in each and isinstance(each["detail-type"], str)]
    assert [each["detail-type"] for each in events] == [COMMITTED]
    assert_as_documented(COMMITTED, events[0]["detail"])
    for rule in (each for each in examples if each not in events):
        assert set(rule["detail-type"]) <= set(SCHEMAS)


def test_a_rule_is_for_one_deployment():
    found = pattern("trading", COMMITTED, EVOLVED)
    assert found["detail"] == {"deployment": ["trading"]}
    assert found["detail-type"] == [COMMITTED, EVOLVED]


def test_a_request_holds_no_more_than_the_bus_takes():
    small = [Announcement(COMMITTED, {"n": n}) for n in range(2 * MAX_ENTRIES)]
    assert first_batch(small) == small[:MAX_ENTRIES]
    large = [Announcement(COMMITTED, {"text": "x" * (MAX_BYTES // 2)}) for _ in range(3)]
    assert first_batch(large) == large[:1]
    assert first_batch([]) == []
