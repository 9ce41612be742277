from __future__ import annotations

import struct
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import mmh3
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glue_jobs.index.hashing import BINARY, DECIMAL, INTEGER, NULL, SEVERAL, TEXT, hashes


def pairs(*key: pa.Array) -> list[tuple[int, int]]:
    found = hashes(key)
    return list(zip(found.high.tolist(), found.low.tolist(), strict=True))


def expected(data: bytes, tag: int) -> tuple[int, int]:
    return mmh3.hash64(data, tag, x64arch=True, signed=False)


@given(st.lists(st.binary(max_size=50)))
def test_bytes_have_the_hash_of_the_reference(values: list[bytes]) -> None:
    assert pairs(pa.array(values, pa.binary())) == [expected(each, BINARY) for each in values]


@given(st.lists(st.text(max_size=40)))
def test_texts_have_the_hash_of_their_utf8(values: list[str]) -> None:
    for kind in (pa.string(), pa.large_string()):
        assert pairs(pa.array(values, kind)) == [expected(each.encode(), TEXT) for each in values]


@given(st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_integers_have_the_hash_of_eight_bytes(values: list[int]) -> None:
    assert pairs(pa.array(values, pa.int64())) == [
        expected(struct.pack("<q", each), INTEGER) for each in values
    ]


@given(
    st.lists(
        st.decimals(allow_nan=False, allow_infinity=False, places=2, max_value=10**20, min_value=-(10**20))
    )
)
def test_decimals_have_the_hash_of_their_digits_at_their_scale(values: list[Decimal]) -> None:
    found = [int(each.scaleb(2)).to_bytes(16, "little", signed=True) for each in values]
    assert pairs(pa.array(values, pa.decimal128(30, 2))) == [
        expected(each, DECIMAL + (2 << 8)) for each in found
    ]


@pytest.mark.parametrize(
    ("narrow", "wide", "values"),
    [
        (pa.int32(), pa.int64(), [1, -7, 2**31 - 1]),
        (pa.decimal128(9, 2), pa.decimal128(38, 2), [Decimal("1.20"), Decimal("-3.00")]),
        (pa.timestamp("ms", "UTC"), pa.timestamp("us", "UTC"), [datetime(2026, 1, 2, tzinfo=UTC)]),
    ],
    ids=str,
)
def test_a_widened_column_keeps_its_hashes(narrow: Any, wide: Any, values: list[Any]) -> None:
    assert pairs(pa.array(values, narrow)) == pairs(pa.array(values, wide))


def test_equal_bytes_of_two_types_are_two_keys() -> None:
    day = pa.array([date(1970, 1, 2)])
    columns = [
        pa.array([1]),
        pa.array([True]),
        day,
        pa.array([1], pa.timestamp("us")),
        pa.array(["\1" + 7 * "\0"]),
    ]
    assert len({pairs(each)[0] for each in columns}) == len(columns)


def test_a_key_of_several_columns_has_the_hash_of_their_hashes() -> None:
    one, two = pa.array([1, 2]), pa.array(["a", "b"])
    inside = [struct.pack("<4Q", *a, *b) for a, b in zip(pairs(one), pairs(two), strict=True)]
    assert pairs(one, two) == [expected(each, SEVERAL) for each in inside]


def test_a_slice_has_the_hashes_of_its_rows() -> None:
    for column in (
        pa.array(["a", "bb", None, "dddd"]),
        pa.array([1, 2, None, 4]),
        pa.array([Decimal(1), Decimal(2), None, Decimal(4)]),
        pa.array([True, False, None, True]),
        pa.array([b"ab", b"cd", None, b"ef"], pa.binary(2)),
    ):
        assert pairs(column.slice(1, 3)) == pairs(column)[1:]


def test_a_null_inside_a_key_is_a_value_of_its_own() -> None:
    assert pairs(pa.array([None, ""])) == [NULL, pairs(pa.array([""]))[0]]
    assert pairs(pa.array([None, 0])) == [NULL, pairs(pa.array([0]))[0]]


@pytest.mark.parametrize("column", [pa.array([[1]]), pa.array([1.0])], ids=str)
def test_lists_and_floats_are_no_keys(column: pa.Array) -> None:
    with pytest.raises(ValueError, match="a key has no"):
        hashes([column])
