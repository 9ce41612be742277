"""The keys that hash: read from a secret, in the order of their times, and never shown."""

from __future__ import annotations

import hmac
import json
from base64 import b64encode
from datetime import UTC, datetime
from typing import Any

import pytest

from calve.config.masking_keys import Key, newest, read_keys
from calve.errors import ConfigError

SECRET = bytes(range(32))
NEWER = bytes(range(64, 164))


def key(
    name: str = "2026a", since: str = "2026-01-01T00:00:00Z", secret: bytes = SECRET, **more: Any
) -> dict[str, Any]:
    return {"id": name, "from": since, "key": b64encode(secret).decode()} | more


def read(monkeypatch: pytest.MonkeyPatch, raw: Any) -> tuple[Key, ...]:
    monkeypatch.setenv("MASKING", raw if isinstance(raw, str) else json.dumps(raw))
    return read_keys("env:MASKING")


def test_keys_come_in_the_order_of_their_times_whatever_their_zones(monkeypatch: pytest.MonkeyPatch) -> None:
    later = key("2026b", "2026-07-01T02:00:00.000001+02:00", NEWER)
    found = read(monkeypatch, {"keys": [later, key()]})
    assert [(each.id, each.secret) for each in found] == [("2026a", SECRET), ("2026b", NEWER)]
    moments = [datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 7, 1, 0, 0, 0, 1, tzinfo=UTC)]
    assert [each.since_us for each in found] == [round(each.timestamp() * 10**6) for each in moments]


def test_the_newest_key_is_the_last_whose_time_has_begun_else_the_first() -> None:
    first, second = (Key(str(since), since, SECRET) for since in (10, 20))
    found = [newest([first, second], now).id for now in (0, 10, 19, 20, 30)]
    assert found == ["10", "10", "10", "20", "20"]


def test_no_value_has_the_seal_key_as_its_token(monkeypatch: pytest.MonkeyPatch) -> None:
    [found] = read(monkeypatch, {"keys": [key()]})
    assert found.seal == hmac.digest(SECRET, b"calve.dead-letters", "sha512")[:32]
    assert found.seal not in (SECRET, hmac.digest(SECRET, b"calve.dead-letters", "sha256"))


def test_each_key_has_a_seal_key_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = read(monkeypatch, {"keys": [key(), key("b", "2027-01-01T00:00:00Z", NEWER)]})
    assert one.seal != other.seal


def test_a_key_does_not_show_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    [found] = read(monkeypatch, {"keys": [key()]})
    assert repr(found) == f"Key(id='2026a', since_us={found.since_us})"


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ("hunter2", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        (["hunter2"], 'has no list of "keys"'),
        ({"keys": []}, 'has no list of "keys"'),
        ({"keys": {"hunter2": "hunter2"}}, 'has no list of "keys"'),
        ({"keys": ["hunter2"]}, r'keys\[0\] is not an object with the texts "id", "from" and "key"'),
        ({"keys": [key(), {"id": "hunter2", "key": "hunter2"}]}, r"keys\[1\] is not an object"),
        ({"keys": [key(key=2)]}, r"keys\[0\] is not an object"),
        ({"keys": [key("Hunter2")]}, r'keys\[0\] has an "id" that is not of 1 to 16 of a-z, 0-9, _ and -'),
        ({"keys": [key("x" * 17)]}, r'keys\[0\] has an "id"'),
        ({"keys": [key(since="hunter2")]}, r'keys\[0\] has a "from" that is not a time with a time zone'),
        ({"keys": [key(since="2026-01-01T00:00:00")]}, r'keys\[0\] has a "from"'),
        ({"keys": [key(key="hunter2!")]}, r'keys\[0\] has a "key" that is not base64'),
        ({"keys": [key(key="hünter2")]}, r'keys\[0\] has a "key" that is not base64'),
        ({"keys": [key(secret=b"hunter2" * 4)]}, r'keys\[0\] has a "key" of less than 32 bytes'),
        ({"keys": [key(), key(since="2027-01-01T00:00:00Z")]}, r'keys\[1\] has the "id" or the "from" of an'),
        ({"keys": [key(), key("b", "2026-01-01T01:00:00+01:00")]}, r'keys\[1\] has the "id" or the "from"'),
    ],
)
def test_another_secret_is_refused_without_being_shown(
    raw: Any, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match=f"the secret env:MASKING .*{reason}") as caught:
        read(monkeypatch, raw)
    assert '"keys": [{"id": ' in str(caught.value.fix)
    error: BaseException | None = caught.value
    while error is not None:
        shown = f"{error!r} {error} {vars(error)}"
        assert not any(each in shown.lower() for each in ("hunter2", b64encode(SECRET).decode().lower()))
        error = error.__cause__ or error.__context__


def test_a_missing_secret_is_named_with_what_it_should_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MASKING", raising=False)
    with pytest.raises(ConfigError, match="MASKING") as caught:
        read_keys("env:MASKING")
    assert str(caught.value.fix).startswith("""export MASKING='{"keys": [""")
