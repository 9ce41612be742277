"""Arrow columns: their places, their types as Iceberg names them, and a 64-bit hash of each row.

A row has the same hash whatever its file, order or physical encoding. A digest of rows does not depend on their order.

Each distinct text or byte string is hashed once, with BLAKE2b. All else is mixed as 64-bit integers (the finaliser of
SplitMix64), so two rows with exchanged columns have different hashes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids, schema_to_pyarrow
from pyiceberg.schema import Schema

from calve.errors import CalveError
from calve.names import SYSTEM_COLUMN
from calve.schema.columns import CHANGE, Json, with_ids

SHIFT = 48
"""Bits of the offset, below the partition."""
_GOLDEN, _FIRST, _SECOND = map(np.uint64, (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
_NULL, _NAN = map(np.uint64, (0x6A09E667F3BCC909, 0x3C6EF372FE94F82B))

SCIENTIFIC = re.compile(r"-?\d{1,3}\.\d{1,17}E-?\d{1,3}")
TEXTS, BYTES = (pa.string(), pa.large_string()), (pa.binary(), pa.large_binary())
Array = Any
CHANGE_FIELDS = [each["name"] for each in CHANGE["type"]["fields"]]
RANGE = 4096
"""Offsets per digest: the range that is read again if it differs."""

MODULUS = 1 << 64


def number(partition: Any, offset: Any) -> Any:
    """The place as one number; for integers and numpy's arrays."""
    return (partition << SHIFT) + offset


def places_of(rows: pa.RecordBatch) -> Any:
    """The number of each row's place."""
    kafka = rows.column(SYSTEM_COLUMN)
    return numbers(kafka.field("partition"), kafka.field("offset"))


def numbers(partitions: Any, offsets: Any) -> Any:
    """As `number`, for Arrow's arrays."""
    return pc.add(pc.shift_left(partitions.cast(pa.int64()), SHIFT), offsets.cast(pa.int64()))


def within(partitions: Any, offsets: Any, spans: Mapping[int, tuple[int, int]]) -> Any:
    """True for places whose offset lies in the span of their partition."""
    at = pc.index_in(partitions.cast(pa.int64()), pa.array(spans, pa.int64()))
    firsts, ends = (pa.array([each[n] for each in spans.values()], pa.int64()).take(at) for n in (0, 1))
    inside = pc.and_(pc.greater_equal(offsets, firsts), pc.less(offsets, ends))
    return pc.fill_null(inside, False)  # noqa: FBT003 a value


def systems(schema: pa.Schema) -> set[str]:
    """The columns that no step changes: `_kafka`, and `_change` of change events."""
    name = CHANGE["name"]
    return {SYSTEM_COLUMN, name} if has_changes(schema) else {SYSTEM_COLUMN}


def has_changes(schema: pa.Schema) -> bool:
    """Whether the rows come from change events. A field `_change` of other records has other fields."""
    kind = schema.field(CHANGE["name"]).type if CHANGE["name"] in schema.names else None
    return kind is not None and pa.types.is_struct(kind) and [each.name for each in kind] == CHANGE_FIELDS


def column_at(batch: pa.RecordBatch, path: str) -> Any:
    name, *inner = path.split(".")
    column = batch.column(name)
    return pc.struct_field(column, inner) if inner else column


def laid_out(rows: pa.RecordBatch, columns: pa.Schema) -> pa.RecordBatch:
    """Rows with exactly these columns, by name at every depth: missing ones are null, narrower types are widened.

    Raises:
        CalveError: a column's values do not fit the table's.
    """
    held = dict(zip(rows.schema.names, rows.columns, strict=True))
    arrays = []
    for each in columns:
        try:
            arrays.append(held.get(each.name, pa.nulls(rows.num_rows)).cast(each.type))
        except pa.ArrowException:
            text = (
                f"the steps make {each.name} a {held[each.name].type}, which the table holds as {each.type}"
            )
            raise CalveError(text, fix="use the steps with which the job filled the table") from None
    return pa.record_batch(arrays, schema=columns)


