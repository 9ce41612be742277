"""Each topic belongs to one part of a job: always the same, and another count moves few."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from calve.config.job import Entry, Job, Kafka, Lake, Share, Table, part_of
from calve.config.topics import expand

TOPICS = [f"shop.orders.{n}" for n in range(3_000)]


def test_the_answers_stay_the_same_in_all_releases() -> None:
    names = ["orders", "users", "stock_trades", "shop.orders-v2", "a", "x" * 249]
    assert [part_of(name, 8) for name in names] == [1, 3, 2, 8, 8, 2]
    assert [part_of(name, 3) for name in names] == [1, 3, 2, 2, 1, 2]
    assert {part_of(name, 1) for name in names} == {1}


def test_one_more_part_takes_its_share_and_moves_no_other_topic() -> None:
    before, after = ({topic: part_of(topic, count) for topic in TOPICS} for count in (8, 9))
    moved = [topic for topic in TOPICS if before[topic] != after[topic]]
    assert {after[topic] for topic in moved} == {9}
    assert 250 < len(moved) < 420  # a ninth is 333


def test_topics_are_spread_evenly() -> None:
    counts = Counter(part_of(topic, 8) for topic in TOPICS)
    assert counts.keys() == set(range(1, 9))
    assert 310 < min(counts.values()) <= max(counts.values()) < 440  # an eighth is 375


def test_a_topic_of_a_pattern_belongs_to_one_part_and_what_is_wrong_with_it_is_said_once() -> None:
    pattern = Table("shop_{1}", r"shop\.(.*)")
    entry = Entry(pattern.name, pattern.topic, pattern=True)
    whole = Job(
        "t", "main", Kafka("b:1"), None, Lake("t", "s3://x"), (), patterns=(pattern,), entries=(entry,)
    )
    parts = [replace(whole, job=f"main-{n}", share=Share("main", n, 8)) for n in range(1, 9)]
    topics = [*TOPICS[:100], "shop.a-b", "shop.a_b"]
    found = [expand(part, topics, lambda _: None) for part in parts]
    together = expand(whole, topics, lambda _: None)
    assert sorted(t.name for each in found for t in each.tables) == [each.name for each in together.tables]
    assert sorted(n.topic for each in found for n in each.not_kept) == ["shop.a-b", "shop.a_b"]
    assert all(part_of(table.topic, 8) == n for n, each in enumerate(found, 1) for table in each.tables)
