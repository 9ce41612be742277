"""The doctor against a real broker, a real registry, and the deployed function: a broken thing is the row that it should be."""

from __future__ import annotations

import json
import secrets
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from calve.config.job import Kafka, Registry, Table
from calve.config.publishing import Emit
from cli.embedded.stack import Stack
from lambdas.doctor.brokers import kafka
from lambdas.doctor.checks import registry
from lambdas.doctor.finding import Finding, examine
from tests.integration.support.exporting import Deployment
from tests.integration.support.servers.principals import READING, WRITING, User, scram

REGION = "us-east-1"


@dataclass
class Shop:
    """A topic, and a user who may do nothing with it yet."""

    stack: Stack
    admin: AdminClient
    topic: str
    user: User
    folder: Path

    @property
    def kafka(self) -> Kafka:
        return scram(self.stack, self.user.write(self.folder / "user.json"))

    def seen(self, settings: Kafka | None = None, *tables: Table) -> dict[str, Finding]:
        """The rows by their checks; those that are fine alone do not say which they are of."""
        found = kafka(settings or self.kafka, REGION, tables or (Table(self.topic, self.topic),))
        return {each.check: each for each in found}


@pytest.fixture
def shop(stack: Stack, tmp_path: Path) -> Iterator[Shop]:
    admin = AdminClient({"bootstrap.servers": stack.bootstrap_servers, "log_level": 0})
    topic = f"doctor{uuid.uuid4().hex[:12]}"
    for made in admin.create_topics([NewTopic(topic, 1, 1)]).values():
        made.result(20)
    user = User(admin, f"doctor-{topic}")
    user.make()
    yield Shop(stack, admin, topic, user, tmp_path)
    user.delete()


def test_a_user_with_its_rights_is_let_in_and_may_read(shop: Shop) -> None:
    shop.user.allow(shop.topic, READING)
    assert {name: each.state for name, each in shop.seen().items()} == {"kafka login": "ok", "topics": "ok"}


def test_a_wrong_password_is_a_refused_login_and_stands_in_no_row(shop: Shop) -> None:
    wrong = secrets.token_urlsafe(12)
    (shop.folder / "wrong.json").write_text(json.dumps({"username": shop.user.name, "password": wrong}))
    found = shop.seen(scram(shop.stack, f"file:{shop.folder / 'wrong.json'}"))
    assert list(found) == ["kafka login"]
    assert (found["kafka login"].state, "refused" in found["kafka login"].detail) == ("fail", True)
    assert "wrong.json" in found["kafka login"].cure
    assert wrong not in str(found)


def test_a_missing_right_is_named_with_the_command_that_gives_it(shop: Shop) -> None:
    shop.user.allow(shop.topic, ["DESCRIBE"])
    (row,) = (each for name, each in shop.seen().items() if name == f"topic {shop.topic}")
    assert (row.state, row.detail) == ("fail", "the user may not READ")
    assert row.cure == f"kafka-acls --add --allow-principal User:NAME --topic {shop.topic} --operation Read"


def test_a_topic_without_any_right_and_one_that_is_not_there(shop: Shop) -> None:
    absent = f"{shop.topic}x"
    seen = shop.seen(None, Table("t", shop.topic), Table("x", absent))
    assert seen[f"topic {shop.topic}"].detail == "the user may not DESCRIBE and READ"
    of_all = shop.seen(Kafka(shop.stack.bootstrap_servers), Table("x", absent))
    assert (of_all[f"topic {absent}"].state, of_all[f"topic {absent}"].detail) == (
        "warn",
        "there is no such topic",
    )


def test_who_emits_is_asked_of_the_output_topic(shop: Shop) -> None:
    out = f"{shop.topic}-out"
    for made in shop.admin.create_topics([NewTopic(out, 1, 1)]).values():
        made.result(20)
    shop.user.allow(shop.topic, READING)
    table = Table(shop.topic, shop.topic, emit=Emit(out))
    assert shop.seen(None, table)[f"output topic {out}"].detail == "the user may not DESCRIBE and WRITE"
    shop.user.allow(out, WRITING)
    assert shop.seen(None, table)["output topics"].state == "ok"


@pytest.mark.full
def test_the_wrong_protocol_and_an_unknown_authority(shop: Shop) -> None:
    plain = shop.seen(Kafka(shop.stack.sasl_bootstrap_servers))
    assert (plain["kafka login"].state, "may not speak `none`" in plain["kafka login"].cure) == ("fail", True)
    unknown = shop.seen(replace(shop.kafka, ca_file=None))
    assert (unknown["kafka login"].state, "refused" in unknown["kafka login"].detail) == ("fail", True)


def test_one_dead_server_of_two_is_a_warning(shop: Shop) -> None:
    servers = f"127.0.0.1:1,{shop.stack.bootstrap_servers}"
    found = list(kafka(Kafka(servers), REGION, [Table(shop.topic, shop.topic)]))
    assert [(each.check, each.state) for each in found] == [
        ("kafka servers", "warn"),
        ("kafka login", "ok"),
        ("topics", "ok"),
    ]


def test_a_subject_that_nobody_registered_and_a_registry_that_is_not_there(shop: Shop) -> None:
    table = Table(shop.topic, shop.topic)
    answers, waits = registry(Registry(shop.stack.registry_url), [table])
    assert (answers.check, answers.state) == ("registry", "ok")
    assert (waits.state, waits.detail) == ("warn", f"subject {shop.topic}-value has no version")
    (gone,) = examine({"registry": lambda: registry(Registry("http://127.0.0.1:1"), [table])})
    assert (gone.state, "does not answer" in gone.detail) == ("fail", True)


@pytest.mark.long
def test_the_deployed_doctor_sees_what_the_jobs_would(weekly: Deployment) -> None:
    rows = weekly.calve("doctor", "--remote")
    assert [each for each in rows if each["state"] == "fail"] == []
    from_aws = {each["check"]: each["state"] for each in rows if each["from"] == "AWS"}
    for check in ("bucket", "clock", "database", "tables", "kafka login", "topics", "registry", "subjects"):
        assert from_aws[check] == "ok", rows
    assert from_aws["topic absent"] == "warn"
    assert {each["state"] for each in rows if each["check"] == "release"} == {"ok"}
