"""The backlog of a table is its history: whatever the outbox takes or refuses, every snapshot is handed over, in order."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from calve.names import TableName
from calve.outputs.announcement import Announcement, EventSource
from calve.table.protocol import Commit
from glue_jobs.iceberg.catalog import Table
from glue_jobs.table.announcements import MOST_RECENT, Announcer

NOW = time.time()


@dataclass
class Main:
    """A table as the announcer sees it: snapshots by id, and main's head."""

    commits: dict[int, Commit] = field(default_factory=dict)
    head: int | None = None
    files: int = 0

    def commit(self, *, at: float = NOW, **metrics: object) -> int:
        number = len(self.commits) + 1
        summary = {"calve.metrics": json.dumps(metrics)}
        self.commits[number] = Commit(number, self.head, summary, at, number, "append")
        self.head, self.files = number, self.files + 1
        return number

    def roll_back(self, to: int) -> None:
        self.head, self.files = to, self.files + 1

    def ancestors(self) -> Any:
        at = self.head
        while at in self.commits:
            yield self.commits[at]
            at = self.commits[at].parent

    @property
    def found(self) -> dict[str, str]:
        return {"table_uuid": "uuid", "metadata_location": f"{self.files:05d}-a.metadata.json"}


@dataclass
class Box:
    """An outbox that has room for so many, and sends when it is told to."""

    room: int = 10**6
    said: list[Announcement] = field(default_factory=list)
    waiting: list[Callable[[], None]] = field(default_factory=list)

    def put(self, announcement: Announcement, sent: Callable[[], None] = lambda: None) -> bool:
        if self.room <= 0:
            return False
        self.room -= 1
        self.said.append(announcement)
        self.waiting.append(sent)
        return True

    def send(self) -> None:
        for each in self.waiting:
            each()
        self.waiting.clear()

    @property
    def ids(self) -> list[int]:
        return [int(each.detail["snapshot_id"]) for each in self.said if "snapshot_id" in each.detail]

    @property
    def again(self) -> list[bool]:
        return [each.detail["again"] for each in self.said if "again" in each.detail]


def announcer(box: Box | None) -> Announcer:
    return Announcer(EventSource("d", "main", TableName("d", "t")), "topic", box)


def look(who: Announcer, main: Main) -> None:
    who.look(cast("Table", main))


def test_each_snapshot_is_handed_over_once_oldest_first():
    main, box = Main(), Box()
    who = announcer(box)
    for _ in range(3):
        main.commit()
    look(who, main)
    look(who, main)
    main.commit()
    main.commit()
    look(who, main)
    assert box.ids == [1, 2, 3, 4, 5]
    assert not any(box.again)


def test_a_job_that_does_not_announce_says_nothing():
    main = Main()
    main.commit()
    who = announcer(None)
    look(who, main)
    who.stopped("failed", "c", "r", None)
    assert who.sent_to is None


def test_an_empty_table_has_nothing_to_tell():
    box = Box()
    look(announcer(box), Main())
    assert box.ids == []


def test_at_the_start_what_is_recent_is_announced_and_the_head_in_any_case():
    main, box = Main(), Box()
    main.commit(at=NOW - 90_000)
    main.commit(at=NOW - 80_000)
    look(announcer(box), main)
    assert box.ids == [2]
    main, box = Main(), Box()
    main.commit(at=NOW - 90_000)
    look(announcer(box), main)
    assert box.ids == [1]
    main, box = Main(), Box()
    for _ in range(MOST_RECENT + 5):
        main.commit()
    look(announcer(box), main)
    assert box.ids == list(range(6, MOST_RECENT + 6))


def test_again_is_what_a_commit_says_was_sent():
    main, box = Main(), Box()
    main.commit()
    main.commit()
    main.commit(announced=2)
    look(announcer(box), main)
    assert (box.ids, box.again) == ([1, 2, 3], [True, True, False])


def test_what_was_sent_is_known_once_it_was_and_not_before():
    main, box = Main(), Box()
    who = announcer(box)
    main.commit()
    look(who, main)
    assert who.sent_to == 0
    box.send()
    assert who.sent_to == 1


def test_a_full_outbox_postpones_and_says_so_once(capsys):
    main, box = Main(), Box(room=2)
    who = announcer(box)
    for _ in range(5):
        main.commit()
    look(who, main)
    look(who, main)
    assert box.ids == [1, 2]
    [told] = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (told["event"], told["table"]) == ("announcement.postponed", "d.t")
    box.room = 10
    look(who, main)
    assert box.ids == [1, 2, 3, 4, 5]


def test_a_commit_of_a_newer_release_that_cannot_be_read_ends_no_loop(capsys):
    main, box = Main(), Box()
    who = announcer(box)
    main.commit()
    newer = {"calve.ledger": json.dumps({"a figure of the future": 1})}
    main.commits[2], main.head = Commit(2, 1, newer, NOW, 2, "append"), 2
    look(who, main)
    look(who, main)
    assert box.ids == [1]
    [told] = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (told["event"], told["why"]) == ("announcement.postponed", "TypeError")


def test_what_stands_in_no_history_waits_with_the_announcer():
    main, box = Main(), Box(room=0)
    who = announcer(box)
    main.commit()
    who.stopped("suspended", "rejects_over_budget", "too many", None)
    box.room = 10
    look(who, main)
    assert [each.kind for each in box.said] == [
        "calve.table.suspended",
        "calve.dead_letter.budget_exceeded",
        "calve.table.committed",
    ]


def test_a_rollback_is_announced_with_the_file_that_made_it():
    main, box = Main(), Box()
    who = announcer(box)
    for _ in range(3):
        main.commit(announced=3)
    look(who, main)
    main.roll_back(2)
    look(who, main)
    assert box.ids == [1, 2, 3, 1, 2]
    assert box.said[-1].detail["metadata_location"] == main.found["metadata_location"]
    assert box.again[-2:] == [True, True]
    main.commit()
    look(who, main)
    assert box.ids[-1] == 4


def test_snapshots_that_others_expired_are_gone_and_the_rest_is_announced():
    main, box = Main(), Box()
    who = announcer(box)
    main.commit()
    look(who, main)
    main.commit()
    main.commit()
    for gone in (1, 2):
        del main.commits[gone]
    look(who, main)
    assert box.ids == [1, 3]


ACTS = st.lists(
    st.sampled_from(["commit", "commit", "look", "send", "full", "room", "die", "roll back"]), max_size=60
)


@given(ACTS)
def test_whatever_happens_every_snapshot_of_main_was_handed_over_in_the_end(acts):
    main, heard, box = Main(), set(), Box()
    who = announcer(box)
    for act in acts:
        match act:
            case "commit":
                main.commit(announced=who.sent_to or 0)
            case "look":
                look(who, main)
            case "send":
                heard |= set(box.ids)
                box.send()
            case "full":
                box.room = 0
            case "room":
                box.room = 10**6
            case "die":
                box = Box()
                who = announcer(box)
            case "roll back" if main.head and main.commits[main.head].parent:
                main.roll_back(cast(int, main.commits[main.head].parent))
    box.room = 10**6
    look(who, main)
    heard |= set(box.ids)
    assert {each.id for each in main.ancestors()} <= heard


def test_no_snapshot_is_said_to_be_sent_again_that_was_not():
    main, box = Main(), Box()
    who = announcer(box)
    for _ in range(3):
        main.commit(announced=who.sent_to or 0)
        look(who, main)
    heard = set(box.ids) if not box.waiting else set()
    box = Box()
    look(announcer(box), main)
    assert [int(each.detail["snapshot_id"]) for each in box.said if each.detail["again"]] == sorted(heard)
