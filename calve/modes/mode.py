"""What a mode is: what a record does to its table. Values and rules only; `glue_jobs.modes` writes the rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol, Self

from calve.schema.columns import Json

ModeName = Literal["append", "upsert", "change_data", "deduplicate", "aggregate"]


class Mode(Protocol):
    """One class for each mode, in the file of its name; `calve.config.job.Table.mode` is the only chooser.

    replaces_rows: a commit also deletes rows. groups_rows: a row of the table is a group of records. reads_changes: the records
    are change events. cannot_redrive, cannot_forget: why a request is refused; None: it is not.
    """

    kind: ClassVar[ModeName]
    replaces_rows: ClassVar[bool]
    groups_rows: ClassVar[bool]
    reads_changes: ClassVar[bool]
    cannot_redrive: ClassVar[str | None]
    cannot_forget: ClassVar[str | None]

    @property
    def key(self) -> tuple[str, ...]:
        """Paths of columns that no record may lack; empty: none."""
        ...

    @property
    def row_key(self) -> tuple[str, ...]:
        """Paths of the columns that identify a row of the table; empty: none do."""
        ...

    @property
    def order_by(self) -> str | None:
        """The column by which the newest record wins; None: the last write wins."""
        ...

    @property
    def deletes(self) -> bool:
        """A tombstone deletes the row of its key."""
        ...

    @property
    def keep_deleted(self) -> bool:
        """Deleted rows stay, marked."""
        ...

    @property
    def source_order(self) -> tuple[str, ...]:
        """Fields of `source` that order changes; empty: last write wins."""
        ...

    @property
    def bucketed(self) -> bool:
        """The table is partitioned by buckets of its key."""
        ...

    def resolve(self, columns: Json) -> Self:
        """The same with the plain columns of its key, as the table has them.

        Raises:
            Suspended: `key_unusable`: a column is missing, or its type identifies no row.
        """
        ...

    def note(self, columns: Json) -> str | None:
        """What a position says of the mode: JSON with the field ids of the key, which outlive renames; None: append."""
        ...


@dataclass(frozen=True, slots=True)
class Append:
    """Every record is a row."""

    kind: ClassVar[ModeName] = "append"
    replaces_rows: ClassVar[bool] = False
    groups_rows: ClassVar[bool] = False
    reads_changes: ClassVar[bool] = False
    cannot_redrive: ClassVar[str | None] = None
    cannot_forget: ClassVar[str | None] = None
    key: tuple[str, ...] = ()
    row_key: tuple[str, ...] = ()
    order_by: str | None = None
    deletes: bool = False
    keep_deleted: bool = False
    source_order: tuple[str, ...] = ()
    bucketed: bool = False

    def resolve(self, columns: Json) -> Append:
        return self

    def note(self, columns: Json) -> str | None:
        return None


APPEND = Append()
