"""The dead letters: read and decrypted, and compared with the topic's records."""

from __future__ import annotations

import hmac
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import And, EqualTo

from calve.config.masking_keys import read_keys
from calve.errors import ConfigError
from calve.schema.columns import DEAD_LETTERS, LATER, REDRIVEN, SEALED
from calve.table.position import DeadLetterRound
from calve.table.summary import round_of
from cli import lake
from cli.verify.claim import Bounds, Claim
from cli.verify.columns import Digests, Place, arrow_columns, column_hashes, within
from cli.verify.formats.decoding import received
from cli.verify.rows import Rows, batches_of, lowest_of
from cli.verify.topic import Records

if TYPE_CHECKING:
    from pyiceberg.table import Table

Count = Callable[[int], object]
RECORD = ("topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers")
"""The parts of a record: a dead letter must have the same, byte for byte."""
SEALED_BY = ("cluster_id", "topic_id", "partition", "offset", "round", SEALED)
"""Columns that decrypting a dead letter needs, beside its bytes."""
BYTES = ("key", "value", "headers")
NONCE_BYTES = 12


class DeadLetterRows:
    """The dead letters of the topic's incarnation that a table claims.

    `pending`: the round of dead letters that main names and that still wait on their branch: they are read from there. A
    redrive's branch holds only the marks of the dead letters that came back.
    """

    def __init__(self, table: Table, claim: Claim, masking: str | None) -> None:
        self.topic, self._topic_id = claim.position.topic, claim.topic.topic_id
        self._table, self._encryption = table, Encryption(masking)
        waiting = _waiting(table, claim)
        self.pending = waiting.round if waiting else None
        redrive = waiting is not None and waiting.redriven
        self._marked = self._marked_by(waiting) if waiting and redrive else {}
        later = tuple(name for name in LATER if name in table.schema().column_names)
        wanted = ("cluster_id", "topic_id", "reason", "round", *later, *RECORD)
        snapshot_id = waiting.snapshot if waiting and not redrive else None
        scan = table.scan(snapshot_id=snapshot_id, selected_fields=wanted)
        self._schema = scan.projection()
        self.tasks = list(scan.plan_files())

    def _marked_by(self, redrive: DeadLetterRound) -> dict[tuple[int, int], str]:
        """The places of dead letters that a pending redrive brought back, each with the redrive's round."""
        chosen: Any = And(EqualTo(REDRIVEN, redrive.round), EqualTo("topic_id", self._topic_id))  # type: ignore[call-arg, arg-type]
        places = ("partition", "offset")
        scan = self._table.scan(chosen, snapshot_id=redrive.snapshot, selected_fields=places)
        found = scan.to_arrow().to_pylist()
        return {(each["partition"], each["offset"]): redrive.round for each in found}

    def lowest(self) -> dict[int, int]:
        return lowest_of((rows.partitions, rows.offsets) for rows, *_ in self.read())

    def read(self, files: Collection[str] | None = None) -> Iterator[tuple[Rows, Any, Any, Any]]:
        """Dead letters, with reason, round of the redrive that brought each back (or null), and whether no key here
        decrypts it: its bytes are null then. files: only of these.
        """
        tasks = (each for each in self.tasks if files is None or each.file.file_path in files)
        batches = ((task, batch) for task in tasks for batch in batches_of(self._table, self._schema, task))
        for task, batch in batches:
            batch = batch.filter(pc.equal(batch.column("topic_id"), self._topic_id))
            batch, unopened = self._encryption.opened(batch)
            records = column_hashes(batch.select(list(RECORD)).cast(_columns()).columns)
            place = batch.column("partition"), batch.column("offset")
            marks = (
                self._marked.get(each) for each in zip(*(each.to_pylist() for each in place), strict=True)
            )
            back = pa.array(marks, pa.string())
            if REDRIVEN in batch.schema.names:
                back = pc.coalesce(batch.column(REDRIVEN).cast(pa.string()), back)
            yield (
                Rows(task.file.file_path, *place, records),
                batch.column("reason").cast(pa.string()),
                back,
                unopened,
            )


def _waiting(table: Table, claim: Claim) -> DeadLetterRound | None:
    named = claim.position.dead_letters
    published = {round_of(commit.summary) for commit in lake.ancestors(table)}
    if named is None or named.round in published or table.snapshot_by_id(named.snapshot) is None:
        return None
    return named


