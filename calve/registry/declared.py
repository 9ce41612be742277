"""The schema of a table that no registry describes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from calve.config.job import Source
from calve.schema.registered import Schema

NO_ID = 0
"""In the place of an id that no registry has given."""
FRAMED = "framed"
"""In the place of an `identity`, where each record names its schema."""


@dataclass(frozen=True, slots=True)
class Declared:
    """Stands where `calve.decoding.record_schemas.Subjects` does: one version, which no record names."""

    source: Source

    @property
    def title(self) -> str:
        return f"the {self.source.format} schema of calve.yaml"

    @property
    def foreign(self) -> list[Schema]:
        return []

    @property
    def shared(self) -> bool:
        return False

    def listed(self) -> list[Schema]:
        return self.versions()

    def versions(self) -> list[Schema]:
        return [Schema(NO_ID, self.source.schema or "", self.source.format.upper())]

    def learn(self, ids: Iterable[int]) -> bool:
        return False


def identity(version: Schema) -> str:
    """A word for a schema that no frame names: its registry id, or a digest of its text."""
    digest = hashlib.sha256(f"{version.type} {version.text}".encode()).hexdigest()[:16]
    return str(version.id or f"sha256:{digest}")
