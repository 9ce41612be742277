"""What the job knows of topics, by its own client: the same as librdkafka says, whatever the way in and whoever else asks."""

from __future__ import annotations

import json
import secrets
import threading
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from calve.config.job import Auth, Kafka, Start
from calve.config.publishing import Emit
from calve.errors import Fatal, Retryable
from cli import kafka as librdkafka
from cli.embedded.kafka import write_certificates
from glue_jobs.kafka import client, cluster
from glue_jobs.kafka.cluster import Cluster
from tests.integration.support.engine import Engine, suspended, until
from tests.integration.support.records.producing import Raw, produce, transaction
from tests.integration.support.servers import outages
from tests.integration.support.servers.principals import READING, User, scram

WAYS: tuple[Auth, ...] = ("none", "tls", "sasl_plain", "sasl_scram")
BEGIN = "-----BEGIN CERTIFICATE-----"


@contextmanager
def cluster_of(kafka: Kafka) -> Iterator[Cluster]:
    with closing(Cluster(kafka)) as found:
        yield found


def kafka(engine: Engine, auth: Auth, folder: Path) -> Kafka:
    stack, secret = engine.stack, folder / "kafka.json"
    secret.write_text(json.dumps({"username": stack.sasl_user, "password": stack.sasl_password}))
    if auth == "none":
        return Kafka(stack.bootstrap_servers)
    if auth == "tls":
        return Kafka(stack.ssl_bootstrap_servers, auth, tls=True, ca_file=str(stack.ca_file))
    return Kafka(
        stack.sasl_bootstrap_servers, auth, tls=True, ca_file=str(stack.ca_file), secret=f"file:{secret}"
    )


@pytest.mark.parametrize("auth", WAYS)
def test_a_topic_is_what_librdkafka_says_that_it_is(engine: Engine, auth: Auth, tmp_path: Path) -> None:
    topic = engine.topic(
        partitions=3, config={"cleanup.policy": "compact,delete", "max.message.bytes": "70000"}
    )
    produce(engine.stack.bootstrap_servers, topic, [Raw(b"v", b"k", p) for p in (0, 0, 0, 2)])
    engine.expire(topic, 2)
    [expected] = (
        librdkafka.Cluster(Kafka(engine.stack.bootstrap_servers), engine.stack.region)
        .topics({topic})
        .values()
    )
    with cluster_of(kafka(engine, auth, tmp_path)) as asked:
        found = asked.state(topic)
        assert (found.key, found.log_start, found.end) == (expected.key, expected.log_start, expected.end)
        assert (found.log_start, found.end) == ({0: 2, 1: 0, 2: 0}, {0: 3, 1: 0, 2: 1})
        assert (asked.id, found.compacted, asked.largest_record(topic)) == (
            expected.key.cluster_id,
            True,
            70000,
        )
        assert topic in asked.names()
        assert not [name for name in asked.names() if name.startswith("__")]


def test_a_certificate_is_shown_and_says_who_asks(engine: Engine, tmp_path: Path) -> None:
    stack, topic = engine.stack, engine.topic(partitions=1)
    _, foreign = write_certificates(tmp_path)

    def shown(store: Path) -> Kafka:
        key, chain = store.read_text().split(BEGIN, 1)
        secret = tmp_path / f"{uuid.uuid4().hex}.json"
        secret.write_text(json.dumps({"certificate": BEGIN + chain, "key": key}))
        return Kafka(
            stack.ssl_bootstrap_servers, "mtls", tls=True, ca_file=str(stack.ca_file), secret=f"file:{secret}"
        )

    with cluster_of(shown(stack.ca_file.with_name("broker.pem"))) as asked:
        with suspended("topic_forbidden"):  # its name may do nothing yet
            asked.state(topic)
        User(engine.admin, "CN=localhost").allow(topic, READING)
        until(lambda: _answers(asked, topic))
    with cluster_of(shown(foreign)) as asked, pytest.raises(Fatal, match=r"refused: .*ALERT.*CERTIFICATE"):
        asked.state(topic)


def test_transactions_are_noticed_and_their_open_records_are_not_the_end(engine: Engine) -> None:
    topic, plain, servers = (
        engine.topic(partitions=2),
        engine.topic(partitions=1),
        engine.stack.bootstrap_servers,
    )
    produce(servers, plain, [Raw(b"v")])
    assert not engine.cluster.has_transactions(engine.cluster.state(plain))
    transaction(servers, topic, [Raw(b"v")], outcome="abort")
    until(lambda: engine.cluster.state(topic).end == {0: 2, 1: 0})  # the marker comes after the call
    whole = engine.cluster.state(topic)
    assert whole.complete_until is not None
    assert engine.cluster.has_transactions(whole)
    with engine.transaction(topic, [b"open"], partition=1):
        now = engine.cluster.state(topic)
        assert (now.end, now.complete_until) == ({0: 2, 1: 0}, None)


