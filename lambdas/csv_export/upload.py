"""Uploads the files of one export to S3: multipart uploads that are completed together at the end.

An incomplete upload is invisible, so a killed function leaves no partial file. The bucket's lifecycle deletes its parts
(AbortIncompleteMultipartUpload).

A CSV file is RFC 4180, UTF-8, with CRLF after every line. A null is an empty field, an empty string is `""`. A text that a
spreadsheet could read as a formula gets an apostrophe, also if only another separator would make it begin a cell. Numbers stay
numbers, also as text. A file of one column writes `""` for a null too: readers skip empty lines.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from types import TracebackType
from typing import Any, Self
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc
from botocore.exceptions import BotoCoreError, ClientError

from calve.config.publishing import Csv
from lambdas.csv_export.cells import is_free_text, text
from lambdas.links import Part

BOM = b"\xef\xbb\xbf"
END = "\r\n"
SEPARATORS = ",;|\t\r\n"
"""Separators at which a spreadsheet may split a line, whatever the file's delimiter."""
SIGNS = "=+\\-@\uff1d\uff0b\uff0d\uff20"
"""First characters of a formula, also full-width: https://owasp.org/www-community/attacks/CSV_Injection"""
SUSPECT = rf'^[\t\r\n{SIGNS}]|[{SEPARATORS}]"*[{SIGNS}]'
"""Text that may contain a formula; Arrow searches whole columns for it."""
QUOTED = f'["{SEPARATORS}]|^$'
"""Text that needs quotes."""
NUMBER = r"[+-](?:[ .-]?(?:\([0-9]+\)|[0-9]))+(?:[eE][+-]?[0-9]+)?"
"""A number, or a telephone number, with an end after which no formula can follow."""
FORMULA = re.compile(
    rf"^(?!(?:-|{NUMBER})\Z)(?=[\t\r\n{SIGNS}])"
    rf'|([{SEPARATORS}])"*(?=[{SIGNS}])(?!{NUMBER}[\]}}"]*(?:\1|\Z))'
)
"""The ends of a cell: a separator of that kind, or the end of the text. In JSON, quotes precede them."""


@dataclass(frozen=True, slots=True)
class Lines:
    """Rows as text, each with its line end."""

    array: Any

    def __len__(self) -> int:
        return len(self.array)

    def slice(self, start: int, rows: int) -> Lines:
        return Lines(self.array.slice(start, rows))

    def bytes(self) -> memoryview:
        """All lines, concatenated without a copy."""
        _, offsets, data = self.array.buffers()
        if data is None or not len(self.array):
            return memoryview(b"")
        bounds = memoryview(offsets).cast("i")
        return memoryview(data)[bounds[self.array.offset] : bounds[self.array.offset + len(self.array)]]


@dataclass(slots=True)
class Content:
    """The content of a file, independent of the order of rows: their number, and the sum of their hashes mod 2^128."""

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
    """Turns batches into lines. `names`: the columns of the file."""

    names: Sequence[str]
    csv: Csv
    zone: ZoneInfo

    def header(self) -> bytes:
        """The first line, with the byte order mark if configured."""
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
        special = pc.match_substring_regex(values, QUOTED)
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


PART_BYTES = 8 * 1024 * 1024
GZIP = 31
"""zlib's window bits for a gzip header without time and name: equal rows make equal bytes."""


@dataclass(slots=True)
class _Upload:
    """One multipart upload; it buffers at most `PART_BYTES` and the last write."""

    s3: Any
    bucket: str
    key: str
    content_type: str
    id: str = ""
    etags: list[str] = field(default_factory=list)
    buffer: bytearray = field(default_factory=bytearray)
    size_bytes: int = 0
    sha256: Any = field(default_factory=hashlib.sha256)

    def begin(self) -> None:
        answer = self.s3.create_multipart_upload(
            Bucket=self.bucket, Key=self.key, ContentType=self.content_type
        )
        self.id = answer["UploadId"]

    def write(self, data: bytes | memoryview) -> None:
        self.buffer += data
        while len(self.buffer) >= PART_BYTES:
            self._send(PART_BYTES)

    def flush(self) -> None:
        if self.buffer or not self.etags:
            self._send(len(self.buffer))

    def complete(self) -> None:
        parts = [{"PartNumber": i, "ETag": etag} for i, etag in enumerate(self.etags, 1)]
        self.s3.complete_multipart_upload(
            Bucket=self.bucket, Key=self.key, UploadId=self.id, MultipartUpload={"Parts": parts}
        )

    def undo(self) -> None:
        if not self.id:
            discard(self.s3, self.bucket, [self.key])
            return
        with suppress(ClientError, BotoCoreError):  # the lifecycle deletes it; the first error matters
            self.s3.abort_multipart_upload(Bucket=self.bucket, Key=self.key, UploadId=self.id)

    def _send(self, size: int) -> None:
        body = bytes(memoryview(self.buffer)[:size])
        del self.buffer[:size]
        self.sha256.update(body)
        self.size_bytes += size
        number = len(self.etags) + 1
        answer = self.s3.upload_part(
            Bucket=self.bucket, Key=self.key, UploadId=self.id, PartNumber=number, Body=body
        )
        self.etags.append(answer["ETag"])


class Files:
    """Writes lines to one file, or to several of `row_limit` rows. A context manager: after an error no file is left.

    `key` gives the name of the n-th file, from 1.
    """

    def __init__(
        self, s3: Any, bucket: str, key: Callable[[int], str], header: bytes, row_limit: int, *, gzip: bool
    ) -> None:
        self._s3, self._bucket, self._key = s3, bucket, key
        self._header, self._row_limit, self._gzip = header, row_limit, gzip
        self._uploads: list[_Upload] = []
        self._rows: list[int] = []
        self._compressor: Any = None

    def write(self, lines: Lines) -> None:
        while len(lines):
            if not self._uploads or self._rows[-1] == self._row_limit:
                self._begin()
            taken = lines.slice(0, self._row_limit - self._rows[-1])
            self._put(taken.bytes())
            self._rows[-1] += len(taken)
            lines = lines.slice(len(taken), len(lines) - len(taken))

    def complete(self) -> list[Part]:
        """Make every file visible. A file without rows still has its header."""
        if not self._uploads:
            self._begin()
        self._end()
        done = []
        for upload, rows in zip(self._uploads, self._rows, strict=True):
            upload.complete()
            upload.id = ""
            done.append(Part(upload.key, rows, upload.size_bytes, upload.sha256.hexdigest()))
        return done

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            for upload in self._uploads:
                upload.undo()

    def _begin(self) -> None:
        self._end()
        kind = "application/gzip" if self._gzip else "text/csv; charset=utf-8"
        upload = _Upload(self._s3, self._bucket, self._key(len(self._uploads) + 1), kind)
        upload.begin()
        self._uploads.append(upload)
        self._rows.append(0)
        self._compressor = zlib.compressobj(wbits=GZIP) if self._gzip else None
        self._put(self._header)

    def _put(self, data: bytes | memoryview) -> None:
        self._uploads[-1].write(self._compressor.compress(data) if self._compressor else data)

    def _end(self) -> None:
        if not self._uploads:
            return
        if self._compressor:
            self._uploads[-1].write(self._compressor.flush())
        self._uploads[-1].flush()


def discard(s3: Any, bucket: str, keys: Iterable[str]) -> None:
    """Delete files that no manifest names. The lifecycle deletes those that remain."""
    for key in keys:
        with suppress(ClientError, BotoCoreError):
            s3.delete_object(Bucket=bucket, Key=key)
