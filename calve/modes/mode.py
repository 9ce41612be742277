"""What a mode is: what a record does to its table, and the columns of its key. `glue_jobs.modes` writes the rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar, Literal, Self

from calve.errors import Suspended
from calve.names import SYSTEM_COLUMN
from calve.schema.columns import Json
from calve.schema.evolution import column_at, no_column

ModeName = Literal["append", "upsert", "change_data", "history", "deduplicate", "aggregate"]


class Mode:
    """A table to which every record is appended; another mode is a subclass that says what it does differently.

    One class for each mode, in the file of its name; `calve.config.job.Table.mode` is the only chooser.
    replaces_rows: a commit also deletes rows. groups_rows: a row of the table is a group of records. keeps_versions: every
    record is a row, and ends the one before it. cannot_forget: why such a request is refused; None: it is not.
    order_by: the column by which the newest record wins; None: the last write wins. deletes: a tombstone deletes the row of its
    key. source_order: fields of `source` that order changes; empty: the last write wins.
    window_ms: a record is a duplicate only of rows that are less than this away; None: of all.
    bucketed: calve.yaml names no partitions. A table that an earlier release has partitioned by buckets of its key keeps them.
    """

    __slots__ = ()
    kind: ClassVar[ModeName] = "append"
    replaces_rows: ClassVar[bool] = False
    groups_rows: ClassVar[bool] = False
    keeps_versions: ClassVar[bool] = False
    cannot_forget: ClassVar[str | None] = None
    order_by: str | None = None
    deletes: bool = False
    source_order: tuple[str, ...] = ()
    window_ms: int | None = None
    bucketed: bool = False

    @property
    def reads_changes(self) -> bool:
        """Whether the records are change events."""
        return False

    @property
    def only_adds(self) -> bool:
        """Whether rows of earlier rounds stay as they are, so that digests prove them."""
        return self.kind == "append"

    @property
    def keep_deleted(self) -> bool:
        """Whether deleted rows stay, marked."""
        return False

    @property
    def key(self) -> tuple[str, ...]:
        """Paths of columns that no record may lack; empty: none."""
        return ()

    @property
    def row_key(self) -> tuple[str, ...]:
        """Paths of the columns that identify a row of the table; empty: none do."""
        return () if self.groups_rows else self.key

    @property
    def cannot_backfill(self) -> str | None:
        """Why rows of a range cannot be made again alone; None: they can."""
        return f"rows of a table of {self.kind} depend on each other: rewind it instead" if self.key else None

    @property
    def drops(self) -> bool:
        """Whether a record that a step filters deletes the row of its key: the database's row is no row of the table any more.

        Not with an order: a late record would delete the row of a newer one.
        """
        return self.replaces_rows and not self.groups_rows and self.order_by is None

    @property
    def compared(self) -> str | None:
        """The column of a row that decides whether a new record of its key wins; None: none does."""
        return self.order_by if self.window_ms is None else f"{SYSTEM_COLUMN}.timestamp"

    def resolve(self, columns: Json) -> Self:
        """The same with the plain columns of its key. Raises Suspended: `key_unusable`: one is missing, or identifies no row."""
        return self

    def note(self, columns: Json) -> str | None:
        """What a position says of the mode: JSON with the field ids of the key, which outlive renames; None: append."""
        return None


APPEND = Mode()

UNFIT = ("float", "double")
"""Types that cannot be keys: equal values may differ in bytes, or not equal themselves."""


def plain_columns(columns: Json, paths: Iterable[str], option: str) -> tuple[str, ...]:
    """The columns at these paths; structs are replaced by their fields. `option`: their place in calve.yaml, as `upsert.key`.

    Raises Suspended: `key_unusable`: a column is missing, or its type cannot identify rows.
    """
    return tuple(path for each in paths for path in _leaves(column(columns, each, option), each, option))


def _leaves(found: Json, path: str, option: str) -> Iterator[str]:
    kind = found["type"]
    if isinstance(kind, dict) and kind["type"] == "struct":
        for each in kind["fields"]:
            yield from _leaves(each, f"{path}.{each['name']}", option)
    elif isinstance(kind, dict) or kind in UNFIT:
        shown = kind["type"] if isinstance(kind, dict) else kind
        raise unusable(f"{path} is a {shown}, which identifies no rows", option)
    else:
        yield path


def column(columns: Json, path: str, option: str) -> Json:
    found = column_at(columns, path)
    if found is None:
        raise unusable(no_column(columns, path), option)
    return found


def ids_of(columns: Json, paths: Iterable[str]) -> list[int]:
    """The field ids of a key, which outlive renames. Raises Suspended: `key_unusable`: a column is missing."""
    return [column(columns, each, "key")["id"] for each in paths]


def unusable(why: str, option: str) -> Suspended:
    return Suspended(
        "key_unusable",
        f"the rows of the table cannot be identified: {why}",
        fix=f"in calve.yaml, change {option}",
        at=tuple(option.split(".")),
    )
