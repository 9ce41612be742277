"""Maintenance rules: what is due and which snapshots stay. `docs/maintenance.md` says who does the work."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

from calve.table.position import Offsets, TopicKey, decode_offsets, encode_offsets
from calve.table.protocol import Commit
from calve.table.summary import HOLD, RETAINED, ends_of

Kind = Literal["compact", "deletes", "manifests", "orphans", "rows", "dead_letters", "snapshots"]

SMALL = 0.75
"""Share of the target size below which a file is small, as in Iceberg's planner."""
SURPLUS_FILES, SURPLUS_SHARE = 32, 0.05
"""Thresholds in number and share, as a scan opens every file. The ingest job's own merging leaves fewer."""
DELETE_FILES, DELETE_SHARE = 32, 0.1
"""As for data files: each delete file is opened with its data file."""
DELETED_ROWS = 0.3
"""Share of deleted rows at which Iceberg's planner rewrites files."""
MANIFEST_BYTES, SURPLUS_MANIFESTS = 8_000_000, 40
"""Iceberg's target size, and twice as many as commits leave before they are merged."""
ORPHANS_EVERY_S = 7 * 86_400.0
ORPHANS_NOTE = "calve-orphans.json"
"""The file beside a table's metadata with the start of the search for orphan files, and those found."""
MOST_EXPIRED = 500
"""The most snapshots to expire at once, so that an expiry does not delay the table."""


@dataclass(frozen=True, slots=True)
class RowRetention:
    """Rows are deleted once `column`, a time, is older than `keep_s`."""

    column: str
    keep_s: float


@dataclass(frozen=True, slots=True)
class Maintenance:
    """file_bytes: the target size of data files. snapshots_s: the age to which snapshots are kept; the newest `at_least` always
    stay, and at most `at_most`, even if that is less (one may be the table's, the other from `defaults`).
    dead_letters_s, rows: None: kept for ever. one_name: files from before a column was renamed are rewritten, for readers that
    find columns by name.
    """

    file_bytes: int = 128_000_000
    snapshots_s: float = 7 * 86_400.0
    snapshots_at_least: int = 10
    snapshots_at_most: int = 100
    dead_letters_s: float | None = None
    rows: RowRetention | None = None
    one_name: bool = False


@dataclass(frozen=True, slots=True)
class Figures:
    """Statistics of a table, without reading its rows.

    surplus_files: how many data files a merge of small ones would save (`surplus`). renamed_files: those from before a column was
    renamed, if that matters. deleted_rows: rows that delete files remove.
    oldest_*_s: ages. orphans_s: since the last check for orphan files. None: unknown, and so never due.
    """

    data_files: int = 0
    surplus_files: int = 0
    renamed_files: int = 0
    delete_files: int = 0
    rows: int = 0
    deleted_rows: int = 0
    manifests: int = 0
    manifest_bytes: int = 0
    snapshots: int = 0
    oldest_snapshot_s: float = 0.0
    oldest_row_s: float | None = None
    oldest_dead_letter_s: float | None = None
    orphans_s: float | None = None


@dataclass(frozen=True, slots=True)
class Due:
    """Maintenance that a table needs, and the reason as text."""

    kind: Kind
    why: str


