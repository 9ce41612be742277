"""The plan of what to produce: the number of records of each kind, and their places."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from random import Random
from typing import Literal

from calve.errors import ConfigError
from calve.names import topic_problem

MALFORMED = {
    "bad_magic": "bad_magic",
    "truncated": "truncated",
    "truncated_payload": "malformed",
    "trailing_bytes": "trailing_bytes",
    "unknown_schema_id": "unknown_schema_id",
    "absurd_length": "malformed",
    "null_value": "null_value",
    "incompatible_schema": "incompatible_schema",
}
"""Kinds of malformed records -> the reason (`calve.schema.columns.REASONS`) for which an append table refuses them."""

Kind = str
DUPLICATE: Kind = "duplicate"
TOMBSTONE: Kind = "tombstone"
BLOCK = 10_000
"""Records per block; every block has its own random numbers."""

Dataset = Literal["stock_trades", "users"]
Naming = Literal["prefix", "header"]
"""Where a record names its schema: an id before the value, or a GUID in a header."""
DATASETS: tuple[Dataset, ...] = ("stock_trades", "users")


@dataclass(frozen=True, slots=True)
class Fates:
    """The outcome of the records in an append table; `duplicates` are among the `applied`."""

    applied: int
    dead_lettered: dict[str, int]
    duplicates: int


@dataclass(frozen=True, slots=True)
class Plan:
    """Records for one topic. `count` is the total; everything else is a part of it.

    Shares are 0 to 1: `duplicates` and `tombstones` of all records, `negative_prices` and `large_quantities` of the well-formed
    trades. `malformed` counts records by kind. With `evolve` the second half is written with the second schema version.
    `rate` is in records per second. `period`: the records' timestamps lie evenly in it; without it they are of now.
    `schema_id`: where records name their schemas.
    """

    topic: str
    count: int
    dataset: Dataset = "stock_trades"
    seed: int = 0
    rate: float | None = None
    duplicates: float = 0.0
    tombstones: float = 0.0
    malformed: Mapping[Kind, int] = field(default_factory=dict)
    negative_prices: float = 0.0
    large_quantities: float = 0.0
    evolve: bool = False
    partitions: int = 6
    period: tuple[datetime, datetime] | None = None
    schema_id: Naming = "prefix"

    def __post_init__(self) -> None:
        if problems := list(self._problems()) or list(self._overfull()):
            raise ConfigError("; ".join(problems))

    def _problems(self) -> Iterator[str]:
        if problem := topic_problem(self.topic):
            yield problem
        for name in ("count", "partitions"):
            if (number := getattr(self, name)) < 1:
                yield f"{name} is {number}, it must be at least 1"
        for name in ("duplicates", "tombstones", "negative_prices", "large_quantities"):
            if not 0 <= (share := getattr(self, name)) <= 1:
                yield f"{name} is {share}, a share is between 0 and 1"
        if self.dataset == "users" and (self.negative_prices or self.large_quantities):
            yield "users have neither prices nor quantities"
        if self.rate is not None and self.rate <= 0:
            yield f"rate is {self.rate}, it must be above 0"
        if unknown := sorted(set(self.malformed) - set(MALFORMED)):
            yield f"unknown kinds of malformed records {unknown}; known: {', '.join(MALFORMED)}"

    def _overfull(self) -> Iterator[str]:
        special, room = sum(self.special().values()), self.count
        if self.duplicates:
            room = self.count - 1 if self.count <= BLOCK else self.count * 9 // 10
        if special > room:
            yield f"{special} duplicates, tombstones and malformed records do not fit into {self.count} records"

    def special(self) -> dict[Kind, int]:
        """The number of records that are not new well-formed ones, by kind."""
        counts = dict(self.malformed)
        counts[TOMBSTONE] = round(self.count * self.tombstones)
        counts[DUPLICATE] = round(self.count * self.duplicates)
        return {kind: n for kind, n in counts.items() if n}

    def fates(self) -> Fates:
        """The exact outcome of these records in an append table."""
        special = self.special()
        reasons: dict[str, int] = {}
        for kind, n in special.items():
            if kind != DUPLICATE:
                reason = "null_value" if kind == TOMBSTONE else MALFORMED[kind]
                reasons[reason] = reasons.get(reason, 0) + n
        return Fates(self.count - sum(reasons.values()), reasons, special.get(DUPLICATE, 0))


def in_turn(total: int) -> dict[Kind, int]:
    return {kind: (total - n - 1) // len(MALFORMED) + 1 for n, kind in enumerate(MALFORMED) if n < total}


@dataclass(frozen=True, slots=True)
class Block:
    """`size` records from `first` on; `special`: the kind of some of them by place (0 = the block's first)."""

    number: int
    first: int
    size: int
    special: Mapping[int, Kind]


def blocks(plan: Plan) -> Iterator[Block]:
    """The plan's blocks, with the special records spread evenly; totals are exact.

    With duplicates, a block's first record is well-formed: there is one to repeat.
    """
    sequence = [kind for kind, n in plan.special().items() for _ in range(n)]
    random = Random(f"{plan.seed} {plan.topic} special")  # noqa: S311 reproducible on purpose
    random.shuffle(sequence)
    reserved = int(DUPLICATE in sequence)
    for number, first in enumerate(range(0, plan.count, BLOCK)):
        size = min(BLOCK, plan.count - first)
        begin, end = (-(-len(sequence) * record // plan.count) for record in (first, first + size))
        kinds = sequence[begin:end]
        places = random.sample(range(reserved, size), len(kinds))
        yield Block(number, first, size, dict(zip(places, kinds, strict=True)))
