"""Frozen values survive JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Literal

import pytest

from calve.stored import Stored, from_plain


@dataclass(frozen=True, slots=True)
class Near:
    kind: Literal["near"] = "near"
    at: int = 0


@dataclass(frozen=True, slots=True)
class Far:
    kind: Literal["far"] = "far"
    at: int = 0


@dataclass(frozen=True, slots=True)
class ByUrl:
    url: str
    secret: str | None = None


@dataclass(frozen=True, slots=True)
class ByName:
    name: str


@dataclass(frozen=True, slots=True)
class Whole(Stored):
    name: str
    source: ByUrl | ByName
    steps: tuple[Near | Far, ...] = ()
    offsets: dict[str, dict[int, tuple[int, int]]] = field(default_factory=dict)
    former: ByUrl | None = None
    words: tuple[str, ...] = ()


WHOLE = Whole("a", ByName("b"), (Far(at=1), Near()), {"t": {0: (1, 2)}}, ByUrl("u"), ("x",))


def test_a_value_survives_json() -> None:
    assert Whole.from_json(WHOLE.to_json()) == WHOLE
    assert from_plain(Whole, asdict(WHOLE)) == WHOLE


def test_fields_that_an_earlier_release_did_not_have_get_their_defaults() -> None:
    assert from_plain(Whole, {"name": "a", "source": {"url": "u"}}) == Whole("a", ByUrl("u"))


def test_unknown_fields_are_ignored_only_where_that_is_requested() -> None:
    raw = json.loads(WHOLE.to_json()) | {"colour": "red"}
    with pytest.raises(TypeError):
        from_plain(Whole, raw)
    assert from_plain(Whole, raw, lenient=True) == WHOLE


@pytest.mark.parametrize(
    "raw", [None, {}, [], "text", {"name": "a", "source": {"port": 1}}, {"name": "a", "source": 1}]
)
def test_another_value_is_refused(raw: object) -> None:
    with pytest.raises((AttributeError, KeyError, TypeError, ValueError)):
        from_plain(Whole, raw)
