"""The command `calve adopt`."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Annotated
from urllib.parse import urlsplit

import pyarrow as pa
import typer
from pyiceberg.table import Table

from calve.decoding.record_schemas import record_schemas_of
from calve.errors import CalveError, ConfigError
from calve.modes.aggregate import with_kafka
from calve.requests.requests import Adopt, Entry
from calve.rounds.column_rules import step_changes
from calve.schema.columns import Json, Transform
from calve.schema.evolution import Change, apply, column_at, data_columns, required, show
from calve.table.position import Offsets
from calve.table.protocol import TopicState
from calve.table.summary import INITIALISED, PREFIX, settings
from cli.act.requests import Kind, OpenedTable, YesOption, person, stamp
from cli.config import Common, TableArgument, parse_time
from cli.kafka import Cluster
from cli.move.former import noted_offsets, place_columns
from cli.move.overlap import Compared, Place, RowsByContents, RowsByPlace, Search, Source
from cli.verify.columns import arrow_columns, iceberg_columns
from cli.verify.reading import Decoders, filters_of
from cli.verify.steps.queries import Queries
from cli.verify.steps.shape import Shape, shapes_of
from cli.verify.topic import Reader, Sources

ADOPTION = Kind(
    Adopt, "request to adopt", Entry.of, "calve did not adopt", fix="correct that, then ask again"
)
OffsetsOption = Annotated[
    str | None,
    typer.Option(
        "--offsets", metavar="P:O,...", help="The next offset of each partition, such as 0:1200,1:1187."
    ),
]
SinceOption = Annotated[
    str | None,
    typer.Option("--since", help="Search the next offsets from this time on: 2h, 2026-01-01T00:00:00Z."),
]
ByOption = Annotated[
    str | None,
    typer.Option("--by", metavar="COLUMNS", help="Compare only these columns: together they identify a row."),
]


def adopt(
    table: TableArgument,
    *,
    offsets: OffsetsOption = None,
    since: SinceOption = None,
    by: ByOption = None,
    yes: YesOption = False,
    given: Common,
) -> None:
    """Take over an Iceberg table that another writer filled from the topic.

    Finds the next offset of each partition by what that writer left, and proves it by the rows: none is lost, none is doubled.
    Offsets that the rows do not prove are refused. The old rows stay as they are.

    Example:
      calve adopt orders
    """
    if offsets is not None and since is not None:
        raise ConfigError("--offsets and --since exclude each other", fix="leave out one of them")
    opened, now = OpenedTable.open(table, given), datetime.now(UTC)
    if INITIALISED in opened.main.properties:
        raise CalveError(
            f"{opened.name} is a table of calve already", fix=f"look at it: calve status {table}"
        )
    opened.refuse_second(ADOPTION)
    head = opened.main.current_snapshot()
    if head is None:
        raise CalveError(f"{opened.name} has no rows", fix="drop it: the job then creates it")
    _require_place(opened)
    cluster = Cluster(opened.job.kafka, opened.job.lake.region)
    topic = cluster.topics({opened.settings.topic}).get(opened.settings.topic)
    if topic is None:
        raise CalveError(
            f"the cluster has no topic {opened.settings.topic}", fix="correct `topic:` in calve.yaml"
        )
    moment = None if since is None else int(parse_time(since, now, "--since").timestamp() * 1000)
    known = None if offsets is None else _parsed(offsets, topic)
    with _comparison(opened, topic, by) as (made, source):
        opened.console.table("columns", made.rows())
        opened.console.table("properties", _properties(opened))
        with opened.console.progress().task(f"comparing {opened.name} with topic {topic.name}"):
            found = _places(opened, cluster, source, known, moment)
    _request(opened, found, str(topic.key), head.snapshot_id, made, now, yes=yes)


def _places(
    opened: OpenedTable, cluster: Cluster, source: Source, known: Offsets | None, moment: int | None
) -> list[Place]:
    """known: the offsets that a person names. moment: since when a person has them searched. Raises CalveError: not proved."""
    topic, columns, search = source.topic, place_columns(opened.schema), Search(source)
    noted = None
    if known is None and moment is None:
        job = opened.job
        noted = noted_offsets(opened.main, cluster, job.kafka, job.lake.region, topic)
    if noted is not None:
        known = topic.log_start | noted
    placed = RowsByPlace(opened.main, columns, topic.name, source.compared) if columns else None
    if placed and columns and not placed.unplaced:
        if moment is not None:
            text = f"the rows of {opened.name} have their offsets: {columns.offset}"
            raise CalveError(text, fix="leave out --since")
        return search.by_place(placed, known)
    if known is None and moment is None:
        raise CalveError(
            f"nothing in {opened.name} says which offsets it has"
            + (f": {placed.unplaced} rows lack {columns.offset}" if placed and columns else ""),
            fix="name its next offsets: --offsets 0:1200,1:1187; or a time before its newest rows: --since 2d",
        )
    rows = RowsByContents.of(opened.main, source.compared, exact=noted is not None)
    since = {} if moment is None else cluster.offsets_at(topic, dict.fromkeys(topic.end, moment))
    return search.by_contents(rows, known, since)


def _request(
    opened: OpenedTable,
    found: Sequence[Place],
    topic: str,
    snapshot: int,
    made: Made,
    now: datetime,
    *,
    yes: bool,
) -> None:
    rows = [asdict(each) for each in found]
    opened.console.table("offsets", rows)
    offsets = {each.partition: each.offset for each in found}
    request = Adopt(uuid.uuid4().hex, stamp(now), person(), snapshot, topic, offsets)
    entry = opened.ask(
        ADOPTION,
        request,
        question=f"Adopt {opened.name}, and read topic {opened.settings.topic} from these offsets on?",
        look_at="columns, properties and offsets",
        yes=yes,
        more={"columns": made.rows(), "properties": _properties(opened), "offsets": rows},
    )
    opened.console.say(f"{opened.name}: {entry.told}. The job goes on there with its next round.")


def _properties(opened: OpenedTable) -> list[dict[str, str | None]]:
    """The properties that the job's maintenance changes."""
    held, wanted = opened.main.properties, settings(opened.settings.maintenance.file_bytes)
    return [
        {"property": name, "is": held.get(name), "becomes": value}
        for name, value in wanted.items()
        if held.get(name) != value and not name.startswith(PREFIX)
    ]


