import json
import uuid

import pytest

from calve.errors import Fatal
from lambdas.keys.link import first, rotate
from lambdas.tokens import Keys, new_link_id, sign, verify
from tests.alarms import failed
from tests.unit.lambdas.context import Context

STEPS = ("createSecret", "setSecret", "testSecret", "finishSecret")


def current(world) -> Keys:
    answer = world.client("secretsmanager").get_secret_value(SecretId=world.secret, VersionStage="AWSCURRENT")
    return Keys.parse(answer["SecretString"])


def run(world, step: str, version: str, *, secret: str | None = None) -> None:
    event = {"Step": step, "SecretId": secret or world.secret, "ClientRequestToken": version}
    rotate(event, Context())


def staged(world) -> str:
    """What Secrets Manager does before the first step."""
    version = str(uuid.uuid4())
    from moto.secretsmanager.models import secretsmanager_backends

    held = secretsmanager_backends["123456789012"]["eu-north-1"].secrets[world.secret]
    held.versions[version] = {"version_id": version, "version_stages": ["AWSPENDING"], "createdate": 0}
    return version


def rotated(world) -> Keys:
    version = staged(world)
    for step in STEPS:
        run(world, step, version)
    return current(world)


def test_a_rotation_adds_a_key_and_keeps_the_one_before(world):
    after = rotated(world)
    assert after.current == "k2"
    assert after.keys["k1"] == world.keys.keys["k1"]
    again = rotated(world)
    assert sorted(again.keys) == ["k2", "k3"]
    token = sign(world.keys, new_link_id(), 100)
    assert verify(after, token, now=0)
    assert not verify(again, token, now=0)


def test_every_step_may_be_repeated(world):
    version = staged(world)
    for step in STEPS:
        run(world, step, version)
        run(world, step, version)
    assert sorted(current(world).keys) == ["k1", "k2"]


def test_nothing_changes_before_the_last_step(world):
    version = staged(world)
    for step in STEPS[:-1]:
        run(world, step, version)
    assert current(world) == world.keys


def test_new_keys_that_would_refuse_valid_links_are_refused(world):
    version = staged(world)
    run(world, "createSecret", version)
    stranger = Keys.first()
    world.client("secretsmanager").put_secret_value(
        SecretId=world.secret, ClientRequestToken=str(uuid.uuid4()), SecretString=stranger.to_json()
    )
    with pytest.raises(Fatal, match="would refuse"):
        run(world, "testSecret", version)
    assert failed("keys-keys-not-rotated", "Keys")


def test_a_version_that_was_not_staged_another_secret_and_another_step_are_refused(world):
    with pytest.raises(Fatal, match="not staged"):
        run(world, "createSecret", str(uuid.uuid4()))
    with pytest.raises(Fatal, match="alone"):
        run(world, "createSecret", staged(world), secret="arn:aws:secretsmanager:eu-north-1:1:secret:other")
    with pytest.raises(Fatal, match="no step"):
        run(world, "dropSecret", staged(world))


def ask(kind: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What CloudFormation is answered."""
    answers: list[dict[str, str]] = []
    monkeypatch.setattr("lambdas.custom_resource._deliver", lambda url, answer: answers.append(answer))
    identity = {"StackId": "s", "RequestId": "r", "LogicalResourceId": "l", "ResponseURL": "https://answer"}
    made = {} if kind == "Create" else {"PhysicalResourceId": "p"}
    first(identity | made | {"RequestType": kind, "ResourceProperties": {"ServiceToken": "t"}}, Context())
    [answer] = answers
    return answer


@pytest.mark.parametrize("held", ["generated-Password", "{}"])
def test_a_deploy_makes_the_first_key_once(world, held, monkeypatch):
    world.client("secretsmanager").put_secret_value(SecretId=world.secret, SecretString=held)
    made = ask("Create", monkeypatch)
    keys = current(world)
    assert made["Status"] == "SUCCESS"
    assert keys.current == "k1"
    assert ask("Update", monkeypatch)["PhysicalResourceId"] == made["PhysicalResourceId"]
    assert current(world) == keys


def test_a_destroy_leaves_the_keys(world, monkeypatch):
    assert ask("Delete", monkeypatch)["Status"] == "SUCCESS"
    assert current(world) == world.keys


def test_no_key_is_logged(world, logged):
    keys = rotated(world)
    text = logged()
    assert text.count("keys.rotation") == len(STEPS)
    for key in json.loads(keys.to_json())["keys"].values():
        assert key not in text