def surplus(sizes: Mapping[Any, Sequence[int]], file_bytes: int) -> int:
    """How many files a merge of each partition's small files would save. sizes: of data files, by partition."""
    found = 0
    for each in sizes.values():
        small = [size for size in each if size < SMALL * file_bytes]
        found += len(small) - -(-sum(small) // file_bytes)
    return found


def due(figures: Figures, maintenance: Maintenance) -> tuple[Due, ...]:
    return tuple(_due(figures, maintenance))


def _due(figures: Figures, maintenance: Maintenance) -> Iterable[Due]:
    if why := _too_many_snapshots(figures, maintenance):
        yield Due("snapshots", why)
    spare = figures.manifests - max(1, -(-figures.manifest_bytes // MANIFEST_BYTES))
    if spare >= SURPLUS_MANIFESTS:
        yield Due("manifests", f"{figures.manifests} manifests, {spare} fewer would do")
    if figures.surplus_files >= max(SURPLUS_FILES, SURPLUS_SHARE * figures.data_files):
        yield Due("compact", f"{figures.data_files} data files, {figures.surplus_files} fewer would do")
    elif figures.renamed_files:
        yield Due("compact", f"{figures.renamed_files} data files have the earlier name of a column")
    if why := _too_many_deletes(figures):
        yield Due("deletes", why)
    if _is_older(figures.orphans_s, ORPHANS_EVERY_S):
        yield Due("orphans", f"nobody has looked for {_days(figures.orphans_s)}")
    if maintenance.rows and _is_older(figures.oldest_row_s, maintenance.rows.keep_s):
        yield Due("rows", f"the oldest row is {_days(figures.oldest_row_s)} old")
    if _is_older(figures.oldest_dead_letter_s, maintenance.dead_letters_s):
        yield Due("dead_letters", f"the oldest dead letter is {_days(figures.oldest_dead_letter_s)} old")


def _too_many_snapshots(figures: Figures, maintenance: Maintenance) -> str | None:
    if figures.snapshots <= maintenance.snapshots_at_least:
        return None
    if figures.snapshots > maintenance.snapshots_at_most:
        return f"{figures.snapshots} snapshots, {maintenance.snapshots_at_most} stay at most"
    if figures.oldest_snapshot_s > maintenance.snapshots_s + 86_400:
        return f"the oldest snapshot is {_days(figures.oldest_snapshot_s)} old"
    return None


def _too_many_deletes(figures: Figures) -> str | None:
    if figures.delete_files >= max(DELETE_FILES, DELETE_SHARE * figures.data_files):
        return f"{figures.delete_files} delete files for {figures.data_files} data files"
    if figures.deleted_rows > DELETED_ROWS * figures.rows > 0:
        return f"{figures.deleted_rows:,} of {figures.rows:,} rows in files are deleted"
    return None


def _is_older(age_s: float | None, most_s: float | None) -> bool:
    return age_s is not None and most_s is not None and age_s > most_s


def _days(seconds: float | None) -> str:
    return f"{(seconds or 0) / 86_400:.1f} days"


def snapshots_to_keep(ages_s: Sequence[float], needed: int, maintenance: Maintenance) -> int:
    """How many of main's newest snapshots stay. `ages_s`: of all, newest first. needed: how many are still used.

    Above `at_most`, half of them stay, so that not every commit needs an expiry.
    """
    kept = sum(age <= maintenance.snapshots_s for age in ages_s)
    if len(ages_s) > maintenance.snapshots_at_most:
        kept = min(kept, maintenance.snapshots_at_most // 2)
    kept = max(kept, maintenance.snapshots_at_least, needed, len(ages_s) - MOST_EXPIRED)
    return min(kept, len(ages_s))


# Maintenance and ingest job coordinate through properties of the table (ADR 31).
TURN_KINDS: tuple[Kind, ...] = ("compact", "deletes")
"""Work that replaces data files; rounds of keyed tables delete rows from these."""
OF_S3_TABLES: tuple[Kind, ...] = (*TURN_KINDS, "orphans")
"""Work that the service does: https://docs.aws.amazon.com/AmazonS3/latest/userguide/s3-tables-maintenance-overview.html"""
HOLD_S = 1_800.0


def is_held(properties: Mapping[str, str], now: float) -> bool:
    return now < float(properties.get(HOLD, 0))


@dataclass(frozen=True, slots=True)
class Retained:
    """Rows with `column` before a time were deleted, for offsets below `to`.

    Each commit that deletes expired rows says so in its summary. A commit repeats what earlier ones said.
    before_us: microseconds since epoch. rows: the total number of deleted rows.
    """

    column: str
    before_us: int
    rows: int
    to: Mapping[TopicKey, Offsets]

    def to_json(self) -> str:
        said = {"column": self.column, "before_us": self.before_us, "rows": self.rows}
        return json.dumps(said | {"to": encode_offsets(self.to)})

    @classmethod
    def from_json(cls, text: str) -> Self:
        raw = json.loads(text)
        return cls(**(raw | {"to": decode_offsets(raw["to"])}))


def retained(ancestors: Iterable[Commit], properties: Mapping[str, str]) -> Retained | None:
    """The retention that a table's history records or, if that has expired, its properties; None: no row has expired."""
    oldest = None
    for oldest in ancestors:
        if RETAINED in oldest.summary:
            return Retained.from_json(oldest.summary[RETAINED])
    cut = oldest is not None and oldest.parent is not None
    return Retained.from_json(properties[RETAINED]) if cut and RETAINED in properties else None


def after(
    before: Retained | None, column: str, before_us: int, rows: int, position: Mapping[str, str]
) -> Retained:
    """The summary of a commit that deletes that many rows; position: the summary of the commit with the position."""
    return Retained(column, before_us, rows + (before.rows if before else 0), ends_of(position))
