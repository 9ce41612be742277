"""Mask single values, and make tokens, with the same results as in `glue_jobs.transform`. Null stays null."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import types
from numpy.typing import NDArray

from calve.config.masking_keys import FIRST_YEAR_DAY, FIRST_YEAR_US, Key, pads
from calve.config.steps import Rule
from glue_jobs.columns.kernels import BYTES, BYTES_OUT, PLACES, PLACES_OUT, kernel
from glue_jobs.decode.machines.cells import stored
from glue_jobs.engines.columnar.arranging import DAY_US, iso
from glue_jobs.engines.columnar.parquet import repeats
from glue_jobs.engines.columnar_steps.sha256 import DIGITS, state_of, write_digests

STAR, AT, DOT, DASH = (np.uint8(ord(each)) for each in "*@.-")
FIRST_DAY, LAST_DAY = -719_528, 2_932_896
"""The days of the years 0 to 9999, which need no sign."""

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


@dataclass(frozen=True, slots=True)
class Tokens:
    """which: the index in `keys` of the key that hashes each value."""

    which: NDArray[np.int64]
    keys: tuple[Key, ...]

    @staticmethod
    def of(keys: Sequence[Key], kafka: pa.StructArray) -> Tokens:
        """keys: as `calve.config.masking_keys.read_keys`.

        A record's key is the last one that was valid at its timestamp, else the first key.
        """
        made = kafka.field("timestamp")
        known = made.cast(pa.int64()).fill_null(np.iinfo(np.int64).min).to_numpy()
        since = np.array([each.since_us for each in keys], np.int64)
        return Tokens(np.maximum(np.searchsorted(since, known, "right") - 1, 0), tuple(keys))

    def of_items(self, sizes: NDArray[np.int32]) -> Tokens:
        """The same for the items of lists of these sizes."""
        return replace(self, which=np.repeat(self.which, sizes))

    def made_of(self, values: pa.Array) -> pa.Array:
        """The tokens of strings or bytes; null stays null."""
        places = [np.flatnonzero(self.which == number) for number in range(len(self.keys))]
        for of, key in zip(places, self.keys, strict=True):
            if of.size == len(values):
                return _hashed(values, key)
        found = [_hashed(values.take(pa.array(of)), key) for of, key in zip(places, self.keys, strict=True)]
        return pa.concat_arrays(found).take(pa.array(np.argsort(np.concatenate(places))))


def _hashed(values: pa.Array, key: Key) -> pa.Array:
    """Each distinct value is hashed once, if values repeat often (ADR 44)."""
    values = values.cast(pa.binary())
    if not repeats(pa.chunked_array([values]), values.nbytes):
        return _digests(values, key)
    found = values.dictionary_encode()
    return _digests(found.dictionary, key).take(found.indices)


def _digests(values: pa.Array, key: Key) -> pa.Array:
    begins, data = spans(values)
    head, count = np.frombuffer(f"{key.id}:".encode(), np.uint8), len(values)
    width = len(head) + DIGITS
    out = np.empty((count, width), np.uint8)
    out[:, : len(head)] = head
    inner, outer = (state_of(pad) for pad in pads(key.secret))
    order = np.argsort(np.diff(begins), kind="stable")
    write_digests(order, begins, data, inner, outer, width, out.reshape(-1))
    places = np.arange(count + 1, dtype=np.int32) * np.int32(width)
    bits = pc.is_valid(values).buffers()[1] if values.null_count else None
    return pa.Array.from_buffers(pa.string(), count, [bits, pa.py_buffer(places), pa.py_buffer(out)])


Begins = NDArray[np.int32]
Bytes = NDArray[np.uint8]


def spans(array: pa.Array) -> tuple[Begins, Bytes]:
    """The start of each value in the bytes (one more than there are values), and the bytes."""
    _, begins, data = array.buffers()
    if not len(array):
        return np.zeros(1, np.int32), np.zeros(0, np.uint8)
    found = np.frombuffer(begins, np.int32)[array.offset : array.offset + len(array) + 1]
    return found, np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)


Longs = NDArray[np.int64]
MOST_DIGITS = 18
"""The most digits of decimals that are generalised: they are computed as longs."""


def masked(rule: Rule, array: pa.Array, tokens: Tokens) -> pa.Array:
    match rule.how:
        case "null":
            return pa.nulls(len(array), array.type)
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
    if pa.types.is_temporal(kind):
        return _iso(array)
    return array.cast(pa.string())


def _iso(array: pa.Array) -> pa.Array:
    """Dates and timestamps in ISO 8601, timestamps with six decimals."""
    kind, numbers = array.type, _longs(array)
    is_date = pa.types.is_date(kind)
    days = numbers if is_date else numbers // DAY_US
    far = (days < FIRST_DAY) | (days > LAST_DAY)
    plain = array if is_date else array.view(pa.timestamp("us"))  # Arrow may have no table of time zones
    made = pc.if_else(pa.array(far), pa.scalar(None, plain.type), plain).cast(pa.string())
    made = made if is_date else pc.binary_replace_slice(made, 10, 11, "T")
    if far.any():
        texts = [iso(np.datetime64(day, "D")) for day in days[far].tolist()]
        if not is_date:
            times = (str(np.datetime64(number % DAY_US, "us"))[10:] for number in numbers[far].tolist())
            texts = [f"{text}{time}" for text, time in zip(texts, times, strict=True)]
        made = pc.replace_with_mask(made, pa.array(far), pa.array(texts, pa.string()))
    return made if is_date or kind.tz is None else pc.binary_join_element_wise(made, "Z", "")


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
    scale = array.type.scale
    if not scale:
        return whole
    sign = pc.if_else(pc.starts_with(whole, "-"), "-", "")
    padded = pc.ascii_lpad(pc.ascii_ltrim(whole, "-"), scale + 1, "0")
    dotted = pc.binary_replace_slice(padded, -scale, -scale, ".")
    return pc.binary_join_element_wise(sign, pc.ascii_rtrim(pc.ascii_rtrim(dotted, "0"), "."), "")


def _partial(array: pa.Array, stays: str | int | None) -> pa.Array:
    places, data = spans(array)
    stars = 0 if isinstance(stays, int) else 3
    begins, out = np.zeros(len(array) + 1, np.int32), np.empty(len(array) * stars + len(data), np.uint8)
    if isinstance(stays, int):
        write_ends(places, data, stays, begins, out)
    else:
        write_domains(places, data, begins, out)
    bits = pc.is_valid(array).buffers()[1] if array.null_count else None
    return pa.Array.from_buffers(pa.string(), len(array), [bits, pa.py_buffer(begins), pa.py_buffer(out)])


def _span(array: pa.Array, unit: str) -> pa.Array:
    """The first day of the year or month; null if the type has no such day."""
    is_date = pa.types.is_date(array.type)
    least, step = (FIRST_YEAR_DAY, "D") if is_date else (FIRST_YEAR_US, "us")
    numbers = _longs(array)
    valid = pc.is_valid(array).to_numpy(zero_copy_only=False) & (numbers >= least)
    moments = np.where(valid, numbers, 0).astype(f"datetime64[{step}]")
    first = moments.astype(f"datetime64[{unit[0].upper()}]").astype(moments.dtype).astype(np.int64)
    return pa.array(first.astype(stored(array.type)), mask=~valid).cast(array.type)


def _band(array: pa.Array, width: int) -> pa.Array:
    """Round down to a multiple of `width`; null if the type has no such number."""
    kind, valid = array.type, pc.is_valid(array).to_numpy(zero_copy_only=False)
    if pa.types.is_floating(kind):
        value = array.fill_null(0).to_numpy()
        steps = value.astype(np.float64) / float(width)
        valid = valid & (np.abs(steps) < 2.0**63)
        whole = np.floor(np.where(valid, steps, 0.0)).astype(np.int64)
        with np.errstate(over="ignore"):
            return pa.array((whole.astype(np.float64) * float(width)).astype(value.dtype), mask=~valid)
    if pa.types.is_decimal(kind):
        units = np.frombuffer(array.buffers()[1], np.int64)[2 * array.offset :: 2][: len(array)]
        numbers, least = np.where(valid, units, 0) // 10**kind.scale, 1 - 10 ** (kind.precision - kind.scale)
    else:
        numbers, least = _longs(array), -(2 ** (kind.bit_width - 1))
    above = numbers % width
    valid = valid & (numbers >= least + above)
    band = pa.array(np.where(valid, numbers - above, 0), mask=~valid)
    return (band.cast(pa.decimal128(19, 0)) if pa.types.is_decimal(kind) else band).cast(kind)
