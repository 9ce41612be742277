"""Run a decode program on many Avro values: allocate its cells and build record batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from calve.config.spark_conf import ITEMS_LIMIT, STRING_LIMIT
from calve.decoding.avro_operations import CELL, MARKED, SECOND, WIDTH, Op, Program
from glue_jobs.columns.buffers import Buffers, Spans
from glue_jobs.columns.texts import Bytes, Longs
from glue_jobs.decode.machines.avro_machine import DOUBTFUL, MALFORMED, UNFIT, run
from glue_jobs.decode.machines.cells import Cells, column


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
        self._floats = self._code[floats][:, CELL].tolist()

    def read(self, spans: Spans) -> Iterator[tuple[Longs, Any]]:
        """The good values as record batches, with their records. Records in no batch are malformed."""
        begin, space = 0, self._buffers.space(spans.records.size)
        while begin < spans.records.size:
            verdicts, cells, full = self._run(spans, begin, space)
            if not verdicts.size:
                space[full] *= 2
                continue
            self._buffers.learn(cells.rows, verdicts.size)
            good = spans.records[begin : begin + verdicts.size][verdicts != MALFORMED]
            batch = self._batch(cells)
            if (verdicts == DOUBTFUL).any():
                kept = self._kept(cells, verdicts[verdicts != MALFORMED] == DOUBTFUL)
                good, batch = good[kept], batch.filter(pa.array(kept))
            yield good, batch
            begin += verdicts.size
            space = self._buffers.space(spans.records.size - begin)

    def _batch(self, cells: Cells) -> Any:
        return pa.RecordBatch.from_struct_array(column(self._program.row, cells))

    def _kept(self, cells: Cells, doubtful: Any) -> Any:
        """Which rows are good. A doubtful row is good if it does not change when its unfit values change.

        Spark checks each entry of a map written as a list. Of Avro's own maps it sees only the last entry of a key.
        """
        cells = replace(cells, every_entry=True, cells=cells.cells.copy())
        for cell in self._floats:
            cells.numbers(cell)[:] = 0  # NaN does not equal itself
        others = replace(cells, cells=cells.cells.copy())
        for cell, mark in self._fitted:
            numbers, base = others.numbers(cell), cells.mark_base[mark]
            numbers[cells.marks[base : base + numbers.size] == UNFIT] ^= 1
        one, other = self._batch(cells), self._batch(others)
        kept = np.ones(one.num_rows, np.bool_)
        for row in np.flatnonzero(doubtful).tolist():
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
        return verdicts[:end], cells, full

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
