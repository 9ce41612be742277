"""The lake for the commands: the one place that opens tables with PyIceberg."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, cached_property
from itertools import islice
from typing import Any, Self

import boto3
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import (
    ForbiddenError,
    NoSuchNamespaceError,
    NoSuchTableError,
    OAuthError,
    RESTError,
    UnauthorizedError,
)
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.typedef import IcebergBaseModel

from calve.config.job import Lake
from calve.errors import ConfigError, Fatal, Retryable
from calve.names import TableName
from calve.outputs.job_status import TableState
from calve.secrets import catalog_credential
from calve.table.position import Ledger, Position
from calve.table.protocol import Commit, nearest_position
from calve.table.summary import LEDGER, POSITION_TAG, STATE, TOPIC, has_ledger, ledger_of, metrics_of
from cli.embedded import aws as emulator
from lambdas.aws import tolerating

ALWAYS_TRUE = AlwaysTrue()
LISTED = 100
"""From so many tables on, a listing finds them: Glue lists so many at once."""
LOG_IN = (
    "log in: aws sso login, then --profile NAME or AWS_PROFILE; the embedded stack starts with `calve up`"
)
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
    def lost(self) -> int:
        """Offsets that its round found expired. Most ledgers name none, and are not parsed."""
        ledger = self.ledger if '"lost"' in self.summary.get(LEDGER, "") else None
        return ledger.lost if ledger else 0

    @property
    def metrics(self) -> dict[str, Any]:
        return metrics_of(self.summary)

    @property
    def rows(self) -> int:
        return self.total("records") - self.total("position-deletes")

    def total(self, name: str) -> int:
        """One of Iceberg's totals at this snapshot, such as `records` or `files-size`."""
        return int(self.summary.get(f"total-{name}", 0))


@dataclass(frozen=True, slots=True)
class Metadata:
    """What a table's metadata says of its snapshots. PyIceberg takes five times as long, as it reads the schema, too.

    refs: the snapshot of each branch and tag. whole: opens the table with PyIceberg, for its schema and files.
    """

    name: TableName
    uuid: str
    location: str
    properties: Mapping[str, str]
    snapshots: Mapping[int, Snapshot]
    head: Snapshot | None
    refs: Mapping[str, int]
    io: FileIO
    whole: Callable[[], Table]

    @classmethod
    def of(cls, table: Table | Metadata) -> Metadata:
        if isinstance(table, Metadata):
            return table
        fields = {"table_uuid", "location", "properties", "snapshots", "current_snapshot_id", "refs"}
        # PyIceberg's own method refuses format 3, which it reads.
        text = IcebergBaseModel.model_dump_json(table.metadata, include=fields)
        return cls.parse(TableName(*table.name()), text, table.io, lambda: table)

    @classmethod
    def parse(cls, name: TableName, text: str | bytes, io: FileIO, whole: Callable[[], Table]) -> Self:
        """Of the text of a metadata file."""
        found = json.loads(text)
        snapshots = {each["snapshot-id"]: _snapshot(each) for each in found.get("snapshots", ())}
        return cls(
            name=name,
            uuid=found.get("table-uuid", ""),
            location=found["location"],
            properties=found.get("properties", {}),
            snapshots=snapshots,
            head=snapshots.get(found.get("current-snapshot-id")),
            refs={ref: each["snapshot-id"] for ref, each in found.get("refs", {}).items()},
            io=io,
            whole=cache(whole),
        )


def _snapshot(found: Mapping[str, Any]) -> Snapshot:
    summary = dict(found.get("summary") or {})
    return Snapshot(
        id=found["snapshot-id"],
        parent=found.get("parent-snapshot-id"),
        operation=summary.pop("operation", None),
        summary=summary,
        committed_at=found["timestamp-ms"] / 1000,
        sequence=found.get("sequence-number") or 0,
    )


