"""The schema ids that a round can decode, and their columns: decided on the driver before a record is read."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as default
from functools import lru_cache

from calve.decoding.field_quarantine import leaves as leaves_of
from calve.decoding.field_quarantine import only
from calve.decoding.formats import FIELDS, FORMATS, REGISTERED, Top, columns, writer
from calve.errors import Suspended
from calve.schema import cloud_events
from calve.schema.change_events import DOCUMENT, of_event
from calve.schema.columns import Json, struct, tags_of
from calve.schema.evolution import Change, SchemaProblem, plain
from calve.schema.lineage import Fit, Proposal, comments, fit, propose, settle
from calve.schema.protobuf.columns import with_former_names
from calve.schema.wire import BARE, CONFLUENT, Schema, Wire
from calve.schema.writers import ProtobufWriter, Writer, reframed


@dataclass(frozen=True, slots=True)
class DecodePlan:
    """The schema ids of a round, fixed: both reads of a round use the same ones. A schema with a GUID counts as two: it has a
    writer for values that name its id, and one for those whose records name the GUID.

    Ids in none of the tuples were unknown to the registry when the round began. A wire format without a frame has one writer
    for all values.
    `key`: how keys are read; None if they are not.
    others: prefixes of values that belong to other tables of the topic. They are neither rows nor rejects.
    numbers: `_kafka.schema_id` of the table's own schemas, if it differs from the id.
    columns: what all writers read values as: columns of the table, or the parts of a change event.
    document: how MongoDB's documents in change events are read; None: the rows of the events are no documents.
    event: the column of the attributes of CloudEvents, whose data the values are; None: the records are no CloudEvents.
    """

    writers: tuple[Writer, ...]
    incompatible: tuple[int, ...] = ()
    wire: Wire = CONFLUENT
    key: DecodePlan | None = None
    others: tuple[bytes, ...] = ()
    numbers: Mapping[int, int] = default(default_factory=dict)
    columns: Json = default(default_factory=struct)
    document: DecodePlan | None = None
    event: str | None = None

    @property
    def made(self) -> list[Json]:
        """All columns that values make."""
        return [*self.columns["fields"], *(event_columns(self.event)["fields"] if self.event else ())]

    @property
    def row_of_event(self) -> Json:
        """The columns of the rows in change events."""
        if self.document is not None:
            return self.document.columns
        return next(each["type"] for each in self.columns["fields"] if each["name"] == "after")

    @property
    def ids(self) -> frozenset[int]:
        own = {self.wire.schema_id(each.prefix) if self.wire.size else each.id for each in self.writers}
        return frozenset(self.incompatible) | own | frozenset(self.other_ids)

    @property
    def other_ids(self) -> tuple[int, ...]:
        """The schema ids of `others`, each once, in order."""
        return tuple(dict.fromkeys(self.wire.schema_id(prefix) for prefix in self.others))


MAX_OTHERS = 100
"""The most schemas of other tables whose records are counted apart."""
OTHER_SCHEMA = "change the schema, or leave the topic out of calve.yaml"


def event_columns(name: str) -> Json:
    """The column of CloudEvents' attributes."""
    return columns(cloud_events.SCHEMA, Top(name))


def first_columns(versions: Sequence[Schema], title: str, top: Top = FIELDS) -> Json:
    """The columns of a table that does not exist yet: those of the first version, evolved by the later ones.

    `title`: a description of the versions' subject.
    Raises `Suspended` (`schema_unsupported`) if no table can hold the subject's first version.
    """
    first = versions[0]
    if first.type not in FORMATS:
        why = f"{title} is {first.type}, which is none of {', '.join(REGISTERED)}"
        raise Suspended("schema_unsupported", why, fix=OTHER_SCHEMA)
    found = _columns_or_problem(first, top)
    if isinstance(found, SchemaProblem):
        number = f", schema id {first.id}" if first.id else ""
        raise Suspended("schema_unsupported", f"{title}{number}: {found.message}", fix=OTHER_SCHEMA)
    return settle(plain(found), _columns_of_all(versions, top))[0]


