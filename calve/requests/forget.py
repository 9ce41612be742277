"""Forget a person: remove the rows and dead letters that match a key, and everything that held them (ADR 24).

The answer states how much was removed from where, and nothing about the person.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import count
from typing import ClassVar, Self

from calve.config.masking_keys import Key
from calve.config.steps import Mask, Step, names_behind, ways_to
from calve.names import RECORD_KEY
from calve.requests.expired_history import ExpiredHistory
from calve.requests.requests import WaitingRequest
from calve.requests.time_travel import first_read
from calve.schema.columns import Json
from calve.schema.evolution import column_at
from calve.stored import Stored, from_plain
from calve.table.position import Offsets, Position, TopicKey
from calve.table.protocol import Commit
from calve.table.summary import FORGET, FORGET_FOUND, FORGET_LEFT, FORGOTTEN, is_first

Places = dict[str, dict[str, list[list[int]]]]
"""Incarnation of the topic (`TopicKey`) -> partition -> ranges [from, to) of offsets."""

UNPROVABLE_IN_S3_TABLES = (
    "S3 Tables deletes files days after their rows, so calve cannot prove that a person is forgotten"
)


@dataclass(frozen=True, slots=True)
class Condition:
    """A column path and the value it must have, or one of the `others`: those are of other persons. Values may be encrypted."""

    column: str
    value: str = field(repr=False)
    others: tuple[str, ...] = field(default=(), repr=False)

    @property
    def values(self) -> tuple[str, ...]:
        return self.value, *self.others


@dataclass(frozen=True, slots=True)
class Request(WaitingRequest):
    """The rows to remove: those that meet all conditions. sealed: the id of the masking key that encrypts the values."""

    NAME: ClassVar[str] = FORGET
    where: tuple[Condition, ...]
    sealed: str | None = None

    @property
    def persons(self) -> int:
        return max(len(each.values) for each in self.where)

    def with_values(self, change: Callable[[int, str], str]) -> Self:
        """The request with each value changed; change: takes its place in the request."""
        places = count()
        where = tuple(Condition(each.column, *_changed(each.values, places, change)) for each in self.where)
        return replace(self, where=where)


def _changed(
    values: Iterable[str], places: Iterator[int], change: Callable[[int, str], str]
) -> tuple[str, tuple[str, ...]]:
    first, *others = (change(next(places), value) for value in values)
    return first, tuple(others)


@dataclass(frozen=True, slots=True)
class Found(Stored):
    """What a request has found so far, stored before anything is deleted. After a crash the next job continues from it.

    since: where the table began, if known: the history that shows it is removed. exports: manifests of exports.
    """

    id: str
    rows: int = 0
    letters: int = 0
    files: int = 0
    row_places: Places = field(default_factory=dict)
    letter_places: Places = field(default_factory=dict)
    exports: tuple[str, ...] = ()
    since: dict[str, Offsets] = field(default_factory=dict)

    @classmethod
    def of(cls, properties: Mapping[str, str], request_id: str) -> Self:
        text = properties.get(FORGET_FOUND)
        found = cls.from_json(text) if text else None
        return found if found and found.id == request_id else cls(request_id)

    def with_rows(self, rows: int, files: int, places: Places) -> Self:
        """Add the rows that a try has found. Rows found before are the same rows, not deleted yet."""
        if covers(self.row_places, places):
            rows, files = 0, 0
        together = united(self.row_places, places)
        return replace(self, rows=self.rows + rows, files=self.files + files, row_places=together)

    def with_letters(self, letters: int, places: Places) -> Self:
        if covers(self.letter_places, places):
            letters = 0
        return replace(self, letters=self.letters + letters, letter_places=united(self.letter_places, places))

    def with_exports(self, manifests: Iterable[str]) -> Self:
        return replace(self, exports=tuple(sorted({*self.exports, *manifests})))


@dataclass(frozen=True, slots=True)
class Entry:
    """The outcome of a request: the audit record. `problem`: why nothing was done.

    persons: how many values were asked for. files: rewritten data files. removed: files that the answering job deleted.
    unopened: dead letters encrypted with keys that the secret lacks, which nobody can read.
    """

    id: str
    requested: str
    done: str
    rows: int = 0
    letters: int = 0
    files: int = 0
    removed: int = 0
    exports: int = 0
    unopened: int = 0
    row_places: Places = field(default_factory=dict)
    letter_places: Places = field(default_factory=dict)
    since: dict[str, Offsets] = field(default_factory=dict)
    problem: str | None = None
    persons: int = 1

    @classmethod
    def all(cls, properties: Mapping[str, str]) -> tuple[Self, ...]:
        return tuple(from_plain(cls, each) for each in json.loads(properties.get(FORGOTTEN, "[]")))

    @classmethod
    def of(cls, properties: Mapping[str, str], request_id: str) -> Self | None:
        """The answer to a request; None while there is none, or while its leftovers still exist."""
        if FORGET_LEFT in properties:
            return None
        return next((each for each in cls.all(properties) if each.id == request_id), None)


def to_json(entries: Sequence[Entry]) -> str:
    return json.dumps([asdict(each) for each in entries])


def places_of(found: Iterable[tuple[TopicKey, int, int]]) -> Places:
    offsets: dict[str, dict[str, list[list[int]]]] = {}
    for topic, partition, offset in found:
        offsets.setdefault(str(topic), {}).setdefault(str(partition), []).append([offset, offset + 1])
    return united(offsets, {})


def united(these: Places, those: Places) -> Places:
    made: Places = {}
    for topic in sorted({*these, *those}):
        parts = these.get(topic, {}), those.get(topic, {})
        made[topic] = {
            partition: _merged([*parts[0].get(partition, ()), *parts[1].get(partition, ())])
            for partition in sorted({*parts[0], *parts[1]}, key=int)
        }
    return made


def covers(these: Places, those: Places) -> bool:
    return united(these, those) == united(these, {})


def _merged(ranges: list[list[int]]) -> list[list[int]]:
    found: list[list[int]] = []
    for start, to in sorted(ranges):
        if found and start <= found[-1][1]:
            found[-1] = [found[-1][0], max(found[-1][1], to)]
        else:
            found.append([start, to])
    return found


def position_after(base: Position, *, round_id: str, writer: str) -> Position:
    """The position after a forget commit: no offset moves, but every round that began before it loses the race."""
    return replace(base, round=round_id, writer=writer, snapshot=None)


def began_at(
    ancestors: Iterable[Commit], entries: Sequence[Entry], expired: ExpiredHistory | None
) -> dict[str, Offsets]:
    """Where the table began, by incarnation of the topic: by its whole history, or an earlier request's note; empty: unknown."""
    line = list(ancestors)
    found = {str(topic): offsets for topic, offsets in first_read(line).items()}
    for span in (each for each in reversed(expired.spans if expired else ()) if each.start):
        found[str(span.topic)] = found.get(str(span.topic), {}) | span.start
    if (expired and expired.born) or (line and is_first(line[-1].summary)):
        return found
    noted = next((each.since for each in reversed(entries) if each.since), None)
    if noted is None:
        return {}
    return {topic: found.get(topic, {}) | noted.get(topic, {}) for topic in {*found, *noted}}


