"""How the time that a regular expression takes grows with the text: by Java's matcher, which goes back where it does not fit.

Python's own parser reads the pattern: what Java and Python read alike is judged, all else is refused. Java's matcher calls
itself for each turn of a repeated group, so a long text ends the process: only single characters may be repeated without end.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from calve.errors import CalveError

_parser: Any = import_module("re._parser")
FEW = 20
"""So many turns of a repetition are as good as none."""
ELSE = -1
"""Any character beyond ASCII."""
EVERY = frozenset((ELSE, *range(128)))
CATEGORIES = {
    "CATEGORY_DIGIT": frozenset(map(ord, "0123456789")),
    "CATEGORY_WORD": frozenset(each for each in range(128) if chr(each).isalnum() or chr(each) == "_"),
    "CATEGORY_SPACE": frozenset(map(ord, " \t\n\x0b\f\r")),
}
TOKEN = re.compile(r"\\[pP](?:\{\w+\}|[A-Z])|\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
PROPERTY = re.compile(r"\\[pP]")
READ_OTHERWISE = re.compile(r"\\[vN0]|.\[|&&", re.DOTALL)
GROUP_WITHOUT_END = re.compile(r"\)(?:[*+]|\{\d+,\})")
FLAGS = re.IGNORECASE | re.DOTALL | re.MULTILINE | re.UNICODE
LOOKS = ("AT_BEGINNING", "AT_BEGINNING_STRING")
ENDS = ("AT_END", "AT_END_STRING")


class NotJudged(CalveError):
    """Nobody can say how long the pattern takes; the message says what of it."""


@dataclass(frozen=True, slots=True)
class _Rest:
    """What stands behind a place: with which characters it can begin, whether it fits anything, and what of it goes back.

    power: of the text's length, as which the time grows in which it is tried at one place.
    """

    first: frozenset[int]
    fits: bool
    power: int = 0


def growth(pattern: str) -> int:
    """1: the time grows as the text does; 2: as its square; and so on.

    Raises:
        NotJudged: it may be worse, or is not known.
    """
    if GROUP_WITHOUT_END.search(TOKEN.sub("x", pattern)):
        raise NotJudged("it repeats a group without end; repeat a single character or class instead")
    if any(READ_OTHERWISE.search(re.sub(r"\\[^vN0]", "", each)) for each in TOKEN.findall(pattern)):
        raise NotJudged("it has a class or an escape that Java and Python do not read alike")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            parsed = _parser.parse(TOKEN.sub(_without_properties, pattern))
    except (re.error, Warning, OverflowError, RecursionError) as error:
        raise NotJudged(f"it is not read ({error})") from None
    flags = re.RegexFlag(parsed.state.flags)
    if flags & ~FLAGS:
        raise NotJudged("it has other flags than i, m and s")
    power = _Judge(flags).rest(list(parsed), _Rest(frozenset(), fits=True)).power
    bound = not flags & re.MULTILINE and _begins_at_the_start(list(parsed))
    return max(1, power + (power > 0 and not bound))


def like_growth(pattern: str, escape: str) -> int:
    """The same of a pattern of LIKE, whose every `%` but those at its end can end in several places."""
    plain = re.sub(re.escape(escape) + ".", "x", pattern, flags=re.DOTALL)
    return max(1, len(re.findall("%+", plain.rstrip("%"))))


def _without_properties(token: re.Match[str]) -> str:
    return r"[\w\W]" if PROPERTY.search(token[0]) else token[0]


def _begins_at_the_start(items: list[Any]) -> bool:
    if not items:
        return False
    name, value = str(items[0][0]), items[0][1]
    if name == "BRANCH":
        return all(_begins_at_the_start(list(each)) for each in value[1])
    if name == "SUBPATTERN":
        return _begins_at_the_start(list(value[3]))
    return name == "AT" and str(value) in LOOKS


class _Judge:
    """Reads the items of a pattern from the last to the first."""

    def __init__(self, flags: re.RegexFlag) -> None:
        self._flags = flags

    def rest(self, items: list[Any], behind: _Rest) -> _Rest:
        for operator, value in reversed(items):
            behind = self._item(str(operator), value, behind)
        return behind

    def _item(self, name: str, value: Any, behind: _Rest) -> _Rest:
        match name:
            case "LITERAL" | "NOT_LITERAL" | "ANY" | "IN":
                return _Rest(self._characters(name, value), fits=False, power=behind.power)
            case "AT":
                if str(value) in ENDS:
                    return _Rest(frozenset(), fits=False, power=behind.power)
                return _Rest(EVERY if behind.fits else behind.first, fits=False, power=behind.power)
            case "SUBPATTERN" if not value[1] and not value[2]:
                return self.rest(list(value[3]), behind)
            case "BRANCH":
                return _either([self.rest(list(each), behind) for each in value[1]])
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                least, most, of = value
                return self._repeated(name, least, most, of, behind)
        raise NotJudged(f"it has {name.lower().replace('_', ' ')}")

    def _repeated(self, name: str, least: int, most: int, of: Any, behind: _Rest) -> _Rest:
        single = len(of) == 1 and str(of[0][0]) in ("LITERAL", "NOT_LITERAL", "ANY", "IN")
        if not single:
            return self._few(least, most, of, behind)
        turn = self._characters(str(of[0][0]), of[0][1])
        power = behind.power
        if most > FEW and not behind.fits:
            several = turn & behind.first and name != "POSSESSIVE_REPEAT"
            power = power + 1 if several else max(1, power)
        first = turn if least else turn | behind.first
        return _Rest(first, behind.fits and not least, power)

    def _few(self, least: int, most: int, of: Any, behind: _Rest) -> _Rest:
        """A repeated group; another turn of it may follow each turn."""
        if most > FEW:
            raise NotJudged(f"it repeats a group more than {FEW} times")
        once = self.rest(list(of), behind)
        again = self.rest(list(of), _Rest(EVERY, fits=False))
        found = _Rest(once.first, once.fits, once.power + (most - 1) * again.power)
        return found if least else _either([found, behind])

    def _characters(self, name: str, value: Any) -> frozenset[int]:
        match name:
            case "ANY":
                return EVERY if self._flags & re.DOTALL else EVERY - {ord("\n")}
            case "LITERAL":
                return self._any_case({value})
            case "NOT_LITERAL":
                return (EVERY - self._any_case({value})) | {ELSE}
        found: frozenset[int] = frozenset()
        for operator, each in value:
            match str(operator):
                case "LITERAL":
                    found |= self._any_case({each})
                case "RANGE":
                    found |= self._any_case(set(range(each[0], min(each[1], 128) + 1)) | {each[1]})
                case "CATEGORY":
                    found |= _category(str(each))
        return (EVERY - found) | {ELSE} if str(value[0][0]) == "NEGATE" else found

    def _any_case(self, codes: set[int]) -> frozenset[int]:
        if self._flags & re.IGNORECASE:
            codes = codes | {ord(each) for code in codes for each in chr(code).swapcase()}
        return frozenset(code if code < 128 else ELSE for code in codes)


def _category(name: str) -> frozenset[int]:
    if "_NOT_" in name:
        return EVERY - CATEGORIES[name.replace("_NOT_", "_")]
    return CATEGORIES[name]


def _either(ways: list[_Rest]) -> _Rest:
    return _Rest(
        frozenset().union(*(each.first for each in ways)),
        any(each.fits for each in ways),
        max(each.power for each in ways),
    )
