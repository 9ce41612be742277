"""What becomes of the columns of a record on its way to the table, and values that queries of the steps name.

`:large_trade` in the query, `parameters: {large_trade: 4000}` beside its steps: they are put into the query as literals before
anything else sees it. An overlay of another environment has its own values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from calve.config.steps import Filter, Flatten, Lookup, Mask, Sql, Step
from calve.names import DATABASE_NAME, TABLE_NAME
from calve.settings import fields
from calve.settings.entries.masking import mask_step
from calve.settings.fields import Section
from calve.settings.problems import Invalid, InvalidParts, Problem, near_miss, one_of

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


_OTHER_TABLE = re.compile(rf"(?:({DATABASE_NAME.pattern})\.)?{TABLE_NAME.pattern}")


def _separator(text: str) -> str:
    if not re.fullmatch("[A-Za-z0-9_]{0,8}", text):
        raise Invalid(f'"{text}" cannot stand in the name of a column', "use letters, digits and _")
    return text


def _other_table(name: str) -> str:
    if not _OTHER_TABLE.fullmatch(name):
        raise Invalid(f'"{name}" is no table', 'write it as "products", or "database.products"')
    return name


def _columns(raw: Any) -> Any:
    """`[name, price]`, or `{product_name: name}`."""
    if isinstance(raw, list):
        return {each: each for each in raw}
    return raw


class FlattenSection(Section):
    """Structs become columns: `order.customer.id` becomes `order_customer_id`. Lists stay lists, and maps stay maps."""

    separator: Annotated[str, AfterValidator(_separator)] = "_"
    """What stands for the dots. Default: `_`"""
    explode: fields.FieldPath | None = None
    """A list, such as `order.items`, of whose items each makes a row, with all other columns of the record beside it. An empty
    list makes one row. Default: lists stay lists"""
    maps: dict[fields.FieldPath, Annotated[list[fields.ColumnName], Field(min_length=1)]] = Field(
        default_factory=dict
    )
    """Maps, and keys of theirs that become columns: `{attributes: [color, size]}` makes `attributes_color` and
    `attributes_size`; all other keys stay in the map. Default: none"""

    def step(self) -> Flatten:
        return Flatten(self.separator, self.explode, {path: tuple(keys) for path, keys in self.maps.items()})


class LookupSection(Section):
    """Columns of another table of the lake, from its row that has the same key. It is read as it is when a round begins."""

    table: Annotated[str, AfterValidator(_other_table)]
    """Name of the table, in the same database unless it is written as `database.table`"""
    on: Annotated[dict[fields.ColumnName, fields.ColumnName], Field(min_length=1)]
    """Columns of the record, each with the column of the other table that must be equal to it: `{product_id: id}`"""
    columns: Annotated[
        dict[fields.ColumnName, fields.ColumnName], BeforeValidator(_columns), Field(min_length=1)
    ]
    """Columns of the other table: `[name, price]`, or with other names: `{product_name: name}`"""
    missing: Literal["null", "reject"] = "null"
    """A record whose key the other table does not have: `null`: these columns are null; `reject`: it is a dead letter.
    Default: `null`"""

    def step(self) -> Lookup:
        return Lookup(self.table, dict(self.on), dict(self.columns), self.missing)


class StepSection(Section):
    """One step: just one of these keys. Steps are run in the order of the list; see docs/steps.md."""

    flatten: FlattenSection | None = None
    """See `tables.<name>.steps.flatten`"""
    filter: fields.Text | None = None
    """A condition of Spark SQL, such as `price > 0`. Records for which it is not true make no row; the ledger counts them"""
    sql: fields.Text | None = None
    """`SELECT ... FROM source`, with a `WHERE` or without, of Spark SQL, for each record alone"""
    lookup: LookupSection | None = None
    """See `tables.<name>.steps.lookup`"""
    mask: Annotated[Mask | None, BeforeValidator(mask_step)] = None
    """What is personal, by path, and what becomes of it: `{customer.email: hash, customer.card: drop, phone: {partial: 4}}`; see
    docs/masking.md"""

    @model_validator(mode="before")
    @classmethod
    def _short_forms(cls, raw: Any) -> Any:
        """`flatten` alone needs no settings."""
        if raw == "flatten" or raw == {"flatten": None}:
            return {"flatten": {}}
        return raw

    @model_validator(mode="after")
    def _is_one(self) -> StepSection:
        given = [name for name in type(self).model_fields if getattr(self, name) is not None]
        if len(given) != 1:
            reason = "has several steps" if given else "has no step"
            fix = "make each an item of the list" if given else f"use {one_of(type(self).model_fields)}"
            raise InvalidParts([Problem((), reason, fix)])
        return self

    @property
    def kind(self) -> str:
        return next(name for name in type(self).model_fields if getattr(self, name) is not None)

    @property
    def query(self) -> str | None:
        """What may mark parameters."""
        return self.sql or self.filter

    def step(self, parameters: Mapping[str, Value]) -> Step:
        if self.filter is not None:
            return Filter(filled(self.filter, parameters))
        if self.sql is not None:
            return Sql(filled(self.sql, parameters))
        if self.mask is not None:
            return self.mask
        section = self.flatten or self.lookup
        if section is None:
            raise AssertionError
        return section.step()
