"""The decoder's cells as Arrow arrays. There is no Python per record, and each byte is copied once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import types
from numpy.typing import NDArray

from calve.decoding.avro_operations import Absent, Group, Leaf, Pairs, Part, Program
from calve.decoding.avro_operations import Items as ItemCells
from glue_jobs.columns.arrow_types import arrow_type, bits
from glue_jobs.columns.kernels import BYTES, BYTES_OUT, LONGS, LONGS_OUT, kernel
from glue_jobs.columns.map_keys import digest, find_repeated, last_of_each
from glue_jobs.columns.texts import NOTHING, Bytes, Longs, texts, validity


@dataclass(frozen=True, slots=True)
class Items:
    """The items of an array of lists or maps. Maps have `keys`. Items of null lists are undefined.

    kind: the type of the array. begins: places in `values`, one more than there are lists. null: the null lists; None if
    none.
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
        """The number of items per list, including null lists."""
        return np.diff(self.begins)

    def with_values(self, values: pa.Array) -> pa.Array:
        begins = pa.array(self.begins, pa.int32())
        if self.keys is None:
            kind = pa.list_(self.kind.value_field.with_type(values.type))
            return pa.ListArray.from_arrays(begins, values, type=kind, mask=self.null)
        kind = pa.map_(self.kind.key_field, self.kind.item_field.with_type(values.type))
        return pa.MapArray.from_arrays(begins, self.keys, values, type=kind, mask=self.null)

    def only(self, wanted: pa.BooleanArray) -> pa.Array:
        before = np.concatenate([[0], np.cumsum(wanted.to_numpy(zero_copy_only=False))]).astype(np.int32)
        keys, values = None if self.keys is None else self.keys.filter(wanted), self.values.filter(wanted)
        return Items(self.kind, before[self.begins], values, keys, self.null).with_values(values)


def weights(array: pa.Array) -> NDArray[np.int64]:
    """The approximate size of each value of an array, in bytes."""
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
    """The storage type of numbers, dates and timestamps."""
    return np.dtype(f"{'f' if pa.types.is_floating(kind) else 'i'}{kind.bit_width // 8}")


def conformed(array: pa.Array | None, wanted: pa.DataType, length: int) -> pa.Array:
    """Convert an array to another type. Fields match by name; missing ones are null; narrower values are widened."""
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


@dataclass(frozen=True, slots=True)
class Cells:
    """The output of the machine. rows: per level. cell_base, mark_base: where each column begins.

    every_entry: maps that are written as lists keep all entries, also with repeated keys.
    """

    program: Program
    data: Bytes
    rows: Longs
    cells: Longs
    marks: Bytes
    cell_base: Longs
    mark_base: Longs
    every_entry: bool = False

    def numbers(self, cell: int) -> Longs:
        base = self.cell_base[cell]
        return self.cells[base : base + self.rows[self.program.cells[cell]]]

    def marked(self, mark: int | None) -> Bytes:
        """1 for each row that has a value; empty if all have."""
        if mark is None or (found := self.marks_of(mark)).all():
            return NOTHING
        return found

    def marks_of(self, mark: int) -> Bytes:
        base = self.mark_base[mark]
        return self.marks[base : base + self.rows[self.program.marks[mark]]]

    def records(self, level: int) -> Longs:
        """The record of each row of a level."""
        if level == 0:
            return np.arange(self.rows[0])
        cell, mark = self.program.lists[level - 1]
        counts, marks = self.numbers(cell), self.marked(mark)
        counts = np.where(marks, counts, 0) if marks.size else counts
        return np.repeat(self.records(self.program.cells[cell]), counts)


