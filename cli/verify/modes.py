"""The mode of a table and what tells its rows apart, by its own note, and the records of a topic with their keys."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from calve.modes import folded_as, folded_to
from calve.names import SYSTEM_COLUMN
from cli.verify.decoding import Decoding
from cli.verify.hashing import column_hashes, row_hashes
from cli.verify.topic import Records

if TYPE_CHECKING:
    from pyiceberg.schema import Schema

    from cli.verify.claim import Claim

RECORD_KEY = f"{SYSTEM_COLUMN}.key"


@dataclass(frozen=True, slots=True)
class Keyed:
    """A batch with the digest of each row's key (64 bits) and the value that orders it; tombstones are rows of nulls."""

    batch: pa.RecordBatch
    keys: Any
    orders: Any
    tombstones: bool = False


@dataclass(frozen=True, slots=True)
class Mode:
    """Paths of the columns that are the key.

    first: the table holds the first record of each key, or those that are `window_us` apart; else the newest. order_by: path of
    the column that says which is that. deletes: a tombstone names a row. to: the offsets below which that is so, of a table
    that has been appended to since; None: of all.
    """

    key: tuple[str, ...]
    first: bool = False
    window_us: int | None = None
    order_by: str | None = None
    deletes: bool = False
    to: Mapping[int, int] | None = None

    def covers(self, partition: int, offset: int) -> bool:
        """True where the key decides whether the record is a row."""
        return self.to is None or offset < self.to.get(partition, 0)

    def keyed(self, batch: pa.RecordBatch, *, tombstones: bool = False) -> Keyed:
        """Rows whose key has no null."""
        keys = row_hashes(column_hashes([_at(batch, path) for path in self.key]))
        orders = _at(batch, self.order_by) if self.order_by else pa.nulls(batch.num_rows)
        return Keyed(batch, keys, orders, tombstones)

    def nameless(self, batch: pa.RecordBatch) -> Any:
        """True for rows of which a part of the key is null."""
        return reduce(pc.or_, [_at(batch, path).is_null() for path in self.key])

    def judge(self, decoder: Decoding, records: Records, place: int) -> str | None:
        """Why the record at a place is neither a row nor a tombstone; None where it is one."""
        if not self.covers(records.partitions[place], records.offsets[place]):
            return decoder.judge(records, place)
        if not (self.deletes and records.values[place] is None) and (found := decoder.judge(records, place)):
            return found
        _, refused = keyed_rows(decoder, records.select([place]), self)
        return refused[0][1] if refused else None


def mode_of(claim: Claim, schema: Schema, key_column: str | None) -> Mode | None:
    """What the table's position says of its mode; None where it has held every record from its birth."""
    text = claim.position.mode
    if text is None:
        return None
    folded, to = folded_as(text), folded_to(text).get(claim.topic)
    noted = json.loads(folded or text)
    names = tuple(schema.find_column_name(each) or "" for each in noted["key"])
    if noted["mode"] == "deduplicate":
        window = noted["window_ms"]
        return Mode(names, first=True, window_us=None if window is None else window * 1000)
    order = None if noted["order_by"] is None else schema.find_column_name(noted["order_by"])
    of_record = {RECORD_KEY, key_column}
    deletes = all(name in of_record or name.split(".")[0] == key_column for name in names)
    return Mode(names, order_by=order, deletes=deletes, to=(to or {}) if folded else None)


def keyed_rows(decoder: Decoding, records: Records, mode: Mode) -> tuple[list[Keyed], list[tuple[int, str]]]:
    """Rows and tombstones of the records with their keys, and (place, reason) of records that are neither."""
    dead = [n for n, value in enumerate(records.values) if value is None] if mode.deletes else []
    living = [n for n in range(len(records)) if records.values[n] is not None or not mode.deletes]
    found: list[Keyed] = []
    refused: list[tuple[int, str]] = []
    for places, read, tombstones in ((living, decoder.rows, False), (dead, decoder.tombstones, True)):
        if not places:
            continue
        batches, unread = read(records.select(places))
        refused += [(places[n], reason) for n, reason in unread]
        for batch in batches:
            nameless = mode.nameless(batch)
            if pc.any(nameless).as_py():
                refused += [(n, "null_key") for n in _places(records, batch.filter(nameless))]
                batch = batch.filter(pc.invert(nameless))
            found.append(mode.keyed(batch, tombstones=tombstones))
    return found, refused


def _places(records: Records, batch: pa.RecordBatch) -> Sequence[int]:
    wanted = batch.column(SYSTEM_COLUMN)
    known = {place: n for n, place in enumerate(zip(records.partitions, records.offsets, strict=True))}
    pairs = zip(wanted.field("partition").to_pylist(), wanted.field("offset").to_pylist(), strict=True)
    return [known[pair] for pair in pairs]


def _at(batch: pa.RecordBatch, path: str) -> Any:
    name, *inner = path.split(".")
    column = batch.column(name)
    return pc.struct_field(column, inner) if inner else column
