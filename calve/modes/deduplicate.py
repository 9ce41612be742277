"""The mode `deduplicate`: the first record of each key is a row (docs/modes.md)."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from calve.modes.keys import column, plain_columns
from calve.modes.mode import ModeName
from calve.schema.columns import Json


@dataclass(frozen=True, slots=True)
class Deduplicate:
    """The table holds the first record of each key. `key`: paths of columns; a struct stands for its fields.

    window_ms: later records of a key are rows too if they are at least this much later; None: one row per key.
    """

    kind: ClassVar[ModeName] = "deduplicate"
    replaces_rows: ClassVar[bool] = False
    groups_rows: ClassVar[bool] = False
    reads_changes: ClassVar[bool] = False
    cannot_redrive: ClassVar[str | None] = None
    cannot_forget: ClassVar[str | None] = None
    order_by: ClassVar[str | None] = None
    deletes: ClassVar[bool] = False
    keep_deleted: ClassVar[bool] = False
    source_order: ClassVar[tuple[str, ...]] = ()
    bucketed: ClassVar[bool] = False
    key: tuple[str, ...]
    window_ms: int | None = None

    @property
    def row_key(self) -> tuple[str, ...]:
        return self.key

    def resolve(self, columns: Json) -> Self:
        """As `Mode.resolve`."""
        return replace(self, key=plain_columns(columns, self.key, "deduplicate.key"))

    def note(self, columns: Json) -> str:
        """As `Mode.note`."""
        key = [column(columns, each, "key")["id"] for each in self.resolve(columns).key]
        return json.dumps({"mode": "deduplicate", "key": key, "window_ms": self.window_ms})
