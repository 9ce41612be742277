"""One table in Snowflake, by the statements that read it, make it and bring it to what the catalog has."""

from __future__ import annotations

from dataclasses import dataclass

from calve.names import TableName
from calve.publishing import Snowflake
from lambdas.snowflake.account import told
from lambdas.snowflake.sql import name, options
from lambdas.snowflake.sql_api import Refused, Session

RUNNING = "RUNNING"


@dataclass(frozen=True, slots=True)
class Seen:
    """A table as Snowflake has it. stuck: why Snowflake does not refresh it by itself any more; None: it does."""

    metadata_location: str
    stuck: str | None


@dataclass(frozen=True, slots=True)
class SnowflakeTables:
    """The deployment's tables, by the service user's session. Every method raises as `Session.execute`."""

    session: Session
    config: Snowflake

    def find(self, table: TableName) -> Seen | None:
        """A table; None where Snowflake has none."""
        try:
            said = told(self.session, "SYSTEM$GET_ICEBERG_TABLE_INFORMATION", self._name(table))
        except Refused as error:
            if error.absent:
                return None
            raise
        return Seen(str(said.get("metadataLocation", "")), self._stuck(table))

    def create(self, table: TableName) -> None:
        """Make a table, which begins where its catalog is."""
        values = {
            "EXTERNAL_VOLUME": self.config.volume,
            "CATALOG": self.config.integration,
            "CATALOG_TABLE_NAME": table.table,
            "CATALOG_NAMESPACE": table.database,
            "AUTO_REFRESH": True,
        }
        self.session.execute(f"CREATE ICEBERG TABLE IF NOT EXISTS {self._name(table)} {options(values)}")

    def refresh(self, table: TableName) -> None:
        """Bring a table to what its catalog has now, which is never older than what it has.

        Snowflake refuses this while it refreshes by itself, so that is switched off for a moment; to switch it on again also
        starts it anew where it was stuck. Whoever dies in between leaves it off, which the next look takes for stuck.
        """
        self._refresh_by_itself(table, on=False)
        self.session.execute(f"ALTER ICEBERG TABLE {self._name(table)} REFRESH")
        self._refresh_by_itself(table, on=True)

    def drop(self, table: TableName) -> None:
        """Forget a table; its files are the lake's."""
        self.session.execute(f"DROP ICEBERG TABLE IF EXISTS {self._name(table)}")

    def _refresh_by_itself(self, table: TableName, *, on: bool) -> None:
        self.session.execute(f"ALTER ICEBERG TABLE {self._name(table)} SET {options({'AUTO_REFRESH': on})}")

    def _stuck(self, table: TableName) -> str | None:
        said = told(self.session, "SYSTEM$AUTO_REFRESH_STATUS", self._name(table))
        state = str(said.get("executionState"))
        if state == RUNNING:
            return None
        return f"{state} {said.get('invalidExecutionStateReason') or ''}".strip()

    def _name(self, table: TableName) -> str:
        """In capitals, so that nobody must quote it; a linked database has the catalog's own names."""
        if self.config.linked:
            return name(self.config.database, table.database, table.table)
        return name(self.config.database, self.config.schema, table.table.upper())


def link_stuck(session: Session, config: Snowflake) -> str | None:
    """Why a linked database does not follow its catalog any more; None: it does. Raises: as `Session.execute`."""
    said = told(session, "SYSTEM$CATALOG_LINK_STATUS", config.database)
    if said.get("executionState") == RUNNING and not said.get("failureDetails"):
        return None
    return f"{said.get('executionState')} {said.get('failureDetails') or ''}".strip()
