"""What producers, users, brokers and foreign maintenance do to a world while calve's writers are at work."""

from __future__ import annotations

from dataclasses import replace

from calve.table.position import TopicKey
from calve.table.protocol import nearest_position
from tests.unit.calve.protocol_model.lake import MAIN, Metadata, Snapshot, Table, Wanted, WantedMove
from tests.unit.calve.protocol_model.world import World

MAX_PARTITIONS = 4
RARELY = 0.3


def produce(world: World) -> str:
    topic, rng = world.topic, world.rng
    partition = rng.choice(sorted(topic.records))
    kinds = "ggggbs--" if topic.transactional else "ggggbs"
    records = "".join(rng.choice(kinds) for _ in range(rng.randint(1, 6)))
    topic.records[partition] += records
    return f"partition {partition} gets {records}"


def _compact(table: Table) -> str:
    table.change(lambda base: table.snapshot(base, {}, base.head().rows))
    return "done"


def _expire(world: World, table: Table) -> str:
    keep = world.rng.randint(1, 3)
    table.change(lambda base: base.expired(keep))
    return f"kept {keep}"


def _roll_back(world: World, table: Table) -> str:
    return _move(table, world.rng.choice(list(table.metadata.walk())))


def _roll_forward(world: World) -> str:
    """`set_current_snapshot` to what a rollback left behind."""
    return _move(world.main, world.main.metadata.snapshots[max(world.main.metadata.snapshots)])


def _move(table: Table, to: Snapshot) -> str:
    table.change(lambda base: base.with_ref(MAIN, to.id))
    return f"to {to.summary.get('calve.round')}"


def _ask_to_go_back(world: World) -> str:
    main = world.main
    if main.metadata.wanted is not None:
        return ""
    to = world.rng.choice([*main.metadata.snapshots])
    wanted = Wanted(next(main.ids), to)
    main.change(lambda base: replace(base, wanted=wanted))
    return f"to {to}"


def _replace(world: World) -> str:
    """`CREATE OR REPLACE TABLE`: the name and the properties stay, main's history does not."""
    if world.rng.random() > RARELY:
        return ""

    def change(base: Metadata) -> Metadata:
        return base.with_snapshot(Snapshot(next(world.main.ids), None, {"total-records": "0"}, ()))

    world.main.change(change)
    return "done"


def _retain(world: World) -> str:
    topic = world.topic
    partition = world.rng.choice(sorted(topic.records))
    topic.log_start[partition] = world.rng.randint(topic.log_start[partition], len(topic.records[partition]))
    return f"partition {partition} begins at {topic.log_start[partition]}"


def _recreate(world: World) -> str:
    topic = world.topic
    if world.rng.random() > RARELY:
        return ""
    topic.key = TopicKey(topic.key.cluster_id, topic.key.topic_id + "'")
    topic.records = dict.fromkeys(topic.records, "")
    topic.log_start = dict.fromkeys(topic.records, 0)
    return "done"


def _copy_topic(world: World) -> str:
    """The topic is on another cluster: a mirror has repeated records below those that a table has."""
    topic, rng = world.topic, world.rng
    if world.on_data_loss == "continue":
        return ""
    key = TopicKey(topic.key.cluster_id + "'", topic.key.topic_id)
    more = {partition: rng.randint(0, 3) for partition in topic.records}
    world.copies[key] = topic.key, more
    topic.key = key
    topic.records = {p: "g" * more[p] + records for p, records in topic.records.items()}
    topic.log_start = {p: start + more[p] if start else 0 for p, start in topic.log_start.items()}
    return f"{key}, {more}"


def _ask_to_move(world: World) -> str:
    """What `calve move` does: it looks at the table and compares both topics."""
    main, topic = world.main, world.topic
    position = nearest_position(main.metadata.ancestors())
    former, more = world.copies.get(topic.key, (None, {}))
    if position is None or position.newest != former or main.metadata.wanted is not None:
        return ""
    held = position.of(position.newest) or {}
    offsets = tuple((partition, offset + more[partition]) for partition, offset in held.items())
    wanted = WantedMove(next(main.ids), position.round, position.newest, topic.key, offsets)
    main.change(lambda base: replace(base, wanted=wanted))
    return f"to {offsets}"


def _add_partition(world: World) -> str:
    partition = len(world.topic.records)
    if partition == MAX_PARTITIONS:
        return ""
    world.topic.records[partition] = ""
    world.topic.log_start[partition] = 0
    return f"partition {partition}"


def _remove_records(world: World) -> str:
    """Kafka's log compaction; never the newest record of a partition."""
    if not world.topic.compacted:
        return ""
    world.topic.compact(world.rng)
    return "done"


EVENTS = {
    "compact main": lambda world: _compact(world.main),
    "compact letters": lambda world: _compact(world.letters),
    "expire main": lambda world: _expire(world, world.main),
    "expire letters": lambda world: _expire(world, world.letters),
    "roll main back": lambda world: _roll_back(world, world.main),
    "roll main forward": _roll_forward,
    "rollback asked for": _ask_to_go_back,
    "roll letters back": lambda world: _roll_back(world, world.letters),
    "replace main": _replace,
    "retain": _retain,
    "recreate topic": _recreate,
    "copy topic": _copy_topic,
    "move asked for": _ask_to_move,
    "add partition": _add_partition,
    "remove records": _remove_records,
}
"""Each says what it did, or nothing where it did nothing."""