def evolution(
    table: Json, versions: Sequence[Schema], top: Top = FIELDS
) -> list[tuple[Schema, list[Change]]]:
    """The changes of a table's data columns by each version, oldest first. Versions that do not fit are left out.

    Comments come last, on their own: the newest fitting version has them.
    """
    every = list(fits(table, versions, top))
    found = [(version, list(each.changes)) for version, each in every if each.changes]
    if found:
        return found
    named = [(version, each.named) for version, each in every if each.named is not None]
    wanted = comments(table, [each for _, each in named])
    return [(named[-1][0], wanted)] if wanted else []


def tags(table: Json, versions: Sequence[Schema], top: Top = FIELDS) -> dict[str, tuple[str, ...]]:
    """The tags of a table's fields by path (`calve.schema.columns`): of all fitting versions, with the newest names."""
    return tags_of(*(each.named for _, each in fits(table, versions, top) if each.named is not None))


def leaves(table: Json, versions: Sequence[Schema], top: Top = FIELDS) -> dict[str, frozenset[str]]:
    """A table's fields without nested fields, by path, each with all its paths in fitting versions."""
    named = leaves_of(*(each.named for _, each in fits(table, versions, top) if each.named is not None))
    return {path: had | named.get(path, had) for path, had in leaves_of(table).items()}


def decoding(
    table: Json,
    versions: Sequence[Schema],
    foreign: Sequence[Schema] = (),
    wire: Wire = CONFLUENT,
    top: Top = FIELDS,
    *,
    shared: bool = False,
    fields: Collection[str] | None = None,
) -> DecodePlan:
    """The plan to read every version of the subject as the table's columns; without a frame, only the newest.

    `fields`: the only ones of `leaves` that are read; None: all.
    `foreign`: registered schemas that are not the table's. Their records are rejected, or belong to other tables if the topic
    is `shared`. The same applies to other messages of a Protobuf file, if calve.yaml names the table's message.
    """
    known = {version.id for version in versions}
    strange = [number for schema in foreign if schema.id not in known for number in schema.ids]
    others = [frame for each in strange for frame in wire.frames(each)] if shared else []
    writers: list[Writer] = []
    incompatible = [] if shared else strange
    for version, each in fits(table, versions, top):
        if not wire.size and version is not versions[-1]:
            continue
        if each.columns is None:
            incompatible += version.ids
            continue
        try:
            read = each.columns if fields is None else only(each.columns, fields)
            made = writer(version, read, wire, top)
        except SchemaProblem:
            incompatible += version.ids
            continue
        frame, *more = map(wire.frame, version.ids)
        for one in (made, *(reframed(made, frame, another) for another in more)):
            if shared and top.message and isinstance(one, ProtobufWriter):
                others += one.others
                one = replace(one, others={})
            writers.append(one)
    numbers = {
        number: version.number for version in versions for number in version.ids if number != version.number
    }
    columns, document = plain(table if fields is None else only(table, fields)), None
    if top.document:
        document = decoding(table, [top.document], wire=BARE, top=top.of_document, fields=fields)
    if top.changes:
        columns = of_event(DOCUMENT if document else columns, top.order)
    found = tuple(writers), tuple(incompatible), wire, None, tuple(others), numbers
    return DecodePlan(*found, columns, document)


def misfit(
    table: Json, versions: Sequence[Schema], schema_id: int, top: Top = FIELDS
) -> SchemaProblem | None:
    """Why no value of a version can be a row of the table; None if the schema is not the cause."""
    found = {version.id: each.problem for version, each in fits(table, versions, top)}
    return found.get(schema_id)


def proposal(
    table: Json | None, versions: Sequence[Schema], candidate: Schema, top: Top = FIELDS
) -> Proposal:
    """What registering one more version would change in a table (None: it does not exist yet)."""
    *known, new = _columns_of_all([*versions, candidate], top)
    return propose(struct() if table is None else table, known, new)


def fits(table: Json, versions: Sequence[Schema], top: Top) -> Iterator[tuple[Schema, Fit]]:
    """How each version of the subject fits a table."""
    return zip(versions, fit(table, _columns_of_all(versions, top)), strict=True)


def _columns_of_all(versions: Sequence[Schema], top: Top) -> list[Json | SchemaProblem]:
    return with_former_names([_columns_or_problem(each, top) for each in versions])


@lru_cache(maxsize=4096)
def _columns_or_problem(version: Schema, top: Top) -> Json | SchemaProblem:
    """`columns`, cached: versions are used repeatedly and never change."""
    try:
        return columns(version, top)
    except SchemaProblem as problem:
        return problem.with_traceback(None)
