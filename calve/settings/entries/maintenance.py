"""How a table is kept small, and for how long what it has is kept."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from calve.config.maintenance import Maintenance, RowRetention
from calve.settings import fields
from calve.settings.fields import Section
from calve.settings.problems import InvalidParts, Problem


class RowRetentionSection(Section):
    """Rows are deleted once a time in them is old enough: the day after it at the latest."""

    column: fields.FieldPath
    """Column of the table that says how old a row is: a timestamp or a date"""
    keep: fields.Duration
    """How long rows are kept: `90d`"""


class MaintenanceOptions(Section):
    """How tables are kept fast and small; see docs/maintenance.md."""

    file_size: fields.Size | None = None
    """Size that data files are merged to: `128MB`, `512MiB`. Default: `128MB`"""
    snapshots: fields.Duration | None = None
    """How long a snapshot can be read and rolled back to. Default: `7d`"""
    snapshots_at_least: Annotated[int, Field(ge=1)] | None = None
    """So many of the newest stay, however old they are. Default: `10`"""
    snapshots_at_most: Annotated[int, Field(ge=2)] | None = None
    """More than so many are never kept, however young they are. Default: `100`"""
    dead_letters: fields.Duration | None = None
    """How long dead letters are kept. Default: for ever"""

    @model_validator(mode="after")
    def _least_is_less(self) -> Self:
        least = self.snapshots_at_least or Maintenance().snapshots_at_least
        most = self.snapshots_at_most or Maintenance().snapshots_at_most
        if least > most:
            fix = "raise `snapshots_at_most`, or lower this"
            raise InvalidParts(
                [Problem(("snapshots_at_least",), f"is more than the {most} that stay at most", fix)]
            )
        return self


class MaintenanceSection(MaintenanceOptions):
    """How this table is kept fast and small: what it does not set is that of `defaults`."""

    rows: RowRetentionSection | None = None
    """See `tables.<name>.maintenance.rows`. Default: rows are kept for ever"""


_OPTIONS = {  # key in calve.yaml -> field of calve.maintenance.Maintenance
    "file_size": "file_bytes",
    "snapshots": "snapshots_s",
    "snapshots_at_least": "snapshots_at_least",
    "snapshots_at_most": "snapshots_at_most",
    "dead_letters": "dead_letters_s",
}


def maintenance_of(own: MaintenanceSection | None, shared: MaintenanceOptions | None) -> Maintenance:
    """Key by key: the table's own, else that of `defaults`, else calve's."""
    options = {
        field: value
        for section in (shared, own)
        if section is not None
        for key, field in _OPTIONS.items()
        if (value := getattr(section, key)) is not None
    }
    rows = own.rows if own else None
    return Maintenance(**options, rows=RowRetention(rows.column, rows.keep) if rows else None)
