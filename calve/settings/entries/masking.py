"""How personal data is masked: the keys, and the step `mask`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal, get_args

from calve.config.steps import Mask, Rule
from calve.names import field_problem
from calve.settings import fields
from calve.settings.fields import Section
from calve.settings.problems import Invalid, InvalidParts, KeyPath, Problem, near_miss, one_of

WORDS = ("fields", "tags", "key", "headers")
RULES = ("drop", "null", "hash", "keep", "partial", "generalise")
Received = Literal["hash", "null", "keep"]
RECEIVED: tuple[Received, ...] = get_args(Received)
SPANS = ("year", "month")
FIELDS = "write it as {customer.email: hash, customer.phone: {partial: 4}, card: drop}"
RULE = "use drop, null, hash, {partial: 4}, {partial: domain}, {generalise: year} or {generalise: 100}"
MOST_SHOWN = 100
WIDEST_BAND = 2**63 - 1


class MaskingSection(Section):
    """The keys that hash personal data; see docs/masking.md. Absent: no table has a step `mask`."""

    secret: fields.Secret
    """`keys`, each with its time; see Secrets"""


def mask_step(raw: Any) -> Mask:
    """`{customer.email: hash, card: drop}`, or `{fields: {...}, tags: {PII: hash}, key: hash, headers: null}`.

    A mapping that has one of `WORDS` is of the second kind.
    """
    if not isinstance(raw, dict) or not raw:
        raise Invalid("must be a mapping", FIELDS)
    made, problems = _short(raw) if raw.keys().isdisjoint(WORDS) else _long(raw)
    if problems:
        raise InvalidParts(problems)
    return made


def _short(raw: dict[str, Any]) -> tuple[Mask, list[Problem]]:
    found, problems = _rules(raw, (), _path)
    return Mask(found), [*problems, *_clashes(found, ())]


def _long(raw: dict[str, Any]) -> tuple[Mask, list[Problem]]:
    by_path, wrong_paths = _rules(raw.get("fields"), ("fields",), _path)
    by_tag, wrong_tags = _rules(raw.get("tags"), ("tags",), _tag)
    problems = [*_strangers(raw), *wrong_paths, *wrong_tags, *_clashes(by_path, ("fields",))]
    received: dict[str, Received] = {"key": "hash", "headers": "null"}
    for word in [each for each in received if each in raw]:
        try:
            received[word] = _received(raw[word])
        except Invalid as invalid:
            problems += _within((word,), invalid)
    return Mask(by_path, by_tag, received["key"], received["headers"]), problems


def _strangers(raw: dict[str, Any]) -> Iterator[Problem]:
    fix = f"name columns under `fields`; also one that is called {one_of(WORDS)}"
    for name in raw:
        if name not in WORDS:
            yield Problem((name,), f"is not a known key beside {one_of(w for w in WORDS if w in raw)}", fix)
    if raw.keys().isdisjoint(("fields", "tags")):
        yield Problem((), "names no columns", f"{fix}; where there are none, add `fields: {{}}`")


def _rules(raw: Any, where: KeyPath, check: Callable[[str], None]) -> tuple[dict[str, Rule], list[Problem]]:
    if raw is None:
        return {}, []
    if not isinstance(raw, dict):
        return {}, [Problem(where, "must be a mapping", FIELDS)]
    found, problems = {}, []
    for name, each in raw.items():
        try:
            check(name)
            found[name] = _rule(each)
        except Invalid as invalid:
            problems += _within((*where, name), invalid)
    return found, problems


def _rule(raw: Any) -> Rule:
    match raw:
        case None | "null":
            return Rule("null")
        case "drop" | "hash" | "keep":
            return Rule(raw)
        case {"partial": stays} if len(raw) == 1:
            return Rule("partial", _stays(stays))
        case {"generalise": to} if len(raw) == 1:
            return Rule("generalise", _to(to))
        case str() if raw not in RULES:
            raise Invalid(f'"{raw}" is no rule', near_miss(raw, RULES) or RULE)
    raise Invalid("is no rule", RULE)


def _stays(raw: Any) -> int | str:
    if raw == "domain" or (type(raw) is int and 1 <= raw <= MOST_SHOWN):
        return raw  # type: ignore[no-any-return]
    raise Invalid(
        f'"{raw}" is nothing that stays', f"use domain, or a number of characters from 1 to {MOST_SHOWN}"
    )


def _to(raw: Any) -> int | str:
    if raw in SPANS or (type(raw) is int and 2 <= raw <= WIDEST_BAND):
        return raw  # type: ignore[no-any-return]
    raise Invalid(f'"{raw}" is no span', "use year, month, or the width of a band, at least 2, such as 100")


def _received(raw: Any) -> Received:
    match raw:
        case None | "null":
            return "null"
        case "hash":
            return "hash"
        case "keep":
            return "keep"
    raise Invalid(f'"{raw}" cannot be used', f"use {one_of(RECEIVED)}")


def _path(path: str) -> None:
    if problem := field_problem(path):
        raise Invalid(problem)


def _tag(tag: str) -> None:
    if not tag.strip():
        raise Invalid("is no tag", "write it as the schema has it, such as PII")


def _clashes(found: dict[str, Rule], where: KeyPath) -> Iterator[Problem]:
    """Rules that can have no effect."""
    for place, path in enumerate(found):
        if path.lower() in (earlier.lower() for earlier in list(found)[:place]):
            yield Problem((*where, path), "differs only by case from another one", "remove one of the two")
        above = [each for each, other in found.items() if path.startswith(f"{each}.") and other.how != "keep"]
        if above:
            yield Problem((*where, path), f'is in "{above[0]}", which has a rule', "remove one of the two")


def _within(path: KeyPath, invalid: Invalid) -> list[Problem]:
    return [Problem((*path, *each.path), each.reason, each.fix) for each in invalid.problems]
