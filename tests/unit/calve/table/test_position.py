"""The position and the ledger survive their way through a snapshot summary."""

from __future__ import annotations

import json
from dataclasses import replace
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calve.errors import Suspended
from calve.table.position import (
    WIDE,
    DeadLetterRound,
    Ledger,
    Position,
    TopicKey,
    decode_offsets,
    encode_offsets,
)
from calve.table.summary import (
    FROM,
    TO,
    carried_position,
    decode,
    encode,
    has_position,
    published_dead_letters,
    starts_of,
)

ids = st.text(alphabet="ABCXYZabcxyz019-_", min_size=1, max_size=22)
topics = st.builds(TopicKey, ids, ids)
offsets = st.dictionaries(st.integers(0, 5000), st.integers(0, 2**63 - 1), max_size=6)
maps = st.dictionaries(topics, offsets, max_size=3)
counts = st.integers(0, 2**40)
letters = st.none() | st.builds(
    DeadLetterRound, ids, st.integers(1, 2**63 - 1), counts, ids, redriven=st.booleans()
)
TOPIC = TopicKey("cluster", "topic")
UPSERT = '{"mode": "upsert", "key": [1], "order_by": null}'
TOTALS = '{"mode": "aggregate", "by": ["id"], "measures": {"n": "count(*)"}, "window": null}'
CHANGES = '{"mode": "change_data", "key": [1], "order_by": null, "source": [], "deleted": "remove"}'
positions = st.builds(
    Position,
    offsets=maps,
    round=ids,
    writer=ids,
    topic=ids,
    snapshot=st.none(),
    dead_letters=letters,
    redrives=st.integers(0, 9),
    mode=st.none() | st.sampled_from([UPSERT, CHANGES, TOTALS]),
    moved=st.lists(topics, max_size=2).map(tuple),
)

# A summary as the first release wrote it. Never changed: every later release must read it.
FORMAT_1 = {
    "calve.format": "1",
    "calve.round": "0e8f7a1c-4b8d-4d57-9d1c-2a43f0c2a9b1",
    "calve.writer": "5c1f9d60-61f5-4f5f-8a5e-9b0c1c1d7e11",
    "calve.cluster_id": "MkU3OEVBNTcwNTJENDM2Qg",
    "calve.topic": "stock_trades",
    "calve.topic_id": "xN1jQ2lTTa-P_5bHn3VY0g",
    "calve.from": '{"MkU3OEVBNTcwNTJENDM2Qg/xN1jQ2lTTa-P_5bHn3VY0g": {"0": 0, "1": 100}}',
    "calve.to": '{"MkU3OEVBNTcwNTJENDM2Qg/AAAAAAAAAAAAAAAAAAAAAQ": {"0": 7},'
    ' "MkU3OEVBNTcwNTJENDM2Qg/xN1jQ2lTTa-P_5bHn3VY0g": {"0": 512, "1": 9007199254740993}}',
    "calve.ledger": '{"applied": 500, "consumed": 503, "dead_lettered": 3, "gaps": 9, "rejected": {"bad_magic": 2,'
    ' "malformed": 1}, "rows_appended": 500, "span": 512}',
    "calve.metrics": '{"lag_records": 0}',
    "calve.dead_letters": '{"round": "0e8f7a1c-4b8d-4d57-9d1c-2a43f0c2a9b1", "snapshot": 8744736658442914487, "count": 3}',
    "added-records": "500",
}


def summary(position: Position, *, ledger: Ledger | None = None) -> dict[str, str]:
    topic = TopicKey("cluster", "topic")
    return encode(
        position=position, topic=topic, start={topic: {0: 0}}, ledger=ledger or Ledger(), metrics={}
    )


@given(positions)
def test_a_position_is_read_as_it_was_written(position: Position) -> None:
    written = summary(position)
    assert has_position(written)
    assert decode(written) == position
    assert decode(written, 7) == replace(position, snapshot=7)


@given(positions)
def test_a_summary_is_made_of_texts(position: Position) -> None:
    assert all(isinstance(value, str) for value in summary(position).values())


