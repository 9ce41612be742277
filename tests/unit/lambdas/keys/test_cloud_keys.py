import json
from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest

from calve.errors import Fatal, Retryable
from calve.secrets import Redacted
from lambdas.keys import cloud as handler
from lambdas.keys.cloud import ATTEMPTS, Cloud, CloudKeys
from lambdas.rotation import Rotation
from tests.unit.lambdas.context import Context
from tests.unit.lambdas.keys.confluent_cloud import ConfluentCloud, serving
from tests.unit.lambdas.keys.conftest import Dying, Killed, deaths

OWNER, RESOURCE = "sa-ingest", "lkc-1"


@pytest.fixture
def confluent() -> Iterator[ConfluentCloud]:
    with serving(ConfluentCloud()) as standing:
        yield standing


def admin(confluent: ConfluentCloud) -> Redacted:
    return Redacted(zip(("username", "password"), confluent.admin, strict=True))


def subject(vault, confluent, *dying, retain: int = 2) -> CloudKeys:
    cloud: Any = Cloud(confluent.url, admin(confluent))
    seen: Any = Dying(cloud, *dying) if dying else cloud

    def use(key: Redacted) -> None:
        if not confluent.opens(key["username"], key["password"]):
            raise Retryable("refused")

    return CloudKeys(vault.name, lambda: seen, use, retain, sleep=lambda _: None)


def begun(vault, confluent) -> None:
    """The first key is made by hand, as are others that are nobody's business."""
    first = confluent.make("made by hand", OWNER, RESOURCE)["id"]
    confluent.make(f"calve {vault.name} other", OWNER, "lkc-2")
    confluent.make(f"calve {vault.name}-emit other", OWNER, RESOURCE)
    vault.write(username=first, password=confluent.secrets[first])


def valid(vault, confluent):
    now = vault.current()
    return confluent.opens(now["username"], now["password"])


def test_a_key_is_made_for_the_same_owner_and_resource_used_and_the_oldest_is_deleted(vault, confluent):
    begun(vault, confluent)
    rotation = Rotation(vault.name, subject(vault, confluent), vault.client)
    used = [vault.current()["username"]]
    for _ in range(4):
        vault.rotate(rotation.step)
        assert valid(vault, confluent)
        used.append(vault.current()["username"])
        assert used[-2] in confluent.keys  # what running jobs still use
    assert [key for key in used if key in confluent.keys] == [used[0], used[3], used[4]]
    new = confluent.keys[used[-1]]["spec"]
    assert (new["owner"]["id"], new["resource"]["id"]) == (OWNER, RESOURCE)
    assert len(confluent.keys) == 5  # the first, two of others, two retained


def test_more_keys_may_be_retained(vault, confluent):
    begun(vault, confluent)
    rotation = Rotation(vault.name, subject(vault, confluent, retain=3), vault.client)
    for _ in range(5):
        vault.rotate(rotation.step)
    assert len(confluent.keys) == 3 + 3


def test_a_death_anywhere_leaks_no_key(vault):
    died = 0
    for calls, at, after in deaths():
        vault.name = f"secret-{died}"
        with serving(ConfluentCloud()) as confluent:
            begun(vault, confluent)
            before, version = vault.current(), vault.staged()
            dying = subject(vault, confluent, calls, at, after)
            rotation = Rotation(vault.name, dying, Dying(vault.client, calls, at, after))
            try:
                vault.rotate(rotation.step, version)
            except Killed:
                died += 1
            else:
                break
            assert valid(vault, confluent)
            vault.rotate(rotation.step, version)
            assert valid(vault, confluent)
            assert confluent.opens(before["username"], before["password"])
            assert len(confluent.keys) == 4
    assert died > 30


def test_a_key_whose_answer_was_lost_is_replaced(vault, confluent):
    begun(vault, confluent)
    rotation, version = Rotation(vault.name, subject(vault, confluent), vault.client), vault.staged()
    confluent.lose_answers = 2
    for _ in range(2):
        with pytest.raises(Retryable, match="HTTP 500"):
            rotation.step(vault.event("createSecret", version))
    vault.rotate(rotation.step, version)
    assert valid(vault, confluent)
    assert len(confluent.keys) == 4


def test_a_rotation_that_was_given_up_takes_no_place_of_a_key_in_use(vault, confluent):
    begun(vault, confluent)
    rotation = Rotation(vault.name, subject(vault, confluent), vault.client)
    vault.rotate(rotation.step)
    in_use = vault.current()
    rotation.step(vault.event("createSecret", vault.staged()))
    vault.rotate(rotation.step)
    assert confluent.opens(in_use["username"], in_use["password"])
    assert len(confluent.keys) == 5


def test_a_new_key_is_waited_for_but_one_that_never_opens_does_not_come_into_use(vault, confluent):
    begun(vault, confluent)
    rotation = Rotation(vault.name, subject(vault, confluent), vault.client)
    confluent.slow = ATTEMPTS - 1
    vault.rotate(rotation.step)
    now = vault.current()
    confluent.slow = ATTEMPTS
    with pytest.raises(Retryable, match="refused"):
        vault.rotate(rotation.step)
    assert vault.current() == now


def test_all_pages_are_read(confluent):
    for number in range(8):
        confluent.make(f"{number}", OWNER, RESOURCE)
    cloud = Cloud(confluent.url, admin(confluent))
    assert [each.name for each in cloud.keys(OWNER, RESOURCE)] == [str(number) for number in range(8)]
    assert len(confluent.requests) == 3


def test_refusals_name_their_cure_and_no_secret(vault, confluent):
    begun(vault, confluent)
    wrong = Cloud(confluent.url, Redacted(username="CLOUDKEY", password="hunter2"))
    with pytest.raises(Fatal, match="HTTP 401") as refused:
        wrong.key("KEY0001")
    assert "admin_secret" in str(refused.value)
    assert "hunter2" not in str(refused.value)
    confluent.quota = 3
    with pytest.raises(Fatal, match="HTTP 402") as refused:
        vault.rotate(Rotation(vault.name, subject(vault, confluent), vault.client).step)
    assert "quota" in str(refused.value)
    with pytest.raises(Fatal, match="HTTP 404"):
        Cloud(confluent.url, admin(confluent)).key("GONE")
    with pytest.raises(Retryable):
        Cloud("http://127.0.0.1:1", admin(confluent)).key("KEY0001")


def test_the_function_rotates_a_key_of_the_registry_and_logs_no_secret(vault, confluent, monkeypatch, capsys):
    begun(vault, confluent)
    username, password = confluent.admin
    vault.client.create_secret(
        Name="trading/cloud", SecretString=json.dumps({"username": username, "password": password})
    )
    for name, value in {
        "SECRET": vault.name,
        "ADMIN_SECRET": "trading/cloud",
        "KEYS_TO_RETAIN": "2",
        "CLOUD": confluent.url,
        "REGISTRY": confluent.url,
    }.items():
        monkeypatch.setenv(name, value)
    lines = StringIO()
    stream: Any = handler.logger.handlers[0]
    before = stream.setStream(lines)
    handler.rotation.cache_clear()
    vault.rotate(lambda event: handler.rotate(event, Context()))
    handler.rotation.cache_clear()
    stream.setStream(before)
    assert valid(vault, confluent)
    assert "GET /subjects" in confluent.requests
    written = lines.getvalue() + "".join(capsys.readouterr())
    assert written.count("keys.rotation") == 4
    assert password not in written
    assert vault.current()["password"] not in written
