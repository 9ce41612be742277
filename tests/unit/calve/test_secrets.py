"""Secrets come by reference, and no message or repr shows one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from calve.errors import CalveError, ConfigError
from calve.secrets import Redacted, read_secret, value_of

if TYPE_CHECKING:
    from pathlib import Path

TEXTS = {"username": "trader", "password": 'h"unter\\2'}


def test_a_secret_is_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA", json.dumps(TEXTS))
    assert read_secret("env:KAFKA") == TEXTS


def test_a_secret_is_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "secret.json"
    file.write_text(json.dumps(TEXTS))
    assert read_secret(f"file:{file}") == TEXTS


def test_a_missing_variable_is_named_with_the_command_that_sets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KAFKA", raising=False)
    with pytest.raises(ConfigError, match="KAFKA") as caught:
        read_secret("env:KAFKA")
    assert caught.value.fix == """export KAFKA='{"username": "...", "password": "..."}'"""


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nothing\.json does not exist"):
        read_secret(f"file:{tmp_path / 'nothing.json'}")
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        read_secret(f"file:{tmp_path}")


@pytest.mark.parametrize(
    "text", ["hunter2", '"hunter2"', '["hunter2"]', '{"password": 2, "x": "hunter2"}', "{hunter2"]
)
def test_a_secret_of_another_shape_is_refused_without_being_shown(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA", text)
    with pytest.raises(ConfigError, match="is not a JSON object of texts") as caught:
        read_secret("env:KAFKA")
    error: BaseException | None = caught.value
    while error is not None:
        assert "hunter2" not in f"{error!r} {error} {vars(error)}"
        error = error.__cause__ or error.__context__


def test_a_reference_of_no_known_kind_is_not_repeated() -> None:
    with pytest.raises(ConfigError) as caught:
        read_secret("hunter2")
    assert "hunter2" not in str(caught.value)


def test_a_secret_shows_its_keys_and_never_its_values() -> None:
    secret = Redacted(TEXTS)
    assert repr(secret) == str(secret) == f"{secret}" == "Redacted(password, username)"
    assert repr(secret | {"more": "hunter3"}) == "Redacted(more, password, username)"


def test_an_absent_or_empty_text_is_named() -> None:
    secret = Redacted({"username": ""})
    for key in ("username", "password"):
        with pytest.raises(CalveError, match=f'the secret env:KAFKA has no "{key}"'):
            value_of(secret, key, "env:KAFKA")
