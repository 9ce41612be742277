"""The schemas of one table: the versions of its subject, and what else its records have named."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from calve.errors import Retryable
from calve.registry import Registry, Schema


@dataclass(slots=True)
class Subjects:
    """Looks schemas up for one table; what records have named is kept for as long as the job lives."""

    registry: Registry
    name: str
    _foreign: dict[int, Schema] = field(default_factory=dict)
    _deleted: dict[int, Schema] = field(default_factory=dict)

    @property
    def title(self) -> str:
        return f"subject {self.name}"

    @property
    def foreign(self) -> list[Schema]:
        """Schemas that records have named and that are none of the subject's."""
        return list(self._foreign.values())

    def versions(self) -> list[Schema]:
        """The subject's versions, oldest first; then those that it does not list any more, as far as records have named them.

        Raises:
            Retryable: the subject is not registered yet, or the registry does not answer.
        """
        versions = self.registry.versions(self.name)
        if not versions:
            raise Retryable(
                f"the registry has no subject {self.name}",
                fix="register the schema that the topic is written with",
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
        self.registry.forget(self.name)
        listed = {version.id for version in self.versions()}
        for schema in known:
            if schema.id not in listed:
                ours = self.registry.was_version(schema.id, self.name)
                (self._deleted if ours else self._foreign)[schema.id] = schema
        return True