def _parsed(text: str, topic: TopicState) -> Offsets:
    fix = f"name the next offset of each partition: {','.join(f'{p}:N' for p in sorted(topic.end))}"
    try:
        pairs = [each.split(":") for each in text.split(",")]
        found = {int(partition): int(offset) for partition, offset in pairs}
    except ValueError:
        raise ConfigError(f'--offsets: "{text}" is no list of offsets', fix=fix) from None
    if topic.end.keys() != found.keys():
        raise ConfigError(f"--offsets: topic {topic.name} has other partitions", fix=fix)
    return found


def _require_place(opened: OpenedTable) -> None:
    """Refuse a table that the job may not write, or whose layout calve.yaml would change."""
    bucket, own = (urlsplit(each).netloc for each in (opened.main.location(), opened.job.lake.warehouse))
    if bucket != own:
        raise CalveError(
            f"the files of {opened.name} are in bucket {bucket}, and the job writes to {own}",
            fix=f"in calve.yaml, add `lake: {{bucket: {bucket}}}`, or copy the table into a new one: CREATE TABLE AS SELECT",
        )
    schema, fields = opened.main.schema(), opened.main.spec().fields
    named = ((schema.find_column_name(each.source_id), str(each.transform)) for each in fields)
    held = {_transform(column, text) for column, text in named if text != "void"}
    if held != {*opened.settings.partition_by}:
        words = ", ".join(sorted(map(str, held)))
        raise CalveError(
            f"{opened.name} is partitioned by {words or 'nothing'}, calve.yaml says otherwise",
            fix=f"in calve.yaml, write `partition_by: [{words}]`; you can change it after the adoption",
        )


