"""One topic and the table it becomes: opening the table, keeping its columns level with the registry, reading its position."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pyspark import Accumulator
from pyspark.sql import functions as F

from calve.config import job
from calve.config.engine_choice import Chosen
from calve.config.job import Deduplicate, Upsert
from calve.config.maintenance import TURN
from calve.config.masking_keys import Key
from calve.config.spark_conf import CATALOG
from calve.config.steps import Lookup, masked_columns, noted
from calve.decoding.decode_plan import Decoding
from calve.decoding.field_quarantine import leaves
from calve.decoding.record_schemas import Parts, Versions, parts_of
from calve.errors import Suspended
from calve.log import event
from calve.modes.aggregate import TOTALS, columns_of, kafka_column, require_same_kind
from calve.modes.column_rules import layout_problems, require_countable, step_changes
from calve.modes.keys import buckets, keyed
from calve.names import SYSTEM_COLUMN, TableName
from calve.registry.registry import Registry
from calve.requests import backfill, forget, redrive, requests, rollback
from calve.schema.columns import KAFKA, Json, struct, with_ids
from calve.schema.evolution import Change, data_columns
from calve.schema.wire import Schema
from calve.table.position import (
    COMPLETE_ROUND,
    COMPLETE_UNTIL,
    INITIALISED,
    POSITION_TAG,
    TOPIC,
    TOPIC_KEY,
    Ledger,
    Offsets,
    Position,
    TopicKey,
    encode,
    root,
)
from calve.table.protocol import Commit, ancestry_is_cut, locate, nearest_position, standing
from glue_jobs.dead_letters.table import Letters
from glue_jobs.iceberg.catalog import Lake, Table, settings
from glue_jobs.iceberg.exposure import cover, hidden_columns, require_own_paths, without_bounds
from glue_jobs.iceberg.staging import NOTHING, publish
from glue_jobs.outputs.announcements import Announcer
from glue_jobs.process import faults
from glue_jobs.table.field_quarantine import Admission
from glue_jobs.table.row_plan import Shaping
from glue_jobs.transform.chain import Chain, Supply, chain_of
from glue_jobs.transform.tokens import MaskingKeys

if TYPE_CHECKING:
    from glue_jobs.engines.columnar.engine import Columnar
    from glue_jobs.kafka.cluster import Cluster

OWNER = "owner"


@dataclass(slots=True)
class Target:
    """Everything a round needs of one table; `main` to `mode` are as of the last `open`."""

    table: job.Table
    name: TableName
    writer: str
    cores: int
    lake: Lake
    cluster: Cluster
    output: Cluster
    """The same with the key that writes what is emitted."""
    registry: Registry | None
    announcer: Announcer
    workers_s: Accumulator[float] = field(init=False)
    """CPU seconds of Python workers that read the topic."""
    masking: MaskingKeys | None = None
    supply: Supply = field(init=False)
    schemas: Parts = field(init=False)
    admission: Admission = field(init=False)
    letters: Letters = field(init=False)
    main: Table = field(init=False)
    decoding: Decoding = field(init=False)
    shaping: Shaping = field(init=False)
    read_with: dict[str, str] = field(init=False)
    mode: job.Mode | None = field(init=False)
    stood: int = 0
    """Iceberg's sequence number of the snapshot that said the position when it was read last."""
    lacks_values: bool = False
    """A round of this process has seen updates without all values: the next ones look for them at once."""
    engine: Chosen | None = None
    """What has made the newest rows; None: none were made yet."""
    columnar: Columnar | None = None
    """The columnar engine of this table, once it was looked at whether that can make it."""
    layout_refused: object = None
    """What calve.yaml says of the layout, where the table cannot have it: said once."""
    _every: Json = None
    """The columns of the schemas, those in quarantine among them."""
    _covered: dict[str, str] = field(default_factory=dict)
    """The properties that keep values out of the table's metadata."""
    _pinned: tuple[Json, Versions] | None = None
    """The table's data columns and the schemas that `decoding` was made of."""

    def __post_init__(self) -> None:
        self.workers_s = self.lake.spark.sparkContext.accumulator(0.0)
        self.schemas = parts_of(self.table, self.registry)
        self.admission = Admission(self.table, self.name, self.schemas)
        self.letters = Letters(self.lake, self.name, self.table.maintenance.file_bytes)
        self.supply = Supply(self.lake, self.name.database, self.masking)

    @property
    def opened(self) -> bool:
        """Whether there is a `main`."""
        return hasattr(self, "main")

    @property
    def made_for(self) -> TopicKey | None:
        """The topic that was there when the table was made; None where an earlier release made it."""
        said = self.main.properties.get(TOPIC_KEY)
        return TopicKey.parse(said) if said else None

    def open(self) -> None:
        """Load the table, or make it from the registered schemas; add the columns that newer versions have.

        Raises:
            Retryable: the topic does not exist or a subject is not registered yet, or a system does not answer.
            Suspended: the table was not made by calve (`not_ours`), its files would lie elsewhere (`foreign_path`), or, as one of
                a pattern's, it is of another topic (`other_topic`), or no column can hold the schema (`schema_unsupported`), or
                the key of its mode (`key_unusable`) or its measures (`measure_unusable`), or it is of totals, or was not made so
                (`mode_changed`).
        """
        self.supply.lookups.renew()
        versions = self.schemas.versions()
        found = self.lake.load(self.name)
        if found is None:
            found = self._create(versions)
            faults.point("table.created", self.table.name)
        if INITIALISED not in found.properties:
            raise Suspended(
                "not_ours",
                f"table {self.name} exists, but calve did not make it",
                fix="drop it, or name another table",
            )
        require_own_paths(found)
        self._require_same_topic(found)
        require_same_kind(str(self.name), found.properties, self.table.aggregate)
        self.main = found
        self._fit(versions)
        cover(self.main, self._covered)
        if self.table.owner and found.properties.get(OWNER) != self.table.owner:
            found.set_properties({OWNER: self.table.owner})

    def foresee(self) -> None:
        """Pin how records would become rows of a table that does not exist yet; no masking key is looked at, and a table only
        for the fields that it keeps in quarantine.

        Raises:
            Retryable, Suspended: as `open`.
        """
        versions = self.schemas.versions()
        every = self.schemas.first_columns(versions)
        found = self.lake.load(self.name) if self.table.quarantine_new_fields else None
        source = self.admission.source(every, versions, found.properties if found else {})
        chain = self._chain(source, versions).with_any_keys(self.lake.spark)
        made = self._made(chain, source)
        self._pin(source, made, chain, versions, with_ids(struct(*made["fields"], KAFKA)), every)

    def learn(self, values: Sequence[int], keys: Sequence[int]) -> bool:
        """Look up ids that the round did not know; True where the round must decode again because of what was found."""
        if not self.schemas.learn(values, keys):
            return False
        self._fit(self.schemas.versions())
        return True

    def misfit(self, name: str) -> str:
        """Why records of a schema (`Wire.name`) are no rows of the table, as far as it is known: subject, path and rule."""
        return self.schemas.misfit(self._every, name)

    def position(self) -> Position:
        """Where the table stands.

        Raises:
            Suspended: its history does not prove a position (`position_lost`).
        """
        self.main.refresh()
        ancestors: list[Commit] = []
        for commit in self.main.ancestors():
            ancestors.append(commit)
            if found := nearest_position([commit]):
                self.stood = commit.sequence
                return found
        tagged = self.main.refs().get(POSITION_TAG)
        if tagged is None or not ancestry_is_cut(ancestors):
            return locate(ancestors, tagged=None, greatest_offsets=None)
        found = locate(
            ancestors, tagged=self.main.snapshot(tagged), greatest_offsets=self._greatest_offsets()
        )
        return self._anchor(found)

    @property
    def masking_keys(self) -> tuple[Key, ...]:
        """The keys that hash personal data and seal dead letters; none where nothing is masked.

        Raises:
            ConfigError, Retryable: as `calve.config.masking_keys.read_keys`.
        """
        return self.masking.keys if self.masking else ()

    def mark_idle(self) -> None:
        """Keep the position through expiry by others: a tag holds its snapshot, whatever happens to main's history."""
        stood = standing(self.main.ancestors())
        if stood is not None and self.main.refs().get(POSITION_TAG) != stood.id:
            self.main.set_tag(POSITION_TAG, stood.id)
            faults.point("idle.tagged", self.table.name)

    def note_complete(self, until: float, position: Position) -> None:
        """Say until when a table without new records is complete, and of which round: a rollback leaves properties alone."""
        self.main.set_properties({COMPLETE_UNTIL: f"{until:.3f}", COMPLETE_ROUND: position.round})
        faults.point("idle.noted", self.table.name)

    def _create(self, versions: Versions) -> Table:
        source, kafka, totals = self.schemas.first_columns(versions), KAFKA, {}
        chain = self._chain(source, versions)
        data = self._made(chain, source)
        if self.table.aggregate is not None:
            data, kafka = columns_of(data, self.table.aggregate), kafka_column()
            totals = {TOTALS: "true"}
        columns, mode = struct(*data["fields"], kafka), self.table.mode
        for problem in layout_problems(self.table, str(self.name), columns):
            raise problem
        by_key = buckets(columns, mode) if isinstance(mode, job.Upsert) and mode.bucketed else None
        created = self.lake.create(
            self.name,
            columns,
            partition_by=self.table.partition_by if by_key is None else by_key,
            sort_by=self.table.sort_by,
            properties=settings(self.table.maintenance.file_bytes)
            | {
                INITIALISED: "true",
                "format-version": str(self.table.format_version),
                TOPIC: self.table.topic,
                TOPIC_KEY: str(self.cluster.state(self.table.topic).key),
            }
            | self.admission.first(source)
            | self._without_bounds(chain, columns)
            | totals,
            summary=root(writer=self.writer, topic=self.table.topic, round_id=uuid.uuid4().hex),
        )
        event("table.created", table=str(self.name), topic=self.table.topic)
        return created

    def _require_same_topic(self, found: Table) -> None:
        """Two topics may make one name, one after the other; who names a table in calve.yaml means its topic."""
        made_for = found.properties.get(TOPIC)
        if self.table.pattern is not None and made_for != self.table.topic:
            raise Suspended(
                "other_topic",
                f"table {self.name} was made for topic {made_for}, and topic {self.table.topic} would be named so, too",
                fix=f"in calve.yaml, give it a table of its own: `NAME: {{topic: {self.table.topic}}}`",
            )

    def _fit(self, versions: Versions) -> None:
        """Bring the table level with the versions and pin how records are decoded; nothing to do in most rounds."""
        looks_up = any(
            isinstance(each, Lookup) for each in self.table.steps
        )  # in tables whose columns may change, too
        if self._pinned == (data_columns(self.main.schema), versions) and not looks_up:
            return
        if self.table.aggregate is None and not self.table.steps:
            self._evolve(lambda table: self.schemas.evolution(table, versions))
            every = source = made = data_columns(self.main.schema)
            chain = self._chain(source, versions)
        else:
            every = self.schemas.first_columns(versions)
            source = self.admission.settle(every, versions, self.main)
            chain = self._chain(source, versions)
            made = self._made(chain, source)
            if self.table.aggregate is None:
                self._evolve(lambda table: self._added(table, made))
        self._pin(source, made, chain, versions, self.main.schema, every)
        self._pinned = data_columns(self.main.schema), versions

    def _pin(
        self, source: Json, made: Json, chain: Chain, versions: Versions, schema: Json, every: Json
    ) -> None:
        mode = self.table.mode
        self._every, self.decoding = every, self.schemas.decoding(every, versions, leaves(source))
        steps = noted(self.table.steps, source, chain.means.tags) | self.supply.lookups.noted()
        self.read_with = self.schemas.read_with(versions) | steps
        self._covered = self._without_bounds(chain, schema)
        self.mode = keyed(schema, mode) if isinstance(mode, Upsert | Deduplicate) else mode
        if isinstance(self.mode, Upsert | Deduplicate):
            chain.require_lasting(self.mode.key)
        if self.table.count_by is not None:
            personal = masked_columns(self.table.steps, chain.means.tags)
            require_countable(str(self.name), self.table.count_by, data_columns(schema), personal)
        self.shaping = Shaping(source, made, chain, data_columns(schema), self.mode)

    def _without_bounds(self, chain: Chain, columns: Json) -> dict[str, str]:
        return without_bounds(columns, hidden_columns(self.table, chain.means.tags, columns))

    def _chain(self, source: Json, versions: Versions) -> Chain:
        means = self.supply.means(self.schemas.tags(source, versions))
        return chain_of(self.table, means, self.schemas.key_column)

    def _made(self, chain: Chain, source: Json) -> Json:
        """The data columns of rows, of records that are decoded to `source`."""
        return chain.columns(self.lake.spark, source) if chain.steps else source

    def _added(self, table: Json, made: Json) -> list[tuple[Schema | None, list[Change]]]:
        """What the steps make and the table has not. Raises: as `step_changes`."""
        found = step_changes(str(self.name), table, made)
        return [(None, found)] if found else []

    def _evolve(self, wanted: Callable[[Json], Sequence[tuple[Schema | None, list[Change]]]]) -> None:
        """One commit per version that adds something, oldest first; a version that does not fit changes nothing.

        A table whose position cannot be proved was replaced by somebody: it is left as it is.
        """
        while wanted(data_columns(self.main.schema)):
            self.position()
            left = wanted(data_columns(self.main.schema))
            if not left:  # another writer was faster, as the table shows now that it was read again
                return
            version, found = left[0]
            self.main.evolve(found)
            faults.point("table.evolved", self.table.name)
            event(
                "table.evolved",
                table=str(self.name),
                topic=self.table.topic,
                schema_id=version.id if version else None,
                changes=[str(each) for each in found],
            )
            self.main.refresh()
            self.announcer.evolved(
                self.main, list(map(str, found)), schema_id=version.id if version else None
            )

    def _greatest_offsets(self) -> dict[TopicKey, Offsets]:
        """The greatest offset held, by topic and partition: rows of main count for the only topic that it has read."""
        held: dict[TopicKey, Offsets] = {}
        spark = self.lake.spark
        tagged = self.main.snapshot(self.main.refs()[POSITION_TAG])
        position = nearest_position([tagged]) if tagged else None
        offset, partition = f"{SYSTEM_COLUMN}.offset", f"{SYSTEM_COLUMN}.partition"
        rows = spark.table(self.name.quoted(CATALOG)).groupBy(partition).agg(F.max(offset)).collect()
        for key in position.offsets if position else ():
            held[key] = {row[0]: row[1] for row in rows}
        table = self.letters.table
        if table is not None:
            letters = spark.table(table.name.quoted(CATALOG)).groupBy("cluster_id", "topic_id", "partition")
            for row in letters.agg(F.max("offset")).collect():
                key = TopicKey(row[0], row[1])
                held.setdefault(key, {})[row[2]] = max(row[3], held.get(key, {}).get(row[2], -1))
        return held

    def _anchor(self, found: Position) -> Position:
        """Commit the position once more on main, so that its history proves it again."""
        head = self.main.head
        again = replace(found, round=uuid.uuid4().hex, writer=self.writer)
        if found.offsets:
            newest = next(reversed(found.offsets))
            summary = encode(position=again, topic=newest, start=found.offsets, ledger=Ledger(), metrics={})
        else:
            summary = root(writer=self.writer, topic=found.topic, round_id=again.round)
        snapshot = publish(self.main, NOTHING, summary, lambda ancestors: next(iter(ancestors)).id == head)
        faults.point("position.anchored", self.table.name)
        return replace(again, snapshot=snapshot)


REQUESTS = {redrive.REQUEST, forget.REQUEST, forget.LEFT, rollback.REQUEST, backfill.REQUEST, TURN}


def requested(target: Target) -> bool:
    """True where a request waits, or a pause began or ended since the table was looked at last; asks the catalog."""
    found = target.lake.load(target.name)
    if found is None:
        return False
    properties, known = found.properties, target.main.properties
    return not REQUESTS.isdisjoint(properties) or properties.get(requests.PAUSED) != known.get(
        requests.PAUSED
    )
