"""What a query may cost for one record: time and memory that grow as the record does, never as its square.

The producer of a record chooses its texts and lists. So a pattern must be a literal of the query. Where one text is searched
for in another, or is put between others, the query bounds its length: `left(name, 100)`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from glue_jobs.java import elements
from glue_jobs.steps.frame import unusable
from glue_jobs.steps.query_patterns import NotJudged, growth, like_growth

SHORT = 100
"""Characters of a text that may be searched for, or put between others."""
LENGTHS = {2: 4000, 3: 300, 4: 80}
"""How the time of a pattern grows -> characters of a text in which it may be looked for."""
ESCAPE = "\\"
PATTERNS = {
    "RLike": (1,),
    "RegExpCount": (1,),
    "RegExpExtract": (1,),
    "RegExpExtractAll": (1,),
    "RegExpInStr": (1,),
    "RegExpReplace": (1,),
    "RegExpSubStr": (1,),
    "StringSplit": (1,),
    "StringToMap": (1, 2),
}
"""Functions of a text, their first argument, and those that are regular expressions."""
LIKES = {"ILike", "Like", "LikeAll", "LikeAny", "NotLikeAll", "NotLikeAny"}
LITTLE = {
    "ArrayJoin": (1, 2),
    "ConcatWs": (0,),
    "Contains": (1,),
    "RegExpReplace": (2,),
    "SplitPart": (1,),
    "StringInstr": (1,),
    "StringLocate": (0,),
    "StringReplace": (1, 2),
    "StringTrim": (1,),
    "StringTrimLeft": (1,),
    "StringTrimRight": (1,),
    "SubstringIndex": (1,),
}
"""Arguments by which the time, or the result, is multiplied."""
COMPARING = {"ArrayDistinct", "ArrayExcept", "ArrayIntersect", "ArrayUnion", "ArraysOverlap", "MapZipWith"}
"""They hash numbers and texts, but compare each item that is something else with each other one."""
CUT = {"Left": 1, "Right": 1, "Substring": 2}
AS_LONG = {"Cast", "InitCap", "Lower", "StringTrim", "StringTrimLeft", "StringTrimRight", "Upper"}
LONG_TYPES = ("string", "binary", "variant")
COSTLY = {
    *PATTERNS,
    *LIKES,
    *LITTLE,
    *COMPARING,
    "ArrayAggregate",
    "Cast",
    "CsvToStructs",
    "LambdaFunction",
    "Levenshtein",
    "ParseUrl",
}


def require_bounded_cost(expression: Any) -> None:
    """Refuse one expression, whatever is below it.

    Raises:
        Suspended: `step_unusable`.
    """
    name, arguments = _name(expression), list(elements(expression.children()))
    for power in _powers(expression, name, arguments):
        _require_length(expression, arguments[0], power)
    for at in LITTLE.get(name, ()):
        if at < len(arguments) and not _is_short(arguments[at], SHORT):
            raise _unbounded(expression, arguments[at], SHORT)
    _require_more(expression, name, arguments)


def _require_more(expression: Any, name: str, arguments: list[Any]) -> None:
    match name:
        case "Levenshtein":
            _require_one_short(expression, arguments)
        case "Cast" | "CsvToStructs" if '"decimal(' in expression.dataType().json():
            if not _is_short(arguments[0], SHORT):
                raise _unbounded(
                    expression, arguments[0], SHORT, "as the time grows as the square of the digits"
                )
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
        case _ if name in COMPARING and not _is_hashed(arguments[0]):
            raise unusable(
                f"{_said(expression)} compares each item with each other one; use numbers or texts"
            )


def _require_length(expression: Any, text: Any, power: int) -> None:
    if power == 1:
        return
    most = LENGTHS.get(power)
    if most is None:
        raise unusable(
            f"{_said(expression)}: the pattern has too many * and + that can end in several places"
        )
    if not _is_short(text, most):
        raise _unbounded(expression, text, most, "for its time grows faster than the text")


def _growth(expression: Any, pattern: str) -> int:
    try:
        return growth(pattern)
    except NotJudged as why:
        raise unusable(f"{_said(expression)}: the pattern may take endless time: {why}") from None


def _powers(expression: Any, name: str, arguments: list[Any]) -> Iterator[int]:
    """Of the length of its first argument, as which the time grows that each pattern takes."""
    for at in PATTERNS.get(name, ()):
        yield _growth(expression, _text(arguments[at]))
    if name in ("Like", "ILike"):
        yield like_growth(_text(arguments[1]), str(expression.escapeChar()))
    elif name in LIKES:
        for pattern in elements(expression.patterns()):
            yield like_growth(str(pattern), ESCAPE)


def _require_one_short(expression: Any, arguments: list[Any]) -> None:
    compared, threshold = arguments[:2], arguments[2:]
    if not any(each.foldable() for each in threshold) and not any(
        _is_short(each, SHORT) for each in compared
    ):
        raise _unbounded(expression, compared[1], SHORT)


def _others(body: Any, own: set[int]) -> Iterator[Any]:
    """Texts, lists and the like of the record in the body of a lambda, which would be multiplied by the number of items."""
    name = _name(body)
    if name in CUT and _is_short(body, SHORT):
        return
    if name == "GetStructField" and _is_small(body):
        return
    if name == "AttributeReference" or (name == "NamedLambdaVariable" and _id(body) not in own):
        if not _is_small(body):
            yield body
        return
    if name == "LambdaFunction":
        own = own | {_id(each) for each in list(elements(body.children()))[1:]}
    for each in elements(body.children()):
        yield from _others(each, own)


def _is_short(expression: Any, most: int) -> bool:
    name = _name(expression)
    if expression.foldable() or _is_small(expression):
        return True
    arguments = list(elements(expression.children()))
    if name in CUT:
        length = arguments[CUT[name]]
        return bool(length.foldable()) and int(length.eval(None) or 0) <= most
    return name in AS_LONG and (_is_small(arguments[0]) or _is_short(arguments[0], most))


def _is_small(expression: Any) -> bool:
    """Whether all values of its type are."""
    kind = json.loads(expression.dataType().json())
    return isinstance(kind, str) and not kind.startswith(LONG_TYPES)


def _is_hashed(collection: Any) -> bool:
    kind = json.loads(collection.dataType().json())
    item = kind.get("elementType", kind.get("keyType"))
    return isinstance(item, str) and not item.startswith("binary")


def _unbounded(
    expression: Any, text: Any, most: int, why: str = "for it multiplies the time or the result"
) -> Exception:
    return unusable(
        f"{_said(expression)}: the length of {text.sql()} must stand in the query, {why}: "
        f"write left({text.sql()}, {most}), or less, in its place"
    )


def _text(pattern: Any) -> str:
    return str(pattern.eval(None))


def _said(expression: Any) -> str:
    return "like" if _name(expression) in LIKES else str(expression.prettyName())


def _id(variable: Any) -> int:
    return int(variable.exprId().id())


def _name(expression: Any) -> str:
    return str(expression.getClass().getSimpleName())
