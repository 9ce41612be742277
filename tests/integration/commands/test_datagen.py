import json
from collections import Counter

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from typer.testing import CliRunner

from calve.config.job import Kafka, Registry
from calve.errors import CalveError, Retryable
from cli.kafka import Cluster
from cli.main import app
from cli.run.datagen.plan import Plan, in_turn
from cli.run.datagen.produce import Target, create_topic, produce
from cli.verify.topic import Reader, Records
from tests.integration.support.records.producing import alter_config, unique


@pytest.fixture
def target(stack) -> Target:
    return Target(Kafka(stack.bootstrap_servers), Registry(stack.registry_url))


def everything_in(topic: str, stack) -> list[Records]:
    facts = Cluster(Kafka(stack.bootstrap_servers), stack.region).topics({topic})[topic]
    spans = {partition: (start, facts.end[partition]) for partition, start in facts.log_start.items()}
    return list(Reader(facts, Kafka(stack.bootstrap_servers), stack.region).read(spans))


def test_the_topic_holds_exactly_what_was_reported_and_confluents_deserializer_reads_it(stack, target):
    topic = unique("stock_trades")
    plan = Plan(topic, 25_000, seed=1, duplicates=0.01, malformed=in_turn(40), tombstones=0.001, evolve=True)
    progress: list[int] = []
    produced = produce(plan, target, progress.append)
    deserialize = AvroDeserializer(SchemaRegistryClient({"url": stack.registry_url}))
    chunks = everything_in(topic, stack)
    fates: Counter[str] = Counter()
    rows: Counter[tuple[object, ...]] = Counter()
    versions: Counter[bool] = Counter()
    for chunk in chunks:
        for key, value in zip(chunk.keys, chunk.values, strict=True):
            try:
                row = deserialize(value, SerializationContext(topic, MessageField.VALUE))
            except Exception:  # noqa: BLE001 the kind of failure is the engine's business
                fates["refused"] += 1
                continue
            if row is None:
                fates["null_value"] += 1
            elif "symbol" not in row:
                fates["incompatible_schema"] += 1
            else:
                assert key == row["userid"].encode()
                fates["applied"] += 1
                rows[tuple(row.values())] += 1
                versions["venue" in row] += 1
    dead = produced.fates.dead_lettered
    assert produced.records == sum(len(chunk) for chunk in chunks) == progress[-1] == 25_000
    assert fates["null_value"] == dead["null_value"]
    assert fates["incompatible_schema"] == dead["incompatible_schema"]
    # Confluent's deserializer accepts bytes that are left over: those records are read twice over, here and as rejects
    assert fates["applied"] == produced.fates.applied + dead["trailing_bytes"]
    assert sum(count - 1 for count in rows.values()) >= produced.fates.duplicates
    assert all(abs(count - 12_400) < 400 for count in versions.values())
    assert produced.created


def test_a_topic_is_made_with_six_partitions_and_used_again(stack, target):
    topic = unique("users")
    first = produce(Plan(topic, 600, "users"), target)
    second = produce(Plan(topic, 600, "users", seed=1), target)
    assert (first.created, second.created) == (True, False)
    assert (
        len(
            AdminClient({"bootstrap.servers": stack.bootstrap_servers})
            .list_topics(topic)
            .topics[topic]
            .partitions
        )
        == 6
    )
    chunks = everything_in(topic, stack)
    assert sum(len(chunk) for chunk in chunks) == 1_200
    by_key: dict[bytes | None, set[int]] = {}
    for chunk in chunks:
        for key, partition in zip(chunk.keys, chunk.partitions, strict=True):
            by_key.setdefault(key, set()).add(partition)
    assert all(len(partitions) == 1 for partitions in by_key.values())


def test_a_rate_is_kept(target):
    produced = produce(Plan(unique("users"), 300, "users", rate=300), target)
    assert produced.seconds >= 0.9


def test_an_unreachable_cluster_is_named(stack, monkeypatch):
    monkeypatch.setattr("cli.run.datagen.produce.TIMEOUT_S", 1)
    nowhere = Target(Kafka("127.0.0.1:1"), Registry(stack.registry_url))
    with pytest.raises(Retryable, match=r"127\.0\.0\.1:1"):
        produce(Plan(unique("users"), 10, "users"), nowhere)


def test_an_unreachable_registry_is_named(stack):
    with pytest.raises(Retryable, match=r"127\.0\.0\.1:1"):
        produce(
            Plan(unique("users"), 10, "users"),
            Target(Kafka(stack.bootstrap_servers), Registry("http://127.0.0.1:1")),
        )


def test_a_topic_with_another_schema_is_refused_with_a_cure(target):
    topic = unique("users")
    produce(Plan(topic, 10, "users"), target)
    with pytest.raises(CalveError, match="refuses the schema") as caught:
        produce(Plan(topic, 10), target)
    assert "--like" in (caught.value.fix or "")


def test_the_command_reports_what_it_produced(stack):
    topic = unique("trades")
    cluster = ["--bootstrap", stack.bootstrap_servers, "--registry", stack.registry_url]
    kinds = ["--malformed", "8", "--malformed-kind", "bad_magic=2"]
    command = ["datagen", topic, "--like", "stock_trades", "-n", "500", *kinds, *cluster, "--output", "json"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0
    produced = json.loads(result.stdout)
    assert produced["records"] == 500
    assert produced["fates"]["applied"] == 490
    assert produced["fates"]["dead_lettered"]["bad_magic"] == 3


def test_records_that_the_cluster_refuses_are_an_error(stack, target):
    topic = unique("stock_trades")
    create_topic(topic, 1, {"bootstrap.servers": stack.bootstrap_servers})
    alter_config(stack.bootstrap_servers, topic, max_message_bytes="100")
    with pytest.raises(CalveError, match="not delivered"):
        produce(Plan(topic, 1_000), target)