def only_keys(rows: pa.RecordBatch, key: Sequence[str]) -> pa.RecordBatch:
    """The rows with nothing but `_kafka` and these paths."""

    def kept(values: Any, inside: list[list[str]]) -> Any:
        if [] in inside:
            return values
        if not inside:
            return pa.nulls(len(values), values.type)
        parts = [
            kept(child, [each[1:] for each in inside if each[0] == field.name])
            for field, child in zip(values.type, values.flatten(), strict=True)
        ]
        return pa.StructArray.from_arrays(parts, fields=list(values.type))

    paths = [*(each.split(".") for each in key), [SYSTEM_COLUMN]]
    columns = [
        kept(column, [each[1:] for each in paths if each[0] == name])
        for name, column in zip(rows.schema.names, rows.columns, strict=True)
    ]
    return pa.record_batch(columns, schema=rows.schema)


def iceberg_columns(columns: pa.Schema) -> Json:
    """The columns in Iceberg's JSON form; their ids mean nothing."""
    return json.loads(_pyarrow_to_schema_without_ids(columns, format_version=3).model_dump_json())


def arrow_columns(columns: Json) -> pa.Schema:
    numbered = json.dumps(with_ids(columns) | {"schema-id": 0})
    return schema_to_pyarrow(Schema.model_validate_json(numbered), include_field_ids=False)


def is_list(kind: Any) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def entries(maps: Any) -> Any:
    """Maps as lists of their entries, structs of key and value."""
    kind = pa.struct([("key", maps.type.key_type), ("value", maps.type.item_type)])
    return maps.cast(pa.list_(kind))


def lengths(lists: Any) -> Any:
    """The number of items of each list, as numpy's integers; 0 for null."""
    return pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)


def ends(sizes: Any) -> Any:
    """The end of each list among the items of all, after a leading 0."""
    return pa.array(np.r_[0, np.cumsum(sizes)], pa.int32())


def with_children(values: Any, change: Callable[[str, Any, Any], Any]) -> Any:
    """Structs, lists or maps with changed children; None: none is left.

    change: takes the name of a field ("" for items of lists and values of maps), the child, and the index of each one's parent.
    None: the child is dropped.
    """
    kind, nulls = values.type, values.is_null()
    if pa.types.is_struct(kind):
        parents = np.arange(len(values))
        changed = (
            (f.name, change(f.name, child, parents)) for f, child in zip(kind, values.flatten(), strict=True)
        )
        left = {name: child for name, child in changed if child is not None}
        return pa.StructArray.from_arrays(list(left.values()), list(left), mask=nulls) if left else None
    is_map = pa.types.is_map(kind)
    lists = entries(values) if is_map else values
    items, places = pc.list_flatten(lists), ends(lengths(lists))
    parents = pc.list_parent_indices(lists).to_numpy()
    if not is_map:
        made = change("", items, parents)
        return None if made is None else pa.ListArray.from_arrays(places, made, mask=nulls)
    keys, held = items.flatten()
    made = change("", held, parents)
    if made is None:
        return None
    return pa.MapArray.from_arrays(places, keys, made, pa.map_(kind.key_type, made.type), mask=nulls)


def column_hashes(columns: list[Array]) -> list[Array]:
    return [pa.array(_hash(column)) for column in columns]


def row_hashes(columns: list[Array]) -> Array:
    """The hashes of rows, from those of their columns."""
    return pa.array(reduce(_combine, (column.to_numpy() for column in columns)))


def _combine(before: Array, column: Array) -> Array:
    return _mix(before * _FIRST + column)


def _mix(value: Array) -> Array:
    """SplitMix64's finaliser: https://prng.di.unimi.it/splitmix64.c."""
    value = value + _GOLDEN
    value = (value ^ (value >> np.uint64(30))) * _FIRST
    value = (value ^ (value >> np.uint64(27))) * _SECOND
    return value ^ (value >> np.uint64(31))


