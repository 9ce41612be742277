"""Which records of a shared topic are the table's: what its route makes of them, told without the engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from calve.steps import Route, Value
from cli.verify.made import Made
from cli.verify.places import places_of

NO_ROUTE = "no_route"
KINDS: dict[type, Any] = {str: pa.large_string(), int: pa.int64(), bool: pa.bool_()}


def routed(rows: pa.RecordBatch, step: Route, *, tombstones: bool) -> Made:
    """The rows of the table's own records; all tombstones."""
    if tombstones:
        return Made(rows)
    value, places = value_at(rows, step.column), places_of(rows)
    own = _is_one(value, step.values)
    stays = pc.invert(_is_one(value, step.named)) if step.others == "keep" else own
    gone = pc.invert(stays)
    if step.others != "reject":
        return Made(rows.filter(stays), places.filter(gone))
    named = _is_one(value, step.named)
    lost = places.filter(pc.and_not(gone, named))
    return Made(
        rows.filter(stays), places.filter(pc.and_(gone, named)), {NO_ROUTE: lost} if len(lost) else {}
    )


def value_at(rows: pa.RecordBatch, path: str) -> Any:
    """The values at a path of structs, whose names may be written in any case."""
    found: Any = rows.to_struct_array()
    for name in path.split("."):
        names = [each.name.lower() for each in found.type]
        found = found.flatten()[names.index(name.lower())]
    return found


def _is_one(value: Any, values: Sequence[Value]) -> Any:
    """Never null: a value that is null is none of them."""
    kind = KINDS[type(values[0])] if values else value.type
    return pc.is_in(value.cast(kind), pa.array(values, kind))
