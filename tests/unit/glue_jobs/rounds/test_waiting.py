"""What a look at the topic of a waiting table does to its next round."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from calve.table.position import TopicKey
from glue_jobs.rounds.loop import NOTE_EVERY_S, TableLoop
from glue_jobs.rounds.waiting import LONGEST_REST_S, REST_S, Waiting

END = (TopicKey("cluster", "topic"), {0: 5, 1: 7})
MADE_AGAIN = (TopicKey("cluster", "other"), {0: 5, 1: 7})
MORE = (TopicKey("cluster", "topic"), {0: 5, 1: 8})


def idle(*, announced: bool = True, worked_s: float = 10.0) -> TableLoop:
    """A table with a round due in 20 seconds, idle at END."""
    config = SimpleNamespace(freshness_s=60.0, topic="topic")
    announcer = SimpleNamespace(is_level=announced)
    opener = SimpleNamespace(name="t", config=config, main=None, announcer=announcer)
    found, now = TableLoop(cast("Any", opener), threading.Event(), drain=False), time.monotonic()
    found.idle, found.worked_at = END, now - worked_s
    found.due_at, found.phase = now + 20.0, 1.0
    return found


def test_an_idle_table_rests_while_its_topic_ends_as_before() -> None:
    table = idle()
    asked = time.monotonic() - 0.2
    table.looked(END, asked, NOTE_EVERY_S)
    assert table.due_at > asked + 40.0
    assert table.began == asked
    assert table.heard_at > asked


@pytest.mark.parametrize("end", [MORE, MADE_AGAIN])
def test_a_topic_that_changed_gets_its_round_when_it_is_due(end: Any) -> None:
    table = idle()
    due_at = table.due_at
    table.looked(end, time.monotonic(), NOTE_EVERY_S)
    assert table.due_at == due_at


def test_a_table_with_announcements_that_wait_has_a_round() -> None:
    table = idle(announced=False)
    due_at = table.due_at
    table.looked(END, time.monotonic(), NOTE_EVERY_S)
    assert table.due_at == due_at


@pytest.mark.parametrize(
    ("tables", "rest_s"), [(1, NOTE_EVERY_S), (400, 400 * REST_S), (3000, LONGEST_REST_S)]
)
def test_the_more_tables_wait_the_longer_an_idle_one_rests(tables: int, rest_s: float) -> None:
    for worked_s, rests in ((rest_s - 5, True), (rest_s + 5, False)):
        table, waiting = idle(worked_s=worked_s), Waiting(threading.Event())
        due_at = table.due_at
        waiting._tables = dict.fromkeys(map(cast("Any", str), range(tables - 1)), table)
        waiting.add(table)
        cluster = SimpleNamespace(ends=lambda topics: dict.fromkeys(topics, END))
        waiting._look_at_topics(cast("Any", cluster), [table])
        assert (table.due_at > due_at) == rests


def test_a_table_that_cannot_be_loaded_hides_no_other() -> None:
    """Both have other metadata files than before. Only the second one tells that somebody requests something."""

    def unreadable() -> bool:
        raise ConnectionError

    waiting, tables = Waiting(threading.Event()), []
    for name, requested in (("broken", unreadable), ("fine", lambda: True)):
        table = idle()
        table.idle, table.location = None, "old"
        table.opener = cast("Any", SimpleNamespace(name=name, requested=requested))
        tables.append(table)
    lake = SimpleNamespace(locations=lambda names: dict.fromkeys(names, "new"))
    waiting._look_at_catalog(cast("Any", lake), tables)
    assert tables[0].due_at > time.monotonic()
    assert tables[1].due_at == 0.0
