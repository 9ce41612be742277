"""The lake for the commands: the one place that opens tables with PyIceberg."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any, cast

import boto3
from botocore.exceptions import BotoCoreError, ClientError
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.io import load_file_io
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table import snapshots as iceberg

from calve.config.job import Lake
from calve.errors import ConfigError, Fatal, Retryable
from calve.names import TableName
from calve.outputs.job_status import TableState
from calve.table.position import Ledger, Position
from calve.table.protocol import Commit, nearest_position
from calve.table.summary import POSITION_TAG, STATE, has_ledger, ledger_of, metrics_of
from cli.embedded import aws as emulator
from lambdas.aws import tolerating

ALWAYS_TRUE = AlwaysTrue()
AT_ONCE = 16
LISTED = 100
"""From so many tables on, a listing finds them, and their metadata is read over shared connections."""
_DENIED = ("AccessDenied", "UnrecognizedClient", "InvalidSignature", "ExpiredToken", "InvalidClientTokenId")


class Snapshot(Commit):
    """A snapshot with calve's entries of its summary; `ledger` is None if another writer made it."""

    __slots__ = ()

    @property
    def at(self) -> datetime:
        return datetime.fromtimestamp(self.committed_at, UTC)

    @property
    def ledger(self) -> Ledger | None:
        return ledger_of(self.summary) if has_ledger(self.summary) else None

    @property
    def metrics(self) -> dict[str, Any]:
        return metrics_of(self.summary)

    @property
    def rows(self) -> int:
        return self.total("records") - self.total("position-deletes")

    def total(self, name: str) -> int:
        """One of Iceberg's totals at this snapshot, such as `records` or `files-size`."""
        return int(self.summary.get(f"total-{name}", 0))


def open_catalog(lake: Lake) -> Catalog:
    """The Glue Data Catalog: the emulator's if the lake has an endpoint, else that of AWS."""
    properties = {"warehouse": lake.warehouse, "client.region": lake.region, **credentials(lake)}
    if lake.endpoint:
        properties |= {"glue.endpoint": lake.endpoint, "s3.endpoint": lake.endpoint}
    return GlueCatalog("lake", **properties)


def credentials(lake: Lake) -> dict[str, str]:
    """Credentials for Glue and S3 as PyIceberg's properties: other libraries search for them differently from boto3."""
    if lake.endpoint:
        return {"client.access-key-id": emulator.ACCESS_KEY, "client.secret-access-key": emulator.SECRET_KEY}
    found = boto3.Session().get_credentials()
    if found is None:
        fix = "log in: aws sso login, then --profile NAME or AWS_PROFILE; the embedded stack starts with `calve up`"
        raise ConfigError("there are no AWS credentials for the lake", fix=fix)
    frozen = found.get_frozen_credentials()
    keys = {"client.access-key-id": frozen.access_key, "client.secret-access-key": frozen.secret_key}
    return keys | ({"client.session-token": frozen.token} if frozen.token else {})


def load(catalog: Catalog, name: TableName) -> Table | None:
    """The table, or None if the catalog has none."""
    with aws_errors(f"table {name}"), suppress(NoSuchTableError, NoSuchNamespaceError):
        return catalog.load_table((name.database, name.table))
    return None


def load_all(catalog: Catalog, names: Sequence[TableName]) -> dict[TableName, Table]:
    """Those of the tables that exist."""
    read: Callable[[TableName], Table | None] = partial(load, catalog)
    if len(names) >= LISTED:
        places = _listed(cast("GlueCatalog", catalog), {each.database for each in names})
        io = load_file_io(catalog.properties, next(iter(places.values()), None))

        def read(name: TableName) -> Table | None:
            if (place := places.get(name)) is None:
                return None
            with aws_errors(f"table {name}"):
                metadata = FromInputFile.table_metadata(io.new_input(place))
                return Table((name.database, name.table), metadata, place, io, catalog)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = dict(zip(names, pool.map(read, names), strict=True))
    return {name: table for name, table in found.items() if table}


