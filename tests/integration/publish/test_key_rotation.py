"""The real rotation of a SCRAM user's secret while a job reads: the job goes on with the new user, in the same process, and every
record is in the table exactly once."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import asdict, replace

import boto3
import pytest
from aws_lambda_powertools.utilities.data_classes.secrets_manager_event import SecretsManagerEvent

from calve import secrets
from calve.config.job import Table
from calve.config.publishing import Emit
from calve.errors import Retryable
from calve.names import TableName
from glue_jobs.ingest import run
from lambdas.keys import kafka as handler
from tests.integration.outputs.test_emit import places, records
from tests.integration.support.engine import DATABASE, Engine, everything, until
from tests.integration.support.servers import outages
from tests.integration.support.servers.principals import READING, WRITING, User, scram
from tests.unit.lambdas.context import Context

STEPS = ("createSecret", "setSecret", "testSecret", "finishSecret")


class Scene:
    """A secret with a user that may read one topic and write another, and a job that does so until it is stopped."""

    def __init__(self, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.engine = engine
        self.secrets = boto3.client("secretsmanager")
        self.topic, self.output = engine.topic(partitions=1), f"out{uuid.uuid4().hex[:12]}"
        self.user = User(engine.admin, f"ingest-{uuid.uuid4().hex[:8]}")
        self.user.make()
        self.user.allow(self.topic, READING)
        self.user.allow(self.output, WRITING)
        self.secret = self._store({"username": self.user.name, "password": self.user.password})
        admin = {"username": engine.stack.sasl_user, "password": engine.stack.sasl_password}
        kafka = scram(engine.stack, f"aws:{self.secret}")
        table = Table(self.topic, self.topic, freshness_s=1.0, emit=Emit(self.output, partitions=1))
        self.job = engine.job(table, kafka=kafka)
        self.produced = 0
        self.states: dict[str, str] = {}
        self._stop = threading.Event()
        monkeypatch.setenv("SECRET", self.secret)
        monkeypatch.setenv("ADMIN_SECRET", self._store(admin))
        monkeypatch.setenv("KAFKA", json.dumps(asdict(replace(kafka, ca_file=None))))
        monkeypatch.setenv("KAFKA_AUTHORITIES", engine.stack.ca_file.read_text())
        monkeypatch.setenv("POWERTOOLS_TRACE_DISABLED", "true")
        handler.rotation.cache_clear()

    def _store(self, texts: dict[str, str]) -> str:
        name = f"tests/{uuid.uuid4().hex[:12]}"
        self.secrets.create_secret(Name=name, SecretString=json.dumps(texts))
        return name

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        self.states = dict(run(self.job, drain=False, stop=self._stop))

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def end(self) -> None:
        self._stop.set()
        self._thread.join(60)
        assert not self.running

    def produce(self, count: int) -> None:
        self.engine.produce(self.topic, count)
        self.produced += count

    def caught_up(self) -> None:
        until(lambda: self._kept() >= self.produced, seconds=90)

    def _kept(self) -> int:
        there = self.engine.lake.load(TableName(DATABASE, self.topic)) is not None
        return len(self.engine.offsets(self.topic)) if there else 0

    def cut(self, user: User) -> None:
        """End all connections. The embedded broker starts without SCRAM users; it hears of this one again."""
        outages.restart(self.engine.stack, "kafka")
        user.make()

    def rotate(self) -> User:
        """Do what Secrets Manager does; returns the user that is in the secret then."""
        version = str(uuid.uuid4())
        arn = self.secrets.describe_secret(SecretId=self.secret)["ARN"]
        self.secrets.rotate_secret(SecretId=self.secret, ClientRequestToken=version)
        for step in STEPS:
            handler.rotate(
                SecretsManagerEvent({"Step": step, "SecretId": arn, "ClientRequestToken": version}), Context()
            )
        texts = json.loads(self.secrets.get_secret_value(SecretId=self.secret)["SecretString"])
        return User(self.engine.admin, texts["username"], texts["password"])


@pytest.fixture
def scene(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    standing = Scene(engine, monkeypatch)
    standing.start()
    try:
        yield standing
    finally:
        standing.end()


def exactly_once(scene: Scene) -> None:
    """In the table, and in the output topic, which is written with the same key."""
    until(lambda: len(records(scene.engine, scene.output)) >= scene.produced, seconds=90)
    assert scene.engine.offsets(scene.topic) == everything(scene.produced)
    written = places(records(scene.engine, scene.output))
    assert written == [(0, offset) for offset in range(scene.produced)]


@pytest.mark.long
def test_a_job_takes_the_new_user_and_never_needs_the_old_one_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(secrets, "MAX_AGE_S", 1.0)
    scene.produce(20)
    scene.caught_up()
    flowing = threading.Event()

    def flow() -> None:
        while not flowing.wait(0.2):
            scene.produce(3)

    stream = threading.Thread(target=flow)
    stream.start()
    new = scene.rotate()
    until(lambda: "secret.changed" in capfd.readouterr().out)
    scene.user.delete()
    time.sleep(5)  # rounds of the new user
    flowing.set()
    stream.join()
    scene.caught_up()
    exactly_once(scene)
    assert scene.running
    assert new.name == f"{scene.user.name}_clone"
    assert new.rights() == scene.user.rights()
    written = "".join(capfd.readouterr())
    assert "round.retried" not in written
    for password in (new.password, scene.user.password):
        assert password not in written


@pytest.mark.full
def test_a_job_that_is_refused_the_old_user_looks_for_the_new_one_at_once(
    scene: Scene, capfd: pytest.CaptureFixture[str]
) -> None:
    """The old user goes at the moment of the rotation, and all connections with it; the job has read the secret just before."""
    scene.produce(20)
    scene.caught_up()
    # What is emitted when the connections end is tried for two minutes by Kafka's producer.
    exactly_once(scene)
    new = scene.rotate()
    scene.user.delete()
    scene.cut(new)
    scene.produce(20)
    scene.caught_up()
    exactly_once(scene)
    assert scene.running
    scene.user.allow(f"{scene.topic}-other", READING)
    again = scene.rotate()
    assert again.name == scene.user.name
    assert again.rights() == new.rights()
    new.delete()
    scene.cut(again)
    scene.produce(20)
    scene.caught_up()
    exactly_once(scene)
    written = "".join(capfd.readouterr())
    assert scene.running
    assert "job.failed" not in written


def test_a_user_that_cannot_do_what_the_one_in_use_can_does_not_come_into_use(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lambdas.kafka_client.Broker.copy_rights", lambda *_: None)
    monkeypatch.setattr("lambdas.keys.kafka.ATTEMPTS", 2)
    with pytest.raises(Retryable, match="does not see"):
        scene.rotate()
    texts = json.loads(scene.secrets.get_secret_value(SecretId=scene.secret)["SecretString"])
    assert texts["username"] == scene.user.name
