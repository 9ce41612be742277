"""Run a decode program on many Avro values: allocate its cells and build record batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from calve.decoding.avro_operations import CELL, ITEMS_LIMIT, MARKED, SECOND, STRING_LIMIT, WIDTH, Op, Program
from glue_jobs.columns.buffers import Buffers, Spans
from glue_jobs.columns.texts import Bytes, Longs
from glue_jobs.decode.machines.avro_machine import DOUBTFUL, GOOD, MALFORMED, TRAILING, UNFIT, run
from glue_jobs.decode.machines.cells import Cells, column
from glue_jobs.decode.machines.moments import bounded_millis, to_database_moments

WRONG = 3
"""The verdict on a record with a value that its column cannot hold. It is found after the machine."""


def in_cells(verdicts: Bytes) -> NDArray[np.bool_]:
    """The records that have cells, good or not."""
    found: NDArray[np.bool_] = (verdicts != MALFORMED) & (verdicts != TRAILING)
    return found


class Reader:
    """Not thread-safe: it reuses its buffers.

    It needs the cells of `Buffers`: for each list as many rows as the record has items. Each item has bytes.
    """

    def __init__(self, program: Program, prefix: int) -> None:
        self._program, self._prefix = program, prefix
        self._code = np.array(program.code, np.int64).reshape(-1, WIDTH)
        self._pool = np.array(program.pool, np.int64)
        widths = np.bincount(np.array(program.cells, np.int64), minlength=program.levels)
        self._buffers = Buffers(program.cells, program.marks, widths)
        self._lists = np.empty((max(1, program.depth), 4), np.int64)
        fitted, floats = (
            np.isin(self._code[:, 0], each) for each in ((Op.DECIMAL, Op.MILLIS), (Op.FLOAT, Op.DOUBLE))
        )
        self._fitted = self._code[fitted][:, [CELL, MARKED]].tolist()
        self._fitted += [[each.cell, each.mark] for each in program.moments if each.in_map]
        self._floats = self._code[floats][:, CELL].tolist()
        self.trailing: list[Longs] = []

    def read(self, spans: Spans) -> Iterator[tuple[Longs, Any]]:
        """The good values as record batches, with their records. `trailing` has those with bytes left over."""
        self.trailing = []
        begin, space = 0, self._buffers.space(spans.records.size)
        while begin < spans.records.size:
            verdicts, cells, full = self._run(spans, begin, space)
            if not verdicts.size:
                space[full] *= 2
                continue
            self._buffers.learn(cells.rows, verdicts.size)
            records, whole = spans.records[begin : begin + verdicts.size], in_cells(verdicts)
            self.trailing.append(records[verdicts == TRAILING])
            good, batch, judged = records[whole], self._batch(cells), verdicts[whole]
            if (judged != GOOD).any():
                kept = self._kept(cells, judged)
                good, batch = good[kept], batch.filter(pa.array(kept))
            yield good, batch
            begin += verdicts.size
            space = self._buffers.space(spans.records.size - begin)

    def _batch(self, cells: Cells) -> Any:
        return pa.RecordBatch.from_struct_array(column(self._program.row, cells))

    def _kept(self, cells: Cells, judged: Bytes) -> Any:
        """Which rows are good. A doubtful row is good if it does not change when its unfit values change.

        Spark checks each entry of a map written as a list. Of Avro's own maps it sees only the last entry of a key.
        """
        kept, doubtful = judged == GOOD, np.flatnonzero(judged == DOUBTFUL)
        if not doubtful.size:
            return kept
        cells = replace(cells, every_entry=True, cells=cells.cells.copy())
        for cell in self._floats:
            cells.numbers(cell)[:] = 0  # NaN does not equal itself
        others = replace(cells, cells=cells.cells.copy())
        for cell, mark in self._fitted:
            others.numbers(cell)[cells.marks_of(mark) == UNFIT] ^= 1
        one, other = self._batch(cells), self._batch(others)
        for row in doubtful.tolist():
            kept[row] = one.slice(row, 1).equals(other.slice(row, 1))
        return kept

    def _run(self, spans: Spans, begin: int, space: Longs) -> tuple[Bytes, Cells, int]:
        """The results of the records that fit, the cells of the good ones, and the full level."""
        chosen = spans.records[begin : begin + space[0]]
        buffers = self._buffers
        cell_base, mark_base = buffers.laid_out(space)
        code = self._code.copy()
        if cell_base.size:
            code[:, [CELL, SECOND]] = cell_base[code[:, [CELL, SECOND]]]
        code[:, MARKED] = mark_base[code[:, MARKED]]
        rows, verdicts = np.zeros(space.size, np.int64), np.empty(chosen.size, np.uint8)
        end, full = self._execute(code.reshape(-1), spans, chosen, verdicts, rows, space, mark_base)
        cells = Cells(self._program, spans.data, rows, buffers.cells, buffers.marks, cell_base, mark_base)
        if rows[0]:
            self._convert(cells, verdicts[:end])
        return verdicts[:end], cells, full

    def _convert(self, cells: Cells, verdicts: Bytes) -> None:
        """Convert what the machine has only found, and judge the records with a text that is no timestamp."""
        for cell in self._program.millis:
            numbers = cells.numbers(cell)
            numbers[:] = bounded_millis(numbers)
        good = np.flatnonzero(in_cells(verdicts))
        for each in self._program.moments:
            numbers, marks = cells.numbers(each.cell), cells.marked(each.mark)
            wrong = np.zeros(numbers.size, np.uint8)
            to_database_moments(numbers, marks if marks.size else wrong + 1, cells.data, wrong)
            if wrong.any():
                records, verdict = good[cells.records(each.level)[wrong != 0]], WRONG
                if each.mark is not None and each.in_map:
                    verdict = DOUBTFUL
                    cells.marks_of(each.mark)[wrong != 0] = UNFIT
                verdicts[records] = np.maximum(verdicts[records], verdict)

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
        """The number of records that were read, and the level without room for the next one."""
        buffers = self._buffers
        end, full = run(
            code, self._pool, spans.data, spans.places, spans.sizes, chosen, self._prefix, verdicts, rows,
            np.empty_like(rows), space, buffers.cells, buffers.marks, buffers.mark_level, mark_base, self._lists, STRING_LIMIT,
            ITEMS_LIMIT,
        )  # fmt: skip
        return end, full