def _transform(column: str | None, text: str) -> Transform:
    """text: as Iceberg writes it: `bucket[16]`."""
    name, _, argument = text.removesuffix("]").partition("[")
    return Transform(str(column), name, int(argument) if argument else None)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Made:
    """held: the table's data columns. changes: those that its rows need. unfed: columns that the records do not fill."""

    held: Json
    changes: Sequence[Change]
    unfed: Sequence[str]
    optional: Sequence[str]

    def rows(self) -> list[dict[str, str | None]]:
        """What becomes of columns; those that stay as they are are left out."""
        found: list[dict[str, str | None]] = [
            {"column": each.path, "type": show(each.type), "becomes": _WORDS[each.kind]}
            for each in self.changes
            if each.kind in _WORDS
        ]
        found += [
            {"column": path, "type": _type(self.held, path), "becomes": "optional"} for path in self.optional
        ]
        found += [
            {"column": name, "type": _type(self.held, name), "becomes": "null in new rows"}
            for name in self.unfed
        ]
        return found


_WORDS = {"add": "a new column", "widen": "this type", "rename": "this name"}


def _type(table: Json, path: str) -> str | None:
    found = column_at(table, path)
    return None if found is None else show(found["type"])


@contextmanager
def _comparison(opened: OpenedTable, topic: TopicState, by: str | None) -> Iterator[tuple[Made, Source]]:
    """What becomes of the table's columns, and the rows that the topic makes. Raises CalveError: the schemas do not fit."""
    table, held = opened.settings, data_columns(opened.schema)
    if table.mode.kind != "append":
        why = f"calve.yaml gives {opened.name} the mode {table.mode.kind}, which needs the offset of each row"
        raise CalveError(why, fix="let the table append, or name another table")
    if table.value.infer is not None:
        why = f"calve.yaml infers the columns of {opened.name}, which has its columns"
        raise CalveError(why, fix="name a schema of the records: `schema: FILE`, or another table")
    sources = Sources.of(opened.main.catalog, opened.job, table)
    registry = sources.open_registry()
    parts = record_schemas_of(table, registry)
    versions = parts.versions()
    with Queries() as queries:
        every = parts.first_columns(versions)
        shape = shapes_of(opened.main, arrow_columns(with_kafka(every)), None, sources, table.topic, queries)(
            None
        )
        if shape is None or shape.explodes:
            fix = "name a new table: a step that makes several rows of a record leaves no way to compare them"
            raise CalveError(f"{opened.name} cannot be compared with its records", fix=fix)
        if shape.chain is None:
            fed, (wide, found) = every, parts.evolved(held, versions)
            parts.require_fit(wide, versions)
        else:
            fed = data_columns(iceberg_columns(shape.chain.columns(shape.source)))
            found = step_changes(str(opened.name), held, fed)
            wide = apply(held, found)
        columns = arrow_columns(with_kafka(wide))
        shape = Shape(columns) if shape.chain is None else replace(shape, columns=columns)
        names = {each["name"] for each in fed["fields"]}
        unfed = [each["name"] for each in held["fields"] if each["name"] not in names]
        made = Made(held, found, unfed, required(opened.schema))
        compared = Compared(_common(opened.main, held, columns, names, by))
        filters = filters_of(sources, table.topic, registry, [], complete=True)
        decoder = Decoders(sources, table.topic, lambda _: shape, registry, filters, None).of(None)
        if decoder is None:
            raise AssertionError("the schemas of now are known")
        reader = Reader(topic, opened.job.kafka, opened.job.lake.region)
        yield made, Source(topic, reader, decoder, filters, compared)


def _common(main: Table, held: Json, columns: pa.Schema, fed: set[str], by: str | None) -> pa.Schema:
    """The columns to compare: those that the records fill, and whose nested fields both have."""
    now = arrow_columns(with_kafka(held))
    names = [each["name"] for each in held["fields"] if each["name"] in fed]
    alike = [
        name
        for name in names
        if not pa.types.is_nested(now.field(name).type) or now.field(name) == columns.field(name)
    ]
    wanted = alike if by is None else [each.strip() for each in by.split(",")]
    if unknown := [name for name in wanted if name not in alike]:
        fix = f"name some of these: {', '.join(alike)}"
        raise CalveError(f"--by: {unknown[0]} is not a column that table and records have in common", fix=fix)
    if not wanted:
        text = f"{'.'.join(main.name())} and its records have no column in common"
        raise CalveError(text, fix="rename the columns in a step: steps: [{sql: SELECT ...}]")
    return pa.schema([columns.field(name) for name in wanted])
