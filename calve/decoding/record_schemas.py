"""The schemas of a table's records: of their values and, if a column is made from them, of their keys."""

from __future__ import annotations

import heapq
import re
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from calve.config import job
from calve.config.job import PartName, Source
from calve.config.steps import ways_to
from calve.decoding import decode_plan
from calve.decoding.decode_plan import OTHER_SCHEMA, DecodePlan
from calve.decoding.field_quarantine import leaves as leaves_of
from calve.decoding.formats import Top, concerns
from calve.errors import CalveError, Retryable, Suspended
from calve.registry.registry import FRAMED, Declared, Inferred, Registry, identity
from calve.schema import cloud_events
from calve.schema.columns import CHANGE, Json, struct
from calve.schema.documents import declared
from calve.schema.evolution import Change, Rule, apply
from calve.schema.lineage import Proposal
from calve.schema.wire import BARE, Schema, Wire

LISTED_FOR_S = 60.0
"""A pattern's subjects are listed again after this time, or when a record names an unknown schema."""


@dataclass(slots=True)
class Subjects:
    """Looks up schemas for one table. Schemas that records have named are kept for the life of the job.

    name: a subject, or a pattern in which `*` matches any characters.
    shared: the topic also has records of other tables, with schemas of other subjects in the registry.
    part: value or key.
    """

    registry: Registry
    name: str
    shared: bool = False
    part: PartName = "value"
    _foreign: dict[int, Schema] = field(default_factory=dict)
    _deleted: dict[int, Schema] = field(default_factory=dict)
    _real: str | None = None
    _listed: list[Schema] | None = None
    _listed_at: float = 0.0

    @property
    def title(self) -> str:
        return f"subject {self.name}"

    @property
    def foreign(self) -> list[Schema]:
        """Schemas that records have named and that belong to other subjects."""
        return list(self._foreign.values())

    def listed(self) -> list[Schema]:
        """The versions that the registry lists now; empty if no subject is registered.

        Versions of several subjects are in registration order, but each subject keeps its own order.
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
        """The versions of `listed`, then those no longer listed that records have named.

        Raises `Retryable` if nothing is registered yet, or the registry does not answer.
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
        """Look up unknown ids; True if the registry knows any of them. Raises as `versions`."""
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
        """The subjects that belong to this table. An alias has no schemas: the subject that it stands for has them."""
        pattern = ".*".join(re.escape(part) for part in self.name.split("*"))
        found = [each for each in subjects if re.fullmatch(pattern, each, re.DOTALL)]
        if found or not subjects or "*" in self.name:
            return found
        self._real = self._real or self.registry.real_name(self.name)
        return [each for each in subjects if each == self._real]


def subjects_of(registry: Registry, source: Source, topic: str, part: PartName = "value") -> Subjects:
    """The subjects of a topic's values or keys. A table that names its subject or message ignores values of others."""
    shared = part == "value" and source.framed and bool(source.subject or source.message)
    return Subjects(registry, source.subject or registry.default_subject(topic, part), shared, part)


KEY = "key"


class Versions(NamedTuple):
    """The schemas of values and keys at one time; foreign ones that records have named are separate."""

    values: list[Schema]
    keys: list[Schema]
    foreign_values: list[Schema]
    foreign_keys: list[Schema]


@dataclass(frozen=True, slots=True)
class Part:
    """The values, or the keys (`is_key`)."""

    schemas: Subjects | Declared | Inferred
    wire: Wire
    top: Top
    is_key: bool = False

    def share(self, table: Json) -> Json:
        """The columns of a table that this part makes."""
        if self.is_key:
            return table | {"fields": [each for each in table["fields"] if each["name"] == self.top.column]}
        others = (self.top.taken, self.top.event, CHANGE["name"] if self.top.changes else None)
        return table | {"fields": [each for each in table["fields"] if each["name"] not in others]}

    def versions(self) -> tuple[list[Schema], list[Schema]]:
        """The table's current schemas, and the foreign ones: those that records have named, or without the table's message.

        Raises `Retryable` if there is none yet, or the registry does not answer.
        """
        found = self.schemas.versions()
        ours = [each for each in found if concerns(each, self.top)]
        if not ours:
            raise Retryable(
                f'{self.schemas.title} has no version with a message "{self.top.message}"',
                fix="register it, or name another one in calve.yaml: `message`",
            )
        return ours, [*self.schemas.foreign, *(each for each in found if each not in ours)]

    def decoding(
        self, table: Json, versions: list[Schema], foreign: list[Schema], fields: Collection[str] | None
    ) -> DecodePlan:
        """As `calve.decoding.decode_plan.decoding`.

        Raises `Suspended` (`schema_unsupported`) if the only schema does not fit the table, or the newest one has a field with a
        name that calve.yaml gives to another column.
        """
        top, shared = self.top, self.schemas.shared
        found = decode_plan.decoding(table, versions, foreign, self.wire, top, shared=shared, fields=fields)
        problem = decode_plan.misfit(table, versions, versions[-1].id, self.top)
        ours = {each.lower() for each in (self.top.taken, self.top.rest, self.top.event) if each}
        taken = problem and problem.path.lower() in ours and problem.rule is Rule.FIELD_NAME_RESERVED
        if taken or not (self.wire.size or found.writers):
            why = f": {problem.message}" if problem else " cannot be read as the columns of the table"
            raise Suspended("schema_unsupported", f"{self.schemas.title}{why}", fix=OTHER_SCHEMA)
        return found


