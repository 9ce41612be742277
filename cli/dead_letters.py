"""Dead letters: how a command selects them, and how people and programs see them.

PyIceberg reads them in batches of bounded size, however many a table holds.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import pyarrow as pa
import typer
from pyiceberg.expressions import AlwaysFalse, BooleanExpression
from pyiceberg.expressions.parser import parse
from pyiceberg.table import Table

from calve.errors import CalveError, ConfigError
from calve.schema.columns import REASONS, REDRIVEN, SEALED
from calve.settings.problems import near_miss, one_of
from cli import lake
from cli.config import parse_time
from lambdas.csv_export import scan as scanning
from lambdas.csv_export.window import ExportFailed

PLACE = ("cluster_id", "topic_id", "topic", "partition", "offset")
PREVIEW_BYTES = 256
ROW_BYTES = 16
DeadLetter = dict[str, Any]


def dead_letters_in(batch: pa.RecordBatch) -> Iterator[DeadLetter]:
    """The rows of a batch, with the record's timestamp as `timestamp_ms`: a producer may set one beyond any calendar."""
    timestamps_us = batch.column("timestamp").cast(pa.int64()).to_pylist()
    for row, at_us in zip(batch.drop_columns(["timestamp"]).to_pylist(), timestamps_us, strict=True):
        place = {name: row[name] for name in PLACE}
        yield place | {"timestamp_ms": None if at_us is None else at_us // 1000} | row


def document(dead_letter: DeadLetter) -> dict[str, object]:
    """Every column for JSON: bytes are base64, null stays null."""

    def encoded(data: bytes | None) -> str | None:
        return None if data is None else base64.b64encode(data).decode()

    headers, rejected_at = dead_letter["headers"] or (), dead_letter["rejected_at"]
    return dead_letter | {
        "key": encoded(dead_letter["key"]),
        "value": encoded(dead_letter["value"]),
        "headers": [{"key": each["key"], "value": encoded(each["value"])} for each in headers],
        "rejected_at": rejected_at and rejected_at.isoformat(),
    }


def facts(dead_letter: DeadLetter) -> dict[str, object]:
    """All columns except the record's own bytes."""
    kinds = {0: "set by the producer", 1: "set by the broker"}
    kind, rejected_at = (
        kinds.get(dead_letter["timestamp_type"], "of unknown kind"),
        dead_letter["rejected_at"],
    )
    return {
        "topic": dead_letter["topic"],
        "place": f"partition {dead_letter['partition']} offset {dead_letter['offset']}",
        "timestamp": f"{_moment(dead_letter['timestamp_ms'])}, {kind}",
        "reason": dead_letter["reason"],
        "meaning": dead_letter["message"],
        "schema id": "-" if dead_letter["schema_id"] is None else dead_letter["schema_id"],
        "rejected at": rejected_at.isoformat() if rejected_at else "-",
        "stage": dead_letter["stage"],
        "attempt": dead_letter["attempt"],
        "redriven": dead_letter.get(REDRIVEN) or "no",
        "encrypted": f"by the masking key {dead_letter[SEALED]}" if dead_letter.get(SEALED) else "no",
        "round": dead_letter["round"],
        "cluster, topic id": f"{dead_letter['cluster_id']}/{dead_letter['topic_id']}",
    }


def preview(data: bytes | None) -> str:
    """The first bytes in hex and, where they are printable ASCII, as text."""
    if data is None:
        return "null"
    if not data:
        return "empty"
    lines = [
        f"{start:04x}  {data[start : start + ROW_BYTES].hex(' '):<{3 * ROW_BYTES}} "
        + "".join(chr(byte) if 32 <= byte < 127 else "." for byte in data[start : start + ROW_BYTES])
        for start in range(0, min(len(data), PREVIEW_BYTES), ROW_BYTES)
    ]
    if len(data) > PREVIEW_BYTES:
        lines.append(f"... {len(data) - PREVIEW_BYTES:,} bytes more: calve dead-letters export has them")
    return "\n".join(lines)


def _moment(timestamp_ms: int | None) -> str:
    if timestamp_ms is None:
        return "none"
    try:
        timestamp = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return f"{timestamp_ms} ms since 1970"
    return timestamp.isoformat(timespec="milliseconds")


COLUMNS = ("cluster_id", "topic_id", "partition", "offset", "schema_id", "reason", "rejected_at")
MAX_SCHEMAS = 1_000
"""Different schema ids per reason: bytes that are not Avro look like any number of ids."""
_KEYS = ["cluster_id", "topic_id", "reason", "schema_id", "partition"]
_FIGURES = [("offset", "count"), ("offset", "min"), ("offset", "max")]
_FIGURES += [("rejected_at", "min"), ("rejected_at", "max")]


@dataclass(slots=True)
class Stretch:
    """The dead letters of one partition; others may lie between the first and the last offset."""

    partition: int
    first_offset: int
    last_offset: int
    dead_letters: int = 0

    def __str__(self) -> str:
        several = self.last_offset > self.first_offset
        return f"{self.partition}:{self.first_offset}" + (f"-{self.last_offset}" if several else "")


@dataclass(slots=True)
class Group:
    """Of one reason, schema id and incarnation of the topic. `other_schemas`: those with ids beyond `MAX_SCHEMAS`."""

    cluster_id: str
    topic_id: str
    reason: str
    schema_id: int | None
    other_schemas: bool = False
    dead_letters: int = 0
    first: datetime | None = None
    last: datetime | None = None
    places: dict[int, Stretch] = field(default_factory=dict)

    def add(self, row: dict[str, Any]) -> None:
        count, lowest, highest = row["offset_count"], row["offset_min"], row["offset_max"]
        self.dead_letters += count
        place = self.places.setdefault(row["partition"], Stretch(row["partition"], lowest, highest))
        place.first_offset = min(place.first_offset, lowest)
        place.last_offset = max(place.last_offset, highest)
        place.dead_letters += count
        self.first = min(filter(None, (self.first, row["rejected_at_min"])), default=None)
        self.last = max(filter(None, (self.last, row["rejected_at_max"])), default=None)

    @property
    def line(self) -> dict[str, object]:
        schema = "others" if self.other_schemas else self.schema_id
        return {
            "reason": self.reason,
            "schema_id": "-" if schema is None else str(schema),
            "dead_letters": self.dead_letters,
        }

    def document(self) -> dict[str, object]:
        found = asdict(self)
        first, last = found.pop("first"), found.pop("last")
        return found | {
            "first_rejected_at": first and first.isoformat(),
            "last_rejected_at": last and last.isoformat(),
            "places": [asdict(each) for _, each in sorted(self.places.items())],
        }


def summarize(batches: Iterable[pa.RecordBatch]) -> list[Group]:
    """The groups, the largest first; `batches` hold `COLUMNS`."""
    found: dict[tuple[str, str, str, int | None, bool], Group] = {}
    schemas: dict[str, set[int | None]] = {}
    for batch in batches:
        counted = pa.Table.from_batches([batch]).group_by(_KEYS).aggregate(_FIGURES)
        for row in counted.to_pylist():
            known = schemas.setdefault(row["reason"], set())
            other = row["schema_id"] not in known and len(known) >= MAX_SCHEMAS
            if not other:
                known.add(row["schema_id"])
            schema_id = None if other else row["schema_id"]
            key = (row["cluster_id"], row["topic_id"], row["reason"], schema_id, other)
            found.setdefault(key, Group(*key)).add(row)
    return sorted(found.values(), key=lambda each: (-each.dead_letters, each.reason, each.schema_id or -1))


_PLACE = re.compile(r"(\d{1,9}):(\d{1,18})")


@dataclass(frozen=True, slots=True)
class Selection:
    """Dead letters rejected at `since` or later and before `until`, for this reason, framed with this schema id.

    None: any. `redriven`: those that came back, instead of those that are open.
    """

    since: datetime | None = None
    reason: str | None = None
    schema_id: int | None = None
    until: datetime | None = None
    redriven: bool = False

    @property
    def filters(self) -> dict[str, str]:
        """The filters, as PyIceberg parses them, by their words."""
        found = {}
        if self.since:
            found[f"since {self.since.isoformat(timespec='seconds')}"] = (
                f"rejected_at >= '{self.since.isoformat()}'"
            )
        if self.until:
            found[f"until {self.until.isoformat(timespec='seconds')}"] = (
                f"rejected_at < '{self.until.isoformat()}'"
            )
        if self.reason:
            found[f"with reason {self.reason}"] = f"reason = '{self.reason}'"
        if self.schema_id is not None:
            found[f"with schema id {self.schema_id}"] = f"schema_id = {self.schema_id}"
        return found

    def within(self, table: Table) -> BooleanExpression:
        """The filters on a table. One without the column for redrives has open dead letters only."""
        filters = list(self.filters.values())
        if REDRIVEN in table.schema().column_names:
            filters.append(f"{REDRIVEN} is {'not ' if self.redriven else ''}null")
        elif self.redriven:
            return AlwaysFalse()
        return parse(" and ".join(filters)) if filters else lake.ALWAYS_TRUE

    @property
    def words(self) -> str:
        return "".join(f" {each}" for each in self.filters)


@dataclass(frozen=True, slots=True)
class Filters:
    """The options of a command that select dead letters."""

    since: Annotated[
        str | None,
        typer.Option("--since", "-s", help="Only those rejected since: 2h, 7d, 2026-01-01T00:00:00Z."),
    ] = None
    reason: Annotated[str | None, typer.Option("--reason", "-r", help="Only those of this reason.")] = None
    schema_id: Annotated[
        int | None, typer.Option("--schema-id", "-i", help="Only those with this registry id.")
    ] = None
    until: Annotated[
        str | None, typer.Option("--until", "-u", help="Only those rejected before: written as --since.")
    ] = None

    def selection(self, now: datetime, *, redriven: bool = False) -> Selection:
        if self.reason is not None and self.reason not in REASONS:
            fix = near_miss(self.reason, REASONS) or f"use {one_of(REASONS)}"
            raise ConfigError(f'--reason: "{self.reason}" is no reason', fix=fix)
        since = None if self.since is None else parse_time(self.since, now, "--since")
        until = None if self.until is None else parse_time(self.until, now, "--until")
        return Selection(since, self.reason, self.schema_id, until, redriven)


@dataclass(frozen=True, slots=True)
class Place:
    """Partition and offset of a record in its topic."""

    partition: int
    offset: int

    @classmethod
    def of(cls, text: str) -> Place:
        """The place of `3:1042`."""
        match = _PLACE.fullmatch(text.strip())
        if not match:
            form = 'PARTITION:OFFSET, such as "0:17"'
            fix = f"write it as {form}; calve dead-letters list TABLE shows where they are"
            raise ConfigError(f'"{text}" is no place of a record', fix=fix)
        return cls(int(match[1]), int(match[2]))

    @property
    def expression(self) -> BooleanExpression:
        return parse(f"partition = {self.partition} and offset = {self.offset}")


def read(
    table: Table, selected: BooleanExpression, columns: Sequence[str] = ("*",)
) -> Iterator[pa.RecordBatch]:
    """The selected dead letters; files without any, by their statistics, are not opened."""
    with lake.aws_errors(f"table {'.'.join(table.name())}"):
        scan = table.scan(selected, selected_fields=tuple(columns))
        tasks = sorted(scan.plan_files(), key=lambda task: task.file.file_path)
        try:
            yield from scanning.read(table, tasks, scan.projection(), selected)
        except ExportFailed as error:
            raise CalveError(error.message, fix=error.fix) from None


def grouped(table: Table, selection: Selection) -> list[Group]:
    return summarize(read(table, selection.within(table), COLUMNS))


def count(table: Table, selection: Selection) -> int:
    """How many there are; reads one column."""
    return sum(batch.num_rows for batch in read(table, selection.within(table), ("offset",)))
