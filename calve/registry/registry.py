"""Schema registries: what calve asks of one, whoever serves it.

An id that the registry does not know is data (a reject); a registry that does not answer is a system that is down
(`Retryable`). Schemas never change once they have an id, so ids are cached for ever; absences and subjects are not.
"""

from __future__ import annotations

from typing import Protocol

from calve.config import job
from calve.errors import ConfigError
from calve.schema.registered import Schema
from calve.schema.wire import Wire


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
