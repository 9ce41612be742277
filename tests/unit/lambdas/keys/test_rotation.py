from dataclasses import dataclass, field
from typing import Any

import pytest

from calve.errors import Fatal
from lambdas.rotation import Rotation, Subject
from tests.unit.lambdas.keys.conftest import Dying, Killed, deaths


@dataclass
class Server(Subject):
    """What a subject makes elsewhere: keys by the version that they were made for, and which of them are valid."""

    made: dict[str, str] = field(default_factory=dict)
    valid: list[str] = field(default_factory=lambda: ["old"])
    cleared: list[str] = field(default_factory=list)
    asked: int = 0

    def create(self, version, current):
        self.asked += 1
        return self.made.setdefault(version, f'{{"key": "of {version}"}}')

    def set(self, pending, current):
        self.valid += [pending] if pending not in self.valid else []

    def test(self, pending, current):
        if pending not in self.valid:
            raise Fatal("refused")

    def finished(self, current):
        self.cleared = [current]


def test_a_rotation_brings_a_tested_version_into_use_and_then_clears_away(vault):
    vault.write(key="old")
    server = Server()
    version = vault.staged()
    vault.rotate(Rotation(vault.name, server, vault.client).step, version)
    assert vault.current() == {"key": f"of {version}"}
    assert server.cleared == [server.made[version]]
    stages = vault.client.describe_secret(SecretId=vault.name)["VersionIdsToStages"]
    assert "AWSCURRENT" in stages[version]


def test_a_death_anywhere_is_made_good_by_doing_the_step_again(vault):
    died = 0
    for death in deaths():
        vault.name = f"secret-{died}"
        vault.write(key="old")
        server, version = Server(), vault.staged()
        calls, at, after = death
        dying: Any = Dying(server, calls, at, after)
        rotation = Rotation(vault.name, dying, Dying(vault.client, calls, at, after))
        try:
            vault.rotate(rotation.step, version)
        except Killed:
            died += 1
        else:
            break
        assert vault.current() in ({"key": "old"}, {"key": f"of {version}"})
        vault.rotate(rotation.step, version)
        assert vault.current() == {"key": f"of {version}"}
        assert (list(server.made), server.valid[1:]) == ([version], [server.made[version]])
        assert server.cleared == [server.made[version]]
    assert died > 20


def test_a_version_that_has_a_value_is_not_made_again(vault):
    vault.write(key="old")
    server, version = Server(), vault.staged()
    rotation = Rotation(vault.name, server, vault.client)
    for _ in range(2):
        rotation.step(vault.event("createSecret", version))
    assert server.asked == 1


def test_the_test_of_a_new_schedule_uses_what_is_in_use(vault):
    """Secrets Manager asks for it alone, for a version that nobody has created."""
    vault.write(key="old")
    server = Server(valid=['{"key": "old"}'])
    rotation = Rotation(vault.name, server, vault.client)
    rotation.step(vault.event("testSecret", vault.staged()))
    server.valid.clear()
    with pytest.raises(Fatal, match="refused"):
        rotation.step(vault.event("testSecret", vault.staged()))
    assert (server.made, vault.current()) == ({}, {"key": "old"})


def test_a_version_that_fails_its_test_does_not_come_into_use(vault):
    vault.write(key="old")

    class Forgetful(Server):
        def set(self, pending, current):
            pass

    with pytest.raises(Fatal, match="refused"):
        vault.rotate(Rotation(vault.name, Forgetful(), vault.client).step)
    assert vault.current() == {"key": "old"}


def test_steps_out_of_order_of_other_versions_and_of_other_secrets_are_refused(vault):
    vault.write(key="old")
    rotation, version = Rotation(vault.name, Server(), vault.client), vault.staged()
    for step in ("setSecret", "finishSecret"):
        with pytest.raises(Fatal, match="not been created"):
            rotation.step(vault.event(step, version))
    assert vault.current() == {"key": "old"}
    with pytest.raises(Fatal, match="not staged"):
        rotation.step(vault.event("createSecret", "another"))
    with pytest.raises(Fatal, match="no step"):
        rotation.step(vault.event("dropSecret", version))
    for name in ("trading", "trading/kafka-emit"):
        with pytest.raises(Fatal, match="alone"):
            Rotation(name, Server(), vault.client).step(vault.event("createSecret", version))
