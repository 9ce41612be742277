"""The steps of a table, how personal data is masked, and parameters of queries.

A query names `:large_trade`, and `parameters: {large_trade: 4000}` beside its steps has the value. It is put into the query as a
literal first. An overlay of another environment has its own values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from calve.config.masking_keys import KEY_ID
from calve.config.steps import Expect, Filter, Flatten, Lookup, Mask, Rule, Sql, Step
from calve.names import DATABASE_NAME, TABLE_NAME, field_problem
from calve.settings import fields
from calve.settings.fields import Section
from calve.settings.problems import Invalid, InvalidParts, KeyPath, Problem, near_miss, one_of

WORDS = ("fields", "tags", "key", "headers")
BESIDE = (*WORDS, "masking_key")
RULES = ("drop", "null", "hash", "keep", "partial", "generalise")
RECEIVED = ("hash", "null", "keep")
SPANS = ("year", "month")
FIELDS = "write it as {customer.email: hash, customer.phone: {partial: 4}, card: drop}"
RULE = "use drop, null, hash, {partial: 4}, {partial: domain}, {generalise: year} or {generalise: 100}"
MOST_SHOWN = 100
WIDEST_BAND = 2**63 - 1


class MaskingSection(Section):
    """The keys that hash personal data; see docs/masking.md. Absent: no table has a step `mask`."""

    secret: fields.Secret


def mask_step(raw: Any) -> Mask:
    """`{customer.email: hash, card: drop}`, or `{fields: {...}, tags: {PII: hash}, key: hash, headers: null}`, or with more.

    A mapping that has one of `WORDS` is of the second kind.
    """
    if not isinstance(raw, dict) or not raw:
        raise Invalid("must be a mapping", FIELDS)
    short = raw.keys().isdisjoint(WORDS)
    problems = [] if short else list(_strangers(raw))
    where: KeyPath = () if short else ("fields",)
    by_path = _rules(raw if short else raw.get("fields"), where, _path, problems)
    by_tag = {} if short else _rules(raw.get("tags"), ("tags",), _tag, problems)
    received: dict[str, Any] = {}
    for word in () if short else ("key", "headers"):
        if word in raw:
            received[word] = "null" if raw[word] is None else raw[word]
            if received[word] not in RECEIVED:
                reason = f'"{raw[word]}" cannot be used'
                problems.append(Problem((word,), reason, f"use {one_of(RECEIVED)}"))
    if not short and "masking_key" in raw:
        received["masking_key"] = by = raw["masking_key"]
        if not isinstance(by, str) or not KEY_ID.fullmatch(by):
            fix = 'name the id of a key in the secret of `masking`, as "2026a"'
            problems.append(Problem(("masking_key",), f'"{by}" is not the id of a masking key', fix))
    problems += _clashes(by_path, where)
    if problems:
        raise InvalidParts(problems)
    return Mask(by_path, by_tag, **received)


def _strangers(raw: dict[str, Any]) -> Iterator[Problem]:
    fix = f"name columns under `fields`; also one that is called {one_of(WORDS)}"
    for name in raw:
        if name not in BESIDE:
            yield Problem((name,), f"is not a known key beside {one_of(w for w in WORDS if w in raw)}", fix)
    if raw.keys().isdisjoint(("fields", "tags")):
        yield Problem((), "names no columns", f"{fix}; where there are none, add `fields: {{}}`")


def _rules(
    raw: Any, where: KeyPath, check: Callable[[str], None], problems: list[Problem]
) -> dict[str, Rule]:
    """Rules by path or by tag; those that cannot be used become problems."""
    found: dict[str, Rule] = {}
    if raw is not None and not isinstance(raw, dict):
        problems.append(Problem(where, "must be a mapping", FIELDS))
        return found
    for name, each in (raw or {}).items():
        try:
            check(name)
            found[name] = _rule(each)
        except Invalid as invalid:
            problems += [Problem((*where, name, *one.path), one.reason, one.fix) for one in invalid.problems]
    return found


def _rule(raw: Any) -> Rule:
    match raw:
        case None | "null":
            return Rule("null")
        case "drop" | "hash" | "keep":
            return Rule(raw)
        case {"partial": stays} if len(raw) == 1:
            if stays == "domain" or (type(stays) is int and 1 <= stays <= MOST_SHOWN):
                return Rule("partial", stays)
            fix = f"use domain, or a number of characters from 1 to {MOST_SHOWN}"
            raise Invalid(f'"{stays}" is nothing that stays', fix)
        case {"generalise": to} if len(raw) == 1:
            if to in SPANS or (type(to) is int and 2 <= to <= WIDEST_BAND):
                return Rule("generalise", to)
            fix = "use year, month, or the width of a band, at least 2, such as 100"
            raise Invalid(f'"{to}" is not a span', fix)
        case str() if raw not in RULES:
            raise Invalid(f'"{raw}" is not a rule', near_miss(raw, RULES) or RULE)
    raise Invalid("is not a rule", RULE)


def _path(path: str) -> None:
    if problem := field_problem(path):
        raise Invalid(problem)


def _tag(tag: str) -> None:
    if not tag.strip():
        raise Invalid("is not a tag", "write it as the schema has it, such as PII")


def _clashes(found: dict[str, Rule], where: KeyPath) -> Iterator[Problem]:
    """Rules that can have no effect."""
    for place, path in enumerate(found):
        if path.lower() in (earlier.lower() for earlier in list(found)[:place]):
            yield Problem((*where, path), "differs only by case from another one", "remove one of the two")
        above = [each for each, other in found.items() if path.startswith(f"{each}.") and other.how != "keep"]
        if above:
            yield Problem((*where, path), f'is in "{above[0]}", which has a rule', "remove one of the two")


Value = str | bool | int | float

_TOKEN = re.compile(
    r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|`[^`]*`|--[^\n]*|/\*.*?\*/|::|(?<!\w):(?P<name>[A-Za-z_]\w*)""",
    re.DOTALL,
)
"""What may hold a colon that marks nothing: texts, quoted names, comments, casts; and the mark."""


