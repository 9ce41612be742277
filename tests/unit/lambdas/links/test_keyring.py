import boto3
from aws_lambda_powertools.utilities.parameters import SecretsProvider

from lambdas.tokens import MAX_AGE_S, REREAD_S, Keyring, Keys, new_link_id, sign


def reads(world) -> int:
    return int(world.calls.count(("secretsmanager", "GetSecretValue")))


def keyring(world, times: list[float]) -> Keyring:
    provider = SecretsProvider(boto3_client=boto3.client("secretsmanager"))
    return Keyring(world.secret, provider, clock=lambda: times[0])


def test_the_keys_are_read_once_for_many_tokens(world):
    ring = keyring(world, [0.0])
    for _ in range(50):
        assert ring.verify(sign(world.keys, new_link_id(), 100), now=0)
    assert reads(world) == 1
    assert MAX_AGE_S == 300


def test_an_unknown_key_is_looked_for_once_a_minute_at_most(world):
    times = [0.0]
    ring = keyring(world, times)
    forged = [sign(Keys(f"k{n}", {f"k{n}": bytes(32)}), new_link_id(), 100) for n in range(2, 200)]
    assert not any(ring.verify(token, now=0) for token in forged)
    assert reads(world) == 2
    times[0] = REREAD_S
    assert not any(ring.verify(token, now=0) for token in forged)
    assert reads(world) == 3


def test_a_key_of_a_rotation_is_found_at_once(world):
    ring = keyring(world, [0.0])
    assert ring.verify(sign(world.keys, new_link_id(), 100), now=0)
    rotated = world.keys.rotated()
    world.store_keys(rotated)
    assert ring.verify(sign(rotated, new_link_id(), 100), now=0)


def test_a_text_that_is_no_token_asks_for_no_keys(world):
    assert keyring(world, [0.0]).verify("robots.txt", now=0) is None
    assert reads(world) == 0
