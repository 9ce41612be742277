"""Run a decode program on many messages: allocate its cells and build columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from calve.schema.writers import ProtobufWriter
from glue_jobs.columns.buffers import Buffers, Spans
from glue_jobs.columns.texts import Longs
from glue_jobs.decode.protobuf.layout import Cells
from glue_jobs.decode.protobuf.machine import FRAME, run
from glue_jobs.decode.protobuf.program import CELL_COLUMNS, MARK_COLUMNS, program


class Messages:
    """Reads the values of one writer. Not thread-safe: it reuses its buffers.

    It needs the cells of `Buffers`: for each repeated field as many rows as the record has items.
    """

    def __init__(self, writer: ProtobufWriter) -> None:
        self._program, self._prefix = program(writer.plan), len(writer.prefix)
        self._whole = writer.whole
        self._nodes = np.array(self._program.nodes, np.int64)
        self._fields = np.array(self._program.fields, np.int64).reshape(-1)
        self._levels = np.array(self._program.levels, np.int64)
        marks = self._program.marks
        widths = np.bincount(np.array(marks, np.int64), minlength=len(self._levels)) + 1
        self._buffers = Buffers(self._program.cells, marks, widths)
        self._frames = np.empty(self._program.depth * FRAME, np.int64)

    def read(self, spans: Spans) -> Iterator[tuple[Longs, Any]]:
        """The good values as record batches, with their records."""
        records = spans.records
        begin, space = 0, self._buffers.space(records.size)
        while begin < records.size:
            chosen = records[begin : begin + space[0]]
            good, cells, full = self._run(spans, chosen, space)
            if not good.size:
                space[full] *= 2
                continue
            self._buffers.learn(cells.rows, good.size)
            found, made = chosen[: good.size][good], cells.messages()
            rows, fits = made
            if not fits.all():
                found, rows = found[fits], rows.filter(pa.array(fits))
            if self._whole is not None:
                rows = pa.StructArray.from_arrays([rows], names=[self._whole])
            yield found, pa.RecordBatch.from_struct_array(rows)
            begin += good.size
            space = self._buffers.space(records.size - begin)

    def _run(self, spans: Spans, chosen: Longs, space: Longs) -> tuple[NDArray[np.bool_], Cells, int]:
        """Which records are messages, of those that fit; the cells of the messages, and the full level."""
        buffers = self._buffers
        cell_base, mark_base = buffers.laid_out(space)
        nodes, levels = self._nodes.copy(), self._levels.copy()
        for table, columns, base in (
            (nodes, CELL_COLUMNS, cell_base),
            (nodes, MARK_COLUMNS, mark_base),
            (levels, [1], cell_base),
            (levels, [2], mark_base),
        ):
            numbers = table[:, columns]
            table[:, columns] = np.where(numbers < 0, -1, np.append(base, 0)[numbers])
        rows, good = np.zeros(space.size, np.int64), np.empty(chosen.size, np.uint8)
        end, full = run(
            nodes.reshape(-1), self._fields, levels, spans.data, spans.places, spans.sizes, chosen, self._prefix, good, rows,
            np.empty_like(rows), np.empty_like(rows), space, buffers.cells, buffers.marks, buffers.mark_level, mark_base,
            self._frames,
        )  # fmt: skip
        cells = Cells(self._program, spans.data, rows, buffers.cells, buffers.marks, cell_base, mark_base)
        return good[:end].view(np.bool_), cells, full