class Encryption:
    """The keys of a secret, read at the first encrypted dead letter. None: there is no secret."""

    def __init__(self, reference: str | None) -> None:
        self._reference = reference

    def opened(self, dead_letters: pa.RecordBatch) -> tuple[pa.RecordBatch, Any]:
        """The dead letters decrypted, and which have no key here: without `BYTES`.

        Bytes that do not decrypt stay as they are, and differ from the record.
        """
        unopened = pa.repeat(pa.scalar(False), dead_letters.num_rows)  # noqa: FBT003 a value
        if (
            SEALED not in dead_letters.schema.names
            or dead_letters.column(SEALED).null_count == dead_letters.num_rows
        ):
            return dead_letters, unopened
        unopened = pa.array(
            each not in (None, *self._keys) for each in dead_letters.column(SEALED).to_pylist()
        )
        rows = [self._opened(row) for row in dead_letters.select([*SEALED_BY, *BYTES]).to_pylist()]
        for name in BYTES:
            place = dead_letters.schema.get_field_index(name)
            clear = pa.array([row[name] for row in rows], dead_letters.schema.field(name).type)
            dead_letters = dead_letters.set_column(place, dead_letters.schema.field(name), clear)
        return dead_letters, unopened

    @cached_property
    def _keys(self) -> Mapping[str, bytes]:
        """Id -> key material of rounds; empty if this user may not read the secret."""
        try:
            keys = read_keys(self._reference) if self._reference else ()
        except ConfigError:
            return {}
        return {each.id: hmac.digest(each.secret, b"calve.dead-letters", "sha512")[:32] for each in keys}

    def _opened(self, row: dict[str, Any]) -> dict[str, Any]:
        if row[SEALED] is None:
            return row
        if row[SEALED] not in self._keys:
            return row | dict.fromkeys(BYTES)
        key = hmac.digest(self._keys[row[SEALED]], row["round"].encode(), "sha256")
        place = f"{row['cluster_id']}/{row['topic_id']}/{row['partition']}/{row['offset']}"
        headers = row["headers"] and [
            each | {"value": _clear(key, each["value"], f"headers.{n}/{place}")}
            for n, each in enumerate(row["headers"])
        ]
        parts = {name: _clear(key, row[name], f"{name}/{place}") for name in ("key", "value")}
        return row | parts | {"headers": headers}


def _clear(key: bytes, data: bytes | None, bound: str) -> bytes | None:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    if data is None:
        return None
    try:
        return AESGCM(key).decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], bound.encode())
    except (InvalidTag, ValueError):
        return data


@dataclass(slots=True)
class DeadLetters:
    """The comparable dead letters without their contents: partition -> offset -> reason.

    `redriven`: those that came back, so that the table must have their records, each with the redrive's round. `came_back`: the
    number of all that came back. `unopened`: those without a key here.
    """

    rows: DeadLetterRows | None
    reasons: dict[int, dict[int, str]] = field(default_factory=dict)
    digests: Digests = field(default_factory=Digests)
    places: dict[str, set[Place]] = field(default_factory=dict)
    by_reason: Counter[str] = field(default_factory=Counter)
    redriven: dict[tuple[int, int], str] = field(default_factory=dict)
    came_back: int = 0
    unopened: set[tuple[int, int]] = field(default_factory=set)

    def keeps(self, partition: int, offset: int) -> bool:
        """Whether there is a dead letter, open or not."""
        return offset in self.reasons.get(partition, {})

    def holds(self, partition: int, offset: int) -> bool:
        """Whether there is an open dead letter: its record must not be in the table."""
        return self.keeps(partition, offset) and (partition, offset) not in self.redriven


def read_dead_letters(
    rows: DeadLetterRows | None, claimed: dict[int, Bounds], spans: dict[int, Bounds]
) -> DeadLetters:
    """One pass over the dead letters: all claimed ones are counted, those that Kafka still has are compared."""
    dead_letters = DeadLetters(rows)
    for found, reasons, marked, unopened in rows.read() if rows else ():
        claimed_here = within(found.partitions, found.offsets, claimed)
        dead_letters.came_back += pc.count(marked.filter(claimed_here)).as_py()
        dead_letters.by_reason.update(reasons.filter(claimed_here).to_pylist())
        inside = within(found.partitions, found.offsets, spans)
        kept = found.where(inside)
        added = dead_letters.digests.add(kept.partitions, kept.offsets, kept.hashes)
        dead_letters.places.setdefault(found.file, set()).update(added)
        dead_letters.unopened.update(found.where(pc.and_(inside, unopened)).places())
        facts = zip(reasons.filter(inside).to_pylist(), marked.filter(inside).to_pylist(), strict=True)
        for (partition, offset), (reason, back) in zip(kept.places(), facts, strict=True):
            dead_letters.reasons.setdefault(partition, {})[offset] = reason
            if back:
                dead_letters.redriven[partition, offset] = back
    return dead_letters


def dead_letters_of(records: Records, dead_letters: DeadLetters) -> Rows:
    """The dead letters that these records must make, without bytes where no key here decrypts them."""
    places = list(zip(records.partitions, records.offsets, strict=True))
    dead = records.select([n for n, place in enumerate(places) if dead_letters.keeps(*place)])
    made = received(dead, dead_letters.rows.topic if dead_letters.rows else "") | {"value": dead.values}
    closed = [place in dead_letters.unopened for place in zip(dead.partitions, dead.offsets, strict=True)]
    for name in BYTES if any(closed) else ():
        made[name] = [None if sealed else each for sealed, each in zip(closed, made[name], strict=True)]
    schema = _columns()
    batch = pa.record_batch([pa.array(made[each.name], each.type) for each in schema], schema=schema)
    return Rows("", batch.column("partition"), batch.column("offset"), column_hashes(batch.columns))


def _columns() -> pa.Schema:
    columns = arrow_columns(DEAD_LETTERS)
    return pa.schema([columns.field(name) for name in RECORD])