def _listed(catalog: GlueCatalog, databases: Collection[str]) -> dict[TableName, str]:
    """Where the metadata of each Iceberg table is. Glue lists a hundred tables at once."""
    found = {}
    for database in databases:
        with aws_errors(f"database {database}"), tolerating("EntityNotFoundException"):
            for page in catalog.glue.get_paginator("get_tables").paginate(DatabaseName=database):
                for each in page["TableList"]:
                    if place := each.get("Parameters", {}).get("metadata_location"):
                        found[TableName(database, each["Name"])] = place
    return found


def ancestors(table: Table) -> list[Snapshot]:
    """Snapshots from main's head towards the root, up to the oldest that has not expired."""
    found = []
    current = table.current_snapshot()
    while current is not None:
        found.append(_snapshot(current))
        parent = current.parent_snapshot_id
        current = None if parent is None else table.snapshot_by_id(parent)
    return found


def latest_commit(table: Table) -> tuple[Snapshot, Position] | None:
    """The snapshot with the table's position, and the position.

    It is the nearest ancestor of main with a position, or the tagged one if expiry has cut main's history.
    """
    history = ancestors(table)
    tag = table.metadata.refs.get(POSITION_TAG)
    if tag and history and history[-1].parent is not None:
        tagged = table.snapshot_by_id(tag.snapshot_id)
        history += [_snapshot(tagged)] if tagged else []
    position = nearest_position(history)
    if position is None:
        return None
    return next(each for each in history if each.id == position.snapshot), position


def state_of(table: Table) -> TableState:
    """The state that the job wrote into the table; `cli.look.health` also reads the job's report."""
    written = table.properties.get(STATE)
    return TableState() if written is None else TableState.from_json(written)


def table_names(catalog: Catalog, database: str) -> list[str]:
    """The tables of a database; none if there is no such database."""
    with aws_errors(f"database {database}"), suppress(NoSuchNamespaceError):
        return [str(identifier[-1]) for identifier in catalog.list_tables(database)]
    return []


def rows(table: Table) -> int:
    """Rows of main, from the totals of its head."""
    head = table.current_snapshot()
    return _snapshot(head).rows if head else 0


def count_by(table: Table, column: str, chosen: BooleanExpression = ALWAYS_TRUE) -> dict[str, int]:
    """Rows per value of a text column among the selected rows, read batch by batch."""
    counts: dict[str, int] = {}
    with aws_errors(f"table {'.'.join(table.name())}"):
        for batch in table.scan(chosen, selected_fields=(column,)).to_arrow_batch_reader():
            for each in batch.column(column).value_counts().to_pylist():
                counts[str(each["values"])] = counts.get(str(each["values"]), 0) + int(each["counts"])
    return dict(sorted(counts.items()))


def _snapshot(snapshot: iceberg.Snapshot) -> Snapshot:
    summary = snapshot.summary
    return Snapshot(
        id=snapshot.snapshot_id,
        parent=snapshot.parent_snapshot_id,
        summary=dict(summary.additional_properties) if summary else {},
        committed_at=snapshot.timestamp_ms / 1000,
        sequence=snapshot.sequence_number or 0,
        operation=summary.operation.value if summary else None,
    )


@contextmanager
def aws_errors(what: str) -> Iterator[None]:
    """Turn an AWS client's errors into `Fatal` (refused) or `Retryable` (no answer)."""
    try:
        yield
    except ClientError as error:
        code = error.response["Error"]["Code"]
        if code.startswith(_DENIED):
            raise Fatal(f"{what} may not be read: {code}", fix="log in to the account of the lake") from None
        raise Retryable(f"{what} cannot be read: {code}") from None
    except (BotoCoreError, OSError) as error:
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        fix = "the embedded stack starts with `calve up`"
        raise Retryable(f"{what} cannot be read: {text}", fix=fix) from None
