"""Problems of a configuration, each with place, reason and fix, and the error that lists them."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from calve.errors import ConfigError
from calve.names import nearest

KeyPath = tuple[str, ...]
MOST_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem. `path`: of the key; empty for the whole file."""

    path: KeyPath
    reason: str
    fix: str | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a file: 1 for the first, 0 for the whole file."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


class Invalid(ValueError):
    """An invalid value."""

    def __init__(self, reason: str, fix: str | None = None) -> None:
        super().__init__(reason)
        self.problems = [Problem((), reason, fix)]


class InvalidParts(Invalid):
    """A value with invalid parts; the problems' paths are relative to the value."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__(problems[0].reason)
        self.problems = problems


def near_miss(word: str, known: Iterable[str]) -> str | None:
    """`Did you mean "x"?` for the nearest known word; None if none is near."""
    near = nearest(word, known, cutoff=0.7)
    return f'Did you mean "{near}"?' if near else None


def choice(word: str, known: Sequence[str], all_of_them: str) -> str:
    """Alternatives to an unknown word: the intended one, all, or the nearest ones of many."""
    near = near_miss(word, known)
    if near or len(known) <= MOST_SHOWN:
        return near or f"use {one_of(known)}"
    some = difflib.get_close_matches(word, known, n=3, cutoff=0.0)
    return f"use one of {len(known)}, such as {one_of(some)}; {all_of_them}"


def one_of(words: Iterable[str]) -> str:
    """`a, b or c`."""
    *head, last = words
    return f"{', '.join(head)} or {last}" if head else last


def shown(path: KeyPath) -> str:
    """A key path as text: `tables.trades.sort_by[0]`."""
    text = ""
    for part in path:
        if part.isdigit():
            text += f"[{part}]"
        else:
            plain = part if re.fullmatch(r"[\w-]+", part) else json.dumps(part, ensure_ascii=False)
            text += f".{plain}" if text else plain
    return text


def config_error(file: str, problems: Iterable[tuple[Place, Problem]]) -> ConfigError:
    found = rows(problems, file)
    widths = [max(len(row[column]) for row in found) for column in (0, 1)]
    lines = ["  ".join((place.ljust(widths[0]), path.ljust(widths[1]), text)) for place, path, text in found]
    count = "1 problem" if len(lines) == 1 else f"{len(lines)} problems"
    return ConfigError("\n  ".join([f"{file}: {count}", *lines]))


def rows(problems: Iterable[tuple[Place, Problem]], file: str = "") -> list[tuple[str, str, str]]:
    """Place, path, and reason with fix of each problem, in order."""
    found = []
    for place, each in in_order(problems, file):
        text = each.reason
        if each.fix is not None:
            end = "" if each.reason.endswith("?") else "."
            text += f"{end} {each.fix[0].upper()}{each.fix[1:]}"
        found.append((str(place), shown(each.path), text))
    return found


def in_order(problems: Iterable[tuple[Place, Problem]], file: str = "") -> list[tuple[Place, Problem]]:
    """Each problem once, sorted by file (`file` first) and line."""
    return sorted(
        set(problems),
        key=lambda each: (each[0].file != file, each[0].file, each[0].line, each[1].path, each[1].reason),
    )
