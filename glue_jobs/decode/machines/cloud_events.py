"""Open CloudEvents: find the data of each event, and make a column of its attributes.

A binary event has its attributes in headers, and its data is the value. A structured event is a JSON object of both.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import types
from numpy.typing import NDArray

from calve.decoding.decode_plan import event_columns
from calve.schema.cloud_events import (
    ATTRIBUTES,
    BASE64,
    CONTENT_TYPE,
    DATA,
    MOST_EXTENSIONS,
    OF_JSON,
    PREFIX,
    REQUIRED,
    STRUCTURED,
)
from glue_jobs.columns.arrow_types import arrow_type, not_utf_8
from glue_jobs.columns.buffers import Spans, spans_of
from glue_jobs.columns.kernels import BYTES, BYTES_OUT, LONGS, LONGS_OUT, PLACES, PLACES_OUT, kernel
from glue_jobs.columns.texts import LENGTH, NOTHING, TRIPLE, Bytes, Longs, U, copy, lay_out, texts
from glue_jobs.decode.machines.json_scan import (
    DEEPEST,
    PADDING,
    blank,
    number_end,
    order,
    skip,
    string,
    unescape,
    word_end,
)
from glue_jobs.decode.machines.json_texts import to_bytes
from glue_jobs.decode.machines.moments import to_moments

NAMES = (*ATTRIBUTES, DATA, BASE64)
OF_DATA, OF_BASE64, OF_TYPE = (NAMES.index(each) for each in (DATA, BASE64, "datacontenttype"))
WIDTH = len(NAMES) + 1
"""Cells of an event: its members, and its data as text if that is a string of JSON."""
KIND = arrow_type(event_columns("event"))[0].type
"""The type of the column of attributes."""
ABSENT = -1
OTHER = 15
"""Instead of the place of a member: an extension."""
BINARY, WHOLE, STRANGE = range(3)
"""Kinds of records: binary, structured, and structured in another format than JSON."""
(
    NO_EVENT,
    NO_OBJECT,
    NO_JSON,
    FRAMED,
    TWICE,
    NO_TEXT,
    TWO_DATA,
    MISSING,
    NO_TIME,
    NO_UTF_8,
    NO_BASE64,
    TOO_MANY,
) = range(1, 13)
_FAULTS = {
    NO_EVENT: f"it has no header {PREFIX}id, and no header {CONTENT_TYPE} that says {OF_JSON}",
    NO_OBJECT: "the value is not one JSON object, although the header content-type says so",
    NO_JSON: f"the header content-type names another event format than {OF_JSON}",
    FRAMED: "a structured event cannot have a schema of the registry: only binary events are read here",
    TWICE: "{} is there twice",
    NO_TEXT: "{} is not a text",
    TWO_DATA: f"both {DATA} and {BASE64} are there",
    MISSING: "{} is missing",
    NO_TIME: "{} is not a time by RFC 3339",
    NO_UTF_8: "{} is not UTF-8",
    NO_BASE64: "{} is not Base64",
    TOO_MANY: f"it has more than {MOST_EXTENSIONS} extensions",
}
_JSON_TYPE = r"^[^;]*[/+]json[ \t]*(;|$)"
_NAMES = np.frombuffer("".join(NAMES).encode(), np.uint8)
_ENDS = np.cumsum([len(each) for each in NAMES], dtype=np.int32)
_PREFIX, _TYPE, _OF_JSON = (
    np.frombuffer(each.encode(), np.uint8) for each in (PREFIX, CONTENT_TYPE, OF_JSON)
)
_COMMON = len(STRUCTURED)
Codes = NDArray[np.int32]
"""0, or the fault of a record: a number of `_FAULTS` << 4 | the place of a member in `NAMES`, or `OTHER`."""


def fault(code: int) -> str:
    """Why a record is no event."""
    which = code & 15
    return _FAULTS[code >> 4].format(f'"{NAMES[which]}"' if which < len(NAMES) else "an extension")


@dataclass(frozen=True, slots=True)
class Opened:
    """spans: the data of the good events; null: without data. column: their attributes. bad: the other records, with codes.

    A record without a value is never bad. Its attributes are null if it is no event.
    """

    spans: Spans
    column: pa.StructArray
    bad: Longs
    codes: Codes


@kernel(types.boolean(BYTES, types.int64, BYTES, types.int64, types.int64), inline=True)
def _same(data: Any, at: Any, words: Any, begin: Any, end: Any) -> Any:
    """Whether bytes are those of a word."""
    same = True
    for place in range(end - begin):
        same = same and data[U(at + place)] == words[U(begin + place)]
    return same


@kernel(types.int64(BYTES, types.int64, BYTES, PLACES), inline=True)
def _which(data: Any, name: Any, names: Any, ends: Any) -> Any:
    """The place of a name (a cell) among others, or `OTHER`."""
    at, size, begin = name >> 32, name & LENGTH, np.int64(0)
    for number in range(ends.size):
        end = np.int64(ends[U(number)])
        if end - begin == size and _same(data, at, names, begin, end):
            return np.int64(number)
        begin = end
    return np.int64(OTHER)


@kernel(types.int64(BYTES, types.int64))
def _kind(data: Any, cell: Any) -> Any:
    """The kind of a record, by its content type."""
    at, size = cell >> 32, cell & LENGTH if cell != ABSENT else np.int64(0)
    for place in range(_OF_JSON.size):
        byte = data[U(at + place)] if place < size else np.uint8(0)
        if byte >= 65 and byte <= 90:
            byte |= 32
        if byte != _OF_JSON[place]:
            return np.int64(BINARY if place < _COMMON else STRANGE)
    end = at + size
    at += _OF_JSON.size
    while at < end and (data[U(at)] == 32 or data[U(at)] == 9):
        at += 1
    return np.int64(WHOLE if at == end or data[U(at)] == 59 else STRANGE)


@kernel(
    types.int64(
        BYTES, LONGS, PLACES, PLACES, PLACES, PLACES, types.int64, BYTES, PLACES, LONGS_OUT, LONGS_OUT, BYTES_OUT
    )
)  # fmt: skip
def _headers(
    data: Any, lists: Any, name_at: Any, name_size: Any, value_at: Any, value_size: Any, base: Any, names: Any, ends: Any,
    cells: Any, pairs: Any, kinds: Any,
) -> Any:  # fmt: skip
    """Find the attributes of binary events among the headers of all records. Returns the number of pairs.

    lists: where the headers of each record begin and end. base: where the values begin in `data`. pairs: as in `_event`.
    """
    count = np.int64(0)
    for row in range(kinds.size):
        first = count
        for each in range(lists[U(row)], lists[U(row + 1)]):
            at, size = np.int64(name_at[U(each)]), np.int64(name_size[U(each)])
            value = np.int64(ABSENT)
            if value_size[U(each)] >= 0:
                value = (base + value_at[U(each)]) << 32 | np.int64(value_size[U(each)])
            if size >= _PREFIX.size and _same(data, at, _PREFIX, 0, _PREFIX.size):
                name = (at + _PREFIX.size) << 32 | (size - _PREFIX.size)
                which = _which(data, name, names, ends)
                if which >= OF_DATA:
                    pairs[U(3 * count)], pairs[U(3 * count + 1)], pairs[U(3 * count + 2)] = row, name, value
                    count += 1
                elif which != OF_TYPE:
                    cells[U(row * WIDTH + which)] = value
            elif size == _TYPE.size and _same(data, at, _TYPE, 0, _TYPE.size):
                cells[U(row * WIDTH + OF_TYPE)] = value
        kinds[U(row)] = _kind(data, cells[U(row * WIDTH + OF_TYPE)])
        if kinds[U(row)] != BINARY:
            count = first
            for which in range(WIDTH):
                cells[U(row * WIDTH + which)] = ABSENT
    return count


@kernel(TRIPLE(BYTES_OUT, types.int64, types.int64, types.int64), inline=True)
def _text(data: Any, at: Any, end: Any, extra: Any) -> Any:
    """The cell of the string at a quote, the place after it, and that after its text without escapes; `ABSENT`: it is none."""
    begin = at + 1
    at, escaped = string(data, begin, end)
    if at < 0:
        return np.int64(ABSENT), at, extra
    if not escaped:
        return begin << 32 | (at - begin), at + 1, extra
    stop = unescape(data, begin, at, extra)
    return extra << 32 | (stop - extra), at + 1, stop


@kernel(
    TRIPLE(
        BYTES_OUT, types.int64, types.int64, types.int64, BYTES, PLACES, LONGS_OUT, LONGS_OUT, types.int64, LONGS_OUT, types.int64
    ),
    inline=True,
)  # fmt: skip
def _event(  # noqa: C901 one kernel
    data: Any, at: Any, end: Any, extra: Any, names: Any, ends: Any, opened: Any, cells: Any, row: Any, pairs: Any, count: Any
) -> Any:  # fmt: skip
    """Find the members of a structured event. Returns its fault or 0, the place after its texts, and the number of pairs.

    pairs: row, name and value (or `ABSENT`) of each extension, as far as there is room.
    """
    no_object = np.int64(NO_OBJECT << 4)
    seen = np.int64(0)
    at = blank(data, at, end)
    if at >= end or data[U(at)] != 123:
        return no_object, extra, count
    at = blank(data, at + 1, end)
    more = at >= end or data[U(at)] != 125
    at += np.int64(not more)
    while more:
        if at >= end or data[U(at)] != 34:
            return no_object, extra, count
        name, at, extra = _text(data, at, end, extra)
        at = blank(data, at, end) if at >= 0 else end
        if at >= end or data[U(at)] != 58:
            return no_object, extra, count
        at = blank(data, at + 1, end)
        if at >= end:
            return no_object, extra, count
        which = _which(data, name, names, ends)
        if which != OTHER and (seen >> which) & 1:
            return TWICE << 4 | which, extra, count
        seen |= np.int64(1) << which
        begin, byte, value = at, data[U(at)], np.int64(ABSENT)
        if byte == 34:
            value, at, extra = _text(data, at, end, extra)
            if which == OF_DATA:
                cells[U(row * WIDTH + WIDTH - 1)] = value
        elif which == OF_DATA:
            at = skip(data, at, end, 0, opened, opened, -1)
        elif byte == 123 or byte == 91:
            return NO_TEXT << 4 | which, extra, count
        elif byte == 45 or (byte >= 48 and byte <= 57):
            at = number_end(data, at, end)
        else:
            at = word_end(data, at, end)
        if at < 0:
            return no_object, extra, count
        if byte != 34 and byte != 110 and (which < OF_DATA or which == OF_BASE64):
            return NO_TEXT << 4 | which, extra, count
        if byte != 110:
            if which == OF_DATA or byte != 34:
                value = begin << 32 | (at - begin)
            if which != OTHER:
                cells[U(row * WIDTH + which)] = value
        if which == OTHER:
            if 3 * count + 2 < pairs.size:
                pairs[U(3 * count)], pairs[U(3 * count + 1)], pairs[U(3 * count + 2)] = row, name, value
            count += 1
        at = blank(data, at, end)
        if at >= end or (data[U(at)] != 44 and data[U(at)] != 125):
            return no_object, extra, count
        more = data[U(at)] == 44
        at = blank(data, at + 1, end) if more else at + 1
    if blank(data, at, end) != end:
        return no_object, extra, count
    if cells[U(row * WIDTH + OF_DATA)] != ABSENT and cells[U(row * WIDTH + OF_BASE64)] != ABSENT:
        return np.int64(TWO_DATA << 4), extra, count
    return np.int64(0), extra, count


@kernel(
    types.int64(
        BYTES_OUT, PLACES, types.int64, LONGS, types.int64, BYTES, PLACES, LONGS_OUT, LONGS_OUT, LONGS_OUT, PLACES_OUT
    )
)  # fmt: skip
def _events(
    data: Any, offsets: Any, base: Any, rows: Any, extra: Any, names: Any, ends: Any, opened: Any, cells: Any, pairs: Any,
    codes: Any,
) -> Any:  # fmt: skip
    """`_event` of the rows. Returns the number of pairs. base: where the values begin in `data`."""
    count = np.int64(0)
    for number in range(rows.size):
        at, end = base + offsets[U(number)], base + offsets[U(number + 1)]
        code, extra, count = _event(
            data, at, end, extra, names, ends, opened, cells, rows[U(number)], pairs, count
        )
        codes[rows[U(number)]] = code
    return count


@kernel(types.int64(BYTES, LONGS_OUT, types.int64, BYTES, PLACES_OUT, PLACES_OUT))
def _sorted(data: Any, pairs: Any, count: Any, kinds: Any, codes: Any, sizes: Any) -> Any:
    """Sort the pairs of each record by name (`order`), and drop those without a value. Returns how many are left.

    Of headers with one name the last counts; a member that is there twice is a fault. sizes: the pairs of each record.
    """
    kept, at = np.int64(0), np.int64(0)
    while at < count:
        row, end = pairs[U(3 * at)], at
        while end < count and pairs[U(3 * end)] == row:
            end += 1
        if end - at > MOST_EXTENSIONS:
            codes[row] = TOO_MANY << 4 if codes[row] == 0 else codes[row]
            at = end
            continue
        for one in range(at + 1, end):
            name, value, place = pairs[U(3 * one + 1)], pairs[U(3 * one + 2)], one
            while place > at and order(data, pairs[U(3 * place - 2)], name) > 0:
                pairs[U(3 * place + 1)], pairs[U(3 * place + 2)] = (
                    pairs[U(3 * place - 2)],
                    pairs[U(3 * place - 1)],
                )
                place -= 1
            pairs[U(3 * place + 1)], pairs[U(3 * place + 2)] = name, value
        begin = kept
        for one in range(at, end):
            name, value = pairs[U(3 * one + 1)], pairs[U(3 * one + 2)]
            if one + 1 < end and order(data, name, pairs[U(3 * one + 4)]) == 0:
                if kinds[row] == WHOLE and codes[row] == 0:
                    codes[row] = TWICE << 4 | OTHER
            elif value != ABSENT:
                pairs[U(3 * kept)], pairs[U(3 * kept + 1)], pairs[U(3 * kept + 2)] = row, name, value
                kept += 1
        sizes[row] = kept - begin
        at = end
    return kept


class _Members:
    """The members of all records, as cells in `data`. kinds, codes, given (it has a value): of each record.

    pairs: extensions, by record.
    """

    def __init__(self, spans: Spans, headers: pa.ListArray, *, framed: bool) -> None:
        self._count = spans.records.size
        flat = headers.flatten()
        names, values = (spans_of(flat.field(each)) for each in ("key", "value"))
        lengths = pc.fill_null(pc.list_value_length(headers), 0).to_numpy(zero_copy_only=False)
        lists = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])
        self.data: Bytes = np.concatenate([names.data, values.data])
        found, pairs = np.full(self._count * WIDTH, ABSENT), np.empty(3 * len(flat), np.int64)
        self.kinds, self.codes = np.empty(self._count, np.uint8), np.zeros(self._count, np.int32)
        number = _headers(
            self.data, lists, names.places, names.sizes, values.places, values.sizes, names.data.size, _NAMES, _ENDS, found,
            pairs, self.kinds,
        )  # fmt: skip
        self.pairs: NDArray[np.int64] = pairs[: 3 * number]
        self.given = spans.sizes[spans.records] >= 0
        self.note(self.kinds == STRANGE, NO_JSON << 4)
        self.note((self.kinds == WHOLE) & framed, FRAMED << 4)
        self.note((self.kinds == WHOLE) & ~self.given, NO_OBJECT << 4)
        self.whole = np.flatnonzero((self.kinds == WHOLE) & (self.codes == 0))
        if self.whole.size:
            self._open(spans, found)
        self.cells = found.reshape(-1, WIDTH)

    def note(self, which: NDArray[np.bool_], code: int) -> None:
        """Give records a fault, but for those that have one."""
        self.codes[which & (self.codes == 0)] = code

    def _open(self, spans: Spans, found: Longs) -> None:
        """Find the members of structured events."""
        records, base = spans.records[self.whole], self.data.size
        cells = spans.places[records].astype(np.int64) << 32 | spans.sizes[records].astype(np.int64)
        offsets = np.empty(records.size + 1, np.int32)
        total = lay_out(cells, NOTHING, offsets)
        self.data = np.concatenate([self.data, np.zeros(2 * (total + PADDING), np.uint8)])
        copy(cells, spans.data, offsets, self.data[base : base + total])
        opened, pairs, number = np.empty(DEEPEST + 1, np.int64), np.empty(12 * records.size, np.int64), -1
        while number < 0 or 3 * number > pairs.size:
            pairs = pairs if number < 0 else np.empty(3 * number, np.int64)
            number = _events(
                self.data, offsets, base, self.whole, base + total + PADDING, _NAMES, _ENDS, opened, found, pairs, self.codes
            )  # fmt: skip
        every = np.concatenate([self.pairs, pairs[: 3 * number]]).reshape(-1, 3)
        if self.pairs.size:
            every = every[np.argsort(every[:, 0], kind="stable")]
        self.pairs = every.reshape(-1)

    def texts(self, which: int) -> pa.Array:
        """An attribute of all records; null where it is absent, or not UTF-8."""
        cells = np.ascontiguousarray(self.cells[:, which])
        found = _texts(cells, self.data)
        wrong = not_utf_8(found)
        self.note(wrong, NO_UTF_8 << 4 | which)
        return pc.if_else(pa.array(~wrong), found, None) if wrong.any() else found

    def moments(self, which: int) -> pa.Array:
        cells = np.ascontiguousarray(self.cells[:, which])
        marks, wrong = (cells != ABSENT).view(np.uint8), np.zeros(cells.size, np.uint8)
        to_moments(cells, marks, self.data, wrong, True)  # noqa: FBT003 kernels have no names
        self.note(wrong != 0, NO_TIME << 4 | which)
        return pa.array(cells, mask=(marks == 0) | (wrong != 0)).cast(pa.timestamp("us", "UTC"))

    def extensions(self) -> pa.Array:
        """Maps; null without any."""
        sizes = np.zeros(self._count, np.int32)
        kept = _sorted(self.data, self.pairs, self.pairs.size // 3, self.kinds, self.codes, sizes)
        rows, names, held = (np.ascontiguousarray(each) for each in self.pairs[: 3 * kept].reshape(-1, 3).T)
        values = _texts(held, self.data)
        if (wrong := not_utf_8(values)).any():
            values = pc.if_else(pa.array(~wrong), values, None)
            self.note(np.isin(np.arange(self._count), rows[wrong]), NO_UTF_8 << 4 | OTHER)
        ends = np.concatenate([np.zeros(1, np.int32), np.cumsum(sizes, dtype=np.int32)])
        offsets = pa.array(ends, mask=np.append(sizes == 0, [False]))
        return pa.MapArray.from_arrays(offsets, _texts(names, self.data), values)

    def within(self, spans: Spans, content_types: pa.Array) -> Spans:
        """All values, those of structured events replaced by their data. content_types: of the data."""
        if not self.whole.size:
            return spans
        data, encoded = self.cells[self.whole, OF_DATA], self.cells[self.whole, OF_BASE64]
        as_text = self.cells[self.whole, -1]
        if (strings := np.flatnonzero(as_text != ABSENT)).size:
            own = pc.ascii_lower(content_types.take(pa.array(self.whole[strings])))
            is_json = pc.fill_null(pc.match_substring_regex(own, _JSON_TYPE), fill_value=True)
            others = strings[~is_json.to_numpy(zero_copy_only=False)]
            data[others] = as_text[others]
        marks, wrong = (encoded != ABSENT).view(np.uint8), np.zeros(encoded.size, np.uint8)
        to_bytes(encoded, marks, self.data, wrong)
        codes = self.codes[self.whole]
        self.codes[self.whole] = np.where((codes == 0) & (wrong != 0), NO_BASE64 << 4 | OF_BASE64, codes)
        cells = np.where(marks.view(np.bool_), encoded, data)
        records, base, held = spans.records[self.whole], 0, self.data
        if self.whole.size < self._count:
            base, held = spans.data.size, np.concatenate([spans.data, self.data])
        places, sizes, absent = spans.places.copy(), spans.sizes.copy(), cells == ABSENT
        places[records] = np.where(absent, 0, (cells >> 32) + base)
        sizes[records] = np.where(absent, -1, cells & LENGTH)
        return Spans(held, places, sizes, spans.records)


def opened(spans: Spans, headers: pa.ListArray, *, framed: bool) -> Opened:
    """Open events. headers: of the records of `spans`, in order. framed: values begin with schema ids."""
    found = _Members(spans, headers, framed=framed)
    columns = {name: found.texts(which) for which, name in enumerate(ATTRIBUTES)}
    held = found.within(spans, columns["datacontenttype"])
    required = [NAMES.index(name) for name in REQUIRED]
    found.note((found.kinds == BINARY) & (found.cells[:, required] == ABSENT).all(axis=1), NO_EVENT << 4)
    for which in required:
        cells = found.cells[:, which]
        found.note((cells == ABSENT) | (cells & LENGTH == 0), MISSING << 4 | which)
    columns["time"] = found.moments(NAMES.index("time"))
    columns["extensions"] = found.extensions()
    none = found.codes != 0
    arrays, bad = [columns[each.name].cast(each.type) for each in KIND], none & found.given
    column = pa.StructArray.from_arrays(
        arrays, fields=list(KIND), mask=pa.array(none) if none.any() else None
    )
    if bad.any():
        column, held = column.filter(pa.array(~bad)), replace(held, records=spans.records[~bad])
    return Opened(held, column, spans.records[bad], found.codes[bad])


def _texts(cells: Longs, data: Bytes) -> pa.Array:
    marks = (cells != ABSENT).view(np.uint8)
    return texts(pa.string(), np.maximum(cells, 0), NOTHING if marks.all() else marks, data)
