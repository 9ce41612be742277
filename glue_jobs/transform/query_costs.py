"""Limits of a query's cost per record: time and memory may grow with the record's size, never with its square.

The producer of a record controls its texts and lists. So a pattern must be a literal of the query.
If a text is searched for in another one, or put between others, the query limits its length: `left(name, 100)`.

Java's regular expressions backtrack, so their time depends on the text. Python's parser reads the pattern.
Patterns that Java and Python read alike are judged, all others are refused.
Java's matcher recurses for each turn of a repeated group, so a long text would crash the process.
So only single characters may repeat without limit.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from calve.errors import CalveError
from glue_jobs.process.java import elements
from glue_jobs.transform.row_columns import unusable

SHORT = 100
"""The most characters of a text to search for or to put between others."""
LENGTHS = {2: 4000, 3: 300, 4: 80}
"""The power of a pattern's time -> the most characters of the searched text."""
ESCAPE = "\\"
PATTERNS = {
    **dict.fromkeys(("RLike", "RegExpCount", "RegExpExtract", "RegExpExtractAll", "RegExpInStr"), (1,)),
    **dict.fromkeys(("RegExpReplace", "RegExpSubStr", "StringSplit"), (1,)),
    "StringToMap": (1, 2),
}
"""Functions of a text, their first argument, and the places of their regular expressions."""
LIKES = {"ILike", "Like", "LikeAll", "LikeAny", "NotLikeAll", "NotLikeAny"}
LITTLE = {
    **dict.fromkeys(("ConcatWs", "StringLocate"), (0,)),
    **dict.fromkeys(("Contains", "SplitPart", "StringInstr", "SubstringIndex"), (1,)),
    **dict.fromkeys(("StringTrim", "StringTrimLeft", "StringTrimRight"), (1,)),
    **dict.fromkeys(("ArrayJoin", "StringReplace"), (1, 2)),
    "RegExpReplace": (2,),
}
"""Arguments that multiply the time or the result."""
COMPARING = {"ArrayDistinct", "ArrayExcept", "ArrayIntersect", "ArrayUnion", "ArraysOverlap", "MapZipWith"}
"""These hash numbers and texts, but compare other items pairwise."""
CUT = {"Left": 1, "Right": 1, "Substring": 2}
AS_LONG = {"Cast", "InitCap", "Lower", "StringTrim", "StringTrimLeft", "StringTrimRight", "Upper"}
LONG_TYPES = ("string", "binary", "variant")
OTHERS = {"ArrayAggregate", "Cast", "CsvToStructs", "LambdaFunction", "Levenshtein", "ParseUrl"}
COSTLY = {*PATTERNS, *LIKES, *LITTLE, *COMPARING, *OTHERS}


def require_bounded_cost(expression: Any, name: str, arguments: list[Any]) -> None:
    """Refuse one expression. Its arguments are not checked. Raises Suspended: `step_unusable`."""
    for power in _powers(expression, name, arguments):
        if power > max(LENGTHS):
            raise unusable(
                f"{_said(expression)}: the pattern has too many * and + that can end in several places"
            )
        if power > 1:
            _require_short(
                expression, arguments[0], LENGTHS[power], "for its time grows faster than the text"
            )
    for at in LITTLE.get(name, ()):
        if at < len(arguments):
            _require_short(expression, arguments[at])
    _require_more(expression, name, arguments)


def _require_more(expression: Any, name: str, arguments: list[Any]) -> None:
    match name:
        case "Levenshtein":
            if not any(each.foldable() for each in arguments[2:]) and not _is_short(arguments[0]):
                _require_short(expression, arguments[1])
        case "Cast" | "CsvToStructs" if '"decimal(' in expression.dataType().json():
            _require_short(expression, arguments[0], why="as the time grows as the square of the digits")
        case "ParseUrl" if len(arguments) > 2:
            _growth(expression, f"(&|^){_text(arguments[2])}=([^&]*)")
        case "ArrayAggregate" if not _is_small(arguments[1]):
            raise unusable(f"{_said(expression)}: a text or a list that grows with each item; use array_join")
        case "LambdaFunction":
            own = {_id(each) for each in arguments[1:]}
            for each in _others(arguments[0], own):
                raise unusable(
                    f"a lambda computes each item with {each.sql()}, which may be long: use numbers, or a text cut by left"
                )
        case _ if name in COMPARING:
            kind = _type(arguments[0])
            item = kind.get("elementType", kind.get("keyType"))
            if not isinstance(item, str) or item.startswith("binary"):
                raise unusable(
                    f"{_said(expression)} compares each item with each other one; use numbers or texts"
                )


def _growth(expression: Any, pattern: str) -> int:
    try:
        return growth(pattern)
    except NotJudged as why:
        raise unusable(f"{_said(expression)}: the pattern may take endless time: {why}") from None


def _powers(expression: Any, name: str, arguments: list[Any]) -> Iterator[int]:
    """For each pattern, the power of the first argument's length by which its time grows."""
    for at in PATTERNS.get(name, ()):
        yield _growth(expression, _text(arguments[at]))
    if name in ("Like", "ILike"):
        yield like_growth(_text(arguments[1]), str(expression.escapeChar()))
    elif name in LIKES:
        for pattern in elements(expression.patterns()):
            yield like_growth(str(pattern), ESCAPE)


def _others(body: Any, own: set[int]) -> Iterator[Any]:
    """Long values of the record in a lambda's body: the number of items would multiply their cost."""
    name = name_of(body)
    if (name in CUT and _is_short(body)) or (name == "GetStructField" and _is_small(body)):
        return
    if name == "AttributeReference" or (name == "NamedLambdaVariable" and _id(body) not in own):
        if not _is_small(body):
            yield body
        return
    if name == "LambdaFunction":
        own = own | {_id(each) for each in list(elements(body.children()))[1:]}
    for each in elements(body.children()):
        yield from _others(each, own)


