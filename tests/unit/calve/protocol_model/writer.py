"""A writer of the model: the steps of `glue_jobs.rounds.round`, with production's own decisions."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from calve.errors import LostRace, Suspended
from calve.table.position import DeadLetterRound, Ledger, Offsets, Position, TopicKey
from calve.table.protocol import (
    Begin,
    TopicState,
    begin,
    bounded,
    check_gaps,
    check_ledger,
    nearest_position,
    next_position,
)
from calve.table.summary import POSITION_TAG, encode
from tests.unit.calve.protocol_model import letters
from tests.unit.calve.protocol_model.lake import Metadata, Row, WantedMove, as_commit
from tests.unit.calve.protocol_model.move import move
from tests.unit.calve.protocol_model.publishing import publish
from tests.unit.calve.protocol_model.redrive import redrive
from tests.unit.calve.protocol_model.travel import travel
from tests.unit.calve.protocol_model.upkeep import upkeep
from tests.unit.calve.protocol_model.world import Again, Steps, World, commit, or_again, stamp

UPKEPT = 0.2
"""How often there is something to do between two rounds."""
Memory = dict[tuple[str, TopicKey], Offsets]
"""How far offsets without a record were read beyond a round's position of a topic."""


@dataclass
class Round:
    """One round of one writer."""

    world: World
    writer: str
    memory: Memory
    id: str
    base: Position = field(init=False)
    topic: TopicState = field(init=False)
    start: Begin = field(init=False)
    offsets: Offsets = field(init=False)
    to: Offsets = field(init=False)
    rows: list[Row] = field(default_factory=list)
    rejects: list[Row] = field(default_factory=list)
    idle: bool = False
    position: Position = field(init=False)
    """Where the table stands after it."""

    def run(self) -> Steps:
        yield from self.recover()
        if self.world.redrive_wanted:
            yield from redrive(self.world, self.base, self.writer, self.id)
            self.world.redrive_wanted = False
            raise Again
        if wanted := self.world.main.metadata.wanted:
            if isinstance(wanted, WantedMove):
                yield from move(self.world, self.base, self.writer, self.id, wanted)
            else:
                yield from travel(self.world, wanted)
            raise Again
        if not self.plan():
            yield from self.tag()
            self.idle = True
            return
        yield "planned"
        self.read()
        yield "read"
        held: list[int] = []
        if self.rejects:
            yield from letters.hold(self.world, self.id, self.base, self.rejects, held)
            yield f"held {self.id}"
        ledger = self.audit()
        if ledger is None:
            return
        yield "audited"
        named = DeadLetterRound(self.id, held[-1], len(self.rejects)) if held else None
        self.position = next_position(
            self.base, self.topic, self.to, round_id=self.id, writer=self.writer, dead_letters=named
        )
        publish = self.publish(self.position, ledger)
        release = letters.release(self.world, self.position, self.rejects) if held else iter(())
        for steps in (publish, release) if self.world.rules.main_first else (release, publish):
            yield from steps

    def recover(self) -> Steps:
        """Read the position, and bring the dead letters level with it; they are read before main and after it."""
        world = self.world
        seen = world.letters.metadata
        yield "letters read"
        head = world.main.metadata
        yield "main read"
        now = world.letters.metadata
        yield from self.locate(head, now)
        yield from letters.recover(world, self.base, seen if world.rules.letters_read_first else now, now)

    def locate(self, head: Metadata, dead_letters: Metadata) -> Steps:
        rows = head.head().rows + dead_letters.head().rows
        ancestors = self.world.rules.ancestors(head)
        at = head.refs.get(POSITION_TAG)
        tagged = None if at is None else as_commit(head.snapshots[at])
        self.base = self.world.rules.locate(ancestors, tagged=tagged, greatest_offsets=greatest(rows))
        self.position = self.base
        yield f"located {self.base.round}, {self.base.dead_letters}"
        if nearest_position(ancestors) is None:
            yield from self.anchor(head.head().id)

    def anchor(self, head: int) -> Steps:
        """Commit a position that only the tag proves once more, so that main's history proves it."""
        main = self.world.main
        found = replace(self.base, round=self.world.new_id("a"))
        summary = stamp(found, found.round)
        yield from or_again(
            commit(
                self.world,
                main,
                lambda base: main.snapshot(base, summary, base.head().rows, found.round),
                lambda base: base.head().id == head,
            )
        )
        raise Again

    def plan(self) -> bool:
        world = self.world
        self.topic = world.topic.state()
        self.start = begin(self.base, self.topic, first={}, on_data_loss=world.on_data_loss)
        ahead = self.memory.get((self.base.round, self.topic.key), {})
        self.offsets = {p: max(o, ahead.get(p, 0)) for p, o in self.start.offsets.items()}
        budget = world.rng.randint(1, 9)
        self.to = bounded(self.offsets, self.topic.end, budget_records=budget, partition_records=5)
        return self.to != self.offsets or bool(self.start.lost)

    def read(self) -> None:
        good = "gs" if self.world.schema_registered else "g"
        for topic, partition, offset, kind in self.world.topic.read(self.offsets, self.to):
            row = Row(topic, partition, offset, self.id, kind)
            (self.rows if kind in good else self.rejects).append(row)

    def audit(self) -> Ledger | None:
        """The round's ledger; None where it has no record and the position moves in memory only."""
        world = self.world
        try:
            world.rules.recheck(self.topic, world.topic.state(), self.offsets)
        except Suspended:
            if world.on_data_loss == "continue":
                raise Again from None
            raise
        records = self.rows + self.rejects
        gaps = check_gaps(
            self.topic,
            span=sum(self.to[p] - o for p, o in self.offsets.items()),
            records=len(records),
            allowed=False,
            missing=dict,
        )
        ledger = Ledger(
            span=sum(self.to[p] - o for p, o in self.start.since.items()),
            consumed=len(records),
            gaps=gaps + sum(o - self.start.offsets[p] for p, o in self.offsets.items()),
            applied=len(self.rows),
            dead_lettered=len(self.rejects),
            rows_appended=len(self.rows),
            lost=sum(b - a for a, b in self.start.lost.values()),
            rejected={"bad": len(self.rejects)} if self.rejects else {},
        )
        check_ledger(ledger, staged_rows=len(self.rows))
        if not records and not self.start.lost and world.rng.random() < 0.7:
            self.memory[self.base.round, self.topic.key] = self.to
            return None
        before = {} if self.base.offsets else {p: (0, o) for p, o in self.start.offsets.items()}
        world.lost[self.id] = {
            (self.topic.key, p): range_ for p, range_ in (before | self.start.lost).items()
        }
        return ledger

    def publish(self, position: Position, ledger: Ledger) -> Steps:
        start = {self.topic.key: self.start.since}
        summary = encode(position=position, topic=self.topic.key, start=start, ledger=ledger, metrics={})
        yield from publish(self.world, self.base, self.id, summary, self.rows)

    def tag(self) -> Steps:
        """Mark the position of an idle table, so that expiry cannot take it."""
        at = self.base.snapshot
        assert at is not None

        def move(base: Metadata) -> Metadata | None:
            wanted = at in base.snapshots and base.refs.get(POSITION_TAG) != at
            return base.with_ref(POSITION_TAG, at) if wanted else None

        return or_again(commit(self.world, self.world.main, move))


def writer(world: World) -> Steps:
    """A writer's life: rounds, until it loses a race or its table is suspended."""
    name = world.new_id("w")
    memory: Memory = {}
    while True:
        attempt = Round(world, name, memory, world.new_id("r"))
        try:
            yield from attempt.run()
        except Again:
            yield "again"
        except LostRace:
            return
        except Suspended as error:
            world.suspended.append(error)
            return
        if attempt.idle:
            yield "idle"
        if world.rng.random() < UPKEPT:
            yield from upkeep(world, attempt.position)


def greatest(rows: tuple[Row, ...]) -> dict[TopicKey, Offsets]:
    """The greatest offset held, by topic and partition."""
    found: dict[TopicKey, Offsets] = {}
    for row in rows:
        held = found.setdefault(row.topic, {})
        held[row.partition] = max(held.get(row.partition, -1), row.offset)
    return found