def _value(raw: Any) -> Value:
    if not isinstance(raw, str | bool | int | float):
        raise Invalid("must be a text, a number, true or false", "name one value")
    return raw


ParameterName = Annotated[
    str, fields.matching(r"[a-z][a-z0-9_]{0,63}", "parameter name", "use small letters, digits and _")
]
ParameterValue = Annotated[Value, BeforeValidator(_value, json_schema_input_type=Value)]


def marked(query: str) -> list[str]:
    """The names of the parameters in a query."""
    return list(dict.fromkeys(each["name"] for each in _TOKEN.finditer(query) if each["name"]))


def filled(query: str, parameters: Mapping[str, Value]) -> str:
    """The query with a literal of Spark SQL in the place of each mark, all of which `parameters` has."""
    return _TOKEN.sub(lambda found: _literal(parameters[found["name"]]) if found["name"] else found[0], query)


def _literal(value: Value) -> str:
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    text = str(value).lower()
    return f"({text})" if text.startswith("-") else text


def _separator(text: str) -> str:
    if not re.fullmatch("[A-Za-z0-9_]{0,8}", text):
        raise Invalid(f'"{text}" cannot be part of a column name', "use letters, digits and _")
    return text


OtherTable = Annotated[
    str,
    fields.matching(
        rf"(?:({DATABASE_NAME.pattern})\.)?{TABLE_NAME.pattern}",
        "table",
        'write it as "products", or "database.products"',
    ),
]


def _columns(raw: Any) -> Any:
    """`[name, price]`, or `{product_name: name}`."""
    if not isinstance(raw, list):
        return raw
    fix = "write the name of a column, or all of them as {product_name: name}"
    wrong = [n for n, each in enumerate(raw) if not isinstance(each, str)]
    if wrong:
        raise InvalidParts([Problem((str(n),), "must be text", fix) for n in wrong])
    return {each: each for each in raw}


class FlattenSection(Section):
    """Structs become columns: `order.customer.id` becomes `order_customer_id`. Lists stay lists, and maps stay maps."""

    separator: Annotated[str, AfterValidator(_separator)] = "_"
    explode: fields.FieldPath | None = None
    maps: dict[
        fields.FieldPath, Annotated[list[fields.ColumnName], Field(min_length=1), AfterValidator(tuple)]
    ] = Field(default_factory=dict)


class LookupSection(Section):
    """Columns of another table of the lake, from its row that has the same key. It is read as it is when a round begins."""

    table: OtherTable
    on: Annotated[dict[fields.ColumnName, fields.ColumnName], Field(min_length=1)]
    columns: Annotated[
        dict[fields.ColumnName, fields.ColumnName],
        BeforeValidator(_columns, json_schema_input_type=list[str] | dict[str, str]),
        Field(min_length=1),
    ]
    missing: Literal["null", "reject"] = "null"


class StepSection(Section):
    """One step: just one of these keys. Steps are run in the order of the list; see docs/steps.md."""

    flatten: FlattenSection | None = None
    filter: fields.Text | None = None
    sql: fields.Text | None = None
    lookup: LookupSection | None = None
    mask: Annotated[Mask | None, BeforeValidator(mask_step, json_schema_input_type=dict[str, Any])] = None

    def problems(self) -> Iterator[Problem]:
        if not self.model_fields_set:
            yield Problem((), "has no step", f"use {one_of(type(self).model_fields)}")
        elif len(self.model_fields_set) > 1:
            yield Problem((), "has several steps", "make each an item of the list")

    @property
    def marked(self) -> list[str]:
        """The names of the parameters in its query."""
        return marked(self.sql or self.filter or "")

    @property
    def filters(self) -> bool:
        """Whether it leaves out records."""
        plain = _TOKEN.sub(" ", self.sql or "")
        return self.filter is not None or re.search(r"\bwhere\b", plain, re.IGNORECASE) is not None

    def step(self, parameters: Mapping[str, Value]) -> Step:
        if self.filter is not None:
            return Filter(filled(self.filter, parameters))
        if self.sql is not None:
            return Sql(filled(self.sql, parameters))
        if self.mask is not None:
            return self.mask
        if self.lookup is not None:
            return fields.resolved(Lookup, self.lookup)
        return fields.resolved(Flatten, self.flatten)


class ExpectSection(Section):
    """What the records of the table must meet, behind its steps; see docs/steps.md."""

    that: fields.Text
    at_least: fields.Share | None = None
    else_: Literal["dead_letter", "drop", "suspend"] = Field(default="dead_letter", alias="else")

    @property
    def marked(self) -> list[str]:
        """The names of the parameters in its condition."""
        return marked(self.that)

    def step(self, parameters: Mapping[str, Value]) -> Expect:
        suspends = self.else_ == "suspend"
        at_least = 1.0 if suspends and self.at_least is None else self.at_least
        return Expect(filled(self.that, parameters), self.else_ == "drop", at_least, suspends)


def _short_form(raw: Any) -> Any:
    """`flatten` alone needs no settings."""
    if raw == "flatten" or raw == {"flatten": None}:
        return {"flatten": {}}
    return raw


WrittenStep = Annotated[
    StepSection, BeforeValidator(_short_form, json_schema_input_type=Literal["flatten"] | StepSection)
]
