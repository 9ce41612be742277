"""The tables that a query names: found in the catalog, each at the snapshot that the query asks for."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pyiceberg.exceptions import NoSuchIcebergTableError, NoSuchNamespaceError

from calve.errors import CalveError, ConfigError
from calve.names import DEAD_LETTERS_SUFFIX, TableName
from calve.settings.problems import near_miss
from cli.lake import aws_errors, load

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

    from cli.query.statement import Reference, Statement, When


@dataclass(frozen=True, slots=True)
class Opened:
    """A table as of one snapshot; `snapshot` is None where nobody has written to it yet."""

    name: TableName
    location: str
    metadata: str
    snapshot: int | None
    committed_at: datetime | None

    @property
    def told(self) -> dict[str, object]:
        """For people: what the answer is an answer about."""
        committed = self.committed_at and self.committed_at.isoformat(sep=" ", timespec="milliseconds")
        return {"table": self.name, "snapshot": self.snapshot, "committed": committed}


@dataclass(frozen=True, slots=True)
class Lookup:
    """Finds tables: a name without a database is one of `database`; `configured` are those of calve.yaml."""

    catalog: Catalog
    database: str
    configured: Collection[str]

    def open(self, reference: Reference, otherwise: When | None) -> Opened:
        """The table at the snapshot that the query names for it, else at that of `otherwise`, else the newest.

        Raises:
            CalveError: there is no such table, or it has no such snapshot.
            Retryable, Fatal: the catalog or the object store does not answer, or refuses.
        """
        name = self._name(reference)
        table = self._load(name)
        if table is None:
            raise self._missing(name)
        snapshot = _snapshot(table, name, otherwise if reference.when is None else reference.when)
        return Opened(
            name,
            table.location(),
            table.metadata_location,
            snapshot.snapshot_id if snapshot else None,
            datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC) if snapshot else None,
        )

    def has(self, reference: Reference) -> bool:
        """Tell whether there is such a table."""
        return self._load(self._name(reference)) is not None

    def _name(self, reference: Reference) -> TableName:
        return TableName(reference.database or self.database, reference.table)

    def _load(self, name: TableName) -> Table | None:
        try:
            return load(self.catalog, name)
        except NoSuchIcebergTableError:
            raise ConfigError(f"{name} is no Iceberg table") from None

    def _missing(self, name: TableName) -> CalveError:
        of = name.table.removesuffix(DEAD_LETTERS_SUFFIX)
        if name.database == self.database and of in self.configured:
            if of != name.table:
                return CalveError(f"the table {name} does not exist: no record of {of} was ever rejected")
            return CalveError(f"the table {name} does not exist yet", fix="the job makes it: calve ingest")
        known = self._tables(name.database)
        if not known:
            return ConfigError(f'there is no database "{name.database}" with tables', fix="calve tables")
        fix = near_miss(name.table, known) or "calve tables"
        return ConfigError(f'the database {name.database} has no table "{name.table}"', fix=fix)

    def _tables(self, database: str) -> list[str]:
        with aws_errors(f"database {database}"):
            try:
                return [str(identifier[-1]) for identifier in self.catalog.list_tables(database)]
            except NoSuchNamespaceError:
                return []


def opened(statement: Statement, lookup: Lookup, otherwise: When | None) -> dict[Reference, Opened]:
    """The tables that a statement names; a name that it defines itself may be a table's, too, or not.

    Raises:
        CalveError: as `Lookup.open`.
    """
    return {
        each: lookup.open(each, otherwise)
        for each in sorted(statement.tables, key=str)
        if each.database or each.table not in statement.defined or lookup.has(each)
    }


def _snapshot(table: Table, name: TableName, when: When | None) -> Snapshot | None:
    if when is None:
        return table.current_snapshot()
    fix = f"calve tables {name.table}"
    if isinstance(when, int):
        found = table.snapshot_by_id(when)
        if found is None:
            raise CalveError(f"{name} has no snapshot {when}; it may have expired", fix=fix)
        return found
    found = table.snapshot_as_of_timestamp(int(when.timestamp() * 1000))
    if found is None:
        moment = when.isoformat(sep=" ", timespec="seconds")
        raise CalveError(
            f"{name} has no snapshot as of {moment}; the history that it keeps begins later", fix=fix
        )
    return found
