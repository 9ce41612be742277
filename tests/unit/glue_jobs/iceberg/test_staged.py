"""Staged files that come in two parts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from glue_jobs.iceberg.staging import MOST_VALUES, Staged, counts


def staged(values: dict[str | None, int] | None) -> Staged:
    rows = sum((values or {}).values())
    file = SimpleNamespace(recordCount=lambda: rows, fileSizeInBytes=lambda: 10 * rows)
    found: Any = counts("side", values.items(), rows) if values else None
    return Staged((file,), rows, 10 * rows, counts=found, cpu_s=0.5)


def test_rows_and_values_of_both_parts_are_counted() -> None:
    both = staged({"BUY": 3, None: 1}).plus(staged({"BUY": 2, "SELL": 4}))
    assert (both.rows, both.size_bytes, len(both.files), both.cpu_s) == (10, 100, 2, 0.5)
    assert both.counts == {"column": "side", "values": {"BUY": 5, "SELL": 4}, "other": 1}
    assert staged(None).plus(staged(None)).counts is None


def test_values_of_one_part_are_not_those_of_both() -> None:
    """A part with too many values names none. A small part of rows without a value takes nothing away."""
    many, few = staged({f"v{n}": 1 for n in range(MOST_VALUES + 1)}), staged({"BUY": 2})
    for both in (many.plus(few), few.plus(many)):
        assert both.counts == {"column": "side", "values": {}, "other": MOST_VALUES + 3}
    assert few.plus(staged({None: 1})).counts == {"column": "side", "values": {"BUY": 2}, "other": 1}