def open_catalog(lake: Lake) -> Catalog:
    """What holds the tables. The emulator's Glue and S3 if the lake has an endpoint, else those of AWS.

    Raises ConfigError: there are no credentials. Raises Fatal, Retryable: a REST catalog refuses them, or does not answer.
    """
    properties = {"client.region": lake.region, **credentials(lake)}
    if lake.endpoint:
        properties["s3.endpoint"] = lake.endpoint
    if lake.catalog is None:
        endpoint = {"glue.endpoint": lake.endpoint} if lake.endpoint else {}
        return GlueCatalog("lake", **properties, **endpoint, warehouse=lake.warehouse)
    properties |= lake.catalog.properties | catalog_credential(lake.secret)
    with aws_errors(f"the catalog {lake.catalog.uri}"):
        return RestCatalog("lake", **properties)


def credentials(lake: Lake) -> dict[str, str]:
    """Credentials for Glue and S3 as PyIceberg's properties: other libraries search for them differently from boto3."""
    if lake.endpoint:
        return {"client.access-key-id": emulator.ACCESS_KEY, "client.secret-access-key": emulator.SECRET_KEY}
    found = boto3.Session().get_credentials()
    if found is None:
        raise ConfigError("there are no AWS credentials for the lake", fix=LOG_IN)
    frozen = found.get_frozen_credentials()
    keys = {"client.access-key-id": frozen.access_key, "client.secret-access-key": frozen.secret_key}
    return keys | ({"client.session-token": frozen.token} if frozen.token else {})


def load(catalog: Catalog, name: TableName) -> Table | None:
    """The table, or None if the catalog has none."""
    with aws_errors(f"table {name}"), suppress(NoSuchTableError, NoSuchNamespaceError):
        return catalog.load_table((name.database, name.table))
    return None


@dataclass(frozen=True, slots=True)
class _Listing:
    """The metadata file of each listed Iceberg table of a database. whole: the database has no others."""

    places: Mapping[str, str]
    whole: bool


