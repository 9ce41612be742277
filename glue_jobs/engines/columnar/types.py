"""What arrays are stored as, arrays as ones of another type, and what is in lists and maps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Items:
    """The items of an array of lists, or of maps, which have `keys`; those of one that is null are anything.

    kind: the type of the array. begins: places in `values`, one more than there are lists. null: which of these are; None: none.
    """

    kind: pa.DataType
    begins: NDArray[np.int32]
    values: pa.Array
    keys: pa.Array | None
    null: pa.BooleanArray | None

    @staticmethod
    def of(array: pa.Array) -> Items:
        begins = array.offsets.to_numpy()
        first, count = int(begins[0]), int(begins[-1] - begins[0])
        is_map = pa.types.is_map(array.type)
        values = (array.items if is_map else array.values).slice(first, count)
        keys = array.keys.slice(first, count) if is_map else None
        null = pc.is_null(array) if array.null_count else None
        return Items(array.type, begins - first, values, keys, null)

    @property
    def sizes(self) -> NDArray[np.int32]:
        """How many values lie between the places, those of lists that are null among them."""
        return np.diff(self.begins)

    def with_values(self, values: pa.Array) -> pa.Array:
        """The lists or maps with other values in the place of these."""
        begins = pa.array(self.begins, pa.int32())
        if self.keys is None:
            kind = pa.list_(self.kind.value_field.with_type(values.type))
            return pa.ListArray.from_arrays(begins, values, type=kind, mask=self.null)
        kind = pa.map_(self.kind.key_field, self.kind.item_field.with_type(values.type))
        return pa.MapArray.from_arrays(begins, self.keys, values, type=kind, mask=self.null)

    def only(self, wanted: pa.BooleanArray) -> pa.Array:
        """The lists or maps without the values that are not wanted."""
        before = np.concatenate([[0], np.cumsum(wanted.to_numpy(zero_copy_only=False))]).astype(np.int32)
        keys, values = None if self.keys is None else self.keys.filter(wanted), self.values.filter(wanted)
        return Items(self.kind, before[self.begins], values, keys, self.null).with_values(values)


def weights(array: pa.Array) -> NDArray[np.int64]:
    """The bytes that each value of an array takes, roughly."""
    found = np.zeros(len(array), np.int64)
    kind = array.type
    if pa.types.is_struct(kind):
        for n in range(kind.num_fields):
            found += weights(array.field(n))
    elif pa.types.is_list(kind) or pa.types.is_map(kind):
        items = Items.of(array)
        each = weights(items.values) + (0 if items.keys is None else weights(items.keys))
        found += np.diff(np.concatenate([[0], np.cumsum(each)])[items.begins])
    elif pa.types.is_string(kind) or pa.types.is_binary(kind):
        found += pc.binary_length(array).fill_null(0).to_numpy() + 4
    else:
        found += max(kind.bit_width // 8, 1)
    return found


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
