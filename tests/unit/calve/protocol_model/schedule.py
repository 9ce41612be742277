"""One seeded schedule: who does what next, what users and maintenance do meanwhile, and what must hold at every moment."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable

from calve.table.dead_letters import dead_letters_round
from calve.table.position import NO_DEAD_LETTERS, Ledger, Offsets, Position, TopicKey, decode_offsets
from calve.table.protocol import nearest_position
from calve.table.summary import has_position
from tests.unit.calve.protocol_model import outside
from tests.unit.calve.protocol_model.lake import Snapshot, Table, Topic, doubled
from tests.unit.calve.protocol_model.world import PRODUCTION, Rules, Steps, World, stamp
from tests.unit.calve.protocol_model.writer import writer

KINDS: dict[str, tuple[str, ...]] = {
    "benign": (),
    "compaction": ("compact main", "compact letters"),
    "expiry": ("expire main", "expire letters"),
    "topic": ("add partition", "remove records"),
    "rollback": ("roll main back",),
    "move": ("copy topic", "move asked for", "roll main back", "compact main", "expire letters"),
    "travel": ("rollback asked for", "compact main", "compact letters", "expire main", "expire letters"),
    "maintenance": ("compact main", "compact letters", "expire main", "expire letters", "roll main back"),
    "hostile": tuple(outside.EVENTS),
}
"""What happens besides writers that crash, sleep and lose answers, by kind of schedule."""

JUSTIFIED = {
    "position_lost": ({"replace main"}, {"compact main", "expire main"}),
    "topic_recreated": ({"recreate topic"},),
    "cluster_changed": ({"copy topic"},),
    "offsets_expired": ({"retain"},),
    "dead_letters_lost": (
        {"roll letters back"},
        {"roll main back", "expire letters"},
        {"roll main forward"},
    ),
}
"""Suspension -> what must have happened before it is right to give up; no other suspension is."""

ROOT = Position(offsets={}, round="r0", writer="w0", topic="trades")
MAX_WRITERS = 3


class Broken(AssertionError):
    """An invariant does not hold; the message has the schedule's name and its last steps."""


