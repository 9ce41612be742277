"""An open table, frozen: the plan from records to rows, the Iceberg table and its position. Each round opens a new one.

Beside it: what a loop remembers of the table between rounds, and the outcome of a round.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pyspark import Accumulator
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from calve.config import job
from calve.config.engine_choice import Chosen
from calve.config.masking_keys import Key
from calve.decoding.decode_plan import DecodePlan
from calve.decoding.record_schemas import RecordSchemas
from calve.log import event
from calve.modes.mode import Mode
from calve.names import TableName
from calve.registry.registry import Registry
from calve.requests.requests import Pause
from calve.rounds.scheduling import Schedule
from calve.schema.columns import Json
from calve.table.position import Ledger, Offsets, Position, TopicEnd, TopicKey
from calve.table.protocol import (
    Commit,
    ancestry_is_cut,
    complete_until,
    locate,
    nearest_position,
    position_commit,
)
from calve.table.summary import POSITION_TAG, TOPIC_KEY, encode, ends_of, root
from glue_jobs.columns.expressions import OFFSET, PARTITION, TOMBSTONE, false
from glue_jobs.columns.tokens import MaskingKeys
from glue_jobs.dead_letters.table import DeadLetterTable
from glue_jobs.iceberg.catalog import Lake, Table
from glue_jobs.iceberg.layout import clustered
from glue_jobs.iceberg.staging import NOTHING, Staged, publish, stage
from glue_jobs.iceberg.storage import Storage
from glue_jobs.process import faults
from glue_jobs.table.counts import observe_rows
from glue_jobs.table.records import flattened, rows, with_keys
from glue_jobs.transform.chain import Chain
from glue_jobs.transform.types import conformed

if TYPE_CHECKING:
    from glue_jobs.index.table_index import TableIndex
    from glue_jobs.kafka.cluster import Cluster


@dataclass(frozen=True, slots=True)
class Services:
    """Services that all tables of a job share.

    output: the cluster with the credentials for emitted records. writer: the id of this run. cores: the total of all
    executors.
    """

    lake: Lake
    cluster: Cluster
    output: Cluster
    registry: Registry | None
    writer: str
    cores: int
    masking: MaskingKeys | None = None

    @property
    def masking_keys(self) -> tuple[Key, ...]:
        """The keys that hash personal data and encrypt dead letters; empty if nothing is masked.

        Raises ConfigError, Retryable: as `calve.config.masking_keys.read_keys`.
        """
        return self.masking.keys if self.masking else ()


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class RowPlan:
    """Equal only to itself: engines cache their plans by it.

    source: the columns that records are decoded to. made: the columns of rows after the steps.
    columns: the columns of the table. An aggregate table has columns of its own.
    """

    source: Json
    made: Json
    chain: Chain
    columns: Json
    mode: Mode

    def records(self, decoded: DataFrame, *beside: str) -> DataFrame:
        """Each record as a row (`glue_jobs.transform.row_columns`), with the columns named in `beside` (`flattened`)."""
        found = flattened(decoded, self.source, *beside)
        drops = self.mode.drops and bool(self.chain.steps)
        if drops and TOMBSTONE not in found.columns:
            found = found.withColumn(TOMBSTONE, false())
        found = self.chain.of_records(found)
        if not self.mode.key or self._of_rows:
            return found
        return with_keys(found, self.mode.key, drops=drops)

    def rows(self, frame: DataFrame) -> tuple[DataFrame, Observation | None]:
        """The table rows of the good `records`, and an observation that counts them if a record may make several."""
        good = rows(frame)
        if not self.chain.explodes:
            return self._conformed(good), None
        made, observation = observe_rows(self.all_rows(good))
        return self._conformed(rows(made)), observation

    def all_rows(self, good: DataFrame) -> DataFrame:
        """All rows that records make, including failed and filtered ones."""
        made = self.chain.of_rows(good)
        return with_keys(made, self.mode.key) if self._of_rows else made

    @property
    def _of_rows(self) -> bool:
        """Whether the key belongs to rows, and a record may make several."""
        return self.chain.explodes and self.mode.groups_rows

    def _conformed(self, good: DataFrame) -> DataFrame:
        return conformed(good, self.columns) if self.chain.steps and not self.mode.groups_rows else good


@dataclass(frozen=True, slots=True)
class TablePlan:
    """How records become rows of a table. The table may not exist yet.

    columns: those of the schemas, including quarantined ones. read_with: the schemas and steps that a round's summary
    notes.
    mode: with the field ids of its key. covered: properties that keep values out of the table's metadata.
    """

    config: job.Table
    name: TableName
    services: Services
    schemas: RecordSchemas
    columns: Json
    decode_plan: DecodePlan
    row_plan: RowPlan
    mode: Mode
    read_with: dict[str, str]
    covered: dict[str, str]

    def event(self, name: str, **facts: object) -> None:
        event(name, table=str(self.name), topic=self.config.topic, **facts)


@dataclass(frozen=True, slots=True)
class OpenTable(TablePlan):
    """An open Iceberg table with its plan.

    index: finds rows by the key of the table's mode; kept between rounds.
    worker_s: CPU seconds of the Python workers that read the topic.
    learn: looks up schema ids of values and keys; returns the reopened table, or None if no id is new.
    grow: adds the columns that are only in the rest column of staged rows; returns the reopened table, or None if there are none.
    """

    main: Table
    dead_letters: DeadLetterTable
    index: TableIndex
    worker_s: Accumulator[float]
    learn: Callable[[Sequence[int], Sequence[int]], OpenTable | None]
    grow: Callable[[Staged], OpenTable | None]

    @property
    def rows(self) -> DataFrame:
        """The rows of the newest snapshot. If another round commits before they are used, this one is refused."""
        return self.main.rows

    def stage(self, rows: DataFrame, tasks: int, stage_id: str) -> Staged:
        """Write rows in the table's layout as data files that no snapshot contains, in at most `tasks` tasks."""
        laid_out = clustered(rows, self.main, tasks)
        staged = stage(self.main, laid_out, stage_id, count_by=self.config.count_by)
        return self._summed(staged) if self.mode.only_adds else staged

    def _summed(self, staged: Staged) -> Staged:
        """With the sums of the rows, as the files have them. Files of another format than Parquet have none."""
        from glue_jobs.index.data_files import sums_of_files

        spark = self.services.lake.spark
        sums, cpu_s = sums_of_files(spark.sparkContext, staged.files, Storage.of(spark))
        self.worker_s.add(cpu_s)
        return replace(staged, sums=sums)

    @property
    def made_for(self) -> TopicKey | None:
        """The topic at the time the table was created; None if an earlier release created it."""
        said = self.main.properties.get(TOPIC_KEY)
        return TopicKey.parse(said) if said else None

    def mark_idle(self) -> None:
        """Tag the snapshot of the position, so that it survives expiry by others."""
        stood = position_commit(self.main.ancestors())
        if stood is not None and self.main.refs().get(POSITION_TAG) != stood.id:
            self.main.set_tag(POSITION_TAG, stood.id)
            faults.point("idle.tagged", self.config.name)

    def carried(self) -> dict[str, Any]:
        """Metrics that stay true after a commit that reads no offsets."""
        until = complete_until(self.main.ancestors(), self.main.properties)
        found = {"read_with": self.read_with or None, "complete_until": until}
        return {name: each for name, each in found.items() if each}


