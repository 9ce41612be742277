"""Schema registries: what calve asks of one, whoever serves it.

An id that the registry does not know is data (a reject); a registry that does not answer is a system that is down
(`Retryable`). Schemas never change once they have an id, so ids are cached for ever; absences and subjects are not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from calve import job
from calve.errors import ConfigError
from calve.wire import Wire


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
        from calve.glue_registry import GlueRegistry

        return GlueRegistry(settings.name, settings.region)
    from calve.confluent import open_confluent

    return open_confluent(settings)
