"""pydantic's findings in the words of calve.yaml."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from calve.settings.model import Configuration, section_at
from calve.settings.problems import Invalid, KeyPath, Problem, near_miss, one_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pydantic_core import ErrorDetails

_KINDS = {
    "string_type": "text",
    "int_type": "a whole number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
}


def configuration(values: Mapping[str, Any]) -> tuple[Configuration | None, list[Problem]]:
    """The validated configuration, or None and every problem of a single key."""
    try:
        return Configuration.model_validate(values), []
    except ValidationError as error:
        found = error.errors(include_url=False)
        return None, [problem for each in found for problem in _problems(each)]


def _problems(error: ErrorDetails) -> Iterator[Problem]:
    path: KeyPath = tuple(str(part) for part in error["loc"] if part != "[key]")
    raw, context = error["input"], error.get("ctx", {})
    match error["type"]:
        case "extra_forbidden":
            yield _unknown(path)
        case "missing":
            yield Problem(path, "is missing", f"add `{path[-1]}:`")
        case "literal_error":
            yield _not_allowed(path, raw, str(context["expected"]))
        case "value_error" if isinstance(invalid := context["error"], Invalid):
            for each in invalid.problems:
                yield Problem((*path, *each.path), each.reason, each.fix)
        case "too_short" | "string_too_short":
            yield Problem(path, "is empty")
        case "greater_than_equal" | "less_than_equal":
            bound, what = next(iter(context.items()))
            reason = f"{raw} is too {'small' if bound == 'ge' else 'large'}"
            yield Problem(path, reason, f"use {what:,} or {'more' if bound == 'ge' else 'less'}")
        case kind if kind in _KINDS:
            quote = isinstance(raw, int | float) and kind == "string_type"
            yield Problem(path, f"must be {_KINDS[kind]}", "put it in quotes" if quote else None)
        case _:
            yield Problem(path, error["msg"])


def _unknown(path: KeyPath) -> Problem:
    section = section_at(path[:-1])
    known = section.known_keys() if section else []
    fix = near_miss(path[-1], known) or (f"known here: {', '.join(known)}" if known else "remove it")
    return Problem(path, "is not a known key", fix)


def _not_allowed(path: KeyPath, raw: Any, expected: str) -> Problem:
    choices = re.findall(r"'([^']*)'", expected) or re.findall(r"\d+", expected)
    if not isinstance(raw, str | int | float):
        return Problem(path, f"must be {one_of(choices)}")
    guess = near_miss(str(raw), choices)
    return Problem(
        path,
        f'"{raw}" cannot be used',
        f"{guess} Use {one_of(choices)}" if guess else f"use {one_of(choices)}",
    )
