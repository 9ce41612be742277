from collections.abc import Iterator

import pytest

from lambdas.snowflake import sql_api
from tests.unit.lambdas.snowflake.world import World, world


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_api, "FIRST_PAUSE_S", 0.0)


@pytest.fixture
def snow(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-north-1")
    with world() as made:
        yield made
