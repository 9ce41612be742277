from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from calve.errors import Fatal, Retryable
from lambdas.keys.kafka import AlternatingUsers, MskPassword
from lambdas.rotation import Rotation
from tests.unit.lambdas.keys.conftest import Dying, Killed, deaths


@dataclass
class Cluster:
    """Users with their passwords and rights; a user sees the topics that it has rights to.

    `deaf`: so many logins of the second user fail first.
    """

    passwords: dict[str, str] = field(default_factory=lambda: {"ingest": "first"})
    rights: dict[str, set[str]] = field(default_factory=lambda: {"ingest": {"a", "b"}})
    deaf: int = 0

    def login(self, user):
        if self.deaf and user["username"].endswith("_clone"):
            self.deaf -= 1
            raise Retryable("not known yet")
        if self.passwords.get(user["username"]) != user["password"]:
            raise Retryable("refused")
        return User(self, user["username"])


@dataclass
class User:
    cluster: Cluster
    name: str

    def topics(self):
        return set(self.cluster.rights.get(self.name, ()))

    def set_password(self, user, password):
        self.cluster.passwords[user] = password

    def copy_rights(self, user, to):
        self.cluster.rights[to] = set(self.cluster.rights[user])


@pytest.fixture
def cluster():
    return Cluster()


def alternating(cluster, *dying):
    admin: Any = User(cluster, "admin")
    seen: Any = Dying(admin, *dying) if dying else admin
    return AlternatingUsers(cluster.login, lambda: seen, sleep=lambda _: None)


def opens(cluster, texts):
    return cluster.login(texts).topics() == {"a", "b"}


def test_two_users_take_turns_and_the_one_before_stays_valid(vault, cluster):
    vault.write(username="ingest", password="first", note="kept")
    rotation = Rotation(vault.name, alternating(cluster), vault.client)
    before = vault.current()
    for name in ("ingest_clone", "ingest", "ingest_clone"):
        vault.rotate(rotation.step)
        now = vault.current()
        assert (now["username"], now["note"]) == (name, "kept")
        assert opens(cluster, now)
        assert opens(cluster, before)
        before = now
    assert sorted(cluster.passwords) == ["ingest", "ingest_clone"]


def test_rights_that_were_taken_from_the_user_in_use_do_not_come_back(vault, cluster):
    vault.write(username="ingest", password="first")
    rotation = Rotation(vault.name, alternating(cluster), vault.client)
    vault.rotate(rotation.step)
    cluster.rights["ingest_clone"] = {"a"}
    vault.rotate(rotation.step)
    assert cluster.rights["ingest"] == {"a"}


def test_a_death_anywhere_is_made_good_by_doing_the_step_again(vault):
    died = 0
    for calls, at, after in deaths():
        cluster, vault.name = Cluster(), f"secret-{died}"
        vault.write(username="ingest", password="first")
        version = vault.staged()
        subject = alternating(cluster, calls, at, after)
        rotation = Rotation(vault.name, subject, Dying(vault.client, calls, at, after))
        try:
            vault.rotate(rotation.step, version)
        except Killed:
            died += 1
        else:
            break
        assert opens(cluster, vault.current())
        vault.rotate(rotation.step, version)
        assert vault.current()["username"] == "ingest_clone"
        assert opens(cluster, vault.current())
        assert opens(cluster, {"username": "ingest", "password": "first"})
    assert died > 20


def test_brokers_that_hear_of_the_user_later_are_waited_for_but_not_for_ever(vault, cluster):
    vault.write(username="ingest", password="first")
    rotation = Rotation(vault.name, alternating(cluster), vault.client)
    version = vault.staged()
    for step in ("createSecret", "setSecret"):
        rotation.step(vault.event(step, version))
    cluster.deaf = 5
    waited: list[float] = []
    patient = replace(alternating(cluster), sleep=waited.append)
    Rotation(vault.name, patient, vault.client).step(vault.event("testSecret", version))
    assert len(waited) == 5
    cluster.passwords["ingest_clone"] = "another"
    with pytest.raises(Retryable, match="refused"):
        rotation.step(vault.event("testSecret", version))
    assert vault.current()["username"] == "ingest"


def test_a_user_of_msk_gets_another_password_which_msk_reads_itself(vault, cluster):
    vault.write(username="ingest", password="first")
    vault.rotate(Rotation(vault.name, MskPassword(cluster.login), vault.client).step)
    now = vault.current()
    assert now["username"] == "ingest"
    assert now["password"] != "first"
    with pytest.raises(Retryable):  # a secret that is not the cluster's is not rotated further
        vault.rotate(Rotation(vault.name, MskPassword(cluster.login), vault.client).step)
    assert vault.current() == now


@pytest.mark.parametrize("text", ["{}", "hunter2", '{"username": "hunter2"}', "[]"])
def test_a_secret_without_a_user_is_not_rotated_and_not_shown(vault, cluster, text):
    vault.client.create_secret(Name=vault.name, SecretString=text)
    with pytest.raises(Fatal, match="no user yet") as refused:
        vault.rotate(Rotation(vault.name, alternating(cluster), vault.client).step)
    assert "hunter2" not in str(refused.value)
