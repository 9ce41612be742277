"""The mode of a table and its key, by the table's position."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from calve.modes.aggregate import Aggregate
from calve.modes.switch import folded_as, folded_to
from calve.names import RECORD_KEY, SYSTEM_COLUMN
from calve.schema.columns import CHANGE
from calve.table.summary import kind_of
from cli.verify.columns import column_at, column_hashes, row_hashes

if TYPE_CHECKING:
    from pyiceberg.schema import Schema

    from cli.verify.claim import Claim

RECORD_TIME = f"{SYSTEM_COLUMN}.timestamp"


@dataclass(frozen=True, slots=True)
class Mode:
    """key: paths of its columns.

    first: the table holds the first record of each key, or those `window_us` apart; else the newest. order_by: path of the column
    that orders records. deletes: a tombstone names a row. to: offsets below which the key counts, in a table that is append by
    now; None: all. changes: the topic has a database's changes, ordered by these fields of their source; keeps: deleted rows
    stay. versions: the table holds every record of each key, and when it was valid. totals: the table aggregates by the key.
    """

    key: tuple[str, ...]
    first: bool = False
    window_us: int | None = None
    order_by: str | None = None
    deletes: bool = False
    to: Mapping[int, int] | None = None
    changes: tuple[str, ...] | None = None
    keeps: bool = False
    versions: bool = False
    totals: Aggregate | None = None

    @property
    def newest(self) -> bool:
        """Whether the table holds the newest record of each key."""
        return not self.first and self.totals is None

    @property
    def drops(self) -> bool:
        """Whether a record that a step leaves out deletes the row of its key."""
        return self.newest and self.order_by is None

    @property
    def times(self) -> tuple[str, ...]:
        """Paths of columns: the first that is not null says from when a version is valid."""
        own = self.order_by or (None if self.changes is None else f"{CHANGE['name']}.at")
        return (own, RECORD_TIME) if own else (RECORD_TIME,)

    def covers(self, partition: int, offset: int) -> bool:
        """Whether the key decides if the record is a row."""
        return self.to is None or offset < self.to.get(partition, 0)

    def digests(self, batch: pa.RecordBatch) -> Any:
        """The 64-bit digest of each row's key."""
        return row_hashes(column_hashes([column_at(batch, path) for path in self.key]))

    def by_deed(
        self, batch: pa.RecordBatch, *, tombstones: bool
    ) -> Iterator[tuple[pa.RecordBatch, bool, str | None]]:
        """Rows of a batch by their effect, each with `tombstones` and `idle` as in `Rows`.

        Without a database's changes all of them write.
        """
        if tombstones:
            yield batch, True, None if self.deletes else "tombstone"
        elif self.changes is None:
            yield batch, False, None
        else:
            op = column_at(batch, f"{CHANGE['name']}.op")
            for deed in pc.unique(op).to_pylist():
                idle = deed if deed in ("t", "m") else None
                yield batch.filter(pc.equal(op, deed)), deed == "d" and not self.keeps, idle

    def nameless(self, batch: pa.RecordBatch) -> Any:
        """True for rows with a null in their key."""
        return reduce(pc.or_, [column_at(batch, path).is_null() for path in self.key])


def mode_of(claim: Claim, schema: Schema, key_column: str | None) -> Mode | None:
    """The mode in the table's position; None if it is append."""
    text = claim.position.mode
    if text is None:
        return None
    if kind_of(text) == "aggregate":
        totals = Aggregate.of_note(text)
        return Mode(totals.key, totals=totals)
    folded, to = folded_as(text), folded_to(text).get(claim.topic)
    noted = json.loads(folded or text)
    names = tuple(schema.find_column_name(each) or "" for each in noted["key"])
    if noted["mode"] == "deduplicate":
        window = noted["window_ms"]
        return Mode(names, first=True, window_us=None if window is None else window * 1000)
    order = None if noted["order_by"] is None else schema.find_column_name(noted["order_by"])
    of_record = {RECORD_KEY, key_column}
    deletes = all(name in of_record or name.split(".")[0] == key_column for name in names)
    if noted["mode"] == "history":
        changes = () if noted["changes"] else None
        deletes = deletes and changes is None
        return Mode(
            names, order_by=order, deletes=deletes, changes=changes, keeps=noted["changes"], versions=True
        )
    if noted["mode"] == "change_data":
        keeps, changes = noted["deleted"] == "keep", tuple(noted["source"])
        return Mode(names, order_by=order, deletes=deletes and not keeps, changes=changes, keeps=keeps)
    return Mode(names, order_by=order, deletes=deletes, to=(to or {}) if folded else None)
