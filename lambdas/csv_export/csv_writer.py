"""Batches as the bytes of a CSV file: RFC 4180, UTF-8, CRLF after every line.

A null is an empty field, an empty string is `""`. A text that a spreadsheet could take for a formula gets an apostrophe before
it, also where only a spreadsheet that splits at another separator would begin a cell with it. Numbers stay numbers, also as
text. A file of one column writes `""` for a null too: readers skip an empty line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

from calve.export import Csv
from lambdas.csv_export.cells import is_free_text, text

BOM = b"\xef\xbb\xbf"
END = "\r\n"
SEPARATORS = ",;|\t\r\n"
"""Where a spreadsheet may split a line, whatever the file's delimiter is."""
SIGNS = "=+\\-@\uff1d\uff0b\uff0d\uff20"
"""What begins a formula, also in full width: https://owasp.org/www-community/attacks/CSV_Injection"""
SUSPECT = rf'^[\t\r\n{SIGNS}]|[{SEPARATORS}]"*[{SIGNS}]'
"""A text in which something may be a formula; Arrow looks for it in whole columns."""
NUMBER = r"[+-](?:[ .-]?(?:\([0-9]+\)|[0-9]))+(?:[eE][+-]?[0-9]+)?"
"""A number, or a telephone number. It ends so that nothing behind it could make a formula of both."""
FORMULA = re.compile(
    rf"^(?!(?:-|{NUMBER})\Z)(?=[\t\r\n{SIGNS}])"
    rf'|([{SEPARATORS}])"*(?=[{SIGNS}])(?!{NUMBER}[\]}}"]*(?:\1|\Z))'
)
"""The places before formulas: a separator of that kind, or the end, is where the cell ends. Quotes stand there in JSON."""


@dataclass(frozen=True, slots=True)
class Lines:
    """Rows as text, each with its line end."""

    array: Any

    def __len__(self) -> int:
        return len(self.array)

    def slice(self, start: int, rows: int) -> Lines:
        return Lines(self.array.slice(start, rows))

    def bytes(self) -> memoryview:
        """All lines one after the other; no copy."""
        _, offsets, data = self.array.buffers()
        if data is None or not len(self.array):
            return memoryview(b"")
        bounds = memoryview(offsets).cast("i")
        return memoryview(data)[bounds[self.array.offset] : bounds[self.array.offset + len(self.array)]]


@dataclass(slots=True)
class Content:
    """What a file says, whatever the order of its rows: their number, and the sum of their hashes mod 2^128."""

    rows: int = 0
    total: int = 0

    def add(self, lines: Lines) -> None:
        hashed = (
            blake2b(line, digest_size=16).digest() for line in lines.array.cast(pa.binary()).to_pylist()
        )
        self.total = (self.total + sum(int.from_bytes(each) for each in hashed)) % (1 << 128)
        self.rows += len(lines)

    def to_json(self) -> dict[str, Any]:
        return {"rows": self.rows, "hash": f"{self.total:032x}"}


@dataclass(frozen=True, slots=True)
class Writer:
    """Turns batches into lines. `names` are the columns of the file."""

    names: Sequence[str]
    csv: Csv
    zone: ZoneInfo
    special: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "special", f'["{SEPARATORS}]|^$')

    def header(self) -> bytes:
        """The first line, after the byte order mark if there is one."""
        cells = [self._quoted(self._guarded(pa.array([name]))) for name in self.names]
        line = self.csv.delimiter.join(cell[0].as_py() for cell in cells) + END
        return (BOM if self.csv.bom else b"") + line.encode()

    def lines(self, batch: pa.RecordBatch) -> Lines:
        cells = [self._cells(column) for column in batch.columns]
        if len(cells) == 1:
            cells = [pc.if_else(pc.equal(cells[0], ""), '""', cells[0])]
        joined = pc.binary_join_element_wise(*cells, self.csv.delimiter)
        return Lines(pc.binary_join_element_wise(joined, END, ""))

    def _cells(self, column: Any) -> Any:
        values = text(column, self.zone)
        if is_free_text(column.type):
            values = self._quoted(self._guarded(values))
        return pc.fill_null(values, "")

    def _quoted(self, values: Any) -> Any:
        special = pc.match_substring_regex(values, self.special)
        if not pc.any(special).as_py():
            return values
        escaped = pc.replace_substring(values, '"', '""')
        return pc.if_else(special, pc.binary_join_element_wise('"', escaped, '"', ""), values)

    def _guarded(self, values: Any) -> Any:
        suspect = pc.match_substring_regex(values, SUSPECT)
        if self.csv.formulas == "keep" or not pc.any(suspect).as_py():
            return values
        guarded = [FORMULA.sub(r"\g<0>'", each) for each in values.filter(suspect).to_pylist()]
        return pc.replace_with_mask(values, pc.fill_null(suspect, False), pa.array(guarded, values.type))  # noqa: FBT003 a value
