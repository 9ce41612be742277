"""Values that queries of a table name: `:large_trade` in the query, `parameters: {large_trade: 4000}` beside its steps.

They are put into the query as literals before anything else sees it. An overlay of another environment has its own values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator

from calve.settings.problems import Invalid, Problem, near_miss

Value = str | bool | int | float

_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_TOKEN = re.compile(
    r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|`[^`]*`|--[^\n]*|/\*.*?\*/|::|(?<!\w):(?P<name>[A-Za-z_]\w*)""",
    re.DOTALL,
)
"""What may hold a colon that marks nothing: texts, quoted names, comments, casts; and the mark."""


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise Invalid(f'"{text}" is no name of a parameter', "use small letters, digits and _")
    return text


def _value(raw: Any) -> Value:
    if not isinstance(raw, str | bool | int | float):
        raise Invalid("must be a text, a number, true or false", "name one value")
    return raw


ParameterName = Annotated[str, AfterValidator(_name)]
ParameterValue = Annotated[Value, BeforeValidator(_value)]


def parameter_problems(
    steps: Sequence[tuple[str, str | None]], parameters: Mapping[str, Value]
) -> list[Problem]:
    """Parameters that a step names and the table has not, and the other way round. steps: kind and query of each."""
    used: set[str] = set()
    problems = []
    for number, (kind, query) in enumerate(steps):
        names = list(dict.fromkeys(_marked(query or "")))
        used.update(names)
        for name in (each for each in names if each not in parameters):
            reason = f"names :{name}, which is no parameter of the table"
            fix = near_miss(name, parameters) or f"add `parameters: {{{name}: ...}}` to the table"
            problems.append(Problem(("steps", str(number), kind), reason, fix))
    return problems + [
        Problem(("parameters", name), "is named by no step", f"write :{name} in one, or remove it")
        for name in parameters
        if name not in used
    ]


def _marked(query: str) -> list[str]:
    """The names that a query marks, in their order."""
    return [found["name"] for found in _TOKEN.finditer(query) if found["name"]]


def filled(query: str, parameters: Mapping[str, Value]) -> str:
    """The query with a literal of Spark SQL in the place of each mark, all of which `parameters` has."""
    return _TOKEN.sub(
        lambda found: _literal(parameters[found["name"]]) if found["name"] else found[0],
        query,
    )


def _literal(value: Value) -> str:
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    text = str(value).lower()
    return f"({text})" if text.startswith("-") else text
