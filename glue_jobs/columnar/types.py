"""What arrays are stored as, and arrays as ones of another type."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from glue_jobs.columnar.nested import Items


def stored(kind: pa.DataType) -> np.dtype[Any]:
    """How numbers, days and moments are stored."""
    return np.dtype(f"{'f' if pa.types.is_floating(kind) else 'i'}{kind.bit_width // 8}")


def conformed(array: pa.Array | None, wanted: pa.DataType, length: int) -> pa.Array:
    """An array as one of another type: fields by name, null where it has none, and widened where the wanted ones are wider."""
    if array is None:
        return pa.nulls(length, wanted)
    if array.type.equals(wanted):
        return array
    if pa.types.is_struct(wanted):
        places = {each.name: at for at, each in enumerate(array.type)}
        fields = [
            conformed(array.field(places[each.name]) if each.name in places else None, each.type, length)
            for each in wanted
        ]
        return pa.StructArray.from_arrays(fields, fields=list(wanted), mask=pc.is_null(array))
    if pa.types.is_list(wanted) or pa.types.is_map(wanted):
        items = Items.of(array)
        held = wanted.item_type if pa.types.is_map(wanted) else wanted.value_type
        return items.with_values(conformed(items.values, held, len(items.values)))
    return array.cast(wanted)
