"""Run a program on JSON values (`calve.decoding.json_program`), and convert what the machine has only found."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from calve.decoding.json_program import LIKE_NO_STRING, JsonLeaf, JsonProgram
from calve.schema.columns import MOST_MILLIS, decimal_digits
from glue_jobs.columns.buffers import Spans
from glue_jobs.columns.texts import NOTHING, Bytes, Longs, copy, lay_out, texts
from glue_jobs.decode.machines.avro_reader import Reader
from glue_jobs.decode.machines.cells import Cells
from glue_jobs.decode.machines.json_machine import (
    DEEPEST,
    DOUBTFUL,
    FRAME,
    GOOD,
    MALFORMED,
    OTHER,
    PADDING,
    run,
)
from glue_jobs.decode.machines.json_texts import to_bytes, to_days, to_decimals, to_moments

POWERS = np.array([float(10**power) for power in range(23)])
BEYOND_SINGLES = 2.0**128
KEPT_BYTES = 64 * 2**20
"""The largest buffer that is kept for the next values."""


class JsonReader(Reader):
    """Not thread-safe. Memory: as `Reader`, and twice the bytes of the values."""

    _program: JsonProgram

    def __init__(self, program: JsonProgram, prefix: int) -> None:
        super().__init__(program, prefix)
        self._names = np.frombuffer(program.names + bytes(PADDING), np.uint8)
        self._frames = np.empty(FRAME * (program.depth + 2), np.int64)
        self._opened, self._firsts = np.empty(DEEPEST + 1, np.int64), np.empty(program.levels, np.int64)
        self._buffer, self._twice, self._extra = np.empty(0, np.uint8), np.empty(0, np.int64), 0

    def read(self, spans: Spans) -> Iterator[tuple[Longs, Any]]:
        """The values are copied to a buffer with room for strings without their escapes."""
        records, prefix = spans.records, self._prefix
        sizes = spans.sizes[records].astype(np.int64) - prefix
        cells = (spans.places[records].astype(np.int64) + prefix) << 32 | sizes
        offsets = np.empty(records.size + 1, np.int32)
        total = lay_out(cells, NOTHING, offsets)
        self._extra, needed = total + PADDING, 2 * (total + PADDING)
        if not needed <= self._buffer.size <= max(needed, KEPT_BYTES):
            self._buffer = np.empty(needed + needed // 4, np.uint8)
        copy(cells, spans.data, offsets, self._buffer[:total])
        self._buffer[total : self._extra] = 0
        most = int(sizes.max(initial=0)) // 4 + FRAME
        if not most <= self._twice.size <= max(most, KEPT_BYTES // 8):
            self._twice = np.empty(most, np.int64)
        copied = Spans(self._buffer, offsets[:-1], np.diff(offsets), np.arange(records.size))
        for good, batch in super().read(copied):
            yield records[good], batch

    def _execute(
        self,
        code: Longs,
        spans: Spans,
        chosen: Longs,
        verdicts: Bytes,
        rows: Longs,
        space: Longs,
        mark_base: Longs,
    ) -> tuple[int, int]:
        program, buffers = self._program, self._buffers
        end, full, _ = run(
            code, self._pool, self._names, POWERS, spans.data, spans.places, spans.sizes, chosen,
            program.must, int(program.may_be_null), program.framed, self._extra, verdicts, rows, np.empty_like(rows), space,
            buffers.cells, buffers.marks, buffers.mark_level, mark_base, self._frames, self._opened, self._twice, self._firsts,
        )  # fmt: skip
        return end, full

    def _run(self, spans: Spans, begin: int, space: Longs) -> tuple[Bytes, Cells, int]:
        """As `Reader._run`. Doubtful records have a part that is wrong."""
        verdicts, cells, full = super()._run(spans, begin, space)
        if cells.rows[0]:
            found = _Converted(self._program, cells)
            good = np.flatnonzero(verdicts != MALFORMED)
            wrong = found.wrong(verdicts[good] == DOUBTFUL)
            verdicts[good] = np.where(wrong, DOUBTFUL, GOOD)
        return verdicts, cells, full

    def _kept(self, cells: Cells, doubtful: Any) -> Any:
        return ~doubtful


class _Converted:
    """The cells of good records, which become values of columns."""

    def __init__(self, program: JsonProgram, cells: Cells) -> None:
        self._program, self._cells = program, cells
        self._wrong: dict[int, Bytes] = {}

    def wrong(self, doubtful: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Convert all cells; which records have a value that its column cannot hold.

        doubtful: records with a text that was another value. Spark refuses these, too, if any text looks like one.
        """
        if doubtful.any():
            self._find_no_strings(doubtful)
        for leaf in self._program.leaves:
            self._convert(leaf)
        for node in self._program.maps:
            if (repeated := self._marks(node) == OTHER).any():
                self._of(self._program.marks[node])[repeated] = 1
        found = np.zeros(doubtful.size, np.bool_)
        for level, rows in self._wrong.items():
            if rows.any():
                found[self._records(level)[rows != 0]] = True
        return found

    def _find_no_strings(self, doubtful: NDArray[np.bool_]) -> None:
        for leaf in self._program.leaves:
            if leaf.shape in ("string", "binary"):
                marks = self._marks(leaf.node)
                held = texts(pa.string(), self._cells.numbers(leaf.cell), marks, self._cells.data)
                alike = pc.match_substring_regex(held, LIKE_NO_STRING).fill_null(fill_value=False)
                found = alike.to_numpy(zero_copy_only=False) & doubtful[self._records(leaf.level)]
                self._of(leaf.level)[found | (marks == OTHER)] = 1

    def _convert(self, leaf: JsonLeaf) -> None:
        numbers, marks, data = self._cells.numbers(leaf.cell), self._marks(leaf.node), self._cells.data
        match leaf.shape:
            case "float" | "double":
                places = np.flatnonzero(marks == OTHER)
                if places.size:
                    found = reals(
                        texts(pa.string(), numbers[places], NOTHING, data), single=leaf.shape == "float"
                    )
                    numbers[places] = found.view(np.uint32 if leaf.shape == "float" else np.int64)
                    self._of(leaf.level)[places[np.isinf(found)]] = 1
            case "millis":
                fits = (numbers >= -MOST_MILLIS) & (numbers <= MOST_MILLIS)
                self._of(leaf.level)[~fits & (marks != 0)] = 1
                numbers *= 1000
            case "date":
                to_days(numbers, marks, data, self._of(leaf.level))
            case "timestamptz":
                to_moments(numbers, marks, data, self._of(leaf.level))
            case "binary":
                to_bytes(numbers, marks, data, self._of(leaf.level))
        if digits := decimal_digits(leaf.shape):
            high, low = divmod(10 ** digits[0], 2**64)
            highs = self._cells.numbers(leaf.cell + 1)
            to_decimals(numbers, highs, marks, data, *digits, low, high, self._of(leaf.level))

    def _marks(self, node: int) -> Bytes:
        base = self._cells.mark_base[node]
        return self._cells.marks[base : base + self._cells.rows[self._program.marks[node]]]

    def _of(self, level: int) -> Bytes:
        """For each row of a level, whether it is wrong."""
        if level not in self._wrong:
            self._wrong[level] = np.zeros(self._cells.rows[level], np.uint8)
        return self._wrong[level]

    def _records(self, level: int) -> Longs:
        """The record of each row of a level."""
        if level == 0:
            return np.arange(self._cells.rows[0])
        node = self._program.lists[level - 1]
        counts = self._cells.numbers(self._program.list_cells[level - 1])
        counts = np.where(self._marks(node) != 0, counts, 0)
        return np.repeat(self._records(self._program.marks[node]), counts)


def reals(held: Any, *, single: bool) -> NDArray[Any]:
    """The doubles of texts, or their singles. Each is rounded once."""
    try:
        found = held.cast(pa.float64()).to_numpy()
    except pa.ArrowInvalid:  # a number is too large or too small for Arrow
        found = np.array([float(each) for each in held.to_pylist()])
    return _singles(found, held) if single else found


def _singles(doubles: NDArray[np.float64], held: Any) -> NDArray[np.float32]:
    """A double halfway between two singles does not say which of them its text is nearer to."""
    with np.errstate(over="ignore"):
        near = doubles.astype(np.float32)
    here, found = near.astype(np.float64), near.copy()
    for way in (-np.inf, np.inf):
        there = np.nextafter(near, np.float32(way)).astype(np.float64)
        one, other = np.clip([here, there], -BEYOND_SINGLES, BEYOND_SINGLES)
        for place in np.flatnonzero((one + other) / 2 == doubles).tolist():
            exact, halfway = Decimal(held[place].as_py()), Decimal(float(doubles[place]))
            if exact != halfway and (exact > halfway) == (there[place] > here[place]):
                found[place] = there[place]
    return found
