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
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
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


def joined(lines: Any) -> memoryview:
    """All texts of an Arrow array, concatenated without a copy."""
    _, offsets, data = lines.buffers()
    if data is None or not len(lines):
        return memoryview(b"")
    bounds = memoryview(offsets).cast("i")
    return memoryview(data)[bounds[lines.offset] : bounds[lines.offset + len(lines)]]


@dataclass(slots=True)
class Content:
    """The content of a file, independent of the order of rows: their number, and the sum of their hashes mod 2^128."""

    rows: int = 0
    total: int = 0

    def add(self, lines: Any) -> None:
        hashed = (blake2b(line, digest_size=16).digest() for line in lines.cast(pa.binary()).to_pylist())
        self.total = (self.total + sum(int.from_bytes(each) for each in hashed)) % (1 << 128)
        self.rows += len(lines)

    def to_json(self) -> dict[str, Any]:
        return {"rows": self.rows, "hash": f"{self.total:032x}"}


@dataclass(frozen=True, slots=True)
class Writer:
    """Turns batches into lines, as Arrow arrays of text, each with its line end. `names`: the columns of the file."""

    names: Sequence[str]
    csv: Csv
    zone: ZoneInfo

    def header(self) -> bytes:
        """The first line, with the byte order mark if configured."""
        cells = [self._quoted(self._guarded(pa.array([name]))) for name in self.names]
        line = self.csv.delimiter.join(cell[0].as_py() for cell in cells) + END
        return (BOM if self.csv.bom else b"") + line.encode()

    def lines(self, batch: pa.RecordBatch) -> Any:
        cells = []
        for column in batch.columns:
            values = text(column, self.zone)
            if is_free_text(column.type):
                values = self._quoted(self._guarded(values))
            cells.append(pc.fill_null(values, ""))
        if len(cells) == 1:
            cells = [pc.if_else(pc.equal(cells[0], ""), '""', cells[0])]
        line = pc.binary_join_element_wise(*cells, self.csv.delimiter)
        return pc.binary_join_element_wise(line, END, "")

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


class _Upload:
    """One multipart upload of one file. It buffers at most `PART_BYTES` and the last write."""

    def __init__(self, s3: Any, bucket: str, key: str, *, gzip: bool) -> None:
        self._s3, self._where = s3, {"Bucket": bucket, "Key": key}
        self.rows = self._size_bytes = 0
        self._etags: list[str] = []
        self._buffer = bytearray()
        self._sha256 = hashlib.sha256()
        self._compressor = zlib.compressobj(wbits=GZIP) if gzip else None
        kind = "application/gzip" if gzip else "text/csv; charset=utf-8"
        self._id: str | None = s3.create_multipart_upload(**self._where, ContentType=kind)["UploadId"]

    def write(self, data: bytes | memoryview) -> None:
        self._buffer += self._compressor.compress(data) if self._compressor else data
        self._send_full_parts()

    def end(self) -> None:
        """Send the rest."""
        if self._compressor:
            self._buffer += self._compressor.flush()
            self._send_full_parts()
        if self._buffer or not self._etags:
            self._send(len(self._buffer))

    def complete(self) -> Part:
        parts = [{"PartNumber": i, "ETag": etag} for i, etag in enumerate(self._etags, 1)]
        self._s3.complete_multipart_upload(**self._where, UploadId=self._id, MultipartUpload={"Parts": parts})
        self._id = None
        return Part(self._where["Key"], self.rows, self._size_bytes, self._sha256.hexdigest())

    def undo(self) -> None:
        if self._id is None:
            discard(self._s3, self._where["Bucket"], [self._where["Key"]])
            return
        with suppress(ClientError, BotoCoreError):  # the lifecycle deletes it; the first error matters
            self._s3.abort_multipart_upload(**self._where, UploadId=self._id)

    def _send_full_parts(self) -> None:
        while len(self._buffer) >= PART_BYTES:
            self._send(PART_BYTES)

    def _send(self, size: int) -> None:
        body = bytes(memoryview(self._buffer)[:size])
        del self._buffer[:size]
        self._sha256.update(body)
        self._size_bytes += size
        number = len(self._etags) + 1
        sent = self._s3.upload_part(**self._where, UploadId=self._id, PartNumber=number, Body=body)
        self._etags.append(sent["ETag"])


class Files:
    """Writes lines to one file, or to several of `row_limit` rows. A context manager: after an error no file is left.

    `key` gives the name of the n-th file, from 1.
    """

    def __init__(
        self, s3: Any, bucket: str, key: Callable[[int], str], header: bytes, row_limit: int, *, gzip: bool
    ) -> None:
        self._key, self._header, self._row_limit = key, header, row_limit
        self._open = partial(_Upload, s3, bucket, gzip=gzip)
        self._uploads: list[_Upload] = []

    def write(self, lines: Any) -> None:
        while len(lines):
            if not self._uploads or self._uploads[-1].rows == self._row_limit:
                self._begin()
            upload = self._uploads[-1]
            taken = lines.slice(0, self._row_limit - upload.rows)
            upload.write(joined(taken))
            upload.rows += len(taken)
            lines = lines.slice(len(taken))

    def complete(self) -> list[Part]:
        """Make every file visible. A file without rows still has its header."""
        if not self._uploads:
            self._begin()
        self._uploads[-1].end()
        return [upload.complete() for upload in self._uploads]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        for upload in self._uploads if error else ():
            upload.undo()

    def _begin(self) -> None:
        if self._uploads:
            self._uploads[-1].end()
        self._uploads.append(self._open(self._key(len(self._uploads) + 1)))
        self._uploads[-1].write(self._header)


def discard(s3: Any, bucket: str, keys: Iterable[str]) -> None:
    """Delete files that no manifest names. The lifecycle deletes those that remain."""
    for key in keys:
        with suppress(ClientError, BotoCoreError):
            s3.delete_object(Bucket=bucket, Key=key)
