"""The mode `deduplicate`: the first record of each key is a row (docs/modes.md)."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

from calve.modes.mode import Mode, ModeName, ids_of, plain_columns
from calve.schema.columns import Json


@dataclass(frozen=True, slots=True)
class Deduplicate(Mode):
    """The table holds the first record of each key. `key`: paths of columns; a struct stands for its fields.

    window_ms: later records of a key are rows too if they are at least this much later; None: one row per key.
    """

    kind: ClassVar[ModeName] = "deduplicate"
    key: tuple[str, ...] = field()
    window_ms: int | None = None

    def resolve(self, columns: Json) -> Self:
        return replace(self, key=plain_columns(columns, self.key, "deduplicate.key"))

    def note(self, columns: Json) -> str:
        key = ids_of(columns, self.resolve(columns).key)
        return json.dumps({"mode": "deduplicate", "key": key, "window_ms": self.window_ms})
