"""Which dead letters a command is about: filters and places as the operator writes them, as Iceberg expressions.

They are read by PyIceberg in batches of bounded size, whatever the table holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThanOrEqual,
    IsNull,
    LessThan,
    NotNull,
)
from pyiceberg.table import Table

from calve.errors import CalveError, ConfigError
from calve.names import TableName
from calve.schema.columns import REASONS, REDRIVEN
from calve.settings.problems import near_miss, one_of
from cli import lake
from cli.act.dead_letters.dead_letter import COLUMNS, Group, summarize
from cli.config import moment
from lambdas.csv_export import scan as pages
from lambdas.csv_export.window import ExportFailed

_PLACE = re.compile(r"(\d{1,9}):(\d{1,18})")


@dataclass(frozen=True, slots=True)
class Selection:
    """Dead letters rejected at `since` or later and before `until`, for this reason, framed with this schema id.

    None: whichever. `redriven`: those that came back, instead of those that are open.
    """

    since: datetime | None = None
    reason: str | None = None
    schema_id: int | None = None
    until: datetime | None = None
    redriven: bool = False

    @classmethod
    def of(
        cls,
        since: str | None,
        reason: str | None,
        schema_id: int | None,
        *,
        now: datetime,
        until: str | None = None,
        redriven: bool = False,
    ) -> Selection:
        """The options of a command.

        Raises:
            ConfigError: one of them cannot be used.
        """
        if reason is not None and reason not in REASONS:
            fix = near_miss(reason, REASONS) or f"use {one_of(REASONS)}"
            raise ConfigError(f'--reason: "{reason}" is no reason', fix=fix)
        return cls(
            None if since is None else moment(since, now, "--since"),
            reason,
            schema_id,
            None if until is None else moment(until, now, "--until"),
            redriven,
        )

    @property
    def expression(self) -> BooleanExpression:
        """The filters; whether letters came back is left to `within`."""
        filters: list[tuple[Any, str, object]] = [
            (GreaterThanOrEqual, "rejected_at", self.since and self.since.isoformat()),
            (EqualTo, "reason", self.reason),
            (EqualTo, "schema_id", self.schema_id),
            (LessThan, "rejected_at", self.until and self.until.isoformat()),
        ]
        return _all_of(_compare(*each) for each in filters if each[-1] is not None)

    def within(self, letters: Table) -> BooleanExpression:
        """The whole selection; a table that knows no redrives has open letters only."""
        if REDRIVEN not in letters.schema().column_names:
            return AlwaysFalse() if self.redriven else self.expression
        kind: Any = NotNull if self.redriven else IsNull
        return _all_of([self.expression, kind(REDRIVEN)])

    @property
    def words(self) -> str:
        """The filters in words, for a sentence; empty where there is none."""
        parts = [
            f"since {self.since.isoformat(timespec='seconds')}" if self.since else "",
            f"until {self.until.isoformat(timespec='seconds')}" if self.until else "",
            f"with reason {self.reason}" if self.reason else "",
            f"with schema id {self.schema_id}" if self.schema_id is not None else "",
        ]
        return "".join(f" {part}" for part in parts if part)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a record stands in its topic."""

    partition: int
    offset: int

    @classmethod
    def of(cls, text: str) -> Place:
        """`3:1042`.

        Raises:
            ConfigError: this is no place.
        """
        match = _PLACE.fullmatch(text.strip())
        if not match:
            fix = (
                'write it as PARTITION:OFFSET, such as "0:17"; calve dead-letters TABLE shows where they lie'
            )
            raise ConfigError(f'"{text}" is no place of a record', fix=fix)
        return cls(int(match[1]), int(match[2]))

    @property
    def expression(self) -> BooleanExpression:
        return _all_of(
            [_compare(EqualTo, "partition", self.partition), _compare(EqualTo, "offset", self.offset)]
        )


def _compare(kind: Any, column: str, value: object) -> BooleanExpression:
    """A predicate; of these mypy reads pydantic's fields, not the constructors."""
    found: BooleanExpression = kind(column, value)
    return found


def _all_of(parts: Iterable[BooleanExpression]) -> BooleanExpression:
    found: BooleanExpression = AlwaysTrue()
    for part in parts:
        found = And(found, part)
    return found


def open_letters(catalog: Catalog, name: TableName) -> tuple[Table, Table | None]:
    """The table `name` and its dead-letter table; None where no record was ever rejected.

    Raises:
        CalveError: there is no table of that name.
    """
    main = lake.load(catalog, name)
    if main is None:
        raise CalveError(f"the table {name} does not exist yet", fix=f"calve status {name.table} says why")
    return main, lake.load(catalog, name.dead_letters)


def read(
    letters: Table, selected: BooleanExpression, columns: Sequence[str] = ("*",)
) -> Iterator[pa.RecordBatch]:
    """The selected dead letters; what statistics of a file rule out is not opened.

    Raises:
        CalveError: a file is no Parquet.
        Retryable, Fatal: as `cli.lake.load`.
    """
    with lake.aws_errors(f"table {'.'.join(letters.name())}"):
        scan = letters.scan(selected, selected_fields=tuple(columns))
        tasks = sorted(scan.plan_files(), key=lambda task: task.file.file_path)
        try:
            yield from pages.read(letters, tasks, scan.projection(), selected)
        except ExportFailed as error:
            raise CalveError(error.message, fix=error.fix) from None


def grouped(letters: Table, selection: Selection) -> list[Group]:
    """The selected dead letters, counted."""
    return summarize(read(letters, selection.within(letters), COLUMNS))


def count(letters: Table, selection: Selection) -> int:
    """How many there are; reads one column."""
    return sum(batch.num_rows for batch in read(letters, selection.within(letters), ("offset",)))
