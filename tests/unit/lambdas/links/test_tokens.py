import json
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lambdas import tokens
from lambdas.tokens import BadKeys, Keys, key_id_of, new_link_id, reference, sign, verify

ALPHABET = string.ascii_letters + string.digits + "-_"
KEYS = Keys.first()


@given(st.binary(min_size=16, max_size=16), st.integers(1, 2**40))
def test_a_signed_token_says_what_was_signed(raw, expires_at):
    import base64

    link_id = base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
    claim = verify(KEYS, sign(KEYS, link_id, expires_at), now=0)
    assert claim is not None
    assert (claim.link_id, claim.key_id, claim.expires_at) == (link_id, "k1", expires_at)


def test_every_other_text_of_the_same_length_is_refused_at_every_byte():
    token = sign(KEYS, new_link_id(), 100)
    assert verify(KEYS, token, now=0)
    for place in range(len(token)):
        for other in {*ALPHABET, ".", "=", "+", "/", "%", " ", "\n", "é"} - {token[place]}:
            assert verify(KEYS, token[:place] + other + token[place + 1 :], now=0) is None, (place, other)


@pytest.mark.parametrize(
    "alter", ["{}=", "{}==", " {}", "{}\n", "{}.", ".{}", "{0}.{0}", "{}\x00", "{}A", "\ufeff{}"]
)
def test_a_token_with_anything_added_is_refused(alter):
    assert verify(KEYS, alter.format(sign(KEYS, new_link_id(), 100)), now=0) is None


def test_a_shortened_token_is_refused():
    token = sign(KEYS, new_link_id(), 100)
    for end in range(len(token)):
        assert verify(KEYS, token[:end], now=0) is None


def test_a_token_ends_with_its_time():
    token = sign(KEYS, new_link_id(), 100)
    assert verify(KEYS, token, now=99.9)
    assert verify(KEYS, token, now=100) is None


def test_another_deployments_key_of_the_same_name_signs_nothing_here():
    assert verify(KEYS, sign(Keys.first(), new_link_id(), 100), now=0) is None


def test_two_keys_are_valid_at_a_time():
    first = Keys.first()
    second = first.rotated()
    third = second.rotated()
    old, new = (sign(keys, new_link_id(), 100) for keys in (first, second))
    assert verify(second, old, now=0)
    assert verify(second, new, now=0)
    assert verify(third, new, now=0)
    assert verify(third, old, now=0) is None
    assert [len(keys.keys) for keys in (first, second, third)] == [1, 2, 2]


def test_keys_survive_their_secret_and_show_themselves_to_nobody():
    keys = Keys.first().rotated()
    assert Keys.parse(keys.to_json()) == keys
    assert json.loads(keys.to_json())["keys"]["k2"] not in repr(keys)
    assert repr(keys) == "Keys(current='k2')"


@pytest.mark.parametrize(
    "text",
    [
        "generated-Password",
        "{}",
        "[]",
        '{"current": "k1", "keys": {}}',
        '{"current": "k1", "keys": {"k1": "c2hvcnQ="}}',
        '{"current": ["k1"], "keys": {}}',
    ],
)
def test_a_secret_without_keys_is_named_and_not_shown(text):
    with pytest.raises(BadKeys) as refused:
        Keys.parse(text)
    assert text not in str(refused.value)
    assert refused.value.__cause__ is refused.value.__context__ is None


def test_a_token_names_its_key_before_it_is_checked():
    assert key_id_of(sign(KEYS, new_link_id(), 100)) == "k1"
    assert key_id_of("k1") is None


def test_logs_name_a_link_by_a_hash():
    link_id = new_link_id()
    assert len(reference(link_id)) == 12
    assert reference(link_id) not in link_id


def test_no_link_begins_as_an_option_of_a_command_does(monkeypatch):
    made = iter([b"\xf8" * tokens.ID_BYTES, b"a" * tokens.ID_BYTES])
    monkeypatch.setattr("secrets.token_bytes", lambda _: next(made))
    assert tokens.new_link_id().startswith("YWFh")