class Schedule:
    """`Schedule("rollback", 38).run()` replays exactly what seed 38 does."""

    def __init__(self, kind: str, seed: int, rules: Rules = PRODUCTION) -> None:
        self.name = f'Schedule("{kind}", {seed})'
        self.events = KINDS[kind]
        self.rng = rng = random.Random(f"{kind}:{seed}")
        ids = itertools.count(1)
        main, dead_letters = Table("main", ids), Table("letters", ids)
        main.create(stamp(ROOT, ROOT.round))
        dead_letters.create(stamp(ROOT, NO_DEAD_LETTERS))
        self.world = World(
            rng,
            Topic.empty(TopicKey("c", "t"), rng.randint(1, 3), transactional=rng.random() < 0.5),
            main,
            dead_letters,
            rules,
            on_data_loss=rng.choice(("suspend", "continue")),
            unreliable=rng.choice((0, 0.1, 0.3)),
        )
        self.world.topic.compacted = "remove records" in self.events and rng.random() < 0.5
        self.writers: dict[str, Steps] = {}
        self.happened: set[str] = set()
        self.log: list[str] = []
        self.checked = (-1, -1)

    def run(self, turns: int = 120) -> None:
        """Let writers and the outside take turns, then let one writer come to rest, checking all the while.

        Raises:
            Broken: an invariant does not hold.
        """
        for _ in range(turns):
            self.turn()
        self.come_to_rest()

    def turn(self) -> None:
        choice = self.rng.random()
        if not self.writers or (choice < 0.04 and len(self.writers) < MAX_WRITERS):
            self.start()
        elif choice < 0.08:
            self.note(outside.produce(self.world))
        elif choice < 0.085:
            self.world.schema_registered = True
            self.note("schema registered")
        elif choice < 0.095:
            self.world.redrive_wanted = True
            self.note("a redrive is wanted")
        elif choice < 0.13 and self.events:
            self.outside(self.rng.choice(self.events))
        elif choice < 0.16 and self.late():
            self.rng.choice(self.late())()
            self.note("a late request arrives")
        elif choice < 0.18:
            name = self.rng.choice(sorted(self.writers))
            del self.writers[name]
            self.note(f"{name} crashes")
        else:
            self.go(self.rng.choice(sorted(self.writers)), self.rng.choice((1, 1, 1, 2, 5, 15)))

    def start(self) -> None:
        name = f"W{len(self.log)}"
        self.writers[name] = writer(self.world)
        self.note(f"{name} starts")

    def outside(self, event: str) -> None:
        if done := outside.EVENTS[event](self.world):
            self.happened.add(event)
            self.note(f"{event}: {done}")
            self.check()

    def late(self) -> list[Callable[[], None]]:
        return [table.deliver for table in (self.world.main, self.world.letters) if table.late]

    def go(self, name: str, steps: int) -> str | None:
        """Let a writer do up to `steps` steps, fewer where it comes to rest; None where it has ended."""
        step = None
        for _ in range(steps):
            step = next(self.writers[name], None)
            self.note(f"{name} {step or 'ends'} {'' if step else self.world.suspended[-1:]}")
            self.check()
            if step is None:
                del self.writers[name]
            if step in (None, "idle"):
                break
        return step

    def come_to_rest(self) -> None:
        """The network heals, sleepers wake up or die, and one live writer drains the topic."""
        self.note("the network heals")
        self.world.unreliable = 0
        while late := self.late():
            late[0]()
        for name in sorted(self.writers):
            self.go(name, self.rng.choice((0, 0, 5, 60)))
        self.writers.clear()
        for _ in range(40):
            if self.world.copies:
                self.outside("move asked for")
            self.start()
            name = next(iter(self.writers))
            suspended = len(self.world.suspended)
            if self.go(name, 2000) == "idle":
                self.check_position_and_fates()
                return
            if len(self.world.suspended) > suspended:
                return
            self.writers.clear()
        self.fail("it never comes to rest")

    def note(self, text: str) -> None:
        self.log.append(text.rstrip())

    def fail(self, text: str) -> None:
        tail = "\n  ".join(self.log[-60:])
        raise Broken(f"{self.name}: {text}\n  {tail}")

    def check(self) -> None:
        """What must hold at every moment, in every reader's eyes."""
        for each in self.world.suspended:
            if not any(causes <= self.happened for causes in JUSTIFIED.get(each.code, ())):
                self.fail(f"suspended without cause: {each.code}: {each.message}")
        versions = (self.world.main.metadata.version, self.world.letters.metadata.version)
        if versions == self.checked:
            return
        self.checked = versions
        rows = self.world.main.metadata.head().rows
        if twice := doubled(rows):
            self.fail(f"twice in main: {twice}")
        answered = self.world.main.metadata.answered
        if len(answered) != len({*answered}):
            self.fail(f"a request was answered twice: {answered}")
        if not any(event.startswith("roll") for event in self.happened):
            self.check_dead_letters()

    def check_dead_letters(self) -> None:
        """Between a rollback and the next round, dead letters lie beyond main; at rest, never."""
        rows, dead = self.world.main.metadata.head().rows, self.world.letters.metadata.head().rows
        if twice := doubled(dead):
            self.fail(f"twice in the dead letters: {twice}")
        held, waiting = {row.record for row in rows}, self.waiting_marks()
        still_open = {row.record for row in dead if not row.redriven} - waiting
        if both := held & still_open:
            self.fail(f"in main and in the dead letters: {both}")
        neither = {row.record for row in dead if row.redriven} - held
        if neither and "replace main" not in self.happened:
            self.fail(f"came back, and is not in main: {neither}")

    def waiting_marks(self) -> set[tuple[TopicKey, int, int]]:
        """The records of a redrive that main names and whose marks are still to be published."""
        main = nearest_position(self.world.main.metadata.ancestors())
        named = main.dead_letters if main else None
        newest = dead_letters_round(self.world.letters.metadata.ancestors())
        if named is None or not named.redriven or newest == named.round:
            return set()
        return self.world.marked[named.round]

    def check_position_and_fates(self) -> None:
        """At rest: every offset below the position has exactly one fate, and the ledgers say the same."""
        self.check_dead_letters()
        world, head = self.world, self.world.main.metadata
        rows = head.head().rows + tuple(r for r in world.letters.metadata.head().rows if not r.redriven)
        held = Counter(row.record for row in rows)
        lost = {
            (topic, partition, offset)
            for round_id in head.head().lineage
            for (topic, partition), (start, end) in world.lost.get(round_id, {}).items()
            for offset in range(start, end)
        }
        position = nearest_position(head.ancestors())
        if (
            position is None or position.of(world.topic.key) is None
        ):  # it was gone before the table first looked
            begun = world.topic.log_start.items()
            lost |= {(world.topic.key, partition, offset) for partition, to in begun for offset in range(to)}
        for partition, records in world.topic.records.items():
            for offset, kind in enumerate(records):
                at = (world.topic.key, partition, offset)
                allowed = {0} if kind == "-" else {0, 1} if kind == "x" or at in lost else {1}
                if held[at] not in allowed:
                    self.fail(f"partition {partition} offset {offset} ({kind}) is there {held[at]} times")
        self.check_ledgers()

    def check_ledgers(self) -> None:
        """Along main's history every round begins where the one before it ended, and its ledger covers what lies between."""
        positions = [s for s in self.world.main.metadata.walk() if has_position(s.summary)]
        for newer, older in itertools.pairwise(positions):
            begun = decode_offsets(newer.summary.get("calve.from", "{}"))
            ended = decode_offsets(newer.summary["calve.to"])
            before = decode_offsets(older.summary["calve.to"])
            for topic, start in begun.items():
                self.check_chain(before.get(topic, {}), start)
                ledger = Ledger.from_json(newer.summary["calve.ledger"])
                span = sum(ended[topic][p] - o for p, o in start.items())
                added = sum(row.round == newer.summary["calve.round"] for row in newer.rows)
                if (ledger.span, ledger.applied) != (span, added) or ledger.imbalance():
                    self.fail(f"{ledger} for {span} offsets and {added} rows")
            if not begun:
                self.check_standstill(newer, before, ended)

    def check_standstill(
        self, commit: Snapshot, before: dict[TopicKey, Offsets], after: dict[TopicKey, Offsets]
    ) -> None:
        """A redrive moves no offset and adds as many rows as it says; a merge has no ledger, and adds none."""
        if "calve.ledger" not in commit.summary:
            if before != after:
                self.fail(f"a merge went from {before} to {after}")
            return
        ledger = Ledger.from_json(commit.summary["calve.ledger"])
        added = sum(row.round == commit.summary["calve.round"] for row in commit.rows)
        if before != after or ledger.redriven != added or ledger.imbalance():
            self.fail(f"{ledger} for {added} rows, from {before} to {after}")

    def check_chain(self, before: Offsets, start: Offsets) -> None:
        if broken := {p: o for p, o in start.items() if o != before.get(p, o)}:
            self.fail(f"a round begins at {broken}, the one before it ended at {before}")