@given(maps)
def test_offsets_are_read_as_they_were_written(offsets: dict[TopicKey, dict[int, int]]) -> None:
    assert decode_offsets(encode_offsets(offsets)) == offsets


wide = st.dictionaries(st.integers(0, 99_999), st.integers(0, 2**62), min_size=1, max_size=5).map(
    lambda some: {n: n * 7 for n in range(WIDE)} | some
)


@given(wide, wide, maps)
def test_offsets_of_very_many_partitions_are_compressed_and_read_as_they_were_written(
    starts: dict[int, int], ends: dict[int, int], others: dict[TopicKey, dict[int, int]]
) -> None:
    position = Position(others | {TOPIC: ends}, round="r", writer="w", topic="t")
    written = encode(
        position=position, topic=TOPIC, start=others | {TOPIC: starts}, ledger=Ledger(), metrics={}
    )
    assert decode(written) == position
    assert starts_of(written) == others | {TOPIC: starts}
    assert [isinstance(json.loads(written[name])[str(TOPIC)], str) for name in (FROM, TO)] == [True, True]


def test_offsets_of_ten_thousand_partitions_take_a_fraction_of_their_text() -> None:
    offsets = {p: 5_000_000 + crc32(str(p).encode()) % 100_000 for p in range(10_000)}
    assert 3 * len(encode_offsets({TOPIC: offsets})) < len(json.dumps(offsets))


def test_only_a_position_of_very_many_partitions_is_of_a_newer_format() -> None:
    few, many = ({TOPIC: dict.fromkeys(range(n), 5)} for n in (WIDE - 1, WIDE))
    positions = [Position(each, round="r", writer="w", topic="t") for each in (few, many)]
    assert [summary(each)["calve.format"] for each in positions] == ["1", "6"]
    assert [published_dead_letters(each, "r")["calve.format"] for each in positions] == ["1", "6"]


@given(maps)
def test_topics_keep_their_order_and_partitions_have_one(offsets: dict[TopicKey, dict[int, int]]) -> None:
    turned = {topic: dict(reversed(parts.items())) for topic, parts in offsets.items()}
    assert encode_offsets(turned) == encode_offsets(offsets)
    assert [*decode_offsets(encode_offsets(offsets))] == [*offsets]


@given(positions, topics, offsets)
def test_the_topic_that_is_read_is_the_newest(
    position: Position, topic: TopicKey, read: dict[int, int]
) -> None:
    found = replace(position, offsets=position.with_offsets(topic, read))
    assert found.newest == topic
    assert found.of(topic) == (position.of(topic) or {}) | read
    assert {**found.offsets, topic: None} == {**position.offsets, topic: None}


by_name = st.dictionaries(ids, st.integers(1, 9), max_size=3)


by_cause = {name: by_name for name, kind in Ledger.__annotations__.items() if kind.startswith("dict")}


@given(st.builds(Ledger, *([counts] * (len(Ledger.__annotations__) - len(by_cause))), **by_cause))
def test_a_ledger_is_read_as_it_was_written(ledger: Ledger) -> None:
    assert Ledger.from_json(ledger.to_json()) == ledger


def test_a_summary_of_format_1_is_read_by_every_release() -> None:
    cluster = "MkU3OEVBNTcwNTJENDM2Qg"
    position = decode(FORMAT_1, 42)
    assert position.of(TopicKey(cluster, "xN1jQ2lTTa-P_5bHn3VY0g")) == {0: 512, 1: 9007199254740993}
    assert position.of(TopicKey(cluster, "AAAAAAAAAAAAAAAAAAAAAQ")) == {0: 7}
    assert position.of(TopicKey("other", "xN1jQ2lTTa-P_5bHn3VY0g")) is None
    assert position.topic == "stock_trades"
    assert position.writer == "5c1f9d60-61f5-4f5f-8a5e-9b0c1c1d7e11"
    assert position.snapshot == 42
    assert position.dead_letters == DeadLetterRound(position.round, 8744736658442914487, 3)
    ledger = Ledger.from_json(FORMAT_1["calve.ledger"])
    assert ledger.imbalance() is None
    assert (ledger.span, ledger.consumed, ledger.gaps, ledger.applied) == (512, 503, 9, 500)
    assert ledger.rejected == {"bad_magic": 2, "malformed": 1}


