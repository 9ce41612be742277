"""What is in lists and maps: the items of all of them as one array, and where those of each begin."""

from __future__ import annotations

from dataclasses import dataclass

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
