"""Topics that a running job finds, and what it says of those that it cannot keep."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from calve.config.job import Entry, Job, Kafka, Lake, Start, Table
from calve.errors import Retryable
from calve.names import TableName
from calve.rounds.scheduling import FAILED_AFTER
from glue_jobs.rounds.loops import Discovery


@dataclass
class Scene:
    """A cluster of names, a lake of topics by table, and the tables that were begun."""

    names: list[str]
    lake: dict[str, str] = field(default_factory=dict)
    begun: list[Table] = field(default_factory=list)
    outages: Iterator[bool] = field(default_factory=lambda: iter(()))
    stop: threading.Event = field(default_factory=threading.Event)

    def listed(self) -> list[str]:
        if next(self.outages, False):
            raise Retryable("Kafka does not answer", fix="wait")
        return self.names

    def keep(self, table: Table) -> TableName:
        self.begun.append(table)
        return TableName("t", table.name)

    def discovery(self, *, drain: bool = False, start: Start = Start()) -> Discovery:  # noqa: B008
        entry = Entry("shop_{1}", r"shop\.(.*)", pattern=True)
        job = Job(
            "t",
            "main",
            Kafka("b:1"),
            None,
            Lake("t", "s3://x"),
            (),
            patterns=(Table(entry.name, entry.topic, start=start),),
            entries=(entry,),
        )
        return Discovery(job, self.listed, self.lake.get, self.keep, self.stop, drain)


def events(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_a_new_topic_is_begun_once_and_counted(capsys: pytest.CaptureFixture[str]) -> None:
    scene = Scene(["shop.a"])
    found = scene.discovery()
    found.look()
    scene.names = ["shop.a", "shop.b"]
    found.look()
    scene.names = ["shop.b"]  # a deleted topic keeps its loop, also where it comes back
    found.look()
    scene.names = ["shop.a", "shop.b"]
    found.look()
    assert [each.name for each in scene.begun] == ["shop_a", "shop_b"]
    told = events(capsys)
    assert [(each["tables"], each["count"]) for each in told] == [(["t.shop_a"], 1), (["t.shop_b"], 2)]


def test_a_topic_whose_loop_has_begun_keeps_its_name_though_its_table_is_not_made_yet(
    capsys: pytest.CaptureFixture[str],
) -> None:
    scene = Scene(["shop.a_b"])
    found = scene.discovery()
    found.look()
    scene.names = ["shop.a-b", "shop.a_b"]
    found.look()
    assert [each.topic for each in scene.begun] == ["shop.a_b"]
    told = [each["topic"] for each in events(capsys) if each["event"] == "topic.refused"]
    assert told == ["shop.a-b"]


def test_latest_is_the_beginning_of_a_topic_that_appears_later() -> None:
    scene = Scene(["shop.a"])
    found = scene.discovery(start=Start("latest"))
    found.look()
    scene.names = ["shop.a", "shop.b"]
    found.look()
    assert [each.start.at for each in scene.begun] == ["latest", "earliest"]


def test_latest_is_the_beginning_of_a_topic_that_appeared_while_no_job_ran() -> None:
    scene = Scene(["shop.a", "shop.b"], lake={"shop_a": "shop.a"})
    scene.discovery(start=Start("latest")).look()
    assert [(each.name, each.start.at) for each in scene.begun] == [
        ("shop_a", "earliest"),
        ("shop_b", "earliest"),
    ]


def test_another_start_holds_for_every_topic() -> None:
    scene = Scene(["shop.a"])
    since = Start("timestamp", timestamp_ms=7)
    found = scene.discovery(start=since)
    found.look()
    scene.names = ["shop.b"]
    found.look()
    assert [each.start for each in scene.begun] == [since, since]


def test_a_topic_without_a_table_is_told_at_once_and_every_few_minutes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr("glue_jobs.rounds.loops.time.monotonic", lambda: now)
    scene = Scene(["shop.x__dead_letters", "shop.a"])
    found = scene.discovery()
    for now in (0.0, 60.0, 239.0, 240.0):  # noqa: B007 what the clock says
        found.look()
    told = [each for each in events(capsys) if each["event"] == "topic.refused"]
    assert [each["topic"] for each in told] == ["shop.x__dead_letters"] * 2
    assert [each.name for each in scene.begun] == ["shop_a"]


def test_what_cannot_be_listed_is_told_once_and_tried_again(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(["shop.a"], outages=iter([True, True, False, True]))
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 4:
            scene.stop.set()

    found = scene.discovery()
    monkeypatch.setattr(scene.stop, "wait", wait)
    found.run()
    assert [each["event"] for each in events(capsys)] == [
        "topics.failed",
        "topics.matched",
        "topics.failed",
    ]
    assert waits == [1.0, 2.0, 60.0, 1.0]


def test_a_drain_looks_once(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(["shop.a"])
    monkeypatch.setattr(scene.stop, "wait", lambda _: pytest.fail("it waits to look again"))
    scene.discovery(drain=True).run()
    assert [each.name for each in scene.begun] == ["shop_a"]
    assert [each["event"] for each in events(capsys)] == ["topics.matched"]


def test_a_drain_that_cannot_list_fails_and_keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(["shop.a"], outages=iter([True] * FAILED_AFTER))
    monkeypatch.setattr(scene.stop, "wait", lambda _: None)
    with pytest.raises(Retryable):
        scene.discovery(drain=True).run()
    assert scene.begun == []