def _is_short(expression: Any, most: int = SHORT) -> bool:
    if expression.foldable() or _is_small(expression):
        return True
    name, arguments = name_of(expression), list(elements(expression.children()))
    if name in CUT:
        length = arguments[CUT[name]]
        return bool(length.foldable()) and int(length.eval(None) or 0) <= most
    return name in AS_LONG and _is_short(arguments[0], most)


def _is_small(expression: Any) -> bool:
    kind = _type(expression)
    return isinstance(kind, str) and not kind.startswith(LONG_TYPES)


def _type(expression: Any) -> Any:
    return json.loads(expression.dataType().json())


def _require_short(
    expression: Any, text: Any, most: int = SHORT, why: str = "for it multiplies the time or the result"
) -> None:
    if not _is_short(text, most):
        raise unusable(
            f"{_said(expression)}: the query must limit the length of {text.sql()}, {why}: "
            f"write left({text.sql()}, {most}), or less, in its place"
        )


def _text(pattern: Any) -> str:
    return str(pattern.eval(None))


def _said(expression: Any) -> str:
    return "like" if name_of(expression) in LIKES else str(expression.prettyName())


def _id(variable: Any) -> int:
    return int(variable.exprId().id())


def name_of(expression: Any) -> str:
    return str(expression.getClass().getSimpleName())


_parser: Any = import_module("re._parser")
FEW = 20
"""A repetition of at most this many turns counts as none."""
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
SINGLE = ("LITERAL", "NOT_LITERAL", "ANY", "IN")
LOOKS = ("AT_BEGINNING", "AT_BEGINNING_STRING")
ENDS = ("AT_END", "AT_END_STRING")


class NotJudged(CalveError):
    """The pattern's time is unknown; the message says why."""


@dataclass(frozen=True, slots=True)
class _Rest:
    """The rest of a pattern after a place: its possible first characters, and whether it matches any text.

    power: the time of trying it at one place grows with this power of the text's length.
    """

    first: frozenset[int]
    fits: bool
    power: int = 0


def growth(pattern: str) -> int:
    """The power of the text's length by which the time grows: 1 linear, 2 quadratic, and so on.

    Raises NotJudged: it may be worse, or is unknown.
    """
    if GROUP_WITHOUT_END.search(TOKEN.sub("x", pattern)):
        raise NotJudged("it repeats a group without end; repeat a single character or class instead")
    if any(READ_OTHERWISE.search(re.sub(r"\\[^vN0]", "", each)) for each in TOKEN.findall(pattern)):
        raise NotJudged("it has a class or an escape that Java and Python do not read alike")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            plain = TOKEN.sub(lambda token: r"[\w\W]" if PROPERTY.search(token[0]) else token[0], pattern)
            parsed = _parser.parse(plain)
    except (re.error, Warning, OverflowError, RecursionError) as error:
        raise NotJudged(f"it is not read ({error})") from None
    flags = re.RegexFlag(parsed.state.flags)
    if flags & ~FLAGS:
        raise NotJudged("it has other flags than i, m and s")
    power = _Judge(flags).rest(list(parsed), _Rest(frozenset(), fits=True)).power
    bound = not flags & re.MULTILINE and _begins_at_the_start(list(parsed))
    return max(1, power + (power > 0 and not bound))


def like_growth(pattern: str, escape: str) -> int:
    """The same for a LIKE pattern. Each `%` but a trailing one can end in several places."""
    plain = re.sub(re.escape(escape) + ".", "x", pattern, flags=re.DOTALL)
    return max(1, len(re.findall("%+", plain.rstrip("%"))))


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
    """Reads the items of a pattern from last to first."""

    def __init__(self, flags: re.RegexFlag) -> None:
        self._flags = flags

    def rest(self, items: list[Any], behind: _Rest) -> _Rest:
        for operator, value in reversed(items):
            behind = self._item(str(operator), value, behind)
        return behind

    def _item(self, name: str, value: Any, behind: _Rest) -> _Rest:
        match name:
            case _ if name in SINGLE:
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
        if len(of) != 1 or str(of[0][0]) not in SINGLE:  # a group; each turn may be followed by another one
            if most > FEW:
                raise NotJudged(f"it repeats a group more than {FEW} times")
            once, again = self.rest(list(of), behind), self.rest(list(of), _Rest(EVERY, fits=False))
            found = _Rest(once.first, once.fits, once.power + (most - 1) * again.power)
            return found if least else _either([found, behind])
        turn = self._characters(str(of[0][0]), of[0][1])
        power = behind.power
        if most > FEW and not behind.fits:
            several = turn & behind.first and name != "POSSESSIVE_REPEAT"
            power = power + 1 if several else max(1, power)
        first = turn if least else turn | behind.first
        return _Rest(first, behind.fits and not least, power)

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
                    kind = str(each)
                    held = CATEGORIES[kind.replace("_NOT_", "_")]
                    found |= EVERY - held if "_NOT_" in kind else held
        return (EVERY - found) | {ELSE} if str(value[0][0]) == "NEGATE" else found

    def _any_case(self, codes: set[int]) -> frozenset[int]:
        if self._flags & re.IGNORECASE:
            codes = codes | {ord(each) for code in codes for each in chr(code).swapcase()}
        return frozenset(code if code < 128 else ELSE for code in codes)


def _either(ways: list[_Rest]) -> _Rest:
    return _Rest(
        frozenset().union(*(each.first for each in ways)),
        any(each.fits for each in ways),
        max(each.power for each in ways),
    )
