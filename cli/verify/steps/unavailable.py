"""Values that updates of a database lack: Debezium writes a placeholder, and a step that computes with it rejects the record."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from calve.schema.change_events import UNAVAILABLE, UPDATES
from calve.schema.columns import CHANGE
from cli.verify.columns import BYTES, TEXTS, column_at, column_hashes, has_changes, is_list, places_of
from cli.verify.formats.fields import Outcome

LACKS_VALUE = "value_unavailable"


def lacking(rows: pa.RecordBatch, names: Collection[str]) -> Any:
    """True for updates that lack a value of these columns."""
    found = pa.array([False] * rows.num_rows, pa.bool_())
    if not has_changes(rows.schema):
        return found
    updates = pc.equal(column_at(rows, f"{CHANGE['name']}.op"), UPDATES)
    wanted = {name.lower() for name in names}
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        blank = blank_of(column.type)
        if blank is not None and name.lower() in wanted:
            lacks = pa.array([each == blank for each in column.to_pylist()], pa.bool_())
            found = pc.or_(found, pc.and_(updates, lacks))
    return found


def rejected(rows: pa.RecordBatch, lost: Any, outcome: Outcome) -> Outcome:
    """The outcome of the other rows, and the rows that `lost` marks as rejects."""
    made, without = outcome
    return made, without | dict.fromkeys(places_of(rows).filter(lost).to_pylist(), LACKS_VALUE)


def blanks_in(columns: pa.Schema) -> dict[int, int]:
    """Index of a column that may lack values -> the hash of its placeholder."""
    blanks = {place: (blank_of(each.type), each.type) for place, each in enumerate(columns)}
    return {
        place: column_hashes([pa.array([blank], kind)])[0][0].as_py()
        for place, (blank, kind) in blanks.items()
        if blank is not None
    }


def blank_of(kind: Any) -> Any:
    """What an update has in place of a value of this type that it leaves out; None: updates have all values."""
    if kind in TEXTS:
        return UNAVAILABLE
    if kind in BYTES:
        return UNAVAILABLE.encode()
    if is_list(kind):
        return [UNAVAILABLE] if kind.value_type in TEXTS else None
    texts = pa.types.is_map(kind) and kind.key_type in TEXTS and kind.item_type in TEXTS
    return [(UNAVAILABLE, UNAVAILABLE)] if texts else None