@pytest.mark.parametrize("written", ["8", "10"])
def test_a_position_of_a_newer_release_suspends_the_table(written: str) -> None:
    with pytest.raises(Suspended, match=f"format {written}") as caught:
        decode(FORMAT_1 | {"calve.format": written})
    assert caught.value.code == "format_too_new"


@given(positions)
def test_a_table_can_be_read_by_every_release_that_knows_all_that_it_says(position: Position) -> None:
    written = "3" if position.mode else "2" if position.redrives else "1"
    written = "4" if position.mode in (CHANGES, TOTALS) else written
    written = "5" if position.mode in (UPSERT, CHANGES, TOTALS) and position.redrives else written
    written = "7" if position.moved else written
    assert summary(position)["calve.format"] == written


def test_a_foreign_snapshot_has_no_position() -> None:
    assert not has_position({"operation": "replace", "added-records": "5"})


def test_a_balanced_ledger_has_no_imbalance() -> None:
    ledger = Ledger(
        span=20,
        consumed=12,
        gaps=5,
        lost=3,
        applied=7,
        deduplicated=2,
        filtered=1,
        dead_lettered=2,
        rows_appended=70,
        rejected={"malformed": 1, "bad_magic": 1},
    )
    assert ledger.imbalance() is None


def test_skipped_records_are_a_fate_of_their_own() -> None:
    ledger = Ledger(
        span=9,
        consumed=9,
        applied=3,
        dead_lettered=1,
        rejected={"malformed": 1},
        skipped={"bad_magic": 2, "unknown_schema_id": 3},
        skipped_schemas={"7": 3},
    )
    assert ledger.imbalance() is None


@pytest.mark.parametrize(
    ("ledger", "law"),
    [
        (Ledger(span=1), "span"),
        (Ledger(consumed=1), "span"),
        (Ledger(span=1, consumed=1), "consumed"),
        (Ledger(span=1, consumed=1, applied=1, filtered=1), "consumed"),
        (Ledger(span=1, consumed=1, applied=1, skipped={"malformed": 1}), "consumed"),
        (Ledger(span=1, consumed=1, dead_lettered=1), "dead-lettered"),
        (Ledger(span=1, consumed=1, filtered=1, filtered_schemas={"7": 1, "8": 1}), "filtered"),
        (Ledger(span=1, consumed=1, applied=1, rejected={"malformed": 1}), "dead-lettered"),
        (Ledger(selected=3, redriven=1, present=1), "selected"),
        (Ledger(selected=3, redriven=1, overtaken=1), "selected"),
        (Ledger(selected=3, redriven=2, refused={"bad_magic": 2}), "selected"),
    ],
)
def test_a_broken_law_is_named(ledger: Ledger, law: str) -> None:
    assert str(ledger.imbalance()).startswith(law)


def test_a_ledger_is_written_without_its_zeros() -> None:
    assert json.loads(Ledger(span=1, gaps=1).to_json()) == {"span": 1, "gaps": 1}


def test_a_commit_that_moves_nothing_restates_the_position_and_is_no_round() -> None:
    letters = DeadLetterRound("r1", 7, 3)
    position = Position({TopicKey("c", "t"): {0: 5}}, "r2", "w", "trades", dead_letters=letters, redrives=1)
    position = replace(position, moved=(TopicKey("b", "t"),))
    topic, ledger = TopicKey("c", "t"), Ledger(applied=5)
    round_ = encode(
        position=position, topic=topic, start={topic: {0: 0}}, ledger=ledger, metrics={"lag_s": 1}
    )
    summary = carried_position(round_ | {"total-records": "5"}, {"complete_until": 1.0})
    assert decode(summary) == position
    assert "total-records" not in summary
    assert "calve.metrics" not in carried_position(round_)
    assert json.loads(summary["calve.metrics"]) == {"complete_until": 1.0}
    assert not {"calve.from", "calve.ledger"} & summary.keys()
