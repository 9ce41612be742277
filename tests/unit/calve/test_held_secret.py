import pytest

from calve.errors import ConfigError, Retryable
from calve.secrets import LEAST_AGE_S, MAX_AGE_S, SPREADING_S, HeldSecret, Redacted


class Store:
    """A secret that changes, a clock, and how often it was asked."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.password: str | Exception = "one"
        self.asked = 0
        self.secret = HeldSecret("aws:kafka", read=self.read, clock=lambda: self.now)

    def read(self, reference: str) -> Redacted:
        assert reference == "aws:kafka"
        self.asked += 1
        if isinstance(self.password, Exception):
            raise self.password
        return Redacted({"password": self.password})

    def held(self) -> tuple[str, int]:
        held = self.secret.current()
        return held.texts["password"], held.number


@pytest.fixture
def store() -> Store:
    return Store()


def test_a_change_is_seen_after_some_minutes_and_counted(store: Store) -> None:
    assert store.held() == ("one", 0)
    store.password = "two"
    store.now += MAX_AGE_S - 1
    assert store.held() == ("one", 0)
    store.now += 1
    assert store.held() == ("two", 1)
    store.now += MAX_AGE_S
    assert store.held() == ("two", 1)
    assert store.asked == 3


def test_a_doubt_is_looked_into_but_not_all_the_time(store: Store) -> None:
    store.held()
    store.password = "two"
    store.secret.doubted()
    assert store.held() == ("one", 0)
    store.now += LEAST_AGE_S
    store.secret.doubted()
    assert store.held() == ("two", 1)


def test_a_refusal_may_pass_only_for_a_while_after_a_change(store: Store) -> None:
    store.held()
    assert not store.secret.refused()
    store.password = "two"
    assert store.secret.refused()
    store.now += SPREADING_S - 1
    assert store.secret.refused()
    store.now += 1
    assert not store.secret.refused()
    assert store.held() == ("two", 1)


@pytest.mark.parametrize("failure", [Retryable("down"), ConfigError("denied")])
def test_a_secret_that_cannot_be_read_again_stays_what_it_was(
    store: Store, failure: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    store.held()
    store.password = failure
    store.now += MAX_AGE_S
    assert store.held() == ("one", 0)
    assert store.held() == ("one", 0)
    assert store.asked == 2
    assert capsys.readouterr().out.count("secret.failed") == 1
    with pytest.raises(type(failure)):
        store.secret.refused()


def test_a_secret_that_was_never_read_is_an_error(store: Store) -> None:
    store.password = ConfigError("absent")
    with pytest.raises(ConfigError):
        store.secret.current()


def test_no_value_is_in_a_text_or_an_event(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    store.password = "hunter1"
    held = store.secret.current()
    store.password, store.now = "hunter2", store.now + MAX_AGE_S
    store.secret.current()
    said = capsys.readouterr().out
    assert "secret.changed" in said
    assert "hunter" not in said + repr(held) + repr(store.secret)
