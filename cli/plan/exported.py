"""The columns and the filter of an export, held against the table by the rules of the function that runs it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from pyiceberg.schema import Schema

from calve.columns import with_ids
from lambdas.csv_export.aggregate import columns_written
from lambdas.csv_export.failure import ExportFailed
from lambdas.csv_export.scan import column_of, filter_of, in_window
from lambdas.csv_export.window import previous

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from calve.columns import Json
    from calve.export import Export

At = tuple[str, ...]


def export_problems(export: Export, columns: Json) -> Iterator[tuple[At, ExportFailed]]:
    """What the export names and a table of these columns does not have, each with its key in calve.yaml."""
    schema = Schema.model_validate_json(json.dumps(with_ids(columns) | {"schema-id": 0}))
    period = previous(export.window, datetime.now(UTC), ZoneInfo(export.time_zone))
    checks: list[tuple[At, Callable[[], object]]] = [
        (at, lambda name=name: column_of(schema, export, name))  # type: ignore[misc]
        for at, name in _named(export)
    ]
    checks.append((("time_column",), lambda: in_window(schema, export, period)))
    if text := export.filter:
        checks.append((("filter",), lambda: filter_of(schema, text)))
    found = list(_refused(checks))
    if not found and export.measures:
        read = tuple(column_of(schema, export, name) for _, name in _named(export))
        found = list(_refused([(("measures",), lambda: columns_written(export, read))]))
    yield from found


def _named(export: Export) -> Iterator[tuple[At, str]]:
    for key in ("columns", "group_by"):
        for number, name in enumerate(getattr(export, key)):
            yield (key, str(number)), name
    for each in export.measures:
        if each.column:
            yield ("measures", each.name), each.column


def _refused(checks: list[tuple[At, Callable[[], object]]]) -> Iterator[tuple[At, ExportFailed]]:
    for at, check in checks:
        try:
            check()
        except ExportFailed as problem:
            yield at, problem