@dataclass(slots=True)
class RecordSchemas:
    """`key`: None if keys are kept only as bytes."""

    value: Part
    key: Part | None = None

    @property
    def key_column(self) -> str | None:
        """The column that keys are read into."""
        return self.key.top.column if self.key else None

    @property
    def own_columns(self) -> frozenset[str]:
        """Columns named by calve.yaml, not by a schema."""
        named = (self.key_column, self.value.top.column, self.value.top.rest, self.value.top.event)
        return frozenset(each for each in named if each)

    def take(self, learnt: str | None) -> None:
        """Take the schema that records have made so far from the table's property `LEARNT`; None: it has none."""
        if isinstance(self.value.schemas, Inferred):
            self.value.schemas.learnt = learnt

    def require_learnt(self, table: object) -> None:
        """Raises Suspended (`schema_unsupported`): the table exists, and another schema made its columns."""
        if isinstance(self.value.schemas, Inferred) and self.value.schemas.learnt is None:
            raise Suspended(
                "schema_unsupported",
                f"table {table} has the columns of a schema, and calve.yaml says `schema: infer`",
                fix="name that schema again, or give the topic a new table",
            )

    def versions(self) -> Versions:
        """The current schemas. Raises as `Part.versions`."""
        values, others = self.value.versions()
        keys, other_keys = self.key.versions() if self.key else ([], [])
        return Versions(values, keys, others, other_keys)

    def learn(self, values: Iterable[int], keys: Iterable[int]) -> bool:
        """As `Subjects.learn`, for both."""
        found = self.value.schemas.learn(values)
        return (self.key.schemas.learn(keys) if self.key else False) or found

    def first_columns(self, versions: Versions) -> Json:
        """The columns of a table that does not exist yet: the key's first, the newest change's or the event's last.

        Raises as `calve.decoding.decode_plan.first_columns`.
        """
        data = decode_plan.first_columns(versions.values, self.value.schemas.title, self.value.top)
        fields = [*data["fields"], CHANGE] if self.value.top.changes else data["fields"]
        if self.value.top.event is not None:
            fields = [*fields, *decode_plan.event_columns(self.value.top.event)["fields"]]
        if self.key is not None:
            key = decode_plan.first_columns(versions.keys, self.key.schemas.title, self.key.top)
            fields = [*key["fields"], *fields]
        return struct(*fields)

    def evolution(self, table: Json, versions: Versions) -> list[tuple[Schema, list[Change]]]:
        """As `calve.decoding.decode_plan.evolution`."""
        parts = self._parts(table, versions)
        return [each for part in parts for each in decode_plan.evolution(*part)]

    def evolved(self, table: Json, versions: Versions) -> tuple[Json, list[Change]]:
        """The columns once all versions that fit have added theirs, and these changes."""
        every: list[Change] = []
        while found := self.evolution(table, versions):
            every += found[0][1]
            table = apply(table, found[0][1])
        return table, every

    def require_fit(self, table: Json, versions: Versions) -> None:
        """Raises CalveError: records of the newest schema cannot be rows of a table with these columns."""
        newest = versions.values[-1].id
        if newest in self.decoding(table, versions).incompatible:
            raise CalveError(self.misfit(table, self.value.wire.name(newest)))

    def decoding(self, table: Json, versions: Versions, fields: Collection[str] | None = None) -> DecodePlan:
        """How records become rows of the table. `fields`: as in `decode_plan.decoding`. Raises as `Part.decoding`."""
        share = self.value.share(table)
        values = self.value.decoding(share, versions.values, versions.foreign_values, fields)
        values = replace(values, event=self.value.top.event)
        if self.key is None:
            return values
        share = self.key.share(table)
        return replace(values, key=self.key.decoding(share, versions.keys, versions.foreign_keys, fields))

    def leaves(self, columns: Json, versions: Versions) -> dict[str, frozenset[str]]:
        """As `calve.decoding.decode_plan.leaves`, for records that are decoded to these columns."""
        parts = self._parts(columns, versions)
        own = leaves_of(struct(CHANGE)) if self.value.top.changes else {}
        return dict(each for part in parts for each in decode_plan.leaves(*part).items()) | own

    def tags(self, columns: Json, versions: Versions) -> dict[str, tuple[str, ...]]:
        """The schemas' tags, by path, for fields of records that are decoded to these columns."""
        parts = self._parts(columns, versions)
        found = dict(each for part in parts for each in decode_plan.tags(*part).items())
        held = {way for path in leaves_of(columns) for way in ways_to(path)}
        return {path: own for path, own in found.items() if path in held}

    def _parts(self, table: Json, versions: Versions) -> Iterator[tuple[Json, list[Schema], Top]]:
        """The columns, the schemas and the top level of the keys, then of the values, then of CloudEvents' attributes."""
        for part, found in ((self.key, versions.keys), (self.value, versions.values)):
            if part is not None:
                yield part.share(table), found, part.top
        if event := self.value.top.event:
            own = [each for each in table["fields"] if each["name"] == event]
            yield table | {"fields": own}, [cloud_events.SCHEMA], Top(event)

    def read_with(self, versions: Versions) -> dict[str, str]:
        """The schemas of values and keys: `calve.registry.registry.identity` of the only schema, or `FRAMED`.

        Framed values are left out, and keys without a column. `document`: the schema of documents in them. `event`: the column of
        CloudEvents' attributes.
        """
        found = {} if self.value.wire.size else {"value": identity(versions.values[-1])}
        if self.value.top.document is not None:
            found["document"] = identity(self.value.top.document)
        if self.value.top.event is not None:
            found["event"] = self.value.top.event
        if self.key is not None:
            found["key"] = FRAMED if self.key.wire.size else identity(versions.keys[-1])
        return found

    def misfit(self, table: Json, name: str) -> str:
        """Why values of a schema (`Wire.name`) cannot become rows of the table, if known: subject, path and rule."""
        schema_id = self.value.wire.named(name)
        versions, schemas = self.value.schemas.versions(), self.value.schemas
        version = next((each for each in versions if schema_id in each.ids), None)
        if version is None:
            return f"not one of {schemas.title}"
        problem = decode_plan.misfit(self.value.share(table), versions, version.id, self.value.top)
        return schemas.title + (f", {problem.message}" if problem else "")

    def proposal(
        self, name: job.PartName, table: Json | None, versions: Sequence[Schema], candidate: Schema
    ) -> Proposal:
        """As `calve.decoding.decode_plan.proposal`, for one of the parts."""
        part = self.key if name == "key" else self.value
        if part is None:
            raise AssertionError("the keys of this table make no column")
        share = None if table is None else part.share(table)
        return decode_plan.proposal(share, versions, candidate, part.top)


