"""What keeps a table as it was on its first day: how long snapshots, dead letters and rows stay, and how large its files are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class RowRetention:
    """Rows leave the table once `column`, a time, is older than `keep_s`."""

    column: str
    keep_s: float


@dataclass(frozen=True, slots=True)
class Maintenance:
    """file_bytes: of a data file that is not made larger. snapshots_s: their age; `at_least` of the newest stay whatever their
    age, and never more than `at_most`. dead_letters_s, rows: None: they stay for ever.
    """

    file_bytes: int = 128_000_000
    snapshots_s: float = 7 * 86_400.0
    snapshots_at_least: int = 10
    snapshots_at_most: int = 100
    dead_letters_s: float | None = None
    rows: RowRetention | None = None

    @classmethod
    def from_dict(cls, raw: dict[str, Any]) -> Self:
        rows = raw.get("rows")
        return cls(**(raw | {"rows": RowRetention(**rows) if rows else None}))
