"""Polaris, set up and cleared away again, against a stand-in made after its OpenAPI."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from calve.errors import Fatal
from calve.http_client import Tokens
from lambdas.catalog_sync.catalog import Server
from lambdas.catalog_sync.polaris import OWNER, Names
from lambdas.catalog_sync.polaris import Polaris as Setup
from tests.polaris import ADMIN, CATALOG, MANAGEMENT, Polaris, Serving

NAMES = Names(
    "trading",
    "lakehouse",
    "s3://lake/tables",
    role_arn="arn:aws:iam::123456789012:role/polaris",
    external_id="x",
)


class Killed(BaseException):
    pass


class Mortal(Server):
    """Dies before, or right after, the request of this number."""

    def __init__(self, url: str, tokens: Tokens, *, dies_at: int | None = None, after: bool = False) -> None:
        super().__init__(url, tokens)
        self.left, self.after = dies_at, after

    def ask(self, *arguments: Any, **options: Any) -> dict[str, Any]:
        if self.left is not None:
            self.left -= 1
            if self.left < 0 and not self.after:
                raise Killed
        answer = super().ask(*arguments, **options)
        if self.left is not None and self.left < 0:
            raise Killed
        return answer


@pytest.fixture
def polaris() -> Iterator[tuple[Polaris, str]]:
    there = Polaris()
    with Serving(there) as serving:
        yield there, serving.url


def setup(url: str, **options: Any) -> Setup:
    tokens = Tokens(f"{url}{CATALOG}/v1/oauth/tokens", *ADMIN.values(), scope="PRINCIPAL_ROLE:ALL")
    return Setup(Mortal(url + MANAGEMENT, tokens, **options), NAMES)


def test_everything_is_made_once_and_removed_again(polaris: tuple[Polaris, str]) -> None:
    there, url = polaris
    there.things["catalogs", "theirs"] = {"name": "theirs", "properties": {}}
    stored: dict[str, str] = {}
    setup(url).make(stored, stored.update)
    assert there.things["catalogs", "lakehouse"]["properties"] == {
        "default-base-location": "s3://lake/tables",
        OWNER: "trading",
    }
    assert there.secrets[stored["client_id"]] == stored["client_secret"]
    assert there.may(stored["client_id"]) == {"lakehouse"}

    before, requests = (dict(there.things), dict(stored)), len(there.requests)
    setup(url).make(stored, stored.update)
    assert (dict(there.things), dict(stored)) == before
    assert {method for method, _ in there.requests[requests:]} == {"GET", "PUT"}

    setup(url).remove()
    assert set(there.things) == {("catalogs", "theirs")}
    assert (there.held, there.secrets) == (set(), {ADMIN["client_id"]: ADMIN["client_secret"]})


@pytest.mark.parametrize("after", [False, True])
def test_killed_at_any_request_it_is_done_again_with_the_same_end(
    polaris: tuple[Polaris, str], *, after: bool
) -> None:
    there, url = polaris
    stored: dict[str, str] = {}
    for number in range(20):
        with suppress(Killed):
            setup(url, dies_at=number, after=after).make(stored, stored.update)
        setup(url).make(stored, stored.update)
        assert there.may(stored["client_id"]) == {"lakehouse"}
        assert len(there.secrets) == 2
        with suppress(Killed):
            setup(url, dies_at=number, after=after).remove()
        setup(url).remove()
        assert not there.things
        assert not there.held


@pytest.mark.parametrize(
    "key",
    [
        ("catalogs", "lakehouse"),
        ("principals", "calve-trading"),
        ("principal-roles", "calve-trading"),
        ("catalogs", "lakehouse", "catalog-roles", "calve-trading"),
    ],
)
def test_what_was_there_is_neither_used_nor_removed(
    polaris: tuple[Polaris, str], key: tuple[str, ...]
) -> None:
    there, url = polaris
    stored: dict[str, str] = {}
    if len(key) == 4:
        setup(url).make(stored, stored.update)
    there.things[key] = {"name": key[-1], "properties": {}, "clientId": "theirs"}
    with pytest.raises(Fatal, match="was not made by trading"):
        setup(url).make(stored, stored.update)
    with suppress(Fatal):  # a catalog with somebody's role is not empty
        setup(url).remove()
    assert there.things[key]["clientId"] == "theirs"


def test_a_catalog_that_is_not_empty_says_so(polaris: tuple[Polaris, str]) -> None:
    there, url = polaris
    stored: dict[str, str] = {}
    setup(url).make(stored, stored.update)
    there.namespaces["lakehouse", "theirs"] = None  # type: ignore[assignment]
    with pytest.raises(Fatal, match="not empty"):
        setup(url).remove()


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PATCH", "/catalogs/x", None),
        ("POST", "/catalogs", {"catalog": {"name": "x", "type": "EXTERNAL"}}),
        ("POST", "/principals", {"principal": {"name": "system$x"}}),
        ("POST", "/principal-roles", {"principalRole": {"name": "x", "colour": "red"}}),
    ],
)
def test_the_stand_in_is_strict(
    polaris: tuple[Polaris, str], method: str, path: str, body: dict[str, Any] | None
) -> None:
    there, url = polaris
    there.things["catalogs", "x"] = {"name": "x"}
    if method == "PATCH":
        method, path = "PUT", path + "/anything"
    with pytest.raises(Fatal, match=r"HTTP 40[05]"):
        setup(url).server.ask(method, path, body)
