"""A workload: records of one topic, always the same for the same seed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, Protocol

SchemaType = Literal["AVRO", "JSON", "PROTOBUF"]
SEED = 20_261_123
BLOCK = 50_000


class Block(Protocol):
    """Gives keys and values of the records first, first + 1, ..., whose values begin with the frame."""

    def __call__(self, first: int, size: int, frame: bytes) -> tuple[list[bytes], list[bytes]]: ...


@dataclass(frozen=True, slots=True)
class Workload:
    """`schema`: the text that is registered; `block` makes records by their numbers."""

    name: str
    schema: str
    make: Callable[[], Block]
    type: SchemaType = "AVRO"
    partitions: int = 6


def blocks(workload: Workload, count: int, frame: bytes) -> Iterator[tuple[list[bytes], list[bytes]]]:
    """Keys and values of `count` records, some at a time."""
    block = workload.make()
    for first in range(0, count, BLOCK):
        yield block(first, min(BLOCK, count - first), frame)
