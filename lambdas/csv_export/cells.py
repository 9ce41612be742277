"""Columns of values as columns of text, with Arrow's kernels where they exist. Nulls stay null.

| value | text |
| --- | --- |
| decimal | all its digits, never with an exponent |
| float | the shortest text that parses to the same number |
| timestamp, date, time | ISO 8601; an instant in the export's zone, with its offset |
| bytes | base64 |
| struct, list, map | JSON: a struct in the schema's order, a map sorted by key, decimals as strings |

Times are as Python's `isoformat` writes them. Arrow's zone arithmetic needs a time-zone database, which Lambda does not
guarantee; `zoneinfo` has its own (tzdata).
"""

from __future__ import annotations

import json
import math
from base64 import b64encode
from bisect import bisect_left
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

BINARY = (kinds.is_binary, kinds.is_large_binary, kinds.is_fixed_size_binary)


def text(array: Any, zone: ZoneInfo) -> Any:
    """The text of each value, without quotes."""
    kind = array.type
    if kinds.is_decimal(kind):
        return decimal_text(array)
    if kinds.is_timestamp(kind):
        return iso(array, zone)
    if kinds.is_time(kind):
        return without_zeros(pc.cast(array, pa.string()))
    if kinds.is_nested(kind):
        plain, encode = _plain(kind, zone), json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
        values = (None if each is None else encode(plain(each)) for each in array.to_pylist())
        return pa.array(values, pa.string())
    if isinstance(kind, pa.UuidType) or any(is_kind(kind) for is_kind in BINARY):
        return pa.array((_scalar(each, zone) for each in array.to_pylist()), pa.string())
    return pc.cast(array, pa.string())


def is_free_text(kind: pa.DataType) -> bool:
    """True if the text may begin with any character, so that a spreadsheet could read it as a formula."""
    numbers = (kinds.is_integer, kinds.is_floating, kinds.is_decimal)
    others = (kinds.is_boolean, kinds.is_temporal)
    return not any(is_kind(kind) for is_kind in numbers + others)


def decimal_text(array: Any) -> Any:
    """Arrow's cast uses exponents below 0.000001, so the digits are printed as an integer, and the point is inserted."""
    kind = array.type
    width = kind.byte_width * 8
    integer = {32: pa.decimal32, 64: pa.decimal64, 128: pa.decimal128, 256: pa.decimal256}[width]
    digits = pc.cast(array.view(integer(kind.precision, 0)), pa.string())
    if kind.scale <= 0:
        zeros = "0" * -kind.scale
        return pc.if_else(pc.equal(digits, "0"), digits, pc.binary_join_element_wise(digits, zeros, ""))
    sign = pc.if_else(pc.starts_with(digits, "-"), "-", "")
    padded = pc.ascii_lpad(pc.utf8_ltrim(digits, "-"), kind.scale + 1, padding="0")
    whole = pc.utf8_slice_codeunits(padded, 0, -kind.scale)
    fraction = pc.utf8_slice_codeunits(padded, -kind.scale)
    return pc.binary_join_element_wise(pc.binary_join_element_wise(sign, whole, ""), fraction, ".")


def _plain(kind: pa.DataType, zone: ZoneInfo) -> Callable[[Any], Any]:
    """Turns a nested value of this type into JSON types."""
    if kinds.is_struct(kind):
        fields = [(field.name, _plain(field.type, zone)) for field in kind]

        def convert(value: Any) -> Any:
            return {name: plain(value[name]) for name, plain in fields}

    elif kinds.is_map(kind):
        key, item = _plain(kind.key_type, zone), _plain(kind.item_type, zone)
        named = kinds.is_string(kind.key_type) or kinds.is_large_string(kind.key_type)

        def convert(value: Any) -> Any:
            pairs = [(key(k), item(v)) for k, v in value]
            if named:
                return dict(sorted(pairs, key=lambda pair: str(pair[0])))
            return sorted(pairs, key=lambda pair: json.dumps(pair[0]))

    elif kinds.is_nested(kind):
        element = _plain(kind.value_type, zone)

        def convert(value: Any) -> Any:
            return [element(each) for each in value]

    else:
        return lambda value: _scalar(value, zone)
    return lambda value: None if value is None else convert(value)


def _scalar(value: Any, zone: ZoneInfo) -> Any:
    match value:
        case float() if not math.isfinite(value):
            return str(value)
        case Decimal():
            return f"{value:f}"
        case datetime():
            return (value.astimezone(zone) if value.tzinfo else value).isoformat()
        case date() | time():
            return value.isoformat()
        case bytes():
            return b64encode(value).decode()
        case UUID():
            return str(value)
    return value


PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
DAY_S = 86_400
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAYS = (-719_161, 2_932_894)
"""The days of Python's calendar, since 1970, besides its first and last."""


def iso(array: Any, zone: ZoneInfo) -> Any:
    """Text of a timestamp column: with the zone's offset for instants, without for local times."""
    unit = array.type.unit
    if array.type.tz is None:
        return clock_text(array)
    ticks = array.cast(pa.int64())
    days = pc.unique(pc.drop_null(ticks.cast(pa.timestamp(unit)).cast(pa.date32()).cast(pa.int32())))
    if not len(days):
        return pa.nulls(len(array), pa.string())
    scale = PER_SECOND[unit]
    (_, first), *changes = _pieces(zone, sorted(days.to_pylist()))
    shift, suffix = pa.scalar(first * scale), pa.scalar(_offset_text(first))
    for begins, offset in changes:
        later = pc.greater_equal(ticks, begins * scale)
        shift = pc.if_else(later, offset * scale, shift)
        suffix = pc.if_else(later, _offset_text(offset), suffix)
    local = pc.add(ticks, shift).cast(pa.timestamp(unit))
    return pc.binary_join_element_wise(clock_text(local), suffix, "")


def clock_text(array: Any) -> Any:
    """`2026-11-09T06:00:00`, with a fraction if it has one."""
    text = pc.replace_substring(pc.cast(array, pa.string()), " ", "T", max_replacements=1)
    return without_zeros(text)


def without_zeros(text: Any) -> Any:
    return pc.replace_substring_regex(text, r"\.0+$", "")


def _pieces(zone: ZoneInfo, days: list[int]) -> list[tuple[int, int]]:
    """(start in seconds since 1970, offset in seconds) of each change of the offset within or between these days."""
    pieces: list[tuple[int, int]] = []
    for day in days:
        start = min(max(day, DAYS[0]), DAYS[1]) * DAY_S
        for begins in (start, _change(zone, start, start + DAY_S - 1)):
            offset = _offset(zone, begins)
            if not pieces or pieces[-1][1] != offset:
                pieces.append((begins, offset))
    return pieces


def _change(zone: ZoneInfo, start: int, end: int) -> int:
    """The first second from `start` that has the offset of `end`."""
    last = _offset(zone, end)
    return start + bisect_left(range(start, end), True, key=lambda at: _offset(zone, at) == last)  # noqa: FBT003 a value


def _offset(zone: ZoneInfo, at: int) -> int:
    local = (EPOCH + timedelta(seconds=at)).astimezone(zone)
    return int((local.utcoffset() or timedelta()).total_seconds())


def _offset_text(seconds: int) -> str:
    sign, rest = ("-", -seconds) if seconds < 0 else ("+", seconds)
    text = f"{sign}{rest // 3600:02}:{rest // 60 % 60:02}"
    return f"{text}:{rest % 60:02}" if rest % 60 else text