def _hash(values: Array) -> Array:
    kind = values.type
    if pa.types.is_struct(kind):
        hashes = reduce(_combine, map(_hash, values.flatten()))
    elif pa.types.is_map(kind):
        hashes = _hash_list(entries(values), ordered=False)
    elif is_list(kind):
        hashes = _hash_list(values, ordered=True)
    elif pa.types.is_floating(kind):
        numbers = values.fill_null(0).to_numpy()
        bits = numbers.view(f"u{numbers.itemsize}").astype(np.uint64)
        hashes = np.where(np.isnan(numbers), _NAN, _mix(bits))
    elif pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_temporal(kind):
        narrow = pa.types.is_date32(kind) or pa.types.is_time32(kind)
        numbers = (values.cast(pa.int32()) if narrow else values).cast(pa.int64())
        hashes = _mix(numbers.fill_null(0).to_numpy().view(np.uint64))
    else:
        hashes = _hash_bytes(values)
    inner = kind.item_type if pa.types.is_map(kind) else kind.value_type if is_list(kind) else kind
    if inner is not kind and pa.types.is_struct(inner):
        return hashes  # PyIceberg reads null lists and maps of structs as empty
    return np.where(values.is_valid().to_numpy(zero_copy_only=False), hashes, _NULL)


def _hash_list(values: Array, *, ordered: bool) -> Array:
    """Sums of the elements' hashes; the place of an element counts in a list, not in a map."""
    elements, sizes = _hash(pc.list_flatten(values)), lengths(values)
    ends = np.cumsum(sizes)
    starts = ends - sizes
    if ordered:
        places = np.arange(len(elements)) - np.repeat(starts, sizes)
        elements = _combine(elements, places.astype(np.uint64))
    sums = np.cumsum(np.r_[np.uint64(0), _mix(elements)])
    return _combine(sums[ends] - sums[starts], sizes.astype(np.uint64))


def _hash_bytes(values: Array) -> Array:
    """Texts, bytes and decimals (as their text, which holds the scale)."""
    if pa.types.is_decimal(values.type):
        values = values.cast(pa.string())
    large = pa.types.is_large_string(values.type) or pa.types.is_large_binary(values.type)
    encoded = values.cast(pa.large_binary() if large else pa.binary()).dictionary_encode()
    held = encoded.dictionary.to_pylist()
    if values.type in TEXTS:
        texts = (value.decode(errors="replace") for value in held)
        # One spelling of each number: Java's digits of a double vary.
        held = [SCIENTIFIC.sub(lambda digits: repr(float(digits[0])), text).encode() for text in texts]
    distinct = [int.from_bytes(blake2b(value, digest_size=8).digest(), "little") for value in held]
    return np.array([*distinct, 0], np.uint64)[encoded.indices.fill_null(len(distinct)).to_numpy()]


class Place(NamedTuple):
    """A range of `RANGE` offsets of a partition."""

    partition: int
    number: int


@dataclass(slots=True)
class Digests:
    """Count and sum of row hashes (mod 2^64) per place."""

    by_place: dict[Place, tuple[int, int]] = field(default_factory=dict)

    def add(self, partitions: Any, offsets: Any, hashes: Any) -> set[Place]:
        """Add rows; return their places."""
        numbers = pc.divide(offsets.cast(pa.int64()), RANGE)
        rows = pa.table({"partition": partitions, "number": numbers, "hash": hashes})
        sums = rows.group_by(["partition", "number"]).aggregate([("hash", "sum"), ("hash", "count")])
        found = set()
        for row in sums.to_pylist():
            place = Place(row["partition"], row["number"])
            count, total = self.by_place.get(place, (0, 0))
            self.by_place[place] = (count + row["hash_count"], (total + row["hash_sum"]) % MODULUS)
            found.add(place)
        return found

    def differing(self, other: Digests) -> list[Place]:
        places = self.by_place.keys() | other.by_place.keys()
        return sorted(each for each in places if self.by_place.get(each) != other.by_place.get(each))

    def partition(self, partition: int) -> tuple[int, int]:
        """Count and digest of a whole partition."""
        found = [pair for place, pair in self.by_place.items() if place.partition == partition]
        return sum(count for count, _ in found), sum(total for _, total in found) % MODULUS

    @property
    def count(self) -> int:
        return sum(count for count, _ in self.by_place.values())