def position_of(
    main: Table, dead_letters: DeadLetterTable, services: Services
) -> tuple[Position, int | None]:
    """The committed offsets, as main's history proves them now, and their snapshot's sequence number; None: a tag proves them.

    Raises Suspended: the history does not prove a position (`position_lost`).
    """
    main.refresh()
    ancestors: list[Commit] = []
    for commit in main.ancestors():
        ancestors.append(commit)
        if found := nearest_position([commit]):
            return found, commit.sequence
    tag = main.refs().get(POSITION_TAG)
    tagged = main.snapshot(tag) if tag is not None and ancestry_is_cut(ancestors) else None
    greatest = _greatest_offsets(main, dead_letters, tagged) if tagged else None
    found = locate(ancestors, tagged=tagged, greatest_offsets=greatest)
    return _anchor(main, found, services.writer), None


def _greatest_offsets(main: Table, dead_letters: DeadLetterTable, tagged: Commit) -> dict[TopicKey, Offsets]:
    """The greatest offset held, by topic and partition.

    A row does not name its topic: it counts for the incarnation of the tagged position that has the greatest offset.
    """
    held: dict[TopicKey, Offsets] = {}
    offsets = ends_of(tagged.summary)
    for partition, greatest in main.rows.groupBy(PARTITION).agg(F.max(OFFSET)).collect() if offsets else ():
        key = max(offsets, key=lambda each: offsets[each].get(partition, -1))
        held.setdefault(key, {})[partition] = greatest
    table = dead_letters.table
    if table is not None:
        grouped = table.rows.groupBy("cluster_id", "topic_id", "partition")
        for row in grouped.agg(F.max("offset")).collect():
            key = TopicKey(row[0], row[1])
            held.setdefault(key, {})[row[2]] = max(row[3], held.get(key, {}).get(row[2], -1))
    return held


def _anchor(main: Table, found: Position, writer: str) -> Position:
    """Commit the position again on main, so that its history proves it."""
    head = main.head
    again = replace(found, round=uuid.uuid4().hex, writer=writer)
    if found.offsets:
        start = found.offsets
        summary = encode(position=again, topic=found.newest, start=start, ledger=Ledger(), metrics={})
    else:
        summary = root(writer=writer, topic=found.topic, round_id=again.round)
    snapshot = publish(main, NOTHING, summary, lambda ancestors: next(iter(ancestors)).id == head)
    faults.point("position.anchored", main.name.table)
    return replace(again, snapshot=snapshot)


@dataclass(slots=True)
class TableMemory:
    """Values that a table's loop keeps between rounds. All of it may be lost at any time.

    `bytes_per_record`: from the last round, else from the table's history or a sample.
    `engine`: the engine that made the newest rows. `stood`: sequence number of the snapshot that last gave the
    position.
    `lacks_values`: the last round by rows had updates without all values. `layout_refused`: the layout of calve.yaml that Iceberg
    refused, logged once.
    `read_to`: offsets read beyond the table's position that held no record (transaction markers).
    It counts only for the round and the incarnation of the topic in `read_from`.
    """

    bytes_per_record: float | None = None
    read_to: Offsets = field(default_factory=dict)
    read_from: tuple[str, TopicKey] | None = None
    engine: Chosen | None = None
    stood: int = 0
    lacks_values: bool = False
    layout_refused: object = None
    committed_at: float = field(default_factory=time.monotonic)
    schedule: Schedule = field(default_factory=Schedule)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a round. `more`: the topic has records beyond it. `snapshot` None: there was nothing to commit.

    `complete_until`: every record that arrived before this time (epoch seconds) has been read; None if unknown.
    `at_end`: the topic and its end, if the round found no record beyond the table's position. `paused`: why nothing was read.
    """

    position: Position
    to: Offsets
    more: bool = False
    snapshot: int | None = None
    ledger: Ledger = field(default_factory=Ledger)
    metrics: dict[str, Any] = field(default_factory=dict)
    commit_ms: int = 0
    complete_until: float | None = None
    at_end: TopicEnd | None = None
    paused: Pause | None = None