def test_a_moment_is_an_offset_of_each_partition(engine: Engine) -> None:
    topic = engine.topic(partitions=3)
    for p, moment in ((0, 1000), (0, 3000), (1, 1500)):
        engine.producer.produce(topic, b"v", partition=p, timestamp=moment)
    assert engine.producer.flush(20) == 0
    state = engine.cluster.state(topic)
    for moment, expected in ((0, {0: 0, 1: 0, 2: 0}), (2000, {0: 1, 1: 1, 2: 0}), (9000, {0: 2, 1: 1, 2: 0})):
        assert engine.cluster.first_offsets(state, Start("timestamp", timestamp_ms=moment)) == expected


def test_a_topic_is_made_once_and_as_it_was_asked_for(engine: Engine) -> None:
    name = f"made{secrets.token_hex(6)}"
    wanted = Emit(name, partitions=3, cleanup_policy="compact", retention_ms=3_600_000)
    for _ in range(2):
        with cluster_of(Kafka(engine.stack.bootstrap_servers)) as asked:
            asked.ensure_topic(wanted)
    until(lambda: name in engine.cluster.names())
    made = engine.cluster.state(name)
    assert (len(made.end), made.compacted) == (3, True)
    assert engine.config_of(name, "retention.ms") == "3600000"


def test_a_topic_that_is_missing_or_forbidden_is_told(engine: Engine, tmp_path: Path) -> None:
    with pytest.raises(Retryable, match="topic none does not exist"):
        engine.cluster.state("none")
    topic, user = engine.topic(partitions=1), User(engine.admin, f"u{secrets.token_hex(4)}")
    user.make()
    with cluster_of(scram(engine.stack, user.write(tmp_path / "user.json"))) as asked:
        assert topic not in asked.names()
        with suspended("topic_forbidden"):
            asked.state(topic)
        with suspended("topic_forbidden"):
            asked.ensure_topic(Emit(f"{topic}_out", partitions=1))
        user.allow(topic, ["DESCRIBE"])  # but not its configuration
        until(lambda: topic in asked.names())
        with suspended("topic_forbidden"):
            asked.state(topic)
        user.allow(topic, READING)
        until(lambda: _answers(asked, topic))


def _answers(asked: Cluster, topic: str) -> Any:
    try:
        return asked.state(topic)
    except Exception:  # noqa: BLE001 whatever it is, it is asked again
        return None


def test_a_key_that_was_refused_may_be_taken_later(engine: Engine, tmp_path: Path) -> None:
    """A server hears of a new user later than the job; the client must not remember the refusal."""
    topic, user = engine.topic(partitions=1), User(engine.admin, f"u{secrets.token_hex(4)}")
    user.allow(topic, READING)
    with cluster_of(scram(engine.stack, user.write(tmp_path / "user.json"))) as asked:
        with pytest.raises(Fatal, match=r"refused: SaslAuthenticationFailedError: .*invalid credentials"):
            asked.state(topic)
        user.make()
        until(lambda: _answers(asked, topic))


def test_many_tables_ask_at_once_of_a_cluster_that_nobody_has_asked(engine: Engine) -> None:
    topics, found = [engine.topic(partitions=4) for _ in range(3)], []
    with cluster_of(Kafka(engine.stack.bootstrap_servers)) as asked:

        def ask(number: int) -> None:
            found.append(asked.state(topics[number % 3]).end)

        threads = [threading.Thread(target=ask, args=[each]) for each in range(60)]
        for each in threads:
            each.start()
        for each in threads:
            each.join(60)
    assert found == [dict.fromkeys(range(4), 0)] * 60


@pytest.mark.long
def test_a_broker_that_is_away_is_waited_for(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """At a job's start, and by connections that were there before; then it is told."""
    topic = engine.topic(partitions=2)
    produce(engine.stack.bootstrap_servers, topic, [Raw(b"v", None, 1)])
    with cluster_of(Kafka(engine.stack.bootstrap_servers)) as before:
        before.state(topic)
        outages.stop(engine.stack, "kafka")
        started = threading.Thread(target=outages.start, args=(engine.stack, "kafka"))
        try:
            with monkeypatch.context() as patched:
                for module in (cluster, client):
                    patched.setattr(module, "TIMEOUT_MS", 1_000)
                with pytest.raises(Retryable, match="does not answer: Kafka"):
                    before.state(topic)
        finally:
            started.start()
        with cluster_of(Kafka(engine.stack.bootstrap_servers)) as after:
            assert after.state(topic).end == before.state(topic).end == {0: 0, 1: 1}
        started.join()
