"""Record batches are fetched and taken apart: the same records as librdkafka has, as columns and as rows, or an error."""

from __future__ import annotations

import pickle
import secrets
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import functions as F

from calve.config.job import Kafka
from calve.errors import Fatal, Retryable
from calve.table.protocol import TopicState
from cli.verify.topic import Reader
from glue_jobs.columns.expressions import REFUSED
from glue_jobs.kafka import client as connecting
from glue_jobs.kafka import source
from glue_jobs.kafka.client import Leaders, client_of, drop_client, settings_of
from glue_jobs.kafka.connection import Connection
from glue_jobs.kafka.fetching import Range, fetch, uuid_of
from glue_jobs.process.workers import errors_of_workers
from tests.integration.ingest.test_topic_changes import compact, keyed
from tests.integration.support.engine import Engine, suspended, until
from tests.integration.support.records.producing import Raw, produce, transaction
from tests.integration.support.servers import outages
from tests.integration.support.servers.principals import READING, User, scram
from tests.record_batches import told

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
Row = tuple[int, int, int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


@contextmanager
def connected(engine: Engine, kafka: Kafka | None = None) -> Iterator[Connection]:
    connection = Connection(kafka or Kafka(engine.stack.bootstrap_servers))
    yield connection
    drop_client(settings_of(connection))


def fetched(
    engine: Engine,
    topic: str,
    ranges: Sequence[Range],
    *,
    kafka: Kafka | None = None,
    topic_id: str | None = None,
    chunk_bytes: int = 1 << 20,
) -> list[Row]:
    with connected(engine, kafka) as connection:
        settings = pickle.loads(pickle.dumps(settings_of(connection)))
        topic_id = topic_id or engine.cluster.state(topic).key.topic_id
        return [
            (chunk.partition, one.offset, one.timestamp, int(kind), one.key, one.value, one.headers)
            for chunk in fetch(settings, topic, topic_id, ranges, chunk_bytes)
            for one, kind in zip(told(chunk), chunk.timestamp_type, strict=True)
        ]


def consumed(engine: Engine, topic: str, ranges: Sequence[Range]) -> list[Row]:
    """The same as librdkafka has it."""
    key = engine.cluster.state(topic).key
    reader = Reader(
        TopicState(key, topic, {}, {}), Kafka(engine.stack.bootstrap_servers), engine.stack.region
    )
    return sorted(
        row
        for chunk in reader.read({each.partition: (each.start, each.to) for each in ranges})
        for row in zip(
            chunk.partitions,
            chunk.offsets,
            chunk.timestamps_ms,
            chunk.timestamp_types,
            chunk.keys,
            chunk.values,
            (tuple(each or ()) for each in chunk.headers),
            strict=True,
        )
    )


def framed(engine: Engine, topic: str, ranges: Sequence[Range], tasks: int = 2) -> list[Row]:
    """The same as rows have it."""
    start, to = ({each.partition: getattr(each, end) for each in ranges} for end in ("start", "to"))
    settings, cpu_s = settings_of(engine.cluster.connection), engine.spark.sparkContext.accumulator(0.0)
    topic_id = engine.cluster.state(topic).key.topic_id
    found = source.read(engine.spark, settings, topic, topic_id, start, to, tasks=tasks, cpu_s=cpu_s)
    rows = found.withColumn("timestamp", F.unix_millis("timestamp")).orderBy("partition", "offset").collect()
    assert {(each.topic, each[REFUSED]) for each in rows} <= {(topic, None)}
    assert not rows or cpu_s.value > 0
    return [
        (
            one.partition,
            one.offset,
            one.timestamp,
            one.timestampType,
            _bytes(one.key),
            _bytes(one.value),
            tuple((header.key, _bytes(header.value)) for header in one.headers or ()),
        )
        for one in rows
    ]


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)


def whole(engine: Engine, topic: str) -> list[Range]:
    return [Range(p, 0, end) for p, end in sorted(engine.cluster.state(topic).end.items())]


def mixed(count: int, partitions: int = 1) -> list[Raw]:
    """Records with and without key, value and headers."""
    return [
        Raw(
            None if n % 5 == 0 else b"value %d" % n * (n % 11),
            None if n % 3 == 0 else b"" if n % 3 == 1 else b"key %d" % n,
            n % partitions,
            [("a", b"1"), ("a", None), ("\u20ac", b"")][: n % 4],
        )
        for n in range(count)
    ]


def send(engine: Engine, topic: str, records: Sequence[Raw], **settings: Any) -> None:
    """In many batches, for which `settings` are the producer's."""
    servers = {"bootstrap.servers": engine.stack.bootstrap_servers, "batch.num.messages": 10}
    producer = Producer(servers | settings)
    for one in records:
        producer.produce(topic, one.value, one.key, one.partition, headers=list(one.headers))
    assert producer.flush(30) == 0


