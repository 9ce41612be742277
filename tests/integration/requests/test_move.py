"""Move of a table to a copy of its topic on another cluster: each record is in the table once, wherever a job dies."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from typer.testing import CliRunner

from calve.config.job import Kafka
from calve.errors import CalveError, LostRace, Suspended
from calve.modes.upsert import Upsert
from calve.requests.redrive import Request as Redrive
from calve.requests.requests import Entry, Move
from calve.table.protocol import nearest_position
from calve.table.summary import MOVE, REDRIVE
from cli.main import app
from cli.move.copies import Place, Search, Side
from cli.verify.findings import OTHERS
from glue_jobs.kafka.cluster import Cluster
from glue_jobs.rounds.round import Round
from glue_jobs.table.open_table import TableMemory
from tests.integration.support.crashing import Died, dying
from tests.integration.support.engine import DATABASE, Engine, at, suspended, trades, until
from tests.integration.support.proofs import assert_proved, proof
from tests.integration.support.records.producing import Raw, produce
from tests.integration.support.running import answering
from tests.standins.mirror.server import mirror, second_cluster

POINTS = ("requests.begin", "publish.committed", "move.completed", "requests.end", "plan.end")
Spans = Mapping[int, Sequence[tuple[int, int]]]


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with second_cluster() as found:
        yield found


@pytest.fixture
def elsewhere(engine: Engine, servers: str) -> Iterator[Engine]:
    """The same lake and registry beside another cluster."""
    with closing(Cluster(Kafka(servers))) as cluster:
        yield replace(
            engine,
            stack=replace(engine.stack, bootstrap_servers=servers),
            cluster=cluster,
            admin=AdminClient({"bootstrap.servers": servers}),
            producer=Producer({"bootstrap.servers": servers}),
        )


def send(engine: Engine, topic: str, count: int, *, first: int = 0, partition: int = 0) -> None:
    """Records of different moments, as a producer on `engine`'s cluster writes them."""
    made = [
        Raw(
            engine.encode(topic, row),
            str(row["id"]).encode(),
            partition,
            timestamp_ms=1_700_000_000_000 + row["id"],
        )
        for row in trades(count, first=first)
    ]
    produce(engine.stack.bootstrap_servers, topic, made)


def side(engine: Engine, topic: str) -> Side:
    return Side.of(Kafka(engine.stack.bootstrap_servers), engine.stack.region, topic)


def copy(former: Engine, other: Engine, topic: str, spans: Spans) -> None:
    """Copy ranges of offsets, one after the other, as a mirror does that may begin again below its end."""
    if other.key(topic) is None:
        other.create(topic, partitions=len(former.cluster.state(topic).end))
    for partition, ranges in spans.items():
        for span in ranges:
            for each in side(former, topic).reader.read({partition: span}):
                found = zip(each.keys, each.values, each.timestamps_ms, strict=True)
                records = [Raw(value, key, partition, timestamp_ms=at_ms) for key, value, at_ms in found]
                produce(other.stack.bootstrap_servers, topic, records)


def places(former: Engine, other: Engine, topic: str) -> list[Place]:
    held = former.position(topic)
    return Search(side(former, topic), side(other, topic), held.offsets[held.newest]).places()


def asked(engine: Engine, other: Engine, topic: str, **changes: Any) -> Move:
    held = engine.position(topic)
    offsets = changes.pop("offsets", None) or {
        each.partition: each.offset for each in places(engine, other, topic)
    }
    keys = str(held.newest), str(other.cluster.state(topic).key)
    request = Move(uuid.uuid4().hex, "2026-01-01T00:00:00+00:00", "ann", held.round, *keys, offsets)
    request = replace(request, **changes)
    engine.table(topic).set_properties({MOVE: request.to_json()})
    return request


def answer(engine: Engine, topic: str, request: Move) -> Entry:
    found = Entry.of(engine.table(topic).properties, request.id)
    assert found is not None
    return found


def ids(engine: Engine, topic: str) -> list[int]:
    return sorted(row[0] for row in engine.rows(topic).select("id").collect())


def began(engine: Engine, other: Engine) -> str:
    """A table that has 30 records of a topic; 10 more wait. The mirror has begun again twice, and is five records behind."""
    topic = engine.topic(partitions=2)
    send(engine, topic, 20)
    send(engine, topic, 10, first=20, partition=1)
    engine.drain(engine.target(topic))
    send(engine, topic, 10, first=30)
    copy(engine, other, topic, {0: [(0, 12), (5, 20), (17, 25)], 1: [(0, 10)]})
    other.expire(topic, 3)
    return topic


