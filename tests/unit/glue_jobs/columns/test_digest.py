"""The hash of a row is that of a plain reference, and stays the same where only the form of its values changes."""

from __future__ import annotations

import struct
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calve.names import SYSTEM_COLUMN
from calve.table.digests import Sum, together
from glue_jobs.columns.arrow_types import FIELD_ID
from glue_jobs.columns.digest import hashes_of, sums_of

MASK = (1 << 64) - 1
FIRST, SECOND, GOLDEN = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 0x9E3779B97F4A7C15


def mixed(word: int) -> int:
    word = (word ^ (word >> 30)) * FIRST & MASK
    word = (word ^ (word >> 27)) * SECOND & MASK
    return word ^ (word >> 31)


def hashed(word: int, seed: int) -> int:
    word &= MASK
    keyed = word ^ seed
    return ((keyed & 0xFFFFFFFF) * (keyed >> 32) + word + seed) & MASK


def of_bytes(value: bytes, seed: int) -> int:
    def word(at: int) -> int:
        return int.from_bytes(value[at : at + 8], "little")

    found, size = len(value) * FIRST, len(value)
    if size <= 8:
        return found + hashed(word(0), seed)
    found += sum(hashed(word(8 * n), seed + n * GOLDEN & MASK) for n in range((size - 1) // 8))
    return found + hashed(word(size - 8), seed ^ SECOND)


def value_sum(field: pa.Field, value: Any) -> int:
    """The sum that a value adds to its row."""
    if value is None:
        return 0
    kind, seed = field.type, mixed(int(field.metadata[FIELD_ID]) * GOLDEN & MASK)
    if pa.types.is_struct(kind):
        return mixed(seed) + sum(value_sum(each, value[each.name]) for each in kind)
    if pa.types.is_list(kind):
        items = [(value_sum(kind.value_field, each) + n * GOLDEN) & MASK for n, each in enumerate(value, 1)]
        return mixed(seed) + sum(hashed(item, seed) for item in items)
    if pa.types.is_map(kind):
        items = [(value_sum(kind.key_field, k) + value_sum(kind.item_field, v)) & MASK for k, v in value]
        return mixed(seed) + sum(hashed(item, seed) for item in items)
    if pa.types.is_decimal(kind):
        whole = int(value.scaleb(kind.scale)) & ((1 << 128) - 1)
        return hashed(whole, seed) + hashed(whole >> 64, seed ^ GOLDEN)
    if pa.types.is_floating(kind):
        bits = struct.pack("<d", float("nan") if value != value else value)
        return hashed(int.from_bytes(bits, "little"), seed)
    if isinstance(value, str | bytes):
        return of_bytes(value.encode() if isinstance(value, str) else value, seed)
    return hashed(int(value), seed)


def reference(batch: pa.RecordBatch) -> list[int]:
    columns = [batch.column(n).to_pylist() for n in range(batch.num_columns)]
    return [
        mixed(sum(value_sum(f, v) for f, v in zip(batch.schema, row, strict=True)) & MASK)
        for row in zip(*columns, strict=True)
    ]


def field(number: int, name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, metadata={FIELD_ID: str(number).encode()})


ITEM = field(21, "element", pa.struct([field(22, "x", pa.int32())]))
FIELDS = [
    field(1, "long", pa.int64()),
    field(2, "int", pa.int32()),
    field(3, "double", pa.float64()),
    field(4, "float", pa.float32()),
    field(5, "decimal", pa.decimal128(20, 2)),
    field(6, "text", pa.string()),
    field(7, "bytes", pa.binary()),
    field(8, "fixed", pa.binary(3)),
    field(9, "flag", pa.bool_()),
    field(20, "list", pa.list_(ITEM)),
    field(
        30, "map", pa.map_(field(31, "key", pa.string()).with_nullable(False), field(32, "value", pa.int64()))
    ),
    field(40, "struct", pa.struct([field(41, "a", pa.string()), field(42, "b", pa.float64())])),
]
PLACE = field(
    50, SYSTEM_COLUMN, pa.struct([field(51, "partition", pa.int32()), field(52, "offset", pa.int64())])
)
INTS, LONGS = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
FLOATS = st.sampled_from([0.0, -0.0, 1.5, float("nan"), float("inf"), -1e300])
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "long": LONGS,
    "int": INTS,
    "double": FLOATS,
    "float": st.sampled_from([0.0, -0.0, 0.5, float("nan")]),
    "decimal": st.integers(-(10**19), 10**19).map(lambda each: Decimal(each).scaleb(-2)),
    "text": st.text(max_size=20),
    "bytes": st.binary(max_size=40),
    "fixed": st.binary(min_size=3, max_size=3),
    "flag": st.booleans(),
    "list": st.lists(st.none() | st.fixed_dictionaries({"x": st.none() | INTS}), max_size=3),
    "map": st.dictionaries(st.text(max_size=3), st.none() | LONGS, max_size=3).map(
        lambda each: [*each.items()]
    ),
    "struct": st.fixed_dictionaries({"a": st.none() | st.text(max_size=9), "b": st.none() | FLOATS}),
}
ROWS = st.lists(st.fixed_dictionaries({name: st.none() | each for name, each in VALUES.items()}), max_size=6)


def placed(rows: list[dict[str, Any]], fields: list[pa.Field] = FIELDS) -> pa.RecordBatch:
    """Rows at offsets of two partitions."""
    columns = [pa.array([each.get(f.name) for each in rows], f.type) for f in fields]
    places = [{"partition": n % 2, "offset": n // 2} for n in range(len(rows))]
    return pa.record_batch([*columns, pa.array(places, PLACE.type)], schema=pa.schema([*fields, PLACE]))


@given(ROWS, st.integers(0, 3))
def test_the_hash_is_that_of_the_reference_also_of_a_part_of_a_batch(
    rows: list[dict[str, Any]], first: int
) -> None:
    batch = placed(rows)
    expected = reference(batch)
    assert hashes_of(batch).tolist() == expected
    assert hashes_of(batch.slice(first)).tolist() == expected[first:]


SIZES = [
    *([size] * 9 for size in (0, 1, 7, 8, 9, 15, 16, 17)),
    [0, 3, 8] * 9,
    [9, 16, 2] * 9,
    [*range(42)] * 2,
]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("nulls", [False, True])
def test_texts_of_all_sizes_have_the_hash_of_the_reference(sizes: list[int], nulls: bool) -> None:
    """Texts of one size, short ones and others have loops of their own; the last texts of a column, too."""
    texts = [bytes((37 * n + at) % 256 for at in range(size)) for n, size in enumerate(sizes)]
    rows: list[dict[str, Any]] = [
        {"bytes": None if nulls and n % 3 == 1 else each} for n, each in enumerate(texts)
    ]
    batch = placed(rows, [FIELDS[6]])
    assert hashes_of(batch).tolist() == reference(batch)
    assert hashes_of(batch.slice(2, 5)).tolist() == reference(batch)[2:7]


def test_the_hashes_of_existing_tables_stay() -> None:
    row: dict[str, Any] = {
        "long": -7,
        "int": 20_000,
        "double": 1.25,
        "float": -0.5,
        "decimal": Decimal("-12345678901234.56"),
        "text": "amber basalt cedar delta",
        "bytes": b"nine byte",
        "fixed": b"abc",
        "flag": True,
        "list": [{"x": 1}, None, {"x": None}],
        "map": [("a", 1), ("b", None)],
        "struct": {"a": "x", "b": None},
    }
    assert sums_of(placed([row, {}, row, row])) == {
        0: Sum(2, 2_826_682_948_427_238_193, 0, 2),
        1: Sum(2, 2_539_864_733_201_601_891, 0, 2),
    }


OTHERS: list[tuple[pa.DataType, pa.DataType, list[Any]]] = [
    (pa.int8(), pa.int64(), [-3, None, 100]),
    (pa.uint16(), pa.int64(), [65_535, 0, None]),
    (pa.float16(), pa.float64(), [np.float16(0.5), None]),
    (pa.decimal32(9, 2), pa.decimal128(9, 2), [Decimal("-1.25"), None]),
    (pa.time64("us"), pa.int64(), [5, None]),
    (pa.dictionary(pa.int8(), pa.string()), pa.string(), ["red", "green", None, "red"]),
    (pa.string_view(), pa.string(), ["a longer text than a view holds", None]),
    (pa.uuid(), pa.binary(16), [bytes(range(16)), None]),
    (pa.null(), pa.string(), [None, None]),
    (pa.large_list(ITEM), pa.list_(ITEM), [[{"x": 1}, {"x": 2}], None, []]),
    (pa.struct([field(61, "x", pa.int8())]), pa.struct([field(61, "x", pa.int32())]), [{"x": 1}, None]),
]


@pytest.mark.parametrize(("kind", "plain", "values"), OTHERS, ids=lambda each: str(each)[:20])
def test_another_form_of_the_same_values_has_the_same_hash(
    kind: pa.DataType, plain: pa.DataType, values: list[Any]
) -> None:
    found = [
        hashes_of(placed([{"a": each} for each in values], [field(60, "a", each_kind)])).tolist()
        for each_kind in (kind, plain)
    ]
    assert found[0] == found[1]


@given(ROWS, st.randoms())
def test_sums_add_up_in_any_order_and_any_batches(rows: list[dict[str, Any]], random: Any) -> None:
    batch = placed(rows)
    order = [*range(len(rows))]
    random.shuffle(order)
    parts = [sums_of(batch.take(pa.array(order[n::3], pa.int64()))) for n in range(3)]
    whole = sums_of(batch)
    assert together(parts) == whole
    assert sum(each.rows for each in whole.values()) == len(rows)
    for partition, each in whole.items():
        assert (each.first, each.end) == (0, (len(rows) + 1 - partition) // 2)


WIDER = {
    "int": pa.int64(),
    "float": pa.float64(),
    "decimal": pa.decimal128(30, 2),
    "text": pa.large_string(),
    "bytes": pa.large_binary(),
}


@given(ROWS)
def test_wider_types_other_names_other_orders_and_new_columns_change_no_hash(
    rows: list[dict[str, Any]],
) -> None:
    batch = placed(rows)
    fields, columns = [field(99, "new", pa.int32())], [pa.nulls(len(rows), pa.int32())]
    for f, column in reversed([*zip(batch.schema, batch.columns, strict=True)]):
        kind = WIDER.get(f.name, f.type)
        fields.append(
            pa.field(f.name if f.name == SYSTEM_COLUMN else f"{f.name}2", kind, metadata=f.metadata)
        )
        columns.append(column.cast(kind))
    assert hashes_of(pa.record_batch(columns, schema=pa.schema(fields))).tolist() == hashes_of(batch).tolist()


@pytest.mark.parametrize("name", VALUES)
@given(data=st.data())
def test_another_value_has_another_hash(name: str, data: Any) -> None:
    kinds = [each for each in FIELDS if each.name == name]
    one, other = (data.draw(st.none() | VALUES[name]) for _ in range(2))
    found = [placed([{name: each}], kinds) for each in (one, other)]
    same = repr(found[0].column(0).to_pylist()) == repr(found[1].column(0).to_pylist())
    if name == "map" and one and other:
        same = sorted(one) == sorted(other)
    hashes = [hashes_of(each).tolist() for each in found]
    assert (hashes[0] == hashes[1]) == same


def test_values_that_change_places_are_seen() -> None:
    """Between rows, and between columns of a row."""
    fields = [field(1, "a", pa.int64()), field(2, "b", pa.int64())]
    rows = [{"a": 1, "b": 2}, {"a": 3, "b": 4}, {"a": 5, "b": 6}]
    before = sums_of(placed(rows, fields))
    for changed in (
        [{"a": 5, "b": 2}, rows[1], {"a": 1, "b": 6}],
        [{"a": 2, "b": 1}, *rows[1:]],
        [rows[2], rows[1], rows[0]],
        [{"a": -1, "b": -2}, *rows[1:]],
    ):
        assert sums_of(placed(changed, fields)) != before


def test_every_nan_is_the_same_value_and_no_infinity() -> None:
    bits = np.array([0x7FF8 << 48, 0xFFF8 << 48, (0x7FF0 << 48) + 1, 0x7FF0 << 48], np.uint64)
    fields = [field(1, "a", pa.float64())]
    found = [hashes_of(placed([{"a": each}], fields))[0] for each in bits.view(np.float64).tolist()]
    assert found[0] == found[1] == found[2] != found[3]


def test_iceberg_s_own_columns_are_no_values() -> None:
    batch = placed([{"long": 1}], FIELDS[:1])
    lineage = field(2_147_483_540, "_row_id", pa.int64())
    wider = pa.record_batch([*batch.columns, pa.array([7])], schema=pa.schema([*batch.schema, lineage]))
    assert hashes_of(wider).tolist() == hashes_of(batch).tolist()


def test_few_of_many_changes_collide() -> None:
    """Of a million neighbouring values in one place, no two have one hash."""
    values = np.arange(1_000_000)
    fields = [field(1, "a", pa.int64()), PLACE]
    place = pa.StructArray.from_arrays(
        [pa.repeat(pa.scalar(0, pa.int32()), len(values)), pa.repeat(pa.scalar(0, pa.int64()), len(values))],
        fields=list(PLACE.type),
    )
    for column in (
        pa.array(values),
        pa.array(values << 32),
        pa.array(values.astype(np.float64)).view(pa.int64()),
    ):
        batch = pa.record_batch([column, place], schema=pa.schema(fields))
        assert len(np.unique(hashes_of(batch))) == len(values)