@pytest.mark.parametrize("by", ["producer", "broker"])
@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_is_read(engine: Engine, codec: str, by: str) -> None:
    """librdkafka's, and Java's: a broker compresses anew where the topic says another codec than the producer has used."""
    config = {"compression.type": "uncompressed" if codec == "none" else codec} if by == "broker" else {}
    topic = engine.topic(partitions=1, config=config)
    send(engine, topic, mixed(300), **({} if by == "broker" else {"compression.type": codec}))
    ranges = whole(engine, topic)
    assert fetched(engine, topic, ranges) == framed(engine, topic, ranges) == consumed(engine, topic, ranges)


def test_ranges_of_several_partitions_are_read_to_the_record(engine: Engine) -> None:
    topic = engine.topic(partitions=4, config={"message.timestamp.type": "LogAppendTime"})
    send(engine, topic, mixed(2000, partitions=4))
    ranges = [Range(2, 13, 487), Range(0, 0, 500), Range(3, 7, 7), Range(1, 499, 500)]
    expected = consumed(engine, topic, ranges)
    found = fetched(engine, topic, ranges, chunk_bytes=2_000)
    assert sorted(found) == expected == framed(engine, topic, ranges, tasks=3)
    assert list(dict.fromkeys(one[0] for one in found)) == [2, 0, 1]


def test_a_batch_that_is_larger_than_what_was_asked_for_is_read(engine: Engine) -> None:
    topic = engine.topic(partitions=1, config={"max.message.bytes": "4000000"})
    large = [Raw(secrets.token_bytes(2_000_000)), Raw(b"small"), Raw(secrets.token_bytes(1_500_000))]
    servers = {"message.max.bytes": 4_000_000, "batch.num.messages": 1}
    send(engine, topic, large, **servers)
    assert [one[5] for one in fetched(engine, topic, whole(engine, topic), chunk_bytes=1_000)] == [
        one.value for one in large
    ]


def test_only_committed_records_are_read(engine: Engine) -> None:
    topic, servers = engine.topic(partitions=2), engine.stack.bootstrap_servers
    with engine.transaction(topic, [b"open"], partition=1):
        for outcome, first in (("commit", 0), ("abort", 5), ("commit", 10), ("abort", 15)):
            values = [Raw(b"%s %d" % (outcome.encode(), first + n)) for n in range(5)]
            transaction(servers, topic, values, outcome=outcome)  # type: ignore[arg-type]
            produce(servers, topic, [Raw(b"between")])
    ranges = whole(engine, topic)
    expected = consumed(engine, topic, ranges)
    assert len(expected) == 14
    assert (
        fetched(engine, topic, ranges)
        == fetched(engine, topic, ranges, chunk_bytes=100)
        == framed(engine, topic, ranges)
        == expected
    )
    for start in range(ranges[0].to):
        part = [Range(0, start, ranges[0].to - 1)]
        assert [one[1] for one in fetched(engine, topic, part)] == [
            one[1] for one in expected if start <= one[1] < ranges[0].to - 1
        ]


def test_a_compacted_topic_is_read_over_its_gaps(engine: Engine) -> None:
    topic = keyed(engine)
    compact(engine, topic)
    (every,) = whole(engine, topic)
    for part in ([every], [Range(0, 3, 30)]):
        until(lambda part=part: fetched(engine, topic, part) == consumed(engine, topic, part))  # type: ignore[misc]  # it goes on
    assert len(fetched(engine, topic, [every])) <= every.to - 36


@pytest.mark.parametrize("auth", ["sasl_plain", "sasl_scram", "tls"])
def test_a_cluster_is_read_through_tls_and_with_a_password(
    engine: Engine, tmp_path: Path, auth: Any, caplog: pytest.LogCaptureFixture
) -> None:
    stack, topic = engine.stack, engine.topic(partitions=1)
    send(engine, topic, mixed(30))
    servers = stack.ssl_bootstrap_servers if auth == "tls" else stack.sasl_bootstrap_servers
    secret = tmp_path / "kafka.json"
    secret.write_text(f'{{"username": "{stack.sasl_user}", "password": "{stack.sasl_password}"}}')
    kafka = Kafka(servers, auth, tls=True, ca_file=str(stack.ca_file), secret=f"file:{secret}")
    assert fetched(engine, topic, whole(engine, topic), kafka=kafka) == consumed(
        engine, topic, whole(engine, topic)
    )
    with pytest.raises(Fatal, match=r"refused: .*CERTIFICATE_VERIFY_FAILED"):
        fetched(engine, topic, whole(engine, topic), kafka=Kafka(stack.ssl_bootstrap_servers, "tls"))
    assert stack.sasl_password not in caplog.text


def test_a_refused_password_is_told_without_it(engine: Engine, tmp_path: Path) -> None:
    topic, wrong = engine.topic(partitions=1), secrets.token_urlsafe(12)
    send(engine, topic, mixed(3))
    user = User(engine.admin, f"u{secrets.token_hex(4)}", wrong)
    with pytest.raises(Retryable, match=r"refused the key: .*invalid credentials") as refused:
        fetched(
            engine, topic, [Range(0, 0, 3)], kafka=scram(engine.stack, user.write(tmp_path / "user.json"))
        )
    assert wrong not in str(refused.value)


