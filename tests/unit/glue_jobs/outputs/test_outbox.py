"""Announcements wait for nobody and are lost by nobody: the outbox against a bus that refuses, fails and hangs."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

import pytest

from calve.errors import Retryable
from calve.outputs.announcement import COMMITTED, Announcement
from glue_jobs.outputs.outbox import MAX_ENTRIES, MOST_WAITING, Outbox


def said(number: int) -> Announcement:
    return Announcement(COMMITTED, {"number": number})


class Bus:
    """Takes what it is given, unless told otherwise: what it does comes before that, once each."""

    def __init__(self, *instead: Callable[[Sequence[Announcement]], list[Announcement]]) -> None:
        self.instead = list(instead)
        self.taken: list[int] = []
        self.sizes: list[int] = []

    def send(self, batch: Sequence[Announcement]) -> list[Announcement]:
        self.sizes.append(len(batch))
        refused = self.instead.pop(0)(batch) if self.instead else []
        self.taken += [each.detail["number"] for each in batch if each not in refused]
        return refused


def down(_: Sequence[Announcement]) -> list[Announcement]:
    raise Retryable("EventBridge in eu-north-1: EndpointConnectionError")


class Dead(Bus):
    """Never takes anything."""

    def send(self, batch: Sequence[Announcement]) -> list[Announcement]:
        self.sizes.append(len(batch))
        return down(batch)


def takes(_: Sequence[Announcement]) -> list[Announcement]:
    return []


def broken(_: Sequence[Announcement]) -> list[Announcement]:
    raise ZeroDivisionError("a text that may quote anything")


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 5
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr("calve.rounds.scheduling.LONGEST_BACKOFF_S", 0.01)


def events(capsys):
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_all_is_sent_in_order_ten_at_a_time():
    bus = Bus()
    done: list[int] = []
    outbox = Outbox("main", bus.send)
    for n in range(25):
        assert outbox.put(said(n), partial(done.append, n))
    outbox.close(5)
    assert bus.taken == done == list(range(25))
    assert max(bus.sizes) <= MAX_ENTRIES


@pytest.mark.parametrize("trouble", [down, broken])
def test_what_fails_is_told_and_sent_again(trouble, capsys):
    bus = Bus(trouble, trouble)
    outbox = Outbox("main", bus.send)
    outbox.put(said(1))
    until(lambda: bus.taken == [1])
    outbox.close(5)
    told = events(capsys)
    assert [(each["event"], each["failures"], each["waiting"]) for each in told] == [
        ("announcement.failed", 1, 1),
        ("announcement.failed", 2, 1),
    ]
    assert "quote" not in str(told)


def test_only_what_was_refused_is_sent_again_and_nothing_counts_as_sent_before_it():
    held = threading.Event()

    def second_refused(batch: Sequence[Announcement]) -> list[Announcement]:
        held.wait(5)
        return [each for each in batch if each.detail["number"] == 2]

    bus = Bus(takes, second_refused)
    done: list[int] = []
    outbox = Outbox("main", bus.send)
    outbox.put(said(0), lambda: done.append(0))
    until(lambda: done == [0])
    for n in (1, 2, 3):
        outbox.put(said(n), partial(done.append, n))
    held.set()
    outbox.close(5)
    assert sorted(bus.taken) == [0, 1, 2, 3]
    assert bus.taken.index(2) > bus.taken.index(1)
    assert done == sorted(done)
    assert done[-1] in (2, 3)


def test_what_waits_is_bounded_and_refused_to_whoever_has_it():
    gate = threading.Event()

    def hangs(_: Sequence[Announcement]) -> list[Announcement]:
        gate.wait(5)
        return []

    outbox = Outbox("main", Bus(hangs).send)
    began = time.monotonic()
    taken = [outbox.put(said(n)) for n in range(MOST_WAITING + 5)]
    assert time.monotonic() - began < 2
    assert taken == [True] * MOST_WAITING + [False] * 5
    gate.set()
    until(lambda: outbox.put(said(0)))
    outbox.close(5)


def test_the_end_of_a_job_waits_no_longer_than_it_says_and_tells_what_is_left(capsys):
    bus = Dead()
    outbox = Outbox("main", bus.send)
    outbox.put(said(1))
    began = time.monotonic()
    outbox.close(0.5)
    assert time.monotonic() - began < 2
    assert events(capsys)[-1]["event"] == "announcement.pending"
    time.sleep(0.1)
    tried = len(bus.sizes)
    time.sleep(0.1)
    assert len(bus.sizes) == tried


def test_an_outbox_that_was_never_used_ends_at_once(capsys):
    Outbox("main", Bus().send).close(1)
    assert events(capsys) == []