def of_changes(top: Top, source: Source, order: Sequence[str]) -> Top:
    """The treatment of the values of a topic of change events, ordered by fields of their source."""
    document = None if source.document is None else declared(source.document)
    return replace(top, changes=True, order=tuple(order), document=document)


def record_schemas_of(table: job.Table, registry: Registry | None) -> RecordSchemas:
    """The schemas of a table's records; `registry` may be None if `table.registered` is false."""

    def part(source: Source, name: PartName, top: Top) -> Part:
        if source.infer is not None:
            return Part(Inferred(source.infer), BARE, top)
        if not source.registered:
            return Part(Declared(source), BARE, top, name == "key")
        if registry is None:
            raise AssertionError("a table that needs the registry was opened without one")
        wire = registry.wire if source.framed else BARE
        return Part(subjects_of(registry, source, table.topic, name), wire, top, name == "key")

    key = None
    if table.key is not None:
        key = part(table.key, "key", Top(table.key.column or KEY, message=table.key.message))
    taken = key.top.column if key else None
    top = Top(table.value.column, table.value.rest, taken, table.value.message, event=table.value.cloudevents)
    if table.mode.reads_changes:
        top = of_changes(top, table.value, table.mode.source_order)
    return RecordSchemas(part(table.value, "value", top), key)