def test_a_forbidden_topic_is_told(engine: Engine, tmp_path: Path) -> None:
    topic = engine.topic(partitions=1)
    send(engine, topic, mixed(3))
    user = User(engine.admin, f"u{secrets.token_hex(4)}")
    user.make()
    kafka = scram(engine.stack, user.write(tmp_path / "user.json"))
    with suspended("topic_forbidden"):
        fetched(engine, topic, [Range(0, 0, 3)], kafka=kafka)
    user.allow(topic, READING)
    assert len(fetched(engine, topic, [Range(0, 0, 3)], kafka=kafka)) == 3


def test_another_topic_of_the_same_name_is_not_read(engine: Engine) -> None:
    """Neither by a client that knows the one before, nor does it keep that from reading the new one."""
    topic = engine.topic(partitions=1)
    send(engine, topic, mixed(10))
    with connected(engine) as connection:

        def count(topic_id: str, to: int) -> int:
            chunks = fetch(settings_of(connection), topic, topic_id, [Range(0, 0, to)], 100_000)
            return sum(map(len, chunks))

        before = engine.cluster.state(topic).key.topic_id
        assert count(before, 10) == 10
        engine.recreate(topic)
        send(engine, topic, mixed(20))
        assert count(engine.cluster.state(topic).key.topic_id, 20) == 20
        with suspended("topic_recreated"):
            count(before, 10)
    with suspended("topic_recreated"):
        fetched(engine, topic, [Range(0, 0, 10)], topic_id=before)


def test_a_topic_that_is_gone_is_told(engine: Engine) -> None:
    topic = engine.topic(partitions=1)
    topic_id = engine.cluster.state(topic).key.topic_id
    engine.delete(topic)
    with pytest.raises(Retryable, match=f"topic {topic} does not exist"):
        fetched(engine, topic, [Range(0, 0, 10)], topic_id=topic_id)


def test_records_that_are_gone_are_told(engine: Engine) -> None:
    topic = engine.topic(partitions=1)
    send(engine, topic, mixed(10))
    engine.expire(topic, 4)
    with suspended("offsets_expired"):
        fetched(engine, topic, [Range(0, 3, 10)])
    assert len(fetched(engine, topic, [Range(0, 4, 10)])) == 6


def test_an_error_of_a_task_keeps_its_code(engine: Engine) -> None:
    topic = engine.topic(partitions=1)
    send(engine, topic, mixed(10))
    engine.expire(topic, 4)
    with suspended("offsets_expired"), errors_of_workers():
        framed(engine, topic, [Range(0, 3, 10)])


def test_what_does_not_come_ends_in_an_error(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connecting, "TIMEOUT_MS", 500)
    topic = engine.topic(partitions=1)
    send(engine, topic, mixed(10))
    with pytest.raises(Retryable, match="does not answer: it has less than it said"):
        fetched(engine, topic, [Range(0, 0, 11)])


def test_many_tables_may_ask_at_once_while_a_connection_is_made(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connecting, "TIMEOUT_MS", 5_000)
    topic = engine.topic(partitions=1)
    with connected(engine) as connection:
        client, topic_id = (
            client_of(settings_of(connection)),
            uuid_of(engine.cluster.state(topic).key.topic_id),
        )
        asked = [client._soon(client._found, topic) for _ in range(20)]
        assert all(client.answer(each).are_of(topic_id) for each in asked)


@pytest.mark.parametrize("leader", [(1, 99), (7, 0)], ids=["of a later epoch", "that is no broker"])
def test_a_leader_that_is_none_is_looked_for_again(engine: Engine, leader: tuple[int, int]) -> None:
    topic = engine.topic(partitions=1)
    send(engine, topic, mixed(10))
    with connected(engine) as connection:
        client, topic_id = client_of(settings_of(connection)), engine.cluster.state(topic).key.topic_id
        client._leaders[topic] = Leaders(uuid_of(topic_id), {0: leader})
        chunks = list(fetch(settings_of(connection), topic, topic_id, [Range(0, 0, 10)], 100_000))
        assert sum(map(len, chunks)) == 10


def test_a_broker_that_restarts_between_two_requests_costs_no_record(engine: Engine) -> None:
    topic = engine.topic(partitions=2)
    send(engine, topic, mixed(2000, partitions=2))
    expected, ranges = consumed(engine, topic, whole(engine, topic)), whole(engine, topic)
    topic_id, found = engine.cluster.state(topic).key.topic_id, []
    with connected(engine) as connection:
        chunks = fetch(settings_of(connection), topic, topic_id, ranges, 5_000)
        found += told(next(chunks))
        restart = threading.Thread(target=outages.restart, args=(engine.stack, "kafka"))
        restart.start()
        for chunk in chunks:
            found += told(chunk)
        restart.join()
    assert [(one.offset, one.value) for one in found] == [(one[1], one[5]) for one in expected]