class Tables:
    """The tables of a catalog, for one look at them.

    A listing finds many tables at once, and a metadata file is one plain read: PyIceberg asks Glue for each table, and S3 for
    each piece of its file.
    """

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self._listings: dict[str, _Listing] = {}
        self._files: dict[TableName, bytes] = {}

    def names(self, database: str) -> list[str]:
        """The tables of a database; none if there is no such database."""
        with aws_errors(f"database {database}"), suppress(NoSuchNamespaceError):
            if isinstance(self.catalog, GlueCatalog):
                return list(self._list(self.catalog, database).places)
            return [str(identifier[-1]) for identifier in self.catalog.list_tables(database)]
        return []

    def expect(self, names: Collection[TableName]) -> None:
        """List the databases of these tables if they are many.

        A listing ends once it is twice as long as the names: a database may hold very many other tables.
        """
        if len(names) < LISTED or not isinstance(self.catalog, GlueCatalog):
            return
        for database, wanted in Counter(each.database for each in names).items():
            if database not in self._listings:
                self._list(self.catalog, database, most_pages=2 * -(-wanted // LISTED))

    def read(self, name: TableName) -> Metadata | None:
        """The metadata of a table; None if the catalog has no such table."""
        if place := self._place(name):
            raw = self._files.pop(name, None) or self._file(name, place)
            return Metadata.parse(name, _text(place, raw), self._io, lambda: self._whole(name, place, raw))
        table = self._loaded(name)
        return Metadata.of(table) if table else None

    def topic(self, name: TableName) -> str | None:
        """The topic that a table stores as its own; None if there is none. Its file is kept for the next `read`."""
        if place := self._place(name):
            raw = self._files[name] = self._file(name, place)
            found = json.loads(_text(place, raw)).get("properties", {})
        else:
            table = self._loaded(name)
            found = table.properties if table else {}
        topic: str | None = found.get(TOPIC)
        return topic

    def _list(self, catalog: GlueCatalog, database: str, most_pages: int | None = None) -> _Listing:
        places: dict[str, str] = {}
        page: dict[str, Any] = {}
        pages = catalog.glue.get_paginator("get_tables").paginate(DatabaseName=database)
        with aws_errors(f"database {database}"), tolerating("EntityNotFoundException"):
            for page in islice(pages, most_pages):
                for each in page["TableList"]:
                    if place := each.get("Parameters", {}).get("metadata_location"):
                        places[each["Name"]] = place
        found = self._listings[database] = _Listing(places, whole="NextToken" not in page)
        return found

    def _place(self, name: TableName) -> str | None:
        found = self._listings.get(name.database)
        return found.places.get(name.table) if found else None

    def _loaded(self, name: TableName) -> Table | None:
        """A table that no listing has; nobody is asked for it if the whole database was listed."""
        found = self._listings.get(name.database)
        return None if found and found.whole else load(self.catalog, name)

    @cached_property
    def _io(self) -> FileIO:
        return load_file_io(self.catalog.properties, "s3://")

    def _file(self, name: TableName, place: str) -> bytes:
        with aws_errors(f"table {name}"), self._io.new_input(place).open() as stream:
            return stream.read()

    def _whole(self, name: TableName, place: str, raw: bytes) -> Table:
        metadata = TableMetadataUtil.parse_raw(_text(place, raw).decode())
        return Table((name.database, name.table), metadata, place, self._io, self.catalog)


def _text(place: str, raw: bytes) -> bytes:
    return gzip.decompress(raw) if place.endswith(".gz.metadata.json") else raw


def ancestors(table: Table | Metadata) -> list[Snapshot]:
    """Snapshots from main's head towards the root, up to the oldest that has not expired."""
    metadata = Metadata.of(table)
    found = []
    current = metadata.head
    while current is not None:
        found.append(current)
        current = None if current.parent is None else metadata.snapshots.get(current.parent)
    return found


def latest_commit(table: Table | Metadata) -> tuple[Snapshot, Position] | None:
    """The snapshot with the table's position, and the position.

    It is the nearest ancestor of main with a position, or the tagged one if expiry has cut main's history.
    """
    metadata = Metadata.of(table)
    history = ancestors(metadata)
    tagged = metadata.snapshots.get(metadata.refs.get(POSITION_TAG, 0))
    if tagged and history and history[-1].parent is not None:
        history.append(tagged)
    position = nearest_position(history)
    if position is None:
        return None
    return next(each for each in history if each.id == position.snapshot), position


def state_of(table: Table | Metadata) -> TableState:
    """The state that the job wrote into the table; `cli.look.health` also reads the job's report."""
    written = table.properties.get(STATE)
    return TableState() if written is None else TableState.from_json(written)


def rows(table: Table | Metadata) -> int:
    """Rows of main, from the totals of its head."""
    head = Metadata.of(table).head
    return head.rows if head else 0


def count_by(table: Table, column: str, chosen: BooleanExpression = ALWAYS_TRUE) -> dict[str, int]:
    """Rows per value of a text column among the selected rows, read batch by batch."""
    counts: dict[str, int] = {}
    with aws_errors(f"table {'.'.join(table.name())}"):
        for batch in table.scan(chosen, selected_fields=(column,)).to_arrow_batch_reader():
            for each in batch.column(column).value_counts().to_pylist():
                counts[str(each["values"])] = counts.get(str(each["values"]), 0) + int(each["counts"])
    return dict(sorted(counts.items()))


@contextmanager
def aws_errors(what: str) -> Iterator[None]:
    """Turn errors of AWS and of catalogs into `Fatal` (refused), `Retryable` (no answer) or `ConfigError` (no credentials)."""
    try:
        yield
    except (UnauthorizedError, ForbiddenError, OAuthError) as error:
        said = str(error).partition("\n")[0]
        fix = "check `secret` and `scope` of `lake.catalog`, and what the catalog allows this client"
        raise Fatal(f"{what} may not be read: {said}", fix=fix) from None
    except RESTError as error:
        raise Retryable(f"{what} cannot be read: {str(error).partition(chr(10))[0]}") from None
    except ClientError as error:
        code = error.response["Error"]["Code"]
        if code.startswith(_DENIED):
            raise Fatal(f"{what} may not be read: {code}", fix="log in to the account of the lake") from None
        raise Retryable(f"{what} cannot be read: {code}") from None
    except NoCredentialsError:
        raise ConfigError("there are no AWS credentials", fix=LOG_IN) from None
    except (BotoCoreError, OSError) as error:
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        fix = "the embedded stack starts with `calve up`"
        raise Retryable(f"{what} cannot be read: {text}", fix=fix) from None
