"""The spreading of topics over the parts of a job.

Each topic goes to the part with the greatest SHA-256 of `PART/TOPIC` (rendezvous hashing). Nobody stores who has which topic, and
another count moves few topics: to `count` + 1 parts only the topics of the new part.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256


def part_of(topic: str, count: int) -> int:
    """The part that has a topic, from 1 to `count`. Frozen: another answer would move tables."""
    return max(range(1, count + 1), key=lambda part: sha256(f"{part}/{topic}".encode()).digest())


@dataclass(frozen=True, slots=True)
class Share:
    """One of the `count` parts of a job, the entry `of` of `jobs`. part: from 1 on."""

    of: str
    part: int
    count: int

    def has(self, topic: str) -> bool:
        return part_of(topic, self.count) == self.part


def part_name(of: str, part: int) -> str:
    """The job's name of a part."""
    return f"{of}-{part}"
