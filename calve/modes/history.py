"""The mode `history`: every version of a row, and from when to when it was valid (docs/modes.md).

The table depends on its records alone, not on the rounds that read them: a record that comes late goes between the others.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from calve.errors import Suspended
from calve.modes.mode import Mode, ModeName, column, ids_of, plain_columns
from calve.names import SYSTEM_COLUMN
from calve.schema.columns import CHANGE, HISTORY, Json, struct

VALID_FROM, VALID_TO, IS_CURRENT, DELETED = (
    f"{HISTORY['name']}.{each['name']}" for each in HISTORY["type"]["fields"]
)
RECORD_TIME = f"{SYSTEM_COLUMN}.timestamp"


@dataclass(frozen=True, slots=True)
class History(Mode):
    """The table holds every record of each key. `key`: paths of columns; a struct stands for its fields.

    by: path of the column with the time from which a record is valid; None: the time of the change, or of the record. Where it
    is null, the record's time counts. changes: the records are change events.
    """

    kind: ClassVar[ModeName] = "history"
    replaces_rows: ClassVar[bool] = True
    keeps_versions: ClassVar[bool] = True
    key: tuple[str, ...]
    by: str | None = None
    deletes: bool = False
    changes: bool = False
    bucketed: bool = False
    order_by: str | None = VALID_FROM

    @property
    def reads_changes(self) -> bool:
        return self.changes

    @property
    def keep_deleted(self) -> bool:
        return self.changes

    @property
    def drops(self) -> bool:
        """A filtered record has no time of its own column."""
        return self.by is None

    @property
    def times(self) -> tuple[str, ...]:
        """Paths of columns: the first that is not null says from when a record is valid."""
        if self.by is not None:
            return self.by, RECORD_TIME
        return (f"{CHANGE['name']}.at", RECORD_TIME) if self.changes else (RECORD_TIME,)

    def resolve(self, columns: Json) -> Self:
        key = plain_columns(columns, self.key, "history.key")
        if self.by is not None:
            kind = column(columns, self.by, "history.order_by")["type"]
            if kind != "timestamptz":
                shown = kind["type"] if isinstance(kind, dict) else kind
                raise Suspended(
                    "key_unusable",
                    f"{self.by} cannot order versions: it is a {shown}, and they need a timestamp with a time zone",
                    fix="in calve.yaml, change history.order_by, or let a step cast it",
                    at=("history", "order_by"),
                )
        return replace(self, key=key)

    def note(self, columns: Json) -> str:
        key = ids_of(columns, self.resolve(columns).key)
        by = None if self.by is None else column(columns, self.by, "order_by")["id"]
        return json.dumps({"mode": "history", "key": key, "order_by": by, "changes": self.changes})


def with_history(made: Json) -> Json:
    """The columns of a table of versions of rows with these columns. Raises Suspended: `key_unusable`: one has the name."""
    if any(each["name"].lower() == HISTORY["name"] for each in made["fields"]):
        why = f"the records have a column {HISTORY['name']}, and a history needs this name"
        raise Suspended("key_unusable", why, fix="let a `sql` step rename it", at=("history",))
    return struct(*made["fields"], HISTORY)
