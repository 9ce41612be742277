"""The schemas of one table: the versions of its subjects, and what else its records have named."""

from __future__ import annotations

import heapq
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from calve.errors import Retryable
from calve.job import PartName, Source
from calve.registry import Registry, Schema

LISTED_FOR_S = 60.0
"""A pattern's subjects are asked for again after this time, or when a record names a schema that is not known."""


@dataclass(slots=True)
class Subjects:
    """Looks schemas up for one table; what records have named is kept for as long as the job lives.

    name: a subject, or a pattern in which `*` stands for any characters.
    shared: the topic also has records of other tables: those whose schema the registry knows under other subjects.
    part: what the schemas are of.
    """

    registry: Registry
    name: str
    shared: bool = False
    part: PartName = "value"
    _foreign: dict[int, Schema] = field(default_factory=dict)
    _deleted: dict[int, Schema] = field(default_factory=dict)
    _listed: list[Schema] | None = None
    _listed_at: float = 0.0

    @property
    def title(self) -> str:
        return f"subject {self.name}"

    @property
    def foreign(self) -> list[Schema]:
        """Schemas that records have named and that are none of the subjects'."""
        return list(self._foreign.values())

    def listed(self) -> list[Schema]:
        """The versions that the registry has now; none where no subject is registered.

        Those of several subjects are in the order of registration, but never out of the order of their own subject.
        """
        if "*" not in self.name:
            return self.registry.versions(self.name)
        now = time.monotonic()
        if self._listed is None or now - self._listed_at >= LISTED_FOR_S:
            found = [self.registry.versions(each) for each in self.matching(self.registry.subjects())]
            merged = heapq.merge(*found, key=lambda version: version.order)
            self._listed = list({version.id: version for version in merged}.values())
            self._listed_at = now
        return list(self._listed)

    def versions(self) -> list[Schema]:
        """The versions, as `listed`; then those that the registry does not list any more, as far as records have named them.

        Raises:
            Retryable: nothing is registered yet, or the registry does not answer.
        """
        versions = self.listed()
        if not versions:
            raise Retryable(
                f"the registry has no subject {self.name}",
                fix=f"register the schema of the {self.part}s. If no registry wrote them, name their schema in calve.yaml:"
                f" `{self.part}: {{format: json, schema: FILE}}`, or `avro` or `protobuf`",
            )
        listed = {version.id for version in versions}
        return [*versions, *(each for schema_id, each in self._deleted.items() if schema_id not in listed)]

    def learn(self, ids: Iterable[int]) -> bool:
        """Look up ids that no schema was known for; True where the registry knows any of them.

        Raises:
            Retryable: as `versions`.
        """
        known = [schema for schema_id in ids if (schema := self.registry.by_id(schema_id))]
        if not known:
            return False
        ours = {schema.id: self.matching(self.registry.subjects_of(schema.id)) for schema in known}
        self._listed = None
        for subject in {self.name, *(each for subjects in ours.values() for each in subjects)}:
            self.registry.forget(subject)
        listed = {version.id for version in self.versions()}
        for schema in known:
            if schema.id not in listed:
                (self._deleted if ours[schema.id] else self._foreign)[schema.id] = schema
        return True

    def matching(self, subjects: Sequence[str]) -> list[str]:
        """Those of the subjects that are this table's."""
        pattern = ".*".join(re.escape(part) for part in self.name.split("*"))
        return [each for each in subjects if re.fullmatch(pattern, each, re.DOTALL)]


def subjects_of(registry: Registry, source: Source, topic: str, part: PartName = "value") -> Subjects:
    """The subjects of a topic's values or keys; values of others are no concern of a table that names its subject or message."""
    shared = part == "value" and source.framed and bool(source.subject or source.message)
    return Subjects(registry, source.subject or registry.default_subject(topic, part), shared, part)
