"""The lake as the operator's commands see it: the one place that opens tables with PyIceberg."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import boto3
from botocore.exceptions import BotoCoreError, ClientError
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
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

ALWAYS_TRUE = AlwaysTrue()
_DENIED = ("AccessDenied", "UnrecognizedClient", "InvalidSignature", "ExpiredToken", "InvalidClientTokenId")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot with what calve wrote into its summary; `ledger` is None where another writer made it."""

    id: int
    parent: int | None
    committed_at: datetime
    operation: str | None
    summary: dict[str, str]
    sequence: int = 0

    @property
    def commit(self) -> Commit:
        """The same, as the protocol sees it."""
        at = self.committed_at.timestamp()
        return Commit(self.id, self.parent, self.summary, at, self.sequence, self.operation)

    @property
    def ledger(self) -> Ledger | None:
        """The fate of every offset of the round that made it."""
        return ledger_of(self.summary) if has_ledger(self.summary) else None

    @property
    def metrics(self) -> dict[str, Any]:
        """The figures of the round that made it."""
        return metrics_of(self.summary)

    def total(self, name: str) -> int:
        """One of Iceberg's totals as of this snapshot, such as `records` or `files-size`."""
        return int(self.summary.get(f"total-{name}", 0))


def open_catalog(lake: Lake) -> Catalog:
    """The Glue Data Catalog: the emulator's where the lake has an endpoint, else that of AWS.

    Raises:
        ConfigError: boto3 finds no credentials.
    """
    properties = {"warehouse": lake.warehouse, "client.region": lake.region, **credentials(lake)}
    if lake.endpoint:
        properties |= {"glue.endpoint": lake.endpoint, "s3.endpoint": lake.endpoint}
    return GlueCatalog("lake", **properties)


def credentials(lake: Lake) -> dict[str, str]:
    """Of Glue and S3 alike, as PyIceberg's properties: other libraries' own search for them differs from boto3's.

    Raises:
        ConfigError: boto3 finds none.
    """
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
    """The table, or None where the catalog has none.

    Raises:
        Retryable: the catalog or the object store does not answer.
        Fatal: it refuses these credentials.
    """
    with aws_errors(f"table {name}"):
        try:
            return catalog.load_table((name.database, name.table))
        except (NoSuchTableError, NoSuchNamespaceError):
            return None


def ancestors(table: Table) -> list[Snapshot]:
    """Snapshots from main's head towards the root, as far as expiry has left them."""
    found = []
    current = table.current_snapshot()
    while current is not None:
        found.append(_snapshot(current))
        parent = current.parent_snapshot_id
        current = None if parent is None else table.snapshot_by_id(parent)
    return found


def latest_commit(table: Table) -> tuple[Snapshot, Position] | None:
    """The snapshot that says where the table stands, and what it says.

    It is the nearest ancestor of main with a position, or the tagged one where expiry has cut main's history.
    """
    history = ancestors(table)
    tag = table.metadata.refs.get(POSITION_TAG)
    if (
        tag
        and history
        and history[-1].parent is not None
        and (tagged := table.snapshot_by_id(tag.snapshot_id))
    ):
        history.append(_snapshot(tagged))
    position = nearest_position(each.commit for each in history)
    if position is None:
        return None
    return next(each for each in history if each.id == position.snapshot), position


def state_of(table: Table) -> TableState:
    """The state that the job wrote into the table; what its job says beside it, `cli.look.condition` reads, too."""
    written = table.properties.get(STATE)
    return TableState() if written is None else TableState.from_json(written)


def rows(table: Table) -> int:
    """Rows of main, from the totals of its head."""
    head = table.current_snapshot()
    if head is None:
        return 0
    totals = _snapshot(head)
    return totals.total("records") - totals.total("position-deletes")


def count_by(table: Table, column: str, chosen: BooleanExpression = ALWAYS_TRUE) -> dict[str, int]:
    """How often each value of a text column occurs among the chosen rows, batch by batch."""
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
        committed_at=datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC),
        operation=summary.operation.value if summary else None,
        summary=dict(summary.additional_properties) if summary else {},
        sequence=snapshot.sequence_number or 0,
    )


@contextmanager
def aws_errors(what: str) -> Iterator[None]:
    """Say of an AWS client's errors whether it was refused (`Fatal`) or not answered (`Retryable`)."""
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
