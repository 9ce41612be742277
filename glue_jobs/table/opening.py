"""Opens a table: creates it if missing, evolves its columns to the registry's schemas, and plans decoding and rows."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING

from pyspark import Accumulator
from pyspark.sql import DataFrame

from calve.config import job
from calve.config.steps import Lookup, masked_columns, noted
from calve.decoding.field_quarantine import admitted, fields_in, leaves, only, written
from calve.decoding.record_schemas import RecordSchemas, Versions, record_schemas_of
from calve.errors import Retryable, Suspended
from calve.log import event
from calve.modes.aggregate import columns_of, kafka_column, require_same_kind
from calve.modes.history import with_history
from calve.modes.switch import require_kind
from calve.names import TableName
from calve.outputs.origins import Origins
from calve.rounds.column_rules import layout_problems, require_countable, step_changes
from calve.schema.columns import KAFKA, Json, places, struct, with_ids
from calve.schema.evolution import Change, data_columns, show
from calve.schema.wire import Schema
from calve.table.summary import (
    ADOPT,
    FIELDS,
    INITIALISED,
    LEARNT,
    ORIGINS,
    PAUSED,
    REQUESTS,
    TOPIC,
    TOPIC_KEY,
    TOTALS,
    root,
    settings,
)
from glue_jobs.dead_letters.table import DeadLetterTable
from glue_jobs.iceberg.catalog import Table
from glue_jobs.iceberg.exposure import cover, hidden_columns, require_own_paths, without_bounds
from glue_jobs.iceberg.staging import Staged, begin, rows_of, whole
from glue_jobs.process import faults
from glue_jobs.table.adoption import adopt
from glue_jobs.table.announcements import Announcer
from glue_jobs.table.open_table import OpenTable, RowPlan, Services, TablePlan, position_of
from glue_jobs.table.records import teaching
from glue_jobs.transform.chain import Chain, StepResources, chain_of
from glue_jobs.transform.lookup import Lookups
from glue_jobs.transform.origins import of_groups

OWNER = "owner"

if TYPE_CHECKING:
    from glue_jobs.index.table_index import TableIndex


@dataclass(slots=True)
class Opener:
    """Opens one table before each round. Keeps what need not be looked up again."""

    config: job.Table
    name: TableName
    services: Services
    announcer: Announcer
    schemas: RecordSchemas = field(init=False)
    lookups: Lookups = field(init=False)
    _quarantined: set[str] = field(default_factory=set)
    """The quarantined fields that were logged: each once in the life of the job."""
    _dead_letters: DeadLetterTable = field(init=False)
    _index: TableIndex = field(init=False)
    _worker_s: Accumulator[float] = field(init=False)
    main: Table | None = None
    """As loaded last, even if it could not be opened then. None: it does not exist."""
    _opened: OpenTable | None = None
    _pinned: tuple[Json, Versions] | None = None
    """The data columns and schemas that the plan of `_opened` was made from."""
    _origins: str | None = None
    """`ORIGINS` of the plan of `_opened`; None: the table does not note them."""

    def __post_init__(self) -> None:
        from glue_jobs.index.table_index import (
            TableIndex,  # it needs packages that a job may have only after its start
        )

        self._index = TableIndex(self.config.mode.compared)
        lake = self.services.lake
        self._worker_s = lake.spark.sparkContext.accumulator(0.0)
        self.schemas = record_schemas_of(self.config, self.services.registry)
        self._dead_letters = DeadLetterTable(lake, self.name, self.config.maintenance.file_bytes)
        self.lookups = Lookups(lake)

    @property
    def is_open(self) -> bool:
        """True once the table was opened."""
        return self._opened is not None

    @property
    def opened(self) -> OpenTable:
        if self._opened is None:
            raise AssertionError(f"table {self.name} was not opened")
        return self._opened

    def open(self) -> OpenTable:
        """Load the table, or create it from the registered schemas. Add the columns of newer versions.

        Raises Retryable: the topic does not exist, a subject is not registered yet, or a system does not answer.
        Raises Suspended: `not_ours`: calve did not create the table, and nobody asks to adopt it.
        `foreign_path`: its files would lie elsewhere. `other_topic`: a pattern's table belongs to another topic.
        `schema_unsupported`: no column can hold the schema.
        `key_unusable`, `measure_unusable`: the key or measures of its mode do not fit. `mode_changed`: the table was created as
        an aggregate table and the mode is another, or the reverse.
        """
        self.lookups.renew()
        lake = self.services.lake
        found = lake.load(self.name) if self.main is None else lake.reload(self.main)
        if found is None:
            self.main = None
        self._note(found)
        try:
            versions = self.schemas.versions()
        except Retryable:
            self.services.cluster.state(
                self.config.topic
            )  # a topic that does not exist explains a missing schema
            raise
        if found is None:
            found = self._create(versions)
            faults.point("table.created", self.config.name)
            self._note(found)
            versions = self.schemas.versions()
        if INITIALISED not in found.properties or ADOPT in found.properties:
            adopt(found, self.config, self.services, lambda columns: self._require_fit(columns, versions))
        require_own_paths(found)
        self._require_same_topic(found)
        self.schemas.require_learnt(self.name)
        require_same_kind(str(self.name), found.properties, self.config.aggregate)
        self.main = found
        opened = self._fit(found, versions)
        cover(found, opened.covered)
        if self.config.owner and found.properties.get(OWNER) != self.config.owner:
            found.set_properties({OWNER: self.config.owner})
        if self._origins is not None and found.properties.get(ORIGINS) != self._origins:
            found.set_properties({ORIGINS: self._origins})
        return opened

    def plan_without_table(self, learnt: str | None = None) -> TablePlan:
        """How records would become rows of a table that does not exist yet.

        Reads no masking key. Reads the table only for its quarantined fields and for the columns that its records have made.
        learnt: takes these instead. Raises Retryable, Suspended: as `open`.
        """
        if learnt is not None:
            self.schemas.take(learnt)
        elif self.config.value.infer is not None:
            self._note(self.services.lake.load(self.name))
        versions = self.schemas.versions()
        every = self.schemas.first_columns(versions)
        source = every
        if self.config.quarantine_new_fields:
            found = self.services.lake.load(self.name)
            source = only(every, self._admitted(every, versions, found.properties if found else {}))
        chain = self._chain(source, versions).with_any_keys(self.services.lake.spark)
        made = self._made(chain, source)
        columns = struct(*self._kept(made)["fields"], KAFKA)
        return self._plan(source, made, chain, versions, with_ids(columns), every)

    def requested(self) -> bool:
        """True if a request waits, or a pause began or ended since the last look. Asks the catalog."""
        found = self.services.lake.load(self.name)
        if found is None or self.main is None:
            return False
        properties, known = found.properties, self.main.properties
        return not REQUESTS.isdisjoint(properties) or properties.get(PAUSED) != known.get(PAUSED)

    def _require_fit(self, columns: Json, versions: Versions) -> None:
        """Raises CalveError: the rows do not fit a table with these data columns."""
        if not self.config.steps:
            columns, _ = self.schemas.evolved(columns, versions)
            self.schemas.require_fit(columns, versions)
            return
        every = self.schemas.first_columns(versions)
        step_changes(str(self.name), columns, self._made(self._chain(every, versions), every))

    def _learn(self, values: Sequence[int], keys: Sequence[int]) -> OpenTable | None:
        if not self.schemas.learn(values, keys):
            return None
        return self._fit(self.opened.main, self.schemas.versions())

    def _note(self, found: Table | None) -> None:
        self.schemas.take(found.properties.get(LEARNT) if found else None)

    def grown(self, made: DataFrame) -> str | None:
        """The schema with the columns that are only in the rest column of these rows; None if there are none."""
        source = self.config.value
        if source.infer is None or source.rest is None:
            return None
        [known] = self.schemas.versions().values
        if source.infer.is_used(known.text):
            return None
        found = source.infer.learnt(known.text, teaching(made, source.rest), self.schemas.own_columns)
        return None if found == known.text else found

    def _grow(self, staged: Staged) -> OpenTable | None:
        """As `OpenTable.grow`. The new columns are noted first: if the job stops then, the next one adds them.

        Raises Retryable: another job has noted columns since the table was opened.
        """
        main = self.opened.main
        if self.config.value.infer is None:
            return None
        self._note(main)
        if self._pinned is None or self.schemas.versions() != self._pinned[1]:
            raise Retryable(f"table {self.name}: another job has added columns")
        with rows_of(main, whole(main, staged.files)) as made:
            found = None if made is None else self.grown(made)
        if found is None:
            return None
        main.note({LEARNT: found})
        faults.point("table.learnt", self.config.name)
        self._note(main)
        return self._fit(main, self.schemas.versions())

    def _create(self, versions: Versions) -> Table:
        source, kafka, totals = self.schemas.first_columns(versions), KAFKA, {}
        chain = self._chain(source, versions)
        data = self._kept(self._made(chain, source))
        if self.config.aggregate is not None:
            data, kafka = columns_of(data, self.config.aggregate), kafka_column()
            totals = {TOTALS: "true"}
        columns = struct(*data["fields"], kafka)
        if self.config.mode.row_key:
            self.config.mode.resolve(columns)
        for problem in layout_problems(self.config, str(self.name), columns):
            raise problem
        first = root(writer=self.services.writer, topic=self.config.topic, round_id=uuid.uuid4().hex)
        created = self.services.lake.create(
            self.name,
            columns,
            partition_by=self.config.partition_by,
            sort_by=self.config.sort_by,
            properties=settings(self.config.maintenance.file_bytes)
            | {
                INITIALISED: "true",
                "format-version": str(self.config.format_version),
                TOPIC: self.config.topic,
                TOPIC_KEY: str(self.services.cluster.state(self.config.topic).key),
            }
            | (written(leaves(source)) if self.config.quarantine_new_fields else {})
            | ({LEARNT: versions.values[-1].text} if self.config.value.infer is not None else {})
            | self._without_bounds(chain, columns)
            | totals,
            summary=first,
        )
        begin(created, first)
        event("table.created", table=str(self.name), topic=self.config.topic)
        return created

    def _require_same_topic(self, found: Table) -> None:
        """Two topics of a pattern may map to one table name. A table named in calve.yaml keeps its name for any topic."""
        made_for = found.properties.get(TOPIC)
        if self.config.pattern is not None and made_for != self.config.topic:
            raise Suspended(
                "other_topic",
                f"table {self.name} was created for topic {made_for}; topic {self.config.topic} maps to the same name",
                fix=f"in calve.yaml, give it a table of its own: `NAME: {{topic: {self.config.topic}}}`",
            )

    def _fit(self, main: Table, versions: Versions) -> OpenTable:
        """Evolve the table to the schema versions and plan how records are decoded. Most rounds have nothing to do."""
        looks_up = any(isinstance(each, Lookup) for each in self.config.steps)
        # A table that a step looks up may have new columns.
        if self._opened and self._pinned == (data_columns(main.schema), versions) and not looks_up:
            self._opened = replace(self._opened, main=main)
            return self._opened
        as_decoded = self.config.aggregate is None and self.config.history is None and not self.config.steps
        if as_decoded:
            self._evolve(main, lambda table: self.schemas.evolution(table, versions))
            every = source = made = data_columns(main.schema)
            chain = self._chain(source, versions)
        else:
            every = self.schemas.first_columns(versions)
            source = self._settled(every, versions, main)
            chain = self._chain(source, versions)
            made = self._made(chain, source)
            if self.config.aggregate is None:

                def wanted(table: Json) -> list[tuple[Schema | None, list[Change]]]:
                    found = step_changes(str(self.name), table, self._kept(made))
                    return [(None, found)] if found else []

                self._evolve(main, wanted)
        plan = self._plan(source, made, chain, versions, main.schema, every)
        pinned = data_columns(main.schema), versions
        if self.config.lineage and (self._origins is None or self._pinned != pinned):
            self._origins = self._traced(chain, source, made).to_json()
        self._pinned = pinned
        self._opened = OpenTable(
            **{each.name: getattr(plan, each.name) for each in fields(plan)},
            main=main,
            dead_letters=self._dead_letters,
            index=self._index,
            worker_s=self._worker_s,
            learn=self._learn,
            grow=self._grow,
        )
        return self._opened

    def _admitted(self, every: Json, versions: Versions, properties: Mapping[str, str]) -> frozenset[str]:
        """Of all schema columns, the fields that records are decoded to. properties: the table's."""
        found = self.schemas.leaves(every, versions)
        return admitted(found, fields_in(properties), self.config.steps, self.schemas.own_columns)

    def _settled(self, every: Json, versions: Versions, main: Table) -> Json:
        """The columns of the admitted fields, which the table stores. A table without quarantine stores no list."""
        properties = main.properties
        known = fields_in(properties)
        if not self.config.quarantine_new_fields:
            if known is not None:
                main.set_properties({}, remove=[FIELDS])
            return every
        found = self._admitted(every, versions, properties)
        if known is None or not found <= known:
            main.set_properties(written(found | (known or frozenset())))
        for path in sorted(leaves(every).keys() - found - self._quarantined):
            self._quarantined.add(path)
            event("table.field_quarantined", table=str(self.name), topic=self.config.topic, field=path)
        return only(every, found)

    def _plan(
        self, source: Json, made: Json, chain: Chain, versions: Versions, schema: Json, every: Json
    ) -> TablePlan:
        config, mode = self.config, self.config.mode.resolve(schema)
        chain.require_lasting(mode.row_key)
        if config.count_by is not None:
            personal = masked_columns(config.steps, chain.means.tags)
            require_countable(str(self.name), config.count_by, data_columns(schema), personal)
        steps = noted(config.steps, source, chain.means.tags) | self.lookups.noted()
        return TablePlan(
            config,
            self.name,
            self.services,
            self.schemas,
            columns=every,
            decode_plan=self.schemas.decoding(every, versions, leaves(source)),
            row_plan=RowPlan(source, made, chain, data_columns(schema), mode),
            mode=mode,
            read_with=self.schemas.read_with(versions) | steps,
            covered=self._without_bounds(chain, schema),
        )

    def _without_bounds(self, chain: Chain, columns: Json) -> dict[str, str]:
        return without_bounds(columns, hidden_columns(self.config, chain.means.tags, columns))

    def _chain(self, source: Json, versions: Versions) -> Chain:
        def keys(masking_key: str | None) -> DataFrame:
            if self.services.masking is None:
                raise AssertionError("a table that masks was opened without its keys")
            return self.services.masking.frame(masking_key)

        def table(step: Lookup) -> DataFrame:
            return self.lookups.table(replace(step, table=step.full_name(self.name.database)))

        means = StepResources(keys, table, self.schemas.tags(source, versions))
        return chain_of(self.config, means, self.schemas.key_column)

    def _traced(self, chain: Chain, source: Json, made: Json) -> Origins:
        """The origins of the table's columns. The job reads no record for it."""
        fields = {each.name: show(each.field["type"]) for each in places(source)}
        names = [each["name"] for each in made["fields"]]
        database = self.name.database
        steps = (
            replace(each, table=each.full_name(database)) if isinstance(each, Lookup) else each
            for each in chain.steps
        )
        trace = replace(chain, steps=tuple(steps)).origins(self.services.lake.spark, source)
        if self.config.aggregate is not None:
            trace = of_groups(trace, self.config.aggregate)
            names = [*trace.columns]
        broker, _, _ = self.services.cluster.servers.partition(",")
        columns = {name: found for name in names if (found := trace.at(name))}
        return Origins(self.config.topic, broker, fields, columns, trace.rows)

    def _kept(self, made: Json) -> Json:
        """The table's columns for records with these, unless it aggregates them. Raises Suspended: as `with_history`."""
        return made if self.config.history is None else with_history(made)

    def _made(self, chain: Chain, source: Json) -> Json:
        return chain.columns(self.services.lake.spark, source) if chain.steps else source

    def _evolve(
        self, main: Table, wanted: Callable[[Json], Sequence[tuple[Schema | None, list[Change]]]]
    ) -> None:
        """One commit per version that adds columns, oldest first. A version that does not fit changes nothing.

        If the position cannot be proven, somebody replaced the table: it is not changed. Neither is one whose mode cannot change
        to that of calve.yaml: other columns would stay.
        """
        while wanted(data_columns(main.schema)):
            base, _ = position_of(main, self._dead_letters, self.services)
            if base.offsets:
                require_kind(str(self.name), self.config.name, base.mode, self.config.mode)
            left = wanted(data_columns(main.schema))
            if not left:  # another writer was faster: the refreshed table has the columns
                return
            version, found = left[0]
            main.evolve(found)
            faults.point("table.evolved", self.config.name)
            changes, schema_id = list(map(str, found)), version.id if version else None
            who = {"table": str(self.name), "topic": self.config.topic}
            event("table.evolved", **who, schema_id=schema_id, changes=changes)
            main.refresh()
            self.announcer.evolved(main, changes, schema_id=schema_id)
