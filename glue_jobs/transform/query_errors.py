"""Spark's answers about a query: Catalyst trees, and errors as sentences from their class and parameters, never from a plan."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import ParseException, PySparkException

from glue_jobs.process.java import java_class
from glue_jobs.transform.row_columns import unusable

LONGEST = 300
PLACE = re.compile(r"\(line (\d+), pos (\d+)\)")
GENERATOR = (
    "a function that makes rows, such as explode, belongs into a step of its own: use flatten: {explode: ...}"
)


class query_errors:
    """Turns Spark's parse and analysis errors into `unusable`.

    made: the columns that the query itself names.
    """

    def __init__(self, columns: Sequence[str], made: Sequence[str] = ()) -> None:
        self._columns = columns
        self._made = made

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, PySparkException):
            raise unusable(_sentence(error, self._columns, self._made)) from None
        if isinstance(error, Py4JJavaError):
            raise unusable(f"Spark cannot make sense of it ({java_class(error)})") from None


def _sentence(error: PySparkException, columns: Sequence[str], made: Sequence[str]) -> str:
    condition = error.getCondition() or type(error).__name__
    given = {name: text.replace("`", "") for name, text in (error.getMessageParameters() or {}).items()}
    match condition.split("."):
        case ["UNRESOLVED_COLUMN" | "UNRESOLVED_FIELD", *_]:
            return _unknown(given.get("objectName") or given.get("fieldName", ""), columns, made)
        case ["FIELD_NOT_FOUND"]:
            return f'"{given["fieldName"]}" is no field; there are {given["fields"]}'
        case ["UNRESOLVED_ROUTINE"]:
            return f'"{given["routineName"]}" is no function of Spark SQL'
        case ["UNSUPPORTED_GENERATOR", *_]:
            return GENERATOR
        case ["DATATYPE_MISMATCH", "FILTER_NOT_BOOLEAN"]:
            return f"{given['filter']} is {given['type']}, and no condition"
        case ["DATATYPE_MISMATCH", *_]:
            return _mismatch(given)
    if isinstance(error, ParseException):
        return _parse(error, condition, given)
    said = ", ".join(f"{_words(name)} {text}" for name, text in given.items() if name != "docroot")
    return _short(f"{_words(condition)}{': ' if said else ''}{said}")


def _unknown(name: str, columns: Sequence[str], made: Sequence[str]) -> str:
    if name.lower() in (each.lower() for each in made):
        return f'"{name}" is made by the query itself: use two sql steps'
    by_lower = {each.lower(): each for each in columns}
    near = difflib.get_close_matches(name.lower().removeprefix("source."), by_lower, n=2, cutoff=0.6)
    meant = " or ".join(f'"{by_lower[each]}"' for each in near)
    hint = f"; did you mean {meant}?" if near else f"; there are {_short(', '.join(columns))}"
    return f'"{name}" is no column{hint}'


def _mismatch(given: dict[str, str]) -> str:
    """The expression and its mismatched types. The parameters differ between kinds of mismatch."""
    expression = given.pop("sqlExpr", "")
    said = ", ".join(f"{_words(name)} {text}" for name, text in given.items())
    return _short(f"{expression} has types that do not fit: {said}")


def _parse(error: PySparkException, condition: str, given: dict[str, str]) -> str:
    said = f"syntax error at {given['error']}{given['hint']}" if "hint" in given else _words(condition)
    place = PLACE.search(str(error))
    return f"{said} (line {place[1]}, character {int(place[2]) + 1})" if place else said


def _words(name: str) -> str:
    """`requiredType` and `PARSE_SYNTAX_ERROR` as words."""
    if name.isupper():
        return name.replace("_", " ").replace(".", ", ").lower()
    return "".join(f" {each.lower()}" if each.isupper() else each for each in name)


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


Node = dict[str, Any]


def nodes(tree: Any) -> list[Node]:
    """The nodes of a Java TreeNode, each before its children; `num-children` is their number."""
    found: list[Node] = json.loads(tree.toJSON())
    return found


def kind(node: Node) -> str:
    return str(node["class"]).rsplit(".", 1)[-1]


def everywhere(part: Any) -> Iterator[Node]:
    """All nodes, including expressions of plans, plans of expressions, and nodes that are not children."""
    if isinstance(part, dict):
        if "class" in part:
            yield part
        for value in part.values():
            yield from everywhere(value)
    elif isinstance(part, list):
        for value in part:
            yield from everywhere(value)
