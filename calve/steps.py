"""Steps: what becomes of the columns of a record on its way to the table, in the order of calve.yaml (docs/steps.md).

Values alone; `glue_jobs.steps` runs them. Paths are names with dots between them; they go through lists and values of maps
as if these were what they hold: `items.price` is the price of every item.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Flatten:
    """Structs become columns, named by their path with `separator` for the dots.

    explode: path of a list, of whose items each makes a row. maps: path of a map -> its keys that become columns; the map keeps
    the others.
    """

    separator: str = "_"
    explode: str | None = None
    maps: dict[str, tuple[str, ...]] = field(default_factory=dict)
    kind: Literal["flatten"] = "flatten"


@dataclass(frozen=True, slots=True)
class Filter:
    """Records for which the condition, a Spark SQL expression, is not true make no row."""

    condition: str
    kind: Literal["filter"] = "filter"


@dataclass(frozen=True, slots=True)
class Sql:
    """One `SELECT ... FROM source [WHERE ...]` of Spark SQL, computed for each record alone."""

    query: str
    kind: Literal["sql"] = "sql"


@dataclass(frozen=True, slots=True)
class Lookup:
    """Columns of another table of the lake, of its row that has the same key.

    on: column of the record -> column of the other table. columns: new column -> column of the other table.
    """

    table: str
    on: dict[str, str]
    columns: dict[str, str]
    missing: Literal["null", "reject"] = "null"
    kind: Literal["lookup"] = "lookup"


@dataclass(frozen=True, slots=True)
class Rule:
    """How a value is masked. `argument`: of `partial` the characters that stay, or `domain`; of `generalise` `year`, `month` or
    the width of a band.
    """

    how: Literal["drop", "null", "hash", "partial", "generalise", "keep"]
    argument: str | int | None = None


@dataclass(frozen=True, slots=True)
class Mask:
    """Personal data of a record. fields: by path. tags: by a tag that the schema gives a field; `fields` count first.

    key, headers: what becomes of `_kafka.key` and of the headers' values, which may hold the same data as they were received.
    """

    fields: dict[str, Rule] = field(default_factory=dict)
    tags: dict[str, Rule] = field(default_factory=dict)
    key: Literal["hash", "null", "keep"] = "hash"
    headers: Literal["hash", "null", "keep"] = "null"
    kind: Literal["mask"] = "mask"


Step = Flatten | Filter | Sql | Lookup | Mask


def step(raw: dict[str, Any]) -> Step:
    """A step out of what `dataclasses.asdict` made of it."""
    match raw["kind"]:
        case "flatten":
            return Flatten(**(raw | {"maps": {path: tuple(keys) for path, keys in raw["maps"].items()}}))
        case "filter":
            return Filter(**raw)
        case "sql":
            return Sql(**raw)
        case "lookup":
            return Lookup(**raw)
    rules = {part: {name: Rule(**rule) for name, rule in raw[part].items()} for part in ("fields", "tags")}
    return Mask(**(raw | rules))


NOTE = "steps"


def noted(steps: Sequence[Step]) -> dict[str, str]:
    """What a round notes of the steps that made its rows, under `NOTE`: a digest; nothing where there are none."""
    if not steps:
        return {}
    text = json.dumps([asdict(each) for each in steps], sort_keys=True)
    return {NOTE: hashlib.sha256(text.encode()).hexdigest()[:16]}
