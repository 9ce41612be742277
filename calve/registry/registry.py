"""Schema registries behind one interface, and the schema of a table that no registry describes.

An unknown schema id is data (a dead letter). A registry that does not answer is a system that is down (`Retryable`). A schema id
never changes its schema, so ids are cached without limit; absences and subjects are not.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Protocol

from calve.config import job
from calve.config.job import Source
from calve.errors import ConfigError, Suspended
from calve.schema.evolution import SchemaProblem
from calve.schema.inference import EMPTY, INFERRED, Infer, first, size
from calve.schema.wire import NO_ID, Schema, Wire

FRAMED = "framed"
"""Instead of an `identity`, if each record names its schema."""
OF_SIZE = "inferred:"
"""Before the number of columns in the `identity` of an inferred schema."""


class Unregistered(ABC):
    """Instead of `calve.decoding.record_schemas.Subjects`: one version, which no record names."""

    __slots__ = ()
    foreign: ClassVar[list[Schema]] = []
    shared: ClassVar[bool] = False

    @abstractmethod
    def versions(self) -> list[Schema]: ...

    def listed(self) -> list[Schema]:
        return self.versions()

    def learn(self, ids: Iterable[int]) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class Declared(Unregistered):
    """The schema of a file, which calve.yaml names."""

    source: Source

    @property
    def title(self) -> str:
        return f"the {self.source.format} schema of calve.yaml"

    def versions(self) -> list[Schema]:
        return [Schema(NO_ID, self.source.schema or "", self.source.format.upper())]


@dataclass(slots=True)
class Inferred(Unregistered):
    """It grows with the records. learnt: what the table notes (`calve.table.summary.LEARNT`)."""

    infer: Infer
    learnt: str | None = None
    title: ClassVar[str] = "the schema of the records so far"

    def versions(self) -> list[Schema]:
        """Raises Suspended (`schema_unsupported`) if calve.yaml gives a column another type than it has."""
        try:
            return [Schema(NO_ID, self.infer.declared(self.learnt or EMPTY), INFERRED)]
        except SchemaProblem as problem:
            raise Suspended(
                "schema_unsupported",
                f"`infer.types` of calve.yaml, {problem.path}: {problem.why}",
                fix="remove it there: a column keeps its type. To have another one, give the topic a new table",
            ) from None


def as_it_was(learnt: str, stated: str | None) -> Schema:
    """The inferred schema with this `identity`, of the one that a table notes; None: as it is now."""
    count = stated.removeprefix(OF_SIZE) if stated else ""
    return Schema(NO_ID, first(learnt, int(count)) if count.isdecimal() else learnt, INFERRED)


def identity(version: Schema) -> str:
    """A name for a schema without frames: its registry id, or a digest of its text; of one that only grows, its size."""
    if version.type == INFERRED:
        return f"{OF_SIZE}{size(version.text)}"
    digest = hashlib.sha256(f"{version.type} {version.text}".encode()).hexdigest()[:16]
    return str(version.id or f"sha256:{digest}")


class Registry(Protocol):
    """Reads schemas; thread-safe.

    Every method raises `Retryable` if the registry does not answer, and `Fatal` if it refuses the credentials.
    wire: the format of its values. default_subject: of producers for a topic's values or keys. versions: all of a subject, oldest
    first. subjects: sorted. subjects_of: those that have or had a version with this schema, as far as the registry remembers.
    by_id: also for a GUID (`calve.schema.wire.FIRST_GUID`). real_name: of the subject that an alias stands for, else the same.
    forget: clears the cache of a subject: one that was deleted and created again has other ids.
    """

    @property
    def wire(self) -> Wire: ...

    def default_subject(self, topic: str, part: job.PartName = "value") -> str: ...

    def by_id(self, schema_id: int) -> Schema | None: ...

    def versions(self, subject: str) -> list[Schema]: ...

    def subjects(self) -> list[str]: ...

    def subjects_of(self, schema_id: int) -> list[str]: ...

    def real_name(self, subject: str) -> str: ...

    def forget(self, subject: str) -> None: ...


def open_registry(settings: job.AnyRegistry | None) -> Registry:
    """The configured registry, with the credentials of its secrets. Raises ConfigError: there is none; or as `open_confluent`."""
    if settings is None:
        raise ConfigError(
            "no schema registry is named", fix="add `registry: {url: https://host}` to calve.yaml"
        )
    if isinstance(settings, job.GlueRegistry):
        from calve.registry.glue import GlueRegistry

        return GlueRegistry(settings.name, settings.region)
    from calve.registry.confluent import open_confluent

    return open_confluent(settings)
