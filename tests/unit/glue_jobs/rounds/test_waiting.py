"""What a look at the topic of a waiting table does to its next round."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from calve.table.position import TopicKey
from glue_jobs.rounds.loop import NOTE_EVERY_S, UNSEEN_S, TableLoop
from glue_jobs.rounds.waiting import LONGEST_REST_S, REST_S, Waiting

END = (TopicKey("cluster", "topic"), {0: 5, 1: 7})
MADE_AGAIN = (TopicKey("cluster", "other"), {0: 5, 1: 7})
MORE = (TopicKey("cluster", "topic"), {0: 5, 1: 8})


FRESHNESS_S = 60.0


def idle(*, announced: bool = True, worked_s: float = 10.0, phase: float = 1.0) -> TableLoop:
    """A table that is idle at END since its last round."""
    config = SimpleNamespace(freshness_s=FRESHNESS_S, topic="topic")
    announcer = SimpleNamespace(is_level=announced)
    opener = SimpleNamespace(name="t", config=config, main=None, announcer=announcer)
    found, now = TableLoop(cast("Any", opener), threading.Event(), drain=False), time.monotonic()
    found.idle, found.phase, found.location = END, phase, "old"
    found.worked_at = found.began = now - worked_s
    found.due_at = found.began + UNSEEN_S
    return found


def test_an_idle_table_rests_while_its_topic_ends_as_before() -> None:
    table = idle()
    asked = time.monotonic() - 0.2
    table.looked(END, asked, NOTE_EVERY_S)
    assert table.due_at == asked + UNSEEN_S
    assert table.began == asked
    assert table.heard_at > asked


def test_late_looks_begin_no_rounds_of_idle_tables() -> None:
    """Otherwise a job that is too busy to look would get a round of each idle table, and be busier still."""
    table = idle()
    table.looked(END, time.monotonic() - FRESHNESS_S, NOTE_EVERY_S)
    assert table.due_at > time.monotonic() + FRESHNESS_S / 2


@pytest.mark.parametrize("end", [MORE, MADE_AGAIN])
def test_news_get_their_round_in_time(end: Any) -> None:
    """Records that arrived just after the last look are visible in time: a round takes a second here, until one has run."""
    table = idle()
    table.looked(END, seen := time.monotonic() - 5.0, NOTE_EVERY_S)
    table.looked(end, time.monotonic(), NOTE_EVERY_S)
    assert seen + 0.7 * FRESHNESS_S < table.due_at < seen + 0.95 * FRESHNESS_S
    table.looked(end, time.monotonic(), NOTE_EVERY_S)
    assert table.due_at < seen + 0.95 * FRESHNESS_S


def test_tables_that_get_news_together_have_rounds_at_different_times() -> None:
    due = []
    for phase in (0.0, 0.5, 1.0):
        table = idle(phase=phase)
        table.looked(MORE, time.monotonic(), NOTE_EVERY_S)
        due.append(table.due_at)
    assert due[1] - due[0] > FRESHNESS_S / 12
    assert due[2] - due[1] > FRESHNESS_S / 12


def test_a_table_with_announcements_that_wait_has_a_round() -> None:
    table = idle(announced=False)
    table.looked(END, time.monotonic(), NOTE_EVERY_S)
    assert table.due_at < time.monotonic() + FRESHNESS_S


@pytest.mark.parametrize(
    ("tables", "rest_s"), [(1, NOTE_EVERY_S), (400, 400 * REST_S), (3000, LONGEST_REST_S)]
)
def test_the_more_tables_wait_the_longer_an_idle_one_rests(tables: int, rest_s: float) -> None:
    for worked_s, rests in ((rest_s - 5, True), (rest_s + 5, False)):
        table, waiting = idle(worked_s=worked_s), Waiting(threading.Event())
        waiting._tables = dict.fromkeys(map(cast("Any", str), range(tables - 1)), table)
        waiting.add(table)
        cluster = SimpleNamespace(ends=lambda topics: dict.fromkeys(topics, END))
        waiting._look_at_topics(cast("Any", cluster), [table])
        assert (table.due_at > time.monotonic() + FRESHNESS_S) == rests


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