@pytest.mark.parametrize("engine_of_rows", ["columnar", pytest.param("rows", marks=pytest.mark.long)])
def test_a_moved_table_has_each_record_once(engine: Engine, elsewhere: Engine, engine_of_rows: Any) -> None:
    topic = began(engine, elsewhere)
    with suspended("cluster_changed") as caught:
        elsewhere.drain(elsewhere.target(topic))
    assert "calve move" in str(caught.value)
    assert places(engine, elsewhere, topic) == [Place(0, 20, 30, 1), Place(1, 10, 10, 1)]
    request = asked(engine, elsewhere, topic)
    target = elsewhere.target(topic, engine=engine_of_rows)
    elsewhere.drain(target)
    assert answer(engine, topic, request).problem is None
    assert ids(engine, topic) == list(range(35))
    copy(engine, elsewhere, topic, {0: [(25, 30)]})
    send(elsewhere, topic, 5, first=40)
    elsewhere.drain(target)
    assert ids(engine, topic) == list(range(45))
    with suspended("cluster_changed") as left:
        engine.drain(engine.target(topic))
    assert "was moved" in str(left.value)
    now = elsewhere.cluster.state(topic).key
    assert engine.position(topic).offsets[now] == elsewhere.cluster.state(topic).end
    found, former = proof(elsewhere, topic), proof(engine, topic)
    assert {each.name for each in found.checks if each.state == "not verifiable"} == {OTHERS}
    assert_proved(found.with_former(former))
    assert [(each.figure("contents"), each.figure(OTHERS)) for each in (found, former)] == [
        (15, 30),
        (30, 15),
    ]


@pytest.mark.parametrize(
    "point",
    ["move.committed", *(pytest.param(each, marks=pytest.mark.long) for each in POINTS)],
)
def test_a_job_that_dies_has_moved_the_table_or_does_it_afterwards(
    engine: Engine, elsewhere: Engine, point: str
) -> None:
    topic = began(engine, elsewhere)
    request = asked(engine, elsewhere, topic)
    with dying(point), pytest.raises(Died):
        elsewhere.drain(elsewhere.target(topic))
    assert elsewhere.drain(elsewhere.target(topic))
    copy(engine, elsewhere, topic, {0: [(25, 30)]})
    elsewhere.drain(elsewhere.target(topic))
    assert answer(engine, topic, request).problem is None
    assert ids(engine, topic) == list(range(40))
    assert len(engine.position(topic).moved) == 1
    assert_proved(proof(elsewhere, topic).with_former(proof(engine, topic)))


@pytest.mark.parametrize("point", ["publish.begin", pytest.param("stage.end", marks=pytest.mark.long)])
def test_a_round_of_the_former_cluster_that_is_under_way_is_not_published(
    engine: Engine, elsewhere: Engine, point: str
) -> None:
    topic = began(engine, elsewhere)
    rival = engine.target(topic)

    def move(_table: str) -> None:
        asked(engine, elsewhere, topic)
        Round(elsewhere.target(topic), TableMemory()).run()

    with at(point, move), pytest.raises((LostRace, Suspended)):
        engine.drain(rival)
    elsewhere.drain(elsewhere.target(topic))
    assert ids(engine, topic) == list(range(35))


REFUSED: tuple[tuple[dict[str, Any], str], ...] = (
    ({"round": "another"}, "has gone on"),
    ({"former": "another/topic"}, "has gone on"),
    ({"copy": "another/topic"}, "the request is for another/topic"),
    ({"offsets": {0: 30, 1: 99}}, "partition 1 has no offset 99"),
    ({"offsets": {0: 2, 1: 0}}, "partition 0 has no offset 2"),
    ({"offsets": {0: 30, 7: 0}}, "partition 7 has no offset 0"),
)


def test_a_request_that_does_not_apply_is_refused(engine: Engine, elsewhere: Engine) -> None:
    topic = began(engine, elsewhere)
    for changes, words in REFUSED:
        request = asked(engine, elsewhere, topic, **({"offsets": {0: 30, 1: 10}} | changes))
        with suspended("cluster_changed"):
            elsewhere.drain(elsewhere.target(topic))
        assert words in str(answer(engine, topic, request).problem)
        assert engine.position(topic).moved == ()
    engine.drain(engine.target(topic))
    assert ids(engine, topic) == list(range(40))


def test_a_table_goes_back_to_its_former_cluster_only_by_a_rollback(
    engine: Engine, elsewhere: Engine
) -> None:
    topic = began(engine, elsewhere)
    before = engine.table(topic).head
    asked(engine, elsewhere, topic)
    elsewhere.drain(elsewhere.target(topic))
    engine.rollback(topic, before or 0)
    engine.drain(engine.target(topic))
    assert ids(engine, topic) == list(range(40))
    assert_proved(proof(engine, topic))