def column(part: Part, cells: Cells, level: int = 0) -> Any:
    kind = arrow_type(part.type)
    match part:
        case Leaf():
            return _leaf(part, kind, cells)
        case Absent():
            return pa.nulls(int(cells.rows[level]), kind)
    marks = cells.marked(part.mark)
    if isinstance(part, Group):
        children = [column(each, cells, level) for each in part.fields]
        return pa.Array.from_buffers(kind, int(cells.rows[level]), [validity(marks)], children=children)
    counts = cells.numbers(part.cell)
    offsets = np.zeros(counts.size + 1, np.int32)
    np.cumsum(np.where(marks, counts, 0) if marks.size else counts, out=offsets[1:])
    if isinstance(part, ItemCells):
        item = column(part.item, cells, part.level)
    else:
        item, offsets = _entries(part, kind, cells, offsets)
    buffers = [validity(marks), pa.py_buffer(offsets)]
    return pa.Array.from_buffers(kind, counts.size, buffers, children=[item])


CUT = {
    "int": (np.int32, np.int32),
    "long": (np.int64, np.int64),
    "float": (np.uint32, np.float32),
    "double": (np.int64, np.float64),
}
"""The width to cut numbers of cells to, and the type of the resulting bits."""


def _leaf(part: Leaf, kind: Any, cells: Cells) -> Any:
    numbers, marks = cells.numbers(part.cell), cells.marked(part.mark)
    match part.kind:
        case "bytes":
            return texts(kind, numbers, marks, cells.data)
        case "fixed":
            content = np.empty(numbers.size * part.size, np.uint8)
            copy_fixed(numbers, marks, cells.data, part.size, content)
        case "enum":
            places = [validity(marks), pa.py_buffer(numbers.astype(np.int32))]
            symbols = pa.array(part.symbols, pa.string())
            return symbols.take(pa.Array.from_buffers(pa.int32(), numbers.size, places))
        case "decimal":
            content = np.stack([numbers, cells.numbers(part.cell + 1)], axis=1)
        case "boolean":
            content = bits(numbers == 1)
        case _:
            cut, as_bits = CUT[part.kind]
            content = numbers.astype(cut).view(as_bits).astype(stored(kind), copy=False)
    return pa.Array.from_buffers(kind, numbers.size, [validity(marks), pa.py_buffer(content)])


def _entries(part: Pairs, kind: Any, cells: Cells, offsets: NDArray[np.int32]) -> tuple[Any, Any]:
    """The entries of maps, and where each map begins. Of several with one key the last one is kept."""
    key, value = (column(each, cells, part.level) for each in (part.key, part.value))
    repeated = np.empty(offsets.size - 1, np.uint8)
    all_kept = cells.every_entry and part.listed
    if not all_kept and find_repeated(_digests(part.key, cells), offsets, repeated):
        keys, values, offsets = last_of_each(key, offsets, np.flatnonzero(repeated))
        key, value = key.take(pa.array(keys)), value.take(pa.array(values))
    return pa.StructArray.from_arrays([key, value], fields=[kind.key_field, kind.item_field]), offsets


def _digests(key: Leaf, cells: Cells) -> Longs:
    """Numbers that are equal if the keys are equal."""
    numbers = cells.numbers(key.cell)
    if key.kind == "decimal":
        mixed: Longs = numbers ^ cells.numbers(key.cell + 1) * 1099511628211
        return mixed
    if key.kind not in ("bytes", "fixed"):
        return numbers
    found = np.empty(numbers.size, np.int64)
    digest(numbers, cells.data, found)
    return found


@kernel(types.void(LONGS, BYTES, BYTES, types.int64, BYTES_OUT))
def copy_fixed(cells: Any, marks: Any, data: Any, size: Any, out: Any) -> Any:
    """Copy `size` bytes per cell; zeros where unmarked."""
    for row in range(cells.size):
        marked = marks.size == 0 or marks[row]
        place = cells[row] >> 32
        for at in range(size):
            out[row * size + at] = data[place + at] if marked else 0


@kernel(types.void(LONGS_OUT, LONGS_OUT, LONGS, LONGS, BYTES_OUT))
def clear(rows: Any, before: Any, mark_level: Any, mark_base: Any, marks: Any) -> Any:
    """Discard everything written since rows `before`."""
    for column in range(mark_level.size):
        level = mark_level[column]
        for row in range(before[level], rows[level] + 1):
            marks[mark_base[column] + row] = 0
    for level in range(rows.size):
        rows[level] = before[level]
