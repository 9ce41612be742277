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
from collections.abc import Callable
from datetime import MAXYEAR, MINYEAR, UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds


def text(array: Any, zone: ZoneInfo) -> Any:
    """The text of each value, without quotes."""
    kind = array.type
    if kinds.is_decimal(kind):
        return decimal_text(array)
    if kinds.is_timestamp(kind):
        return iso(array, zone)
    if kinds.is_time(kind):
        return without_zeros(pc.cast(array, pa.string()))
    if convert := _by_value(kind, zone):
        return pa.array(
            [None if value is None else convert(value) for value in array.to_pylist()], pa.string()
        )
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
    bare = pa.Array.from_buffers(
        integer(kind.precision, 0), len(array), array.buffers(), array.null_count, array.offset
    )
    digits = pc.cast(bare, pa.string())
    if kind.scale <= 0:
        zeros = "0" * -kind.scale
        return pc.if_else(pc.equal(digits, "0"), digits, pc.binary_join_element_wise(digits, zeros, ""))
    sign = pc.if_else(pc.starts_with(digits, "-"), "-", "")
    padded = pc.ascii_lpad(pc.utf8_ltrim(digits, "-"), kind.scale + 1, padding="0")
    whole = pc.utf8_slice_codeunits(padded, 0, -kind.scale)
    fraction = pc.utf8_slice_codeunits(padded, -kind.scale)
    return pc.binary_join_element_wise(pc.binary_join_element_wise(sign, whole, ""), fraction, ".")


def _by_value(kind: pa.DataType, zone: ZoneInfo) -> Callable[[Any], str] | None:
    """The text of one value, for types without a kernel in Arrow."""
    if isinstance(kind, pa.UuidType):
        return str
    if kinds.is_binary(kind) or kinds.is_large_binary(kind) or kinds.is_fixed_size_binary(kind):
        return _base64
    if kinds.is_nested(kind):
        plain = _plain(kind, zone)
        return lambda value: json.dumps(plain(value), ensure_ascii=False, separators=(",", ":"))
    return None


def _plain(kind: pa.DataType, zone: ZoneInfo) -> Callable[[Any], Any]:
    """A nested value as JSON types."""
    if kinds.is_struct(kind):
        fields = [(field.name, _plain(field.type, zone)) for field in kind]
        return _or_none(lambda value: {name: plain(value[name]) for name, plain in fields})
    if kinds.is_map(kind):
        return _or_none(_map(kind, zone))
    if kinds.is_nested(kind):
        element = _plain(kind.value_type, zone)
        return _or_none(lambda value: [element(each) for each in value])
    return lambda value: _scalar(value, zone)


def _map(kind: pa.DataType, zone: ZoneInfo) -> Callable[[Any], Any]:
    key, item = _plain(kind.key_type, zone), _plain(kind.item_type, zone)
    if kinds.is_string(kind.key_type) or kinds.is_large_string(kind.key_type):
        return lambda value: {name: item(each) for name, each in sorted(value, key=lambda pair: str(pair[0]))}
    return lambda value: sorted(([key(k), item(v)] for k, v in value), key=lambda pair: json.dumps(pair[0]))


def _or_none(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
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
            return _base64(value)
        case UUID():
            return str(value)
    return value


def _base64(value: bytes) -> str:
    return b64encode(value).decode()


PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
STEP = timedelta(days=7)


def iso(array: Any, zone: ZoneInfo) -> Any:
    """Text of a timestamp column: with the zone's offset for instants, without for local times."""
    unit = array.type.unit
    if array.type.tz is None:
        return clock_text(array)
    ticks = array.cast(pa.int64())
    years = pc.unique(pc.drop_null(pc.year(ticks.cast(pa.timestamp(unit))))).to_pylist()
    if not years:
        return pa.nulls(len(array), pa.string())
    scale = PER_SECOND[unit]
    pieces = _pieces(zone, years)
    shift, suffix = pa.scalar(pieces[0][1] * scale), pa.scalar(_offset_text(pieces[0][1]))
    for begins, offset in pieces[1:]:
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


def _pieces(zone: ZoneInfo, years: list[int]) -> list[tuple[int, int]]:
    """(start in seconds since 1970, offset in seconds), only for the years that occur: one date may be in the year 9999."""
    pieces: list[tuple[int, int]] = []
    for year in sorted({min(max(year, MINYEAR), MAXYEAR) for year in years}):
        start = datetime(year, 1, 1, tzinfo=UTC)
        for piece in ((int(start.timestamp()), _offset(zone, start)), *_changes(zone.key, year)):
            if not pieces or pieces[-1][1] != piece[1]:
                pieces.append(piece)
    return pieces


@lru_cache(maxsize=512)
def _changes(key: str, year: int) -> tuple[tuple[int, int], ...]:
    """Every change of a zone's offset within a year of UTC, with the offset from then on."""
    zone = ZoneInfo(key)
    before = datetime(year, 1, 1, tzinfo=UTC)
    end = datetime(year, 12, 31, 23, 59, 59, tzinfo=UTC)
    found = []
    while before < end:
        after = before + STEP if before < end - STEP else end
        if _offset(zone, before) != _offset(zone, after):
            change = _first_change(zone, before, after)
            found.append((int(change.timestamp()), _offset(zone, change)))
            before = change
        else:
            before = after
    return tuple(found)


def _first_change(zone: ZoneInfo, before: datetime, after: datetime) -> datetime:
    """The first second in (before, after] with another offset than at `before`."""
    old = _offset(zone, before)
    while after - before > timedelta(seconds=1):
        middle = before + timedelta(seconds=(after - before) // timedelta(seconds=2))
        if _offset(zone, middle) == old:
            before = middle
        else:
            after = middle
    return after


def _offset(zone: ZoneInfo, at: datetime) -> int:
    try:
        local = at.astimezone(zone)
    except OverflowError:
        return 0
    return int((local.utcoffset() or timedelta()).total_seconds())


def _offset_text(seconds: int) -> str:
    sign, rest = ("-", -seconds) if seconds < 0 else ("+", seconds)
    text = f"{sign}{rest // 3600:02}:{rest // 60 % 60:02}"
    return f"{text}:{rest % 60:02}" if rest % 60 else text