def column_problem(schema: Json, column: str) -> str | None:
    """Why a column cannot identify a person; None if it can."""
    found = column_at(schema, column)
    if found is None:
        return f"the table has no column {column}" + (
            ": paths lead only through structs" if "." in column else ""
        )
    if isinstance(kind := found["type"], dict):
        return f"{column} is a {kind['type']}: name a column that holds a single value"
    return None


def masking_problem(steps: Iterable[Step], tags: Mapping[str, Sequence[str]], column: str) -> str | None:
    """Why a masked column cannot identify a person; None if it is not masked, or hashed. tags: from the schema."""
    steps = tuple(steps)
    for step in steps:
        if not isinstance(step, Mask):
            continue
        named = {
            path: step.tags[tag].how
            for path, own in tags.items()
            if (tag := next((each for each in step.tags if each in own), None)) is not None
        }
        named |= {path: rule.how for path, rule in step.fields.items()} | {RECORD_KEY: step.key}
        for path, how in named.items():
            if how not in ("hash", "keep") and names_behind(steps, path) & {*ways_to(column)}:
                return f"{column} is masked by {how}: what is left of it tells many persons, or none"
    return None


def seal_key(key: Key, request_id: str) -> bytes:
    return hmac.digest(key.seal, request_id.encode(), "sha256")


def bound_to(request_id: str, place: int) -> bytes:
    """The authenticated context of an encrypted value: its place in the request."""
    return f"{FORGET}/{request_id}/{place}".encode()
