"""The service user's key is replaced without anybody being shut out."""

import itertools
import json

import pytest

from calve.errors import CalveError, Fatal
from lambdas.rotation import Rotation
from lambdas.snowflake.keys import SnowflakeKeys
from lambdas.snowflake.sql_api import KeyPair, Session, first, stored, to_store
from tests.standins.snowflake.server import Faults
from tests.unit.lambdas.keys.conftest import Vault
from tests.unit.lambdas.snowflake.world import SERVICE, World


@pytest.fixture
def vault(snow: World) -> Vault:
    snow.deploy()
    made = Vault(snow.client("secretsmanager"), "trading/snowflake")
    made.write(private_key=SERVICE.to_pem())
    return made


@pytest.fixture
def rotation(snow: World, vault: Vault) -> Rotation:
    return Rotation(vault.name, SnowflakeKeys(snow.config), vault.client)


def pair(vault: Vault) -> KeyPair:
    found = stored(json.dumps(vault.current()))
    assert found
    return found


def lets_in(snow: World, key: KeyPair) -> bool:
    session = Session(snow.url, snow.config.account, snow.config.service_user, key, snow.config.publisher)
    try:
        return session.value("SELECT CURRENT_USER()") == snow.config.service_user
    except Fatal:
        return False


def test_the_old_key_lives_through_one_rotation_and_no_longer(
    snow: World, vault: Vault, rotation: Rotation
) -> None:
    vault.rotate(rotation.step)
    second = pair(vault)
    assert lets_in(snow, second)
    assert lets_in(snow, SERVICE)
    vault.rotate(rotation.step)
    assert lets_in(snow, pair(vault))
    assert lets_in(snow, second)
    assert not lets_in(snow, SERVICE)


@pytest.mark.parametrize("before", [True, False])
def test_whatever_dies_the_key_in_use_lets_in(
    snow: World, vault: Vault, rotation: Rotation, *, before: bool
) -> None:
    for number in itertools.count(1):
        version = vault.staged()
        snow.api.faults = Faults(dies_at=number, before=before)
        try:
            vault.rotate(rotation.step, version)
        except CalveError:
            snow.api.faults = Faults()
            assert lets_in(snow, pair(vault))
            vault.rotate(rotation.step, version)
            assert lets_in(snow, pair(vault))
        else:
            break
    assert number > 2


def test_a_key_that_lets_nobody_in_does_not_come_into_use(
    snow: World, vault: Vault, rotation: Rotation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SnowflakeKeys, "set", lambda *_: None)
    with pytest.raises(Fatal, match="does not let CALVE_TRADING in"):
        vault.rotate(rotation.step)
    assert pair(vault).fingerprint == SERVICE.fingerprint


def test_the_first_pair_takes_the_place_of_a_generated_text_alone(snow: World) -> None:
    client = snow.client("secretsmanager")
    client.create_secret(Name="new", SecretString="a generated text")
    made = first("new", client)
    assert first("new", client).fingerprint == made.fingerprint
    assert stored(to_store(made)) is not None
