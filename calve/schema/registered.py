"""A schema as a registry holds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Schema:
    """A registered schema: its id, its text, and its type (`AVRO`, `PROTOBUF`, `JSON`).

    references: the texts of all schemas that it needs, by the name it uses; each comes after those that it needs itself.
    version: the number within its subject, where ids are no numbers.
    registered: orders schemas of different subjects. None: ids grow with time.
    """

    id: int
    text: str
    type: str = "AVRO"
    references: Mapping[str, str] = field(default_factory=dict, hash=False)
    version: int | None = None
    registered: float | None = None

    @property
    def order(self) -> float:
        return self.id if self.registered is None else self.registered

    @property
    def number(self) -> int:
        """What `_kafka.schema_id` holds of rows of this schema."""
        return self.id if self.version is None else self.version
