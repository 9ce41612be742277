"""Kafka's security and the registry's, end to end: the job as it runs in production, secrets by reference, rows in the table."""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from calve.config.job import Auth, Job, Kafka, Registry, Table
from calve.config.kafka_auth import java_properties
from calve.errors import Fatal
from cli.console import Console
from cli.embedded.layout import Layout
from cli.run import jobs as command
from glue_jobs.ingest import run
from tests.integration.support.engine import DATABASE, Engine, everything
from tests.integration.support.servers.registry_gate import RegistryGate

REGISTRY_PASSWORD = secrets.token_urlsafe(12)

Secured = Callable[..., Kafka]


@pytest.fixture(scope="module")
def gate(engine: Engine) -> Iterator[RegistryGate]:
    with RegistryGate(engine.stack.registry_url, "reader", REGISTRY_PASSWORD) as standing:
        yield standing


@pytest.fixture
def kafka(engine: Engine, tmp_path: Path) -> Secured:
    """`kafka.auth` of one type against the embedded broker, its secret in a file."""
    stack = engine.stack

    def secured(auth: Auth, *, password: str | None = None) -> Kafka:
        file = tmp_path / "kafka.json"
        file.write_text(
            json.dumps({"username": stack.sasl_user, "password": password or stack.sasl_password})
        )
        with_password = auth in ("sasl_plain", "sasl_scram")
        return Kafka(
            stack.sasl_bootstrap_servers if with_password else stack.ssl_bootstrap_servers,
            auth=auth,
            tls=with_password,
            ca_file=str(stack.ca_file),
            secret=f"file:{file}" if with_password else None,
        )

    return secured


def drain(job: Job) -> dict[str, str]:
    return dict(run(job, drain=True, stop=threading.Event()))


def filled(engine: Engine) -> str:
    topic = engine.topic(partitions=1)
    engine.produce(topic, 20)
    return topic


def test_a_cluster_like_confluent_cloud_is_read(
    engine: Engine,
    gate: RegistryGate,
    kafka: Secured,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """SASL_SSL with PLAIN, and a registry behind basic authentication."""
    monkeypatch.setenv("REGISTRY", json.dumps({"username": "reader", "password": REGISTRY_PASSWORD}))
    topic = filled(engine)
    registry = Registry(gate.url, secret="env:REGISTRY")
    job = engine.job(Table(name=topic, topic=topic), kafka=kafka("sasl_plain"), registry=registry)
    assert drain(job) == {f"{DATABASE}.{topic}": "running"}
    assert engine.offsets(topic) == everything(20)
    written = "".join(capfd.readouterr())
    assert "round.committed" in written
    assert engine.stack.sasl_password not in written
    assert REGISTRY_PASSWORD not in written


@pytest.mark.parametrize("auth", ["sasl_scram", "tls"])
def test_a_cluster_is_read_through_tls(engine: Engine, kafka: Secured, auth: Auth) -> None:
    topic = filled(engine)
    drain(engine.job(Table(name=topic, topic=topic), kafka=kafka(auth)))
    assert engine.offsets(topic) == everything(20)


def test_a_registry_that_refuses_the_password_ends_the_job(
    engine: Engine, gate: RegistryGate, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    wrong = secrets.token_urlsafe(12)
    monkeypatch.setenv("REGISTRY", json.dumps({"username": "reader", "password": wrong}))
    topic = filled(engine)
    registry = Registry(gate.url, secret="env:REGISTRY")
    with pytest.raises(Fatal) as refused:
        drain(engine.job(Table(name=topic, topic=topic), registry=registry))
    assert refused.value.message == f"the schema registry at {gate.url} refused the credentials (HTTP 401)"
    assert refused.value.fix == "check registry.secret"
    assert wrong not in "".join(capfd.readouterr()) + repr(refused.value)


@pytest.mark.long
def test_a_wrong_password_ends_the_job_and_stands_in_no_log(
    engine: Engine, kafka: Secured, capfd: pytest.CaptureFixture[str]
) -> None:
    """In a process of its own, whose log holds all that the JVM says."""
    wrong = secrets.token_urlsafe(12)
    topic = filled(engine)
    job = engine.job(Table(name=topic, topic=topic), kafka=kafka("sasl_scram", password=wrong))
    with pytest.raises(Fatal) as refused:
        command.run("ingest", job, ["--drain"], Console(), memory="1g", conf={})
    assert refused.value.message.startswith(f"Kafka at {engine.stack.sasl_bootstrap_servers} refused: Sasl")
    assert refused.value.fix == "check kafka.auth in calve.yaml"
    log = (Layout(engine.stack.root).logs / "ingest.log").read_text()
    assert wrong not in log + "".join(capfd.readouterr()) + repr(refused.value)


def test_a_certificate_of_an_unknown_authority_ends_the_job(engine: Engine, kafka: Secured) -> None:
    topic = filled(engine)
    job = engine.job(Table(name=topic, topic=topic), kafka=replace(kafka("tls"), ca_file=None))
    with pytest.raises(Fatal, match=r"refused: .*certificat"):
        drain(job)


def test_the_login_module_of_msk_is_in_the_jars(engine: Engine) -> None:
    """The rest of MSK IAM needs an AWS account."""
    properties = java_properties(Kafka("b-1.example:9098", auth="msk_iam"), None)
    assert (properties["security.protocol"], properties["sasl.mechanism"]) == ("SASL_SSL", "AWS_MSK_IAM")
    loader = engine.lake.jvm.java.lang.Thread.currentThread().getContextClassLoader()
    for name in (properties["sasl.jaas.config"].split()[0], properties["sasl.client.callback.handler.class"]):
        assert str(loader.loadClass(name).getName()) == name
