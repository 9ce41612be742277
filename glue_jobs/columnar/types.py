"""Columns as Arrow has them: the types of a table's columns, and arrays as wider ones of these."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from calve.columns import Json
from glue_jobs.columnar.fields import leaf_type
from glue_jobs.columnar.nested import Items


def arrow_type(kind: Json, *, fixed: bool = True) -> pa.DataType:
    """The type of a column; where not `fixed`, bytes of a fixed length are of any length, as Spark has them."""
    if isinstance(kind, str):
        return leaf_type(kind) if fixed or not kind.startswith("fixed") else pa.binary()
    match kind["type"]:
        case "struct":
            return pa.struct(
                [(each["name"], arrow_type(each["type"], fixed=fixed)) for each in kind["fields"]]
            )
        case "list":
            return pa.list_(arrow_type(kind["element"], fixed=fixed))
    return pa.map_(arrow_type(kind["key"], fixed=fixed), arrow_type(kind["value"], fixed=fixed))


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
