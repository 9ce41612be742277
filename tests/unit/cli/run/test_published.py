"""What `calve status` says of tables that are published."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from moto import mock_aws

from calve.errors import CalveError
from cli.look.status.overview import published
from lambdas.publish_states import PublishState, State, Target
from tests.unit.lambdas.states_table import NAME, make_states_table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cli.account import Account

CONFIG = """
name: trading
kafka: {bootstrap_servers: "127.0.0.1:1"}
registry: {url: "http://127.0.0.1:1"}
lake: {region: us-east-1}
tables: {trades: {topic: trades}, users: {topic: users}}
publish: {iceberg_rest: {uri: "https://catalog.example.com"}}
"""
SYNCED = PublishState(Target.ICEBERG_REST, "trading.trades", State.SYNCED, since_ms=1000)
FAILED = replace(SYNCED, table="trading.users", state=State.FAILED, reason="not allowed")


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    with mock_aws():
        (file := tmp_path / "calve.yaml").write_text(CONFIG)
        yield file


def found(account: Account, stack: str, *, fix: str) -> dict[str, str]:
    assert (account.region, stack) == ("us-east-1", "trading-publish")
    return {"PublishStatesTable": NAME}


def not_found(account: Account, stack: str, *, fix: str) -> dict[str, str]:
    raise CalveError(f"the stack {stack} is not deployed")


def test_the_states_of_all_tables_or_of_those_named(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cli.look.status.overview.outputs", found)
    states = make_states_table()
    for each in (FAILED, SYNCED):
        states.put(each)
    assert published(config, None) == [SYNCED, FAILED]
    assert published(config, None, ["users"]) == [FAILED]


def test_what_is_not_deployed_is_an_error_that_the_screen_shows(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cli.look.status.overview.outputs", not_found)
    with pytest.raises(CalveError, match="trading-publish is not deployed"):
        published(config, None)


def test_nothing_is_asked_where_nothing_is_published(config: Path) -> None:
    config.write_text(CONFIG[: CONFIG.index("publish")])
    assert published(config, None) == []
