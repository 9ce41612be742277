"""What the formats share: reasons why a value is no row, frames, timestamps, and which fields fill which columns."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass
from datetime import UTC, datetime, timedelta
from decimal import Context
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from calve.schema import wire
from calve.schema.columns import Json
from calve.schema.wire import GUID_MAGIC, HEADERS, Wire

if TYPE_CHECKING:
    from calve.config.job import PartName
    from cli.verify.topic import Records

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MOMENT = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.(\d{1,6})0*)?(?:[Zz]|([+-])(\d\d):(\d\d))", re.ASCII
)
_FARTHEST = timedelta(hours=18)
"""The greatest offset from UTC that a column's reader takes."""
_FAR = re.compile(r"(?P<before>-infinity|-\d{4,}-.*|0000-.*)|\+?infinity|\+\d{5,}-.*", re.ASCII)
_ISO = re.compile(r"[+-]?infinity|[+-]?\d+-\d\d-\d\dT[\d:.]+(?:Z|[+-][\d:]+)", re.ASCII)
FIRST, LAST = -62_135_596_800 * 10**6, 253_402_300_800 * 10**6 - 1
"""Microseconds of the first moment of the year 1, and of the last one of 9999."""
EXACT = Context(prec=100)
MALFORMED = (pa.ArrowException, ArithmeticError, ValueError, IndexError, RecursionError)
"""What readers, converters and Arrow raise for a malformed value, or one that is too large for its column."""

LEFT_OUT = "left out by a step"
EMPTIED = "without a row that a step has not left out"
"""Both stand where the reason of a reject does: records that make no row, and are no dead letters."""

Outcome = tuple[pa.RecordBatch, dict[int, str]]
"""The rows of a step, and why places have no row, or fewer of them: `LEFT_OUT` or a word of `REASONS`."""
Convert = Callable[[Any], Any]
"""A decoded value -> the value of its column; null stays null."""


def bounded(micros: int) -> int:
    return min(max(micros, FIRST), LAST)


def database_timestamp_us(text: str) -> int:
    """As `timestamp_us`, also for the infinities and years that databases have."""
    far = _FAR.fullmatch(text) if _ISO.fullmatch(text) else None
    if far is None:
        return timestamp_us(text)
    return FIRST if far["before"] else LAST


def timestamp_us(text: str) -> int:
    """Microseconds since 1970. Raises ValueError if the text is not a timestamp of whole microseconds."""
    found = _MOMENT.fullmatch(text)
    if found is None:
        raise ValueError
    day, clock, fraction, sign, hours, minutes = found.groups()
    offset = timedelta(hours=int(hours or 0), minutes=int(minutes or 0))
    if int(minutes or 0) > 59 or offset > _FARTHEST:
        raise ValueError
    since = datetime.fromisoformat(f"{day}T{clock}+00:00") - EPOCH
    shifted = since + (offset if sign == "-" else -offset)
    return shifted // timedelta(microseconds=1) + int((fraction or "0").ljust(6, "0"))


class Unreadable(Exception):
    """Why a record makes no row: a word of `calve.schema.columns.REASONS`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Framing(Wire):
    """How values name their schema. A compressed payload has the frame that it would have without compression."""

    def of(self, records: Records, part: PartName) -> list[bytes | None]:
        """The values or keys of records, each after the schema that its record's header names. The last such header counts."""
        held = records.values if part == "value" else records.keys
        if self.by_guid is None or not records.headers:
            return held
        return [
            self._joined(value, headers or [], part)
            for value, headers in zip(held, records.headers, strict=True)
        ]

    def _joined(
        self, value: bytes | None, headers: list[tuple[str, bytes | None]], part: PartName
    ) -> bytes | None:
        header = next((held for name, held in reversed(headers) if name == HEADERS[part]), None)
        if header is None or value is None:
            return value
        if self.by_guid is not None and header.startswith(GUID_MAGIC):
            header = self.by_guid + header[len(GUID_MAGIC) :]
        try:
            self.header(header)
        except Unreadable:
            return header
        return header + value

    def named_frame(self, name: str) -> bytes:
        """The frame of a schema that a ledger names."""
        return self.frame(self.named(name))

    def start(self, value: bytes) -> bytes:
        """The bytes at the frame's place."""
        if self.deflated and value.startswith(self.deflated):
            return self.magic + value[len(self.magic) : self.size]
        if self.by_guid and value.startswith(self.by_guid):
            return value[: self.guid_frame_size]
        return value[: self.size]

    def header(self, value: bytes) -> bytes:
        """The frame. Raises Unreadable if there is none."""
        is_guid = self.by_guid is not None and value.startswith(self.by_guid)
        if len(value) < (self.guid_frame_size if is_guid else self.size):
            raise Unreadable("truncated")
        if not value.startswith(self.magics):
            raise Unreadable("bad_magic")
        return self.start(value)

    def inflated(self, value: bytes) -> bytes:
        """The value without compression. Raises Unreadable if its payload is not a zlib stream, or too long."""
        found = self.plain(value) if self.deflated and value.startswith(self.deflated) else value
        if found is None:
            raise Unreadable("malformed")
        return found


CONFLUENT = Framing(*astuple(wire.CONFLUENT))
GLUE = Framing(*astuple(wire.GLUE))


class Writer:
    """One schema: reads its values as rows, and lays them out as the table's data columns. `frame`: precedes each value."""

    def __init__(self, frame: bytes, columns: pa.Schema) -> None:
        self.frame = frame
        self.columns = list(columns)
        self.schema_id: int | None = None

    def decode(self, value: Any) -> Any:
        """The row of a value. Raises Unreadable or one of MALFORMED if it makes none."""
        raise NotImplementedError

    def is_ambiguous(self, value: Any) -> bool:
        """Whether a value decodes, but may be malformed."""
        return False

    def project(self, rows: list[Any]) -> list[Any]:
        """Arrow arrays of the columns; missing values are null."""
        return [pa.array([row.get(each.name) for row in rows], each.type) for each in self.columns]


def as_written(table: Json, version: Json) -> Json:
    """The table's type; each column has `written`: the name by which a version writes it (None: it does not).

    version: its columns under their newest names (`calve.schema.lineage.Fit`). A table may still have an earlier name.
    """
    if not isinstance(table, dict):
        return table
    if table["type"] != "struct":
        inside = "element" if table["type"] == "list" else "value"
        return table | {inside: as_written(table[inside], version[inside])}
    own = {each["name"] for each in table["fields"]}
    names = {
        name: each
        for each in version["fields"]
        for name in ([each["name"]] if each["name"] in own else each["former"])
    }
    fields = []
    for each in table["fields"]:
        found = names.get(each["name"])
        kind = as_written(each["type"], found["type"]) if found else each["type"]
        fields.append(each | {"written": found and found["written"], "type": kind})
    return table | {"fields": fields}


def written_in(columns: Json) -> Iterator[tuple[str, str, Json]]:
    """The columns of a struct that a version writes: name, name in the version, and type."""
    for each in columns["fields"]:
        source = each.get("written", each["name"])
        if source is not None:
            yield each["name"], source, each["type"]
