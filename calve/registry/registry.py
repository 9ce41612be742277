"""Schema registries behind one interface, and the schema of a table that no registry describes.

An unknown schema id is data (a dead letter). A registry that does not answer is a system that is down (`Retryable`). A schema id
never changes its schema, so ids are cached without limit; absences and subjects are not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from calve.config import job
from calve.config.job import Source
from calve.errors import ConfigError
from calve.schema.wire import Schema, Wire

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


class Registry(Protocol):
    """Reads schemas; safe to share between threads.

    Every method raises `Retryable` where the registry does not answer, and `Fatal` where it refuses the credentials.
    """

    @property
    def wire(self) -> Wire:
        """How values name its schemas."""
        ...

    def default_subject(self, topic: str, part: job.PartName = "value") -> str:
        """The subject of a topic's values, or keys, that producers use where they are not told another."""
        ...

    def by_id(self, schema_id: int) -> Schema | None:
        """The schema of an id, or None where the registry has none."""
        ...

    def versions(self, subject: str) -> list[Schema]:
        """Every version of a subject, oldest first; empty where the subject does not exist."""
        ...

    def subjects(self) -> list[str]:
        """The names of all subjects, in order."""
        ...

    def subjects_of(self, schema_id: int) -> list[str]:
        """The subjects that have a version with this schema, or had one, as far as the registry remembers."""
        ...

    def forget(self, subject: str) -> None:
        """Drop what is cached of a subject: one that was deleted and made again has other ids for the same versions."""
        ...


def open_registry(settings: job.AnyRegistry | None) -> Registry:
    """The registry of a configuration, with the credentials that its secrets hold.

    Raises:
        ConfigError: there is none. ConfigError, Retryable: as `read_secret`. Fatal: the url is neither http nor https.
    """
    if settings is None:
        raise ConfigError(
            "no schema registry is named", fix="add `registry: {url: https://host}` to calve.yaml"
        )
    if isinstance(settings, job.GlueRegistry):
        from calve.registry.glue import GlueRegistry

        return GlueRegistry(settings.name, settings.region)
    from calve.registry.confluent import open_confluent

    return open_confluent(settings)