@pytest.mark.long
def test_dead_letters_of_both_clusters_come_back(engine: Engine, elsewhere: Engine) -> None:
    """Their schemas are registered only afterwards, under ids that the records name already."""
    topic = engine.topic(partitions=1)
    send(engine, topic, 3)
    later = f"{topic}_later"
    schema_id = engine.register(later, '"string"')
    text = b"\x00" + schema_id.to_bytes(4, "big") + b"\x06one"
    produce(engine.stack.bootstrap_servers, topic, [Raw(text, b"a", timestamp_ms=1)])
    engine.drain(engine.target(topic))
    copy(engine, elsewhere, topic, {0: [(0, 4)]})
    asked(engine, elsewhere, topic)
    produce(elsewhere.stack.bootstrap_servers, topic, [Raw(text, b"b", timestamp_ms=2)])
    target = elsewhere.target(topic)
    elsewhere.drain(target)
    assert engine.letter_offsets(topic) == [(0, 3), (0, 4)]
    request = Redrive(uuid.uuid4().hex, "2026-01-01T00:00:00+00:00")
    engine.table(topic).set_properties({REDRIVE: request.to_json()})
    elsewhere.drain(elsewhere.target(topic))
    assert ids(engine, topic) == [0, 1, 2]
    assert_proved(proof(elsewhere, topic).with_former(proof(engine, topic)))


def test_newest_rows_are_those_of_both_topics(engine: Engine, elsewhere: Engine) -> None:
    topic = engine.topic(partitions=1)
    settings: dict[str, Any] = {"upsert": Upsert(("id",))}
    send(engine, topic, 6)
    engine.drain(engine.target(topic, **settings))
    copy(engine, elsewhere, topic, {0: [(2, 6)]})
    assert places(engine, elsewhere, topic) == [Place(0, 6, 4, 1)]
    asked(engine, elsewhere, topic)
    send(elsewhere, topic, 4, first=4)
    elsewhere.drain(elsewhere.target(topic, **settings))
    assert ids(engine, topic) == list(range(8))
    assert not proof(elsewhere, topic).findings
    with pytest.raises(CalveError, match="may have replaced rows"):
        proof(engine, topic)


@pytest.mark.long
def test_a_moved_table_is_found_by_its_tag_when_its_history_was_expired(
    engine: Engine, elsewhere: Engine
) -> None:
    topic = began(engine, elsewhere)
    asked(engine, elsewhere, topic)
    elsewhere.drain(elsewhere.target(topic))
    opened = elsewhere.target(topic).open()
    opened.mark_idle()
    for _ in range(2):
        engine.compact(topic)
    engine.expire_history(topic)
    assert nearest_position(engine.table(topic).ancestors()) is None
    copy(engine, elsewhere, topic, {0: [(25, 30)]})
    elsewhere.drain(elsewhere.target(topic))
    assert ids(engine, topic) == list(range(40))


def refusal(former: Engine, other: Engine, topic: str) -> str:
    with pytest.raises(CalveError) as caught:
        places(former, other, topic)
    return str(caught.value)


def test_a_copy_that_proves_no_place_is_refused(engine: Engine, elsewhere: Engine) -> None:
    topic = engine.topic(partitions=4)
    for partition in range(4):
        send(engine, topic, 20, first=100 * partition, partition=partition)
    engine.drain(engine.target(topic))
    send(engine, topic, 5, first=20)
    copies = {0: [(0, 19)], 1: [(0, 20), (4, 9)], 2: [(0, 20)], 3: [(0, 20)]}
    copy(engine, elsewhere, topic, copies)
    engine.expire(topic, 20, partition=2)
    found = refusal(engine, elsewhere, topic)
    assert "partition 0: the copy does not have the former topic's record at offset 19" in found
    assert "partition 1: the copy repeats records" in found
    assert "partition 2: the former topic does not hold any record" in found
    assert "partition 3" not in found
    copy(engine, elsewhere, topic, {0: [(21, 25)]})
    assert "partition 0: the copy does not have" in refusal(engine, elsewhere, topic)
    copy(engine, elsewhere, topic, {0: [(10, 23)], 1: [(9, 20)]})
    assert "partition 0: the copy repeats records" in refusal(engine, elsewhere, topic)
    copy(engine, elsewhere, topic, {0: [(23, 25)]})
    elsewhere.expire(topic, 20, partition=2)
    assert [each.offset for each in places(engine, elsewhere, topic)] == [33, 36, 20, 20]


@pytest.mark.long
def test_a_mirror_that_began_again_far_below_is_noticed(engine: Engine, elsewhere: Engine) -> None:
    topic = engine.topic(partitions=1)
    send(engine, topic, 3_000)
    engine.drain(engine.target(topic))
    copy(engine, elsewhere, topic, {0: [(0, 3_000), (10, 50)]})
    assert "repeats records" in refusal(engine, elsewhere, topic)
    copy(engine, elsewhere, topic, {0: [(50, 3_000)]})
    assert places(engine, elsewhere, topic) == [Place(0, 3_000, 5_990, 1)]


