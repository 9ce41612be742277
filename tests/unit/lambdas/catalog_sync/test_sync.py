"""One table is made equal, whatever happens meanwhile."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calve.errors import CalveError, Fatal
from lambdas.catalog_sync.sync import LEASE_MS, OWNER, WRITE_MS, Act, drop_namespaces
from lambdas.publish_states import State
from tests.unit.lambdas.catalog_sync.world import NAME, NAMESPACE, Killed, Overtaken, World, lost

HAPPENS = ("nothing", "commit", "wait", "other", "killed", "lost", "late")
TIMEOUT_MS = 60_000
"""After which Lambda ends a function."""


def test_a_table_is_registered_and_moved_and_dropped() -> None:
    world = World()
    sync = world.sync()
    assert sync.table(NAME, published=True).state == State.PENDING
    world.commit()
    registered = sync.table(NAME, published=True)
    assert (registered.acts, registered.state) == ((Act.REGISTER,), State.SYNCED)
    assert world.namespaces == {NAMESPACE: {OWNER: "trading"}}
    world.commit()
    world.now += 1500
    moved = sync.table(NAME, published=True)
    assert (moved.acts, moved.lag_s, moved.late_s) == ((Act.MOVE,), 1.5, 1.5)
    assert world.row is not None
    assert (world.row.state, world.row.metadata_location, world.row.lag_s) == (
        State.SYNCED,
        "s3://lake/1",
        1.5,
    )
    assert sync.table(NAME, published=True).acts == ()
    assert sync.table(NAME, published=False).acts == (Act.DROP,)
    drop_namespaces(sync, {NAMESPACE})
    assert [world.row, world.shown, world.leases, world.namespaces] == [None, None, {}, {}]


def test_a_table_that_glue_has_no_more_is_dropped_and_pending() -> None:
    world = World()
    world.commit()
    sync = world.sync()
    sync.table(NAME, published=True)
    world.there = None
    assert sync.table(NAME, published=True).acts == (Act.DROP,)
    assert world.row is not None
    assert (world.row.state, world.row.uuid) == (State.PENDING, None)


def test_a_table_that_was_dropped_and_made_again_is_followed() -> None:
    world = World()
    world.commit()
    sync = world.sync()
    sync.table(NAME, published=True)
    world.commit("u2")
    assert sync.table(NAME, published=True).acts == (Act.MOVE,)
    assert world.row is not None
    assert world.row.uuid == "u2"


@pytest.mark.parametrize("uuid", ["u1", "somebody's"])
def test_a_table_that_was_there_is_left_alone(uuid: str) -> None:
    world = World()
    world.commit(uuid)
    world.show(0)
    world.commit()
    with pytest.raises(Fatal, match="did not register"):
        world.sync().table(NAME, published=True)
    assert world.row is not None
    assert (world.row.state, world.row.uuid) == (State.FAILED, None)
    world.sync().table(NAME, published=False)
    assert world.seen == [0]
    assert world.row is None


def test_a_table_that_somebody_registers_at_the_same_moment_is_theirs() -> None:
    world = World()
    world.commit()
    world.disturb = lambda call: world.show(0) if call == "write" else None
    with pytest.raises(Fatal, match="did not register"):
        world.sync().table(NAME, published=True)
    world.disturb = lambda _: None
    world.sync().table(NAME, published=False)
    assert world.shown is not None


def test_the_catalog_is_not_moved_back_to_older_metadata() -> None:
    world = World()
    world.commit()
    world.commit()
    sync = world.sync()
    sync.table(NAME, published=True)
    world.there = 0
    with pytest.raises(Fatal, match="newer metadata"):
        sync.table(NAME, published=True)
    assert world.seen == [1]


def test_metadata_of_a_slower_clock_is_newer_where_it_says_what_came_before() -> None:
    world = World()
    world.commit()
    sync = world.sync()
    sync.table(NAME, published=True)
    world.commit(slow_clock=True, snapshot=False)
    assert sync.table(NAME, published=True).acts == (Act.MOVE,)


def test_a_write_without_an_answer_holds_the_table_until_the_lease_ends() -> None:
    world = World()
    world.commit()

    def disturb(call: str) -> None:
        if call == "write":
            raise lost()

    world.disturb = disturb
    with pytest.raises(CalveError, match="nobody knows"):
        world.sync().table(NAME, published=True)
    world.disturb = lambda _: None
    with pytest.raises(CalveError, match="another function"):
        world.sync().table(NAME, published=True)
    world.now += LEASE_MS + 1
    assert world.sync().table(NAME, published=True).state == State.SYNCED


def test_a_function_that_was_held_up_does_not_begin_to_write() -> None:
    world = World()
    world.commit()

    def disturb(call: str) -> None:
        if call == "put":
            world.now += LEASE_MS - WRITE_MS + 1

    world.disturb = disturb
    with pytest.raises(CalveError, match="used up"):
        world.sync().table(NAME, published=True)
    assert world.seen == []


@dataclass
class Schedule:
    """What happens, call by call: Glue moves on, another function has its turn, this one dies, its answer is lost or late."""

    world: World
    happens: list[str]
    depth: int = 0
    deadline: int = 0

    def run(self) -> None:
        self.world.disturb = self.disturb
        for _ in range(4):
            self.function()

    def function(self) -> None:
        outer, self.deadline = self.deadline, self.world.now + TIMEOUT_MS
        with suppress(CalveError, Killed):
            self.world.sync().table(NAME, published=True)
        self.deadline = outer

    def disturb(self, call: str) -> None:
        match self.happens.pop() if self.happens else "nothing":
            case "commit":
                self.world.commit()
            case "other" if self.depth < 3:
                self.depth += 1
                self.function()
                self.depth -= 1
            case "wait":
                self.world.now += TIMEOUT_MS * 3 // 4
            case "killed":
                self.world.now += TIMEOUT_MS
            case "lost" if call in ("write", "written"):
                raise lost()
            case "late" if call == "write":
                raise Overtaken
        if self.world.now >= self.deadline:
            raise Killed


@settings(max_examples=1000, deadline=None)
@given(st.lists(st.sampled_from(HAPPENS), max_size=40), st.integers(1, 3))
def test_no_order_of_events_moves_the_catalog_back_or_takes_the_table_away(
    happens: list[str], commits: int
) -> None:
    world = World()
    for _ in range(commits):
        world.commit()
    Schedule(world, happens).run()
    assert None not in world.seen
    versions = [each for each in world.seen if each is not None]
    assert all(before <= after for before, after in pairwise(versions))

    world.disturb = lambda _: None
    world.now += LEASE_MS + 1
    assert world.sync().table(NAME, published=True).state == State.SYNCED
    assert world.shown is not None
    assert world.shown.metadata_location == f"s3://lake/{world.there}"


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(HAPPENS), max_size=30))
def test_after_any_death_what_is_ours_is_known_and_can_be_dropped(happens: list[str]) -> None:
    world = World()
    world.commit()
    Schedule(world, happens).run()
    world.disturb = lambda _: None
    world.now += LEASE_MS + 1
    sync = world.sync()
    sync.table(NAME, published=False)
    drop_namespaces(sync, {NAMESPACE})
    assert [world.row, world.shown, world.namespaces] == [None, None, {}]
