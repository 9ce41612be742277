"""Rules for columns that calve.yaml names, shared by the job and `calve plan`."""

from __future__ import annotations

from collections.abc import Container, Iterator

from calve.config.job import Table
from calve.config.publishing import Emit
from calve.errors import Suspended
from calve.schema.columns import Json, Transform
from calve.schema.evolution import Change, SchemaProblem, changes, column_at, no_column, show
from calve.schema.wire import Schema

COUNTABLE = ("string", "boolean", "int", "long")
TIMES = ("timestamp", "timestamptz")
DATES = ("date", *TIMES)
_BUCKETED = ("int", "long", "decimal", "string", "binary", "uuid", "fixed", "time", *DATES)
TRANSFORMED = {
    "year": DATES,
    "month": DATES,
    "day": DATES,
    "hour": TIMES,
    "bucket": _BUCKETED,
    "truncate": ("int", "long", "decimal", "string", "binary"),
}
"""Types of each transform; identity takes any without fields: https://iceberg.apache.org/spec/#partition-transforms."""


def layout_problems(table: Table, name: str, columns: Json) -> Iterator[Suspended]:
    """Why Iceberg cannot use the layout of calve.yaml for these columns: `layout_unknown_column`, `layout_unusable`."""
    for option, transforms in (("partition_by", table.partition_by), ("sort_by", table.sort_by)):
        for number, each in enumerate(transforms):
            if problem := transform_problem(name, each, columns, (option, str(number))):
                yield problem


def transform_problem(name: str, each: Transform, columns: Json, at: tuple[str, ...]) -> Suspended | None:
    """Why a table with these columns cannot be partitioned or sorted by one term; None if it can."""
    found = column_at(columns, each.column)
    fix = f"in calve.yaml, change {at[0]} of the table"
    if found is None:
        why = f"table {name} cannot be laid out by {each.column}: {no_column(columns, each.column)}"
        return Suspended("layout_unknown_column", why, fix=fix, at=at)
    kind = show(found["type"])
    fits = isinstance(found["type"], str) and (
        each.name == "identity" or kind.partition("(")[0].partition("[")[0] in TRANSFORMED[each.name]
    )
    if fits:
        return None
    why = f"table {name} cannot be laid out by {each}: {each.column} is a {kind}"
    return Suspended("layout_unusable", why, fix=fix, at=at)


def require_countable(table: str, column: str, columns: Json, personal: Container[str]) -> None:
    """Refuse columns that cannot be counted, or are masked: only the table may hold those. Raises Suspended: `count_unusable`."""
    found = next((each for each in columns["fields"] if each["name"] == column), None)
    if column in personal:
        why = "it is masked"
    elif found is None:
        why = no_column(columns, column)
    elif found["type"] not in COUNTABLE:
        why = "it is neither a text, a truth nor a whole number"
    else:
        return
    raise Suspended(
        "count_unusable",
        f"table {table} cannot count its rows by {column}: {why}",
        fix="in calve.yaml, change its announce.count_by",
        at=("announce", "count_by"),
    )


def require_emit_key(emit: Emit, columns: Json) -> None:
    """Refuse a key of an output topic that is not a column. Raises Suspended: `emit_unusable`."""
    for name in emit.key:
        if all(each["name"] != name for each in columns["fields"]):
            raise Suspended(
                "emit_unusable",
                f"{no_column(columns, name)}, which is to be the key of topic {emit.topic}",
                fix="in calve.yaml, change emit.key",
                at=("emit", "key"),
            )


def require_guid(schema: Schema | None) -> int:
    """The GUID that headers of an output topic name. Raises Suspended: `emit_unusable`: the registry states none."""
    if schema is None or schema.guid is None:
        raise Suspended(
            "emit_unusable",
            "the registry states no GUIDs of schemas, and the headers of the output topic would name them",
            fix="use a registry with GUIDs, as Confluent's since 8.0, or remove `emit.schema_id`",
            at=("emit", "schema_id"),
        )
    return schema.guid


def require_age(table: str, column: str, columns: Json) -> None:
    """Refuse to delete rows by the age of a column that is not a time. Raises Suspended: `retention_unusable`."""
    found = column_at(columns, column)
    if found is None or found["type"] not in DATES:
        why = no_column(columns, column) if found is None else "it is neither a timestamp nor a date"
        raise Suspended(
            "retention_unusable",
            f"table {table} cannot tell how old rows are by {column}: {why}",
            fix="in calve.yaml, change maintenance.rows.column",
            at=("maintenance", "rows", "column"),
        )


def step_changes(table: str, held: Json, made: Json) -> list[Change]:
    """The columns that the steps make and the table lacks. Raises Suspended: `step_changed`: the table cannot hold them."""
    try:
        return changes(held, made)
    except SchemaProblem as problem:
        raise Suspended(
            "step_changed",
            f"table {table} cannot hold what its steps make of the records now: {problem.message}",
            fix="give the column another name in the steps of the table, or name another table",
            at=("steps",),
        ) from None