def test_records_that_are_alike_tell_no_place_and_a_row_of_them_does(
    engine: Engine, elsewhere: Engine
) -> None:
    topic = engine.topic(partitions=2)
    beat = Raw(engine.encode(topic, trades(1)[0]), b"beat", 0, timestamp_ms=5)
    for servers in (engine, elsewhere):
        if servers is elsewhere:
            elsewhere.create(topic, partitions=2)
        produce(servers.stack.bootstrap_servers, topic, [beat] * 4)
        odd = replace(beat, partition=1)
        mixed = [odd, odd, replace(odd, timestamp_ms=6), odd, odd]
        produce(servers.stack.bootstrap_servers, topic, mixed)
    engine.drain(engine.target(topic))
    assert places(engine, elsewhere, topic) == [Place(0, 4, 4, 4), Place(1, 5, 5, 3)]
    produce(engine.stack.bootstrap_servers, topic, [beat, odd])
    found = refusal(engine, elsewhere, topic)
    assert "partition 0: its records are all alike" in found
    assert "partition 1: the copy repeats records" in found


@pytest.mark.long
@pytest.mark.parametrize("setting", ["message.timestamp.type", "cleanup.policy"])
def test_broker_timestamps_do_not_count_and_a_compacted_copy_has_no_other_records(
    engine: Engine, elsewhere: Engine, setting: str
) -> None:
    topic = engine.topic(partitions=1)
    send(engine, topic, 9)
    engine.drain(engine.target(topic))
    value = {"message.timestamp.type": "LogAppendTime", "cleanup.policy": "compact"}[setting]
    elsewhere.create(topic, partitions=1, config={setting: value})
    copy(engine, elsewhere, topic, {0: [(0, 4), (2, 9)]})
    assert places(engine, elsewhere, topic) == [Place(0, 9, 11, 1)]
    send(elsewhere, topic, 1, first=50)
    if setting == "cleanup.policy":
        assert "it is compacted" in refusal(engine, elsewhere, topic)
    else:
        assert places(engine, elsewhere, topic) == [Place(0, 9, 11, 1)]


def settled(engine: Engine, topic: str, key: bytes) -> bool:
    """Whether partition 0 ends with a record of this key, now and three seconds later."""
    ends = []
    for _ in range(2):
        end = engine.cluster.state(topic).end[0]
        read = [*side(engine, topic).reader.read({0: (end - 1, end)})]
        ends.append((end, read and read[0].keys[-1]))
        time.sleep(3)
    return ends[0] == ends[1] and ends[0][1] == key


@pytest.mark.long
def test_mirror_maker_that_dies_and_producers_that_have_moved(
    engine: Engine, elsewhere: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real MirrorMaker is killed twice: it copies records again. The table is moved by the command while a job runs."""
    topic = engine.topic(partitions=2)
    source, target = engine.stack.bootstrap_servers, elsewhere.stack.bootstrap_servers

    def mirrored(count: int) -> bool:
        return elsewhere.key(topic) is not None and sum(elsewhere.cluster.state(topic).end.values()) >= count

    send(engine, topic, 300)
    send(engine, topic, 300, first=300, partition=1)
    engine.drain(engine.target(topic))
    with mirror(source, target, topic) as copies:
        until(lambda: mirrored(600))
        copies.kill()
        send(engine, topic, 50, first=600)
        copies.start()
        until(lambda: mirrored(650 + 600))
        copies.kill()
        copies.start()
        send(engine, topic, 50, first=650)
        until(lambda: settled(elsewhere, topic, b"699"), seconds=60)
        files = {}
        for name, servers in (("calve", target), ("former", source)):
            files[name] = tmp_path / f"{name}.yaml"
            files[name].write_text(
                f"name: tests\nkafka: {{bootstrap_servers: '{servers}'}}\nlake: {{database: {DATABASE}}}\n"
                f"tables: {{{topic}: {{topic: {topic}}}}}\n"
            )
        monkeypatch.setenv("CALVE_CONFIG", str(files["calve"]))
        send(elsewhere, topic, 20, first=1_000)
        with answering(elsewhere.target(topic)):
            arguments = ["move", topic, "--from-cluster", str(files["former"]), "--yes", "-o", "json"]
            done = CliRunner().invoke(app, arguments)
        assert done.exit_code == 0, done.output
        until(
            lambda: (
                set(range(700)) <= {*ids(elsewhere, topic)} or not elsewhere.drain(elsewhere.target(topic))
            )
        )
    assert ids(engine, topic) == [*range(700), *range(1_000, 1_020)]
    checked = CliRunner().invoke(app, ["verify", topic, "--from-cluster", str(files["former"]), "-o", "json"])
    assert checked.exit_code == 0, checked.output
