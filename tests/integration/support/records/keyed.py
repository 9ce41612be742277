"""Topics of records with keys, and what they come to, folded one record after the other."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from calve.modes.upsert import Upsert
from tests.integration.support.engine import Engine, trades

BY_RECORD_KEY = Upsert(("_kafka.key",), deletes=True, bucketed=True)
BY_ID = Upsert(("id",), bucketed=True)

Row = tuple[int, int]
"""The place of a record, (partition, offset)."""


@dataclass
class Users:
    """A topic of trades whose keys say which user they are of; the partition follows the key."""

    engine: Engine
    partitions: int = 2
    topic: str = ""
    state: dict[bytes, tuple[Row, int]] = field(default_factory=dict)
    ends: list[int] = field(default_factory=list)
    sent: int = 0

    def __post_init__(self) -> None:
        self.topic = self.topic or self.engine.topic(partitions=self.partitions)
        self.ends = [0] * self.partitions

    def partition(self, key: bytes) -> int:
        return sum(key) % self.partitions

    def put(self, key: bytes, price: int | None = None) -> None:
        """A row of the key, the newest there is; `price` tells it."""
        self.sent += 1
        price = self.sent if price is None else price
        row = trades(1, first=sum(key))[0] | {"price": price}
        place = self._send(key, self.engine.encode(self.topic, row))
        self.state[key] = place, price

    def delete(self, key: bytes) -> None:
        self._send(key, None)
        self.state.pop(key, None)

    def scramble(self, dice: random.Random, count: int, *, keys: int) -> None:
        """Changes of keys that are drawn from so many, some of them deletions."""
        for _ in range(count):
            key = f"user-{dice.randrange(keys)}".encode()
            self.delete(key) if dice.random() < 0.2 else self.put(key)
        self.engine.flush()

    def expected(self) -> dict[bytes, tuple[Row, int]]:
        return dict(self.state)

    def held(self) -> dict[bytes, tuple[Row, int]]:
        """What the table has; a key that it has twice is an error."""
        rows = self.engine.rows(self.topic).select("_kafka.*", "price").collect()
        found = {bytes(row["key"]): ((row["partition"], row["offset"]), row["price"]) for row in rows}
        assert len(found) == len(rows), "a key has several rows"
        return found

    def target(self, **settings: Any) -> Any:
        return self.engine.target(self.topic, **({"upsert": BY_RECORD_KEY} | settings))

    def _send(self, key: bytes, value: bytes | None) -> Row:
        partition = self.partition(key)
        self.engine.send(self.topic, value, key=key, partition=partition)
        self.ends[partition] += 1
        return partition, self.ends[partition] - 1
