"""The modes with a row for each key: `upsert`, `change_data` for Debezium's change events, `deduplicate` (docs/modes.md)."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

from calve.errors import Suspended
from calve.modes.mode import Mode, ModeName, column, ids_of, plain_columns, unusable
from calve.schema.columns import Json


@dataclass(frozen=True, slots=True)
class Upsert(Mode):
    """The table holds the newest record of each key. `key`, `order_by`: paths of columns; a struct stands for its fields.

    order_by: None: last write wins. deletes: a tombstone deletes, as the record key is the key.
    """

    kind: ClassVar[ModeName] = "upsert"
    replaces_rows: ClassVar[bool] = True
    key: tuple[str, ...] = field()
    order_by: str | None = None
    deletes: bool = False
    bucketed: bool = False

    def resolve(self, columns: Json) -> Self:
        key = plain_columns(columns, self.key, f"{self.kind}.key")
        if self.order_by is not None:
            option = f"{self.kind}.order_by"
            kind = column(columns, self.order_by, option)["type"]
            if not isinstance(kind, str):
                raise unusable(f"{self.order_by} is a {kind['type']}, which has no order", option)
        return replace(self, key=key)

    def note(self, columns: Json) -> str:
        key = ids_of(columns, self.resolve(columns).key)
        order = None if self.order_by is None else column(columns, self.order_by, "order_by")["id"]
        return json.dumps({"mode": self.kind, "key": key, "order_by": order})


@dataclass(frozen=True, slots=True)
class ChangeData(Upsert):
    """The table holds the rows of a database table, from Debezium's change events.

    source_order: fields of `source` that order changes; none: last write wins. keep_deleted: deleted rows stay, marked.
    """

    kind: ClassVar[ModeName] = "change_data"
    source_order: tuple[str, ...] = ()
    keep_deleted: bool = False

    @property
    def reads_changes(self) -> bool:
        return True

    def note(self, columns: Json) -> str:
        found = json.loads(Upsert.note(self, columns))
        deleted = "keep" if self.keep_deleted else "remove"
        return json.dumps(found | {"source": self.source_order, "deleted": deleted})


def require_tombstones(name: str, mode: Mode, *, compacted: bool) -> None:
    """Refuse a compacted topic whose tombstones the table ignores: of a deletion, compaction leaves nothing else."""
    if compacted and mode.reads_changes and not mode.deletes:
        fix = "keep the topic by time alone (cleanup.policy=delete)"
        if not mode.keeps_versions:
            fix += ", or let the record key be the key of the table and remove `deletes: keep`"
        raise Suspended(
            "topic_compacted",
            f"topic {name} is compacted: of a deletion only a tombstone is left in the end, by which this table"
            " deletes no row",
            fix=fix,
            at=(mode.kind,),
        )


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
