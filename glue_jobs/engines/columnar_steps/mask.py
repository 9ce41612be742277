"""Mask single values, and make tokens, with the same results as in `glue_jobs.transform`. Null stays null."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import types
from numpy.typing import NDArray

from calve.config.masking_keys import FIRST_YEAR_DAY, FIRST_YEAR_US, Key, pads
from calve.config.steps import Rule
from glue_jobs.columns.kernels import BYTES, BYTES_OUT, LONGS, PLACES, PLACES_OUT, kernel
from glue_jobs.engines.columnar.cells import stored
from glue_jobs.engines.columnar_steps.sha256 import DIGITS, state_of, write_tokens

STAR, AT, DOT, DASH, PLUS, ZERO = (np.uint8(ord(each)) for each in "*@.-+0")
DAY_US = 86_400_000_000
LONGEST_MOMENT = 40

# Each kernel writes one text per value into `out`, which is large enough for all, and the start of each into `begins`.


@kernel(types.int64(types.uint8))
def _bytes_of(first: int) -> int:
    """The byte length of a character, by its first byte. An invalid first byte counts as one."""
    if first < 0xC2 or first > 0xF4:
        return 1
    if first < 0xE0:
        return 2
    return 3 if first < 0xF0 else 4


@kernel(types.void(PLACES, BYTES, types.int64, PLACES_OUT, BYTES_OUT))
def write_ends(places: Begins, data: Bytes, stays: int, begins: Begins, out: Bytes) -> None:
    """Replace all but the last `stays` characters by stars; all of them in texts of at most `stays` characters."""
    to = 0
    for n in range(len(places) - 1):
        at, end, count = places[n], places[n + 1], 0
        while at < end:
            at += _bytes_of(data[at])
            count += 1
        stars = count - stays if count > stays else count
        at = places[n]
        for _ in range(stars):
            at += _bytes_of(data[at])
            out[to] = STAR
            to += 1
        for k in range(at, end):
            out[to] = data[k]
            to += 1
        begins[n + 1] = to


@kernel(types.boolean(types.uint8))
def _is_letter(byte: int) -> bool:
    return 97 <= (byte | 32) <= 122


@kernel(types.int64(BYTES, types.int64, types.int64))
def _domain(data: Bytes, at: int, end: int) -> int:
    """The place of the @ of an e-mail address whose domain ends the text; else the end of the text."""
    k, dot = end - 1, -1
    while k >= at and data[k] != AT:
        byte = data[k]
        if byte == DOT and dot < 0:
            dot = k
        if not (_is_letter(byte) or 48 <= byte <= 57 or byte in (DOT, DASH)):
            return end
        k -= 1
    if k < at or dot < k + 2 or dot + 1 >= end or not _is_letter(data[dot + 1]):
        return end
    return k


@kernel(types.void(PLACES, BYTES, PLACES_OUT, BYTES_OUT))
def write_domains(places: Begins, data: Bytes, begins: Begins, out: Bytes) -> None:
    """Three stars, then the domain if the text is an e-mail address."""
    to = 0
    for n in range(len(places) - 1):
        out[to : to + 3] = STAR
        to += 3
        for k in range(_domain(data, places[n], places[n + 1]), places[n + 1]):
            out[to] = data[k]
            to += 1
        begins[n + 1] = to


@kernel(types.void(PLACES, BYTES, types.int64, PLACES_OUT, BYTES_OUT))
def write_decimals(places: Begins, data: Bytes, scale: int, begins: Begins, out: Bytes) -> None:
    """Unscaled integers as decimals of a scale, without needless zeros."""
    to = 0
    for n in range(len(places) - 1):
        at, end = places[n], places[n + 1]
        if at < end and data[at] == DASH:
            out[to] = DASH
            to, at = to + 1, at + 1
        point, last = (
            end - scale,
            end,
        )  # where the fraction begins, perhaps before the first digit, and where it ends
        while last > point and (last - 1 < at or data[last - 1] == ZERO):
            last -= 1
        if point <= at:
            out[to] = ZERO
            to += 1
        for k in range(min(at, point), last if last > point else point):
            if k == point:
                out[to] = DOT
                to += 1
            if k >= at or k >= point:
                out[to] = data[k] if k >= at else ZERO
                to += 1
        begins[n + 1] = to


@kernel(types.int64(types.int64, types.int64, types.int64, BYTES_OUT))
def _write_digits(number: int, width: int, to: int, out: Bytes) -> int:
    """Write a number with at least `width` digits; returns its end."""
    digits, rest = width, number
    while rest >= 10**digits:
        digits += 1
    for k in range(digits):
        out[to + digits - 1 - k] = ZERO + rest % 10
        rest //= 10
    return to + digits


@kernel(types.int64(types.int64, types.int64, BYTES_OUT))
def _write_day(day: int, to: int, out: Bytes) -> int:
    """Write a day, counted from 1970-01-01, in ISO 8601 (proleptic Gregorian calendar); returns its end."""
    shifted = day + 719_468  # from 0000-03-01, so that a leap day ends its year
    era = shifted // 146_097
    of_era = shifted - era * 146_097
    year_of_era = (of_era - of_era // 1_460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted_month = (5 * of_year + 2) // 153
    month = shifted_month + 3 if shifted_month < 10 else shifted_month - 9
    year = year_of_era + era * 400 + (1 if month <= 2 else 0)
    if year < 0 or year > 9_999:
        out[to] = DASH if year < 0 else PLUS
        to += 1
    to = _write_digits(abs(year), 4, to, out)
    out[to] = DASH
    to = _write_digits(month, 2, to + 1, out)
    out[to] = DASH
    return _write_digits(of_year - (153 * shifted_month + 2) // 5 + 1, 2, to + 1, out)


@kernel(types.void(LONGS, PLACES_OUT, BYTES_OUT))
def write_days(days: NDArray[np.int64], begins: Begins, out: Bytes) -> None:
    to = 0
    for n in range(len(days)):
        to = _write_day(days[n], to, out)
        begins[n + 1] = to


@kernel(types.void(LONGS, types.boolean, PLACES_OUT, BYTES_OUT))
def write_moments(moments: NDArray[np.int64], utc: bool, begins: Begins, out: Bytes) -> None:  # noqa: FBT001 numba has no keywords
    """Microseconds since 1970 in ISO 8601 with six decimals; utc: with a Z."""
    to = 0
    for n in range(len(moments)):
        day = moments[n] // DAY_US
        rest = moments[n] - day * DAY_US
        to = _write_day(day, to, out)
        for unit, width, before in (
            (3_600_000_000, 2, 84),
            (60_000_000, 2, 58),
            (1_000_000, 2, 58),
            (1, 6, 46),
        ):
            out[to] = before  # T, two colons, and a dot
            to = _write_digits(rest // unit, width, to + 1, out)
            rest %= unit
        if utc:
            out[to] = 90
            to += 1
        begins[n + 1] = to


@dataclass(frozen=True, slots=True)
class Tokens:
    """which: the index of the key that hashes each value. heads: the token prefix of each key."""

    which: NDArray[np.int64]
    heads: tuple[bytes, ...]
    inner: NDArray[np.uint32] = field(repr=False)
    outer: NDArray[np.uint32] = field(repr=False)

    @staticmethod
    def of(keys: Sequence[Key], kafka: pa.StructArray) -> Tokens:
        """keys: as `calve.config.masking_keys.read_keys`.

        A record's key is the last one that was valid at its timestamp, else the first key.
        """
        made = kafka.field("timestamp")
        known = made.cast(pa.int64()).fill_null(np.iinfo(np.int64).min).to_numpy()
        since = np.array([each.since_us for each in keys], np.int64)
        which = np.maximum(np.searchsorted(since, known, "right") - 1, 0)
        both = [pads(each.secret) for each in keys]
        inner, outer = (
            np.array([state_of(pair[n]) for pair in both], np.uint32).reshape(-1, 8) for n in (0, 1)
        )
        return Tokens(which, tuple(f"{each.id}:".encode() for each in keys), inner, outer)

    def of_items(self, sizes: NDArray[np.int32]) -> Tokens:
        """The same for the items of lists of these sizes."""
        return replace(self, which=np.repeat(self.which, sizes))

    def made_of(self, values: pa.Array) -> pa.Array:
        """The tokens of strings or bytes; null stays null."""
        begins, data = spans(values)
        valid = pc.is_valid(values).to_numpy(zero_copy_only=False)
        sizes = np.array([len(each) + DIGITS for each in self.heads], np.int64)[self.which]
        out_begins = np.concatenate([[0], np.cumsum(np.where(valid, sizes, 0))]).astype(np.int32)
        out = np.empty(out_begins[-1], np.uint8)
        head_begins = np.cumsum([0, *map(len, self.heads)], dtype=np.int32)
        heads = np.frombuffer(b"".join(self.heads), np.uint8)
        there = np.flatnonzero(valid)
        order = there[np.argsort(np.diff(begins)[there], kind="stable")]
        write_tokens(
            order, begins, data, self.which, self.inner, self.outer, heads, head_begins, out_begins, out
        )
        return texts(out_begins, out, values)


Begins = NDArray[np.int32]
Bytes = NDArray[np.uint8]


def spans(array: pa.Array) -> tuple[Begins, Bytes]:
    """The start of each value in the bytes (one more than there are values), and the bytes."""
    _, begins, data = array.buffers()
    if not len(array):
        return np.zeros(1, np.int32), np.zeros(0, np.uint8)
    found = np.frombuffer(begins, np.int32)[array.offset : array.offset + len(array) + 1]
    return found, np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)


def texts(begins: Begins, data: Bytes, like: pa.Array) -> pa.Array:
    """Strings from bytes; null where `like` is null."""
    buffers = [validity(like), pa.py_buffer(begins), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.string(), len(like), buffers)


def validity(array: pa.Array) -> pa.Buffer | None:
    """The validity bits."""
    return pc.is_valid(array).buffers()[1] if array.null_count else None


Longs = NDArray[np.int64]
Valid = NDArray[np.bool_]
MOST_DIGITS = 18
"""The most digits of decimals that are generalised: their units are computed as longs."""


def masked(array: pa.Array, rule: Rule, tokens: Tokens) -> pa.Array:
    match rule.how:
        case "hash":
            return tokens.made_of(text(array))
        case "partial":
            return _partial(text(array), rule.argument)
        case "generalise" if isinstance(rule.argument, int):
            return _band(array, rule.argument)
    return _span(array, str(rule.argument))


def text(array: pa.Array) -> pa.Array:
    """The text of each value to hash; bytes stay unchanged."""
    kind = array.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return array
    if pa.types.is_decimal(kind):
        return _digits(array)
    if pa.types.is_date(kind):
        return _written(array, lambda begins, out: write_days(_longs(array), begins, out), LONGEST_MOMENT)
    if pa.types.is_timestamp(kind):
        utc = kind.tz is not None
        return _written(
            array, lambda begins, out: write_moments(_longs(array), utc, begins, out), LONGEST_MOMENT
        )
    return array.cast(pa.string())


def _written(like: pa.Array, write: Callable[[Begins, Bytes], None], room: int, shared: int = 0) -> pa.Array:
    """The texts that a kernel writes. room: bytes per value; shared: additional bytes for all values together."""
    begins, out = np.zeros(len(like) + 1, np.int32), np.empty(len(like) * room + shared, np.uint8)
    write(begins, out)
    return texts(begins, out, like)


def _longs(array: pa.Array) -> Longs:
    """The stored numbers of dates, timestamps and integers; zero for null."""
    width = pa.int32() if pa.types.is_date(array.type) else pa.int64()
    found: Longs = array.cast(width).fill_null(0).to_numpy().astype(np.int64, copy=False)
    return found


def _digits(array: pa.Array) -> pa.Array:
    """The digits of decimals, without needless zeros."""
    whole = pa.Array.from_buffers(
        pa.decimal128(38, 0), len(array), array.buffers(), offset=array.offset
    ).cast(pa.string())
    begins, data = spans(whole)
    scale = array.type.scale
    return _written(
        array,
        lambda out_begins, out: write_decimals(begins, data, scale, out_begins, out),
        scale + 2,
        len(data),
    )


def _partial(array: pa.Array, stays: str | int | None) -> pa.Array:
    begins, data = spans(array)
    if isinstance(stays, int):
        return _written(array, lambda places, out: write_ends(begins, data, stays, places, out), 0, len(data))
    return _written(array, lambda places, out: write_domains(begins, data, places, out), 3, len(data))


def _span(array: pa.Array, unit: str) -> pa.Array:
    """The first day of the year or month; null if the type has no such day."""
    is_date = pa.types.is_date(array.type)
    least, step = (FIRST_YEAR_DAY, "D") if is_date else (FIRST_YEAR_US, "us")
    numbers = _longs(array)
    valid = _valid(array) & (numbers >= least)
    moments = np.where(valid, numbers, 0).astype(f"datetime64[{step}]")
    first = moments.astype(f"datetime64[{unit[0].upper()}]").astype(moments.dtype).astype(np.int64)
    return pa.array(first.astype(stored(array.type)), mask=~valid).cast(array.type)


def _band(array: pa.Array, width: int) -> pa.Array:
    """Round down to a multiple of `width`; null if the type has no such number."""
    kind = array.type
    if pa.types.is_floating(kind):
        return _float_band(array, width)
    if not pa.types.is_decimal(kind):
        least = -(2 ** (kind.bit_width - 1))
        band, fits = _long_band(_longs(array), width)
        valid = _valid(array) & fits & (band >= least)
        return pa.array(np.where(valid, band, 0).astype(stored(kind)), mask=~valid)
    unit = 10**kind.scale
    band, fits = _long_band(_units(array) // unit, width)
    valid = _valid(array) & fits & (np.abs(band) < 10 ** (kind.precision - kind.scale))
    return _decimals(np.where(valid, band, 0) * unit, valid, kind)


def _long_band(whole: Longs, width: int) -> tuple[Longs, Valid]:
    above = whole % width
    fits = whole >= np.iinfo(np.int64).min + above
    return np.where(fits, whole - np.where(fits, above, 0), 0), fits


def _float_band(array: pa.Array, width: int) -> pa.Array:
    value = array.fill_null(0).to_numpy()
    steps = value.astype(np.float64) / float(width)
    valid = _valid(array) & (np.abs(steps) < 2.0**63)
    whole = np.floor(np.where(valid, steps, 0.0)).astype(np.int64)
    with np.errstate(over="ignore"):
        found = (whole.astype(np.float64) * float(width)).astype(value.dtype)
    return pa.array(found, mask=~valid)


def _units(array: pa.Array) -> Longs:
    """Decimals of at most `MOST_DIGITS`, in units of their last digit."""
    words = np.frombuffer(array.buffers()[1], np.int64)[2 * array.offset :: 2][: len(array)]
    return np.where(_valid(array), words, 0)


def _decimals(units: Longs, valid: Valid, kind: pa.DataType) -> pa.Array:
    words = np.stack([units, units >> 63], axis=1)
    bits = validity(pa.array(units, mask=~valid))
    return pa.Array.from_buffers(kind, len(units), [bits, pa.py_buffer(words)])


def _valid(array: pa.Array) -> Valid:
    found: Valid = pc.is_valid(array).to_numpy(zero_copy_only=False)
    return found
