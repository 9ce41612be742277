"""Run a program on JSON values (`calve.decoding.json_program`), and convert what the machine has only found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from calve.decoding.json_program import JsonLeaf, JsonProgram, json_program
from calve.schema.columns import MOST_MILLIS, Json, decimal_digits
from calve.schema.writers import JsonWriter
from glue_jobs.columns.buffers import Spans
from glue_jobs.columns.texts import LENGTH, NOTHING, Bytes, Longs, copy, lay_out, texts
from glue_jobs.decode.machines.avro_reader import WRONG, Reader
from glue_jobs.decode.machines.cells import Cells
from glue_jobs.decode.machines.json_kept import GROWTH, WIDTH, write
from glue_jobs.decode.machines.json_machine import FRAME, MALFORMED, OTHER, THERE, run
from glue_jobs.decode.machines.json_scan import DEEPEST, PADDING
from glue_jobs.decode.machines.json_texts import join, to_bytes, to_decimals
from glue_jobs.decode.machines.moments import bounded_millis, to_database_moments, to_days, to_moments

POWERS = np.array([float(10**power) for power in range(23)])
BEYOND_SINGLES = 2.0**128
LEAST_DOUBLE = ("5e-324", "4.9e-324")
"""Its shortest digits, and those that Java writes."""
NO_PLACES = np.zeros(0, np.int32)
KEPT_BYTES = 64 * 2**20
"""The largest buffer that is kept for the next values."""


class JsonReader(Reader):
    """Not thread-safe. Memory: as `Reader`, and twice the bytes of the values, besides their JSON texts.

    misfits: of a lenient program, the refused records of the last read with a property that does not fit, and its name.
    """

    _program: JsonProgram

    def __init__(self, program: JsonProgram, prefix: int) -> None:
        super().__init__(program, prefix)
        self._names = np.frombuffer(program.names + bytes(PADDING), np.uint8)
        self._frames = np.empty(FRAME * (program.depth + 2), np.int64)
        self._opened, self._firsts = np.empty(DEEPEST + 1, np.int64), np.empty(program.levels, np.int64)
        self._buffer, self._twice, self._extra = np.empty(0, np.uint8), np.empty(0, np.int64), 0
        keeps = program.kept is not None or any(each.shape == "json" for each in program.leaves)
        self._room, self._normal = (int(2 + 2 * GROWTH), WIDTH) if keeps else (2, 0)
        self._fields, self._free = np.empty(0, np.int64), 0
        self._members = np.empty(0, np.int64)
        self.misfits: list[tuple[str, Longs]] = []

    def read(self, spans: Spans) -> Iterator[tuple[Longs, Any]]:
        """The values are copied to a buffer with room for strings without their escapes."""
        records, prefix = spans.records, self._prefix
        sizes = spans.sizes[records].astype(np.int64) - prefix
        cells = (spans.places[records].astype(np.int64) + prefix) << 32 | sizes
        offsets = np.empty(records.size + 1, np.int32)
        total = lay_out(cells, NOTHING, offsets)
        self._extra, needed = total + PADDING, self._room * (total + PADDING)
        if not needed <= self._buffer.size <= max(needed, KEPT_BYTES):
            self._buffer = np.empty(needed + needed // 4, np.uint8)
        copy(cells, spans.data, offsets, self._buffer[:total])
        self._buffer[total : self._extra] = 0
        most = int(sizes.max(initial=0)) // 4 + FRAME
        if not most <= self._twice.size <= max(most, KEPT_BYTES // 8):
            self._twice, self._fields = np.empty(most, np.int64), np.empty(most * self._normal, np.int64)
        copied = Spans(self._buffer, offsets[:-1], np.diff(offsets), np.arange(records.size))
        self.misfits, done = [], 0
        for good, batch in super().read(copied):
            yield records[good], batch
            for node in np.unique(self._members).tolist() if self._program.lenient else ():
                if node >= 0:
                    found = records[done + np.flatnonzero(self._members == node)]
                    self.misfits.append((self._program.members[node], found))
            done += self._members.size

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
        kept = -1 if program.kept is None else program.kept.node
        self._members = np.empty(chosen.size, np.int64)
        end, full, self._free = run(
            code, self._pool, self._names, POWERS, spans.data, spans.places, spans.sizes, chosen,
            program.must, int(program.may_be_null), kept, int(program.lenient), self._extra, verdicts, self._members, rows,
            np.empty_like(rows), space, buffers.cells, buffers.marks, buffers.mark_level, mark_base, self._frames, self._opened,
            self._twice, self._firsts,
        )  # fmt: skip
        self._members = self._members[:end]
        return end, full

    def _run(self, spans: Spans, begin: int, space: Longs) -> tuple[Bytes, Cells, int]:
        """As `Reader._run`. Texts and numbers are converted afterwards."""
        verdicts, cells, full = super()._run(spans, begin, space)
        if cells.rows[0]:
            found = _Converted(
                self._program, cells, _Room(self._free, self._opened, self._fields, self._twice)
            )
            held = np.flatnonzero(verdicts != MALFORMED)
            verdicts[held[found.wrong()]] = WRONG
            if self._program.lenient:
                self._members[held] = found.members
        return verdicts, cells, full


MOST_READERS = 16


class LenientReader:
    """Reads the values of a lenient writer. Not thread-safe.

    The records that have a property in the way are read again, without it: then it is undeclared. Their number is bounded by
    that of the properties that do not fit.
    """

    def __init__(self, writer: JsonWriter, columns: Json) -> None:
        self._writer, self._columns = writer, columns
        self._readers: dict[frozenset[str], JsonReader] = {}

    def read(self, spans: Spans) -> Iterator[tuple[Longs, Any]]:
        """As `JsonReader.read`, not in order."""
        waiting = [(frozenset[str](), spans.records)]
        while waiting:
            undeclared, records = waiting.pop()
            reader = self._reader(undeclared)
            yield from reader.read(replace(spans, records=records))
            waiting += [(undeclared | {name}, theirs) for name, theirs in reader.misfits]

    def _reader(self, undeclared: frozenset[str]) -> JsonReader:
        if undeclared not in self._readers:
            if len(self._readers) == MOST_READERS:
                self._readers.clear()
            shape = self._writer.shape
            fields = [each for each in shape["fields"] if each["name"] not in undeclared]
            writer = replace(self._writer, shape=shape | {"fields": fields})
            self._readers[undeclared] = JsonReader(json_program(writer, self._columns), len(writer.prefix))
        return self._readers[undeclared]


@dataclass(slots=True)
class _Room:
    """Where normal forms of JSON begin in the buffer of the values, and scratch space (`json_kept.write`)."""

    at: int
    opened: Longs
    fields: Longs
    held: Longs


class _Converted:
    """The cells of good records, which become values of columns."""

    def __init__(self, program: JsonProgram, cells: Cells, room: _Room) -> None:
        self._program, self._cells, self._room = program, cells, room
        self._wrong: dict[int, Bytes] = {}
        self.members = np.full(cells.rows[0] if program.lenient else 0, -1)
        """Of a lenient program: by record, the node of the property with a value that its column cannot hold."""

    def wrong(self) -> NDArray[np.bool_]:
        """Convert all cells; which records have a value that its column cannot hold."""
        for leaf in self._program.leaves:
            self._convert(leaf)
            if self._program.lenient:
                self._blame(leaf)
        if (kept := self._program.kept) is not None:
            counts, items, objects = map(self._cells.numbers, (kept.count, kept.item, kept.text))
            marks, data = self._cells.marks_of(kept.node), self._cells.data
            self._room.at = join(counts, marks, items, data, self._room.at, objects)
            self._write(objects, marks, 0)
        for node in self._program.maps:
            if (repeated := self._cells.marks_of(node) == OTHER).any():
                self._of(self._program.marks[node])[repeated] = 1
        found = np.zeros(self._cells.rows[0], np.bool_)
        for level, rows in self._wrong.items():
            if rows.any():
                found[self._cells.records(level)[rows != 0]] = True
        return found

    def _blame(self, leaf: JsonLeaf) -> None:
        member = max(node for node in self._program.members if node <= leaf.node)
        self.members[(self.members < 0) & (self._of(leaf.level) != 0)] = member

    def _convert(self, leaf: JsonLeaf) -> None:
        cells = self._cells
        numbers, marks, data = cells.numbers(leaf.cell), cells.marks_of(leaf.node), cells.data
        match leaf.shape:
            case "float" | "double" | "database_float" | "database_double":
                self._to_reals(leaf, numbers, marks)
            case "millis":
                fits = (numbers >= -MOST_MILLIS) & (numbers <= MOST_MILLIS)
                self._of(leaf.level)[~fits & (marks != 0)] = 1
                numbers *= 1000
            case "local_millis":
                numbers[:] = bounded_millis(numbers)
            case "date":
                to_days(numbers, marks, data, self._of(leaf.level))
            case "timestamptz":
                to_moments(numbers, marks, data, self._of(leaf.level), False)  # noqa: FBT003 kernels have no names
            case "instant":
                to_database_moments(numbers, marks, data, self._of(leaf.level))
            case "binary":
                to_bytes(numbers, marks, data, self._of(leaf.level))
            case "json":
                self._write(numbers, marks, leaf.level)
        if digits := decimal_digits(leaf.shape):
            high, low = divmod(10 ** digits[0], 2**64)
            highs = cells.numbers(leaf.cell + 1)
            to_decimals(numbers, highs, marks, data, *digits, low, high, self._of(leaf.level))

    def _to_reals(self, leaf: JsonLeaf, numbers: Longs, marks: Bytes) -> None:
        if not (places := np.flatnonzero(marks > THERE)).size:
            return
        single = leaf.shape.endswith("float")
        held = texts(pa.string(), numbers[places], NOTHING, self._cells.data)
        found = reals(held, single=single)
        numbers[places] = found.view(np.uint32 if single else np.int64)
        self._of(leaf.level)[places[np.isinf(found) & (marks[places] == OTHER)]] = 1

    def _write(self, cells: Longs, marks: Bytes, level: int) -> None:
        """Write JSON values in their normal form. Their doubles are converted in between, if there are any."""
        room, data, values = self._room, self._cells.data, cells.copy()
        doubles = np.empty(int((values[marks != 0] & LENGTH).sum()) // 3 + 1, np.int64)
        pointed = int(self._program.lenient)
        scratch = pointed, room.opened, room.fields, room.held, cells, doubles, self._of(level)
        end, count = write(values, marks, data, room.at, NOTHING, NO_PLACES, *scratch)
        if count:
            found = _digits(texts(pa.string(), doubles[:count], NOTHING, data))
            end, _ = write(values, marks, data, room.at, *found, *scratch)
        room.at = end

    def _of(self, level: int) -> Bytes:
        """For each row of a level, whether it is wrong."""
        if level not in self._wrong:
            self._wrong[level] = np.zeros(self._cells.rows[level], np.uint8)
        return self._wrong[level]


def _digits(held: Any) -> tuple[Bytes, NDArray[np.int32]]:
    """The shortest digits of doubles, and where each one's end."""
    shortest = pa.array(reals(held, single=False)).cast(pa.string())
    _, ends, digits = pc.replace_substring(shortest, *LEAST_DOUBLE).buffers()
    return np.frombuffer(digits, np.uint8), np.frombuffer(ends, np.int32)[: len(held) + 1]


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
        with np.errstate(over="ignore"):
            there = np.nextafter(near, np.float32(way)).astype(np.float64)
        one, other = np.clip([here, there], -BEYOND_SINGLES, BEYOND_SINGLES)
        for place in np.flatnonzero((one + other) / 2 == doubles).tolist():
            exact, halfway = Decimal(held[place].as_py()), Decimal(float(doubles[place]))
            if exact != halfway and (exact > halfway) == (there[place] > here[place]):
                found[place] = there[place]
    return found
