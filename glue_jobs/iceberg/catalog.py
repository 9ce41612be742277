"""The catalog: creates, evolves and reads tables through Iceberg's Java API, over py4j.

Only this module and `glue_jobs.iceberg.staging` know Java classes of the catalog.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any, cast

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from calve.config.spark_conf import CATALOG, FILES, SERVICE
from calve.errors import Fatal, Retryable
from calve.names import OWNER_TAG, TableName
from calve.schema.columns import Json, Transform, with_ids
from calve.schema.evolution import Change
from calve.table.protocol import Commit
from calve.table.summary import INITIALISED, NOTED_TAG, RENAMED
from glue_jobs.iceberg.glue import Glue
from glue_jobs.process.java import (
    catalog_settings,
    elements,
    java_cause,
    java_class,
    java_classes,
    strings,
)


class Table:
    """An Iceberg table, as of the last `refresh` or commit.

    Schema and properties are read once for each. Methods raise Retryable if catalog or object store do not answer.
    kept: `Lake.reload` has found it unchanged.
    """

    def __init__(self, lake: Lake, java: Any, name: TableName, *, kept: bool = False) -> None:
        self.lake = lake
        self.jvm = lake.jvm
        self.iceberg = lake.jvm.org.apache.iceberg
        self.java = java
        self.name = name
        self.kept = kept
        self._commits: dict[int, Commit] = {}

    def refresh(self) -> None:
        with catalog_errors(f"table {self.name}"):
            self.java.refresh()
        self.refreshed()

    def refreshed(self) -> None:
        """Call after each refresh of the Java table: schema and properties are read again."""
        for name in ("_schema", "properties"):
            self.__dict__.pop(name, None)

    @cached_property
    def _schema(self) -> str:
        return str(self.iceberg.SchemaParser.toJson(self.java.schema()))

    @property
    def schema(self) -> Json:
        return json.loads(self._schema)

    @property
    def columns(self) -> list[str]:
        return [each["name"] for each in self.schema["fields"]]

    @property
    def rows(self) -> DataFrame:
        """The rows of the newest snapshot."""
        return self.lake.spark.table(self.name.quoted(CATALOG))

    def rows_at(self, snapshot_id: int | None) -> DataFrame:
        found = self.lake.spark.read.option("versionAsOf", str(snapshot_id))
        return found.table(self.name.quoted(CATALOG))

    @property
    def actions(self) -> Any:
        return self.iceberg.spark.actions.SparkActions.get(self.lake.spark._jsparkSession)

    @cached_property
    def properties(self) -> Mapping[str, str]:
        return strings(self.jvm, self.java.properties())

    @property
    def format_version(self) -> int:
        return int(self.java.operations().current().formatVersion())

    @property
    def head(self) -> int | None:
        current = self.java.currentSnapshot()
        return None if current is None else int(current.snapshotId())

    def total(self, name: str) -> int:
        """One of Iceberg's totals for main's snapshot, such as `data-files`."""
        current = self.java.currentSnapshot()
        return 0 if current is None else int(self.commit_of(current).summary.get(f"total-{name}", 0))

    @property
    def found(self) -> dict[str, str]:
        """The table as announcements name it."""
        location = self.java.operations().current().metadataFileLocation()
        return {"table_uuid": str(self.java.uuid()), "metadata_location": str(location)}

    def ancestors(self, head: int | None = None) -> Iterator[Commit]:
        """Snapshots from `head` (default: main's) towards the root, as far as they are not expired."""
        current = self.java.currentSnapshot() if head is None else self.java.snapshot(head)
        while current is not None:
            commit = self.commit_of(current)
            yield commit
            current = None if commit.parent is None else self.java.snapshot(commit.parent)

    def refs(self) -> dict[str, int]:
        refs = self.java.refs()
        return {str(name): int(refs.get(name).snapshotId()) for name in elements(refs.keySet())}

    def snapshot(self, snapshot_id: int) -> Commit | None:
        found = self.java.snapshot(snapshot_id)
        return None if found is None else self.commit_of(found)

    def commit_of(self, snapshot: Any) -> Commit:
        """A snapshot of Java, read once: it does not change."""
        number = int(snapshot.snapshotId())
        if (known := self._commits.get(number)) is None:
            parent, summary = snapshot.parentId(), strings(self.jvm, snapshot.summary())
            known = self._commits[number] = Commit(
                number,
                None if parent is None else int(parent),
                summary,
                snapshot.timestampMillis() / 1000,
                int(snapshot.sequenceNumber()),
                snapshot.operation(),
            )
        return known

    def committed(self) -> None:
        """Call after every commit: Iceberg has refreshed the table, and rewritten Glue's column list."""
        self.refreshed()
        if self.lake.glue:
            self.lake.glue.level_columns(self.java, self.name)

    def _commit(self, update: Any) -> None:
        update.commit()
        self.committed()

    def set_properties(self, values: Mapping[str, str], *, remove: Iterable[str] = ()) -> None:
        with catalog_errors(f"table {self.name}"):
            update = self.java.updateProperties()
            for name, value in values.items():
                update.set(name, value)
            for name in remove:
                update.remove(name)
            self._commit(update)

    def note(self, values: Mapping[str, str]) -> None:
        """Change properties of the table as loaded here. Raises Retryable: another writer was faster, or the answer was lost."""
        self._replace(lambda metadata: self._marked(metadata.setProperties(dict(values))))

    def _marked(self, metadata: Any) -> Any:
        """With a tag that each note moves, so that a REST catalog refuses a note on metadata that is not the newest.

        Such a catalog compares what the specification has a requirement for: tags, but no properties.
        https://github.com/apache/iceberg/blob/main/open-api/rest-catalog-open-api.yaml, `TableRequirement`
        """
        head = self.java.currentSnapshot()
        if self.lake.glue or head is None:
            return metadata
        now, parent = self.refs().get(NOTED_TAG), head.parentId()
        to = parent if now == head.snapshotId() and parent is not None else head.snapshotId()
        if self.java.snapshot(to) is None:
            return metadata
        return metadata.setRef(NOTED_TAG, self.iceberg.SnapshotRef.tagBuilder(to).build())

    def roll_back(self, snapshot_id: int, values: Mapping[str, str], *, remove: Iterable[str]) -> None:
        """Set main to an earlier snapshot and change properties, in one commit on the table as loaded here.

        Iceberg's own rollback would retry on top of other writers' commits.
        Raises Retryable: another writer was faster, or the answer was lost.
        """
        self._replace(
            lambda metadata: (
                metadata.setBranchSnapshot(snapshot_id, "main")
                .setProperties(dict(values))
                .removeProperties({*remove})
            )
        )

    def _replace(self, change: Callable[[Any], Any]) -> None:
        """Commit a change of the metadata as loaded here: Iceberg's own updates retry on top of other writers' commits."""
        with catalog_errors(f"table {self.name}"):
            operations = self.java.operations()
            base = operations.current()
            operations.commit(base, change(self.iceberg.TableMetadata.buildFrom(base)).build())
            self.java.refresh()
            self.committed()

    def set_tag(self, name: str, snapshot_id: int) -> None:
        with catalog_errors(f"table {self.name}"):
            manage = self.java.manageSnapshots()
            known = name in self.refs()
            (manage.replaceTag if known else manage.createTag)(name, snapshot_id)
            self._commit(manage)

    def expire(self, kept: int, older_than: float) -> int:
        """Expire snapshots; returns their number. Files that no other snapshot needs are deleted.

        Kept are main's `kept` newest snapshots, those of branches and tags, and those younger than `older_than` (epoch
        seconds).
        """
        with catalog_errors(f"table {self.name}"):
            before = int(self.java.snapshots().size())
            update = self.java.expireSnapshots().retainLast(kept).expireOlderThan(int(older_than * 1000))
            if self.lake.is_managed:
                update = update.cleanExpiredFiles(False)  # noqa: FBT003 Java knows no names
            self._commit(update)
            self.refresh()
            return before - int(self.java.snapshots().size())

    def drop_branch(self, name: str) -> None:
        with catalog_errors(f"table {self.name}"):
            self._commit(self.java.manageSnapshots().removeBranch(name))

    def evolve(self, changes: list[Change]) -> None:
        """Change columns in one commit. Columns that another writer added meanwhile stay unchanged."""
        with catalog_errors(f"table {self.name}"):
            transaction = self.java.newTransaction()
            update = transaction.updateSchema()
            self.change(update, changes)
            update.commit()
            if any(each.kind == "rename" for each in changes):
                newest = int(self.java.operations().current().lastSequenceNumber())
                transaction.updateProperties().set(RENAMED, str(newest)).commit()
            transaction.commitTransaction()
            self.committed()

    def change(self, update: Any, changes: Iterable[Change]) -> None:
        """Add changes to Iceberg's `UpdateSchema`."""
        for change in changes:
            match change.kind:
                case "rename":
                    update.renameColumn(change.path, change.to)
                case "widen":
                    update.updateColumn(change.path, self._type(change.type))
                case "comment":
                    update.updateColumnDoc(change.path, change.doc)
                case "add":
                    parent = [".".join(change.parent)] if change.parent else []
                    update.addColumn(*parent, change.name, self._type(change.type), change.doc)

    def _type(self, kind: Json) -> Any:
        field = {"id": 1, "name": "x", "required": False, "type": kind}
        schema = {"type": "struct", "schema-id": 0, "fields": [field]}
        wrapped = self.iceberg.SchemaParser.fromJson(json.dumps(with_ids(schema)))
        return wrapped.findType("x")


class Lake:
    """The catalog of one job: one Java catalog, shared by all tables and threads.

    Databases that it creates carry the deployment's name, `owner`. Methods raise Retryable if the catalog does not answer.
    """

    def __init__(self, spark: SparkSession, owner: str) -> None:
        self.spark = spark
        self.owner = owner
        self.jvm: Any = spark._jvm
        self.service = spark.conf.get(SERVICE)
        self.glue = Glue(spark) if self.service == "glue" else None
        self._identifiers: dict[TableName, Any] = {}

    @property
    def is_managed(self) -> bool:
        """Whether the catalog's service merges small files and deletes files that no snapshot needs. Nobody else may."""
        return self.service == "s3tables"

    @property
    def files(self) -> str:
        """The S3 URI of the lake's folder."""
        return str(self.spark.conf.get(FILES))

    @cached_property
    def _catalog(self) -> Any:
        """Created on first use: a preview does not need it, and AWS's classes take seconds to load."""
        self._activate()
        manager = self.spark._jsparkSession.sessionState().catalogManager()
        return manager.catalog(CATALOG).icebergCatalog()

    @cached_property
    def io(self) -> Any:
        """The objects of the lake's folder. They can be deleted, also where the files of tables cannot."""
        settings = {**catalog_settings(self.spark), "s3.delete-enabled": "true"}
        hadoop = cast("Any", self.spark.sparkContext)._jsc.hadoopConfiguration()
        return self.jvm.org.apache.iceberg.CatalogUtil.loadFileIO(settings["io-impl"], settings, hadoop)

    def enter_thread(self, pool: str) -> None:
        """Activate the Spark session in this thread and set its scheduler pool."""
        self._activate()
        self.spark.sparkContext.setLocalProperty("spark.scheduler.pool", pool)

    def _activate(self) -> None:
        """Spark reads the settings of a catalog from the session that is active in the thread."""
        self.jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(self.spark._jsparkSession)

    def load(self, name: TableName) -> Table | None:
        """None: there is no such table, or a job has died before it gave its new table a snapshot (`create`)."""
        with catalog_errors(f"table {name}"):
            try:
                found = Table(self, self._catalog.loadTable(self._identifier(name)), name)
            except Py4JJavaError as error:
                if java_class(error).endswith(("NoSuchTableException", "NoSuchNamespaceException")):
                    return None
                raise
            bare = self.is_managed and found.head is None and INITIALISED in found.properties
        return None if bare else found

    def reload(self, known: Table) -> Table | None:
        """As `load`, in place of a table that nobody uses any more, and with its connections to the object store.

        Glue says whether the table has a new metadata file; only then Iceberg reads it. A REST catalog gives new credentials
        with each load.
        """
        if self.glue is None:
            return self.load(known.name)
        with catalog_errors(f"table {known.name}"):
            try:
                operations = known.java.operations()
                before = operations.current()
                kept = operations.refresh() == before
            except Py4JJavaError as error:  # the name has no table now, or another one
                if not java_class(error).endswith(("NoSuchTableException", "IllegalStateException")):
                    raise
                return self.load(known.name)
        return Table(self, known.java, known.name, kept=kept)

    def locations(self, names: Collection[TableName]) -> dict[TableName, str]:
        """The metadata file of each table, as the catalog names it now. Missing tables are left out."""
        with catalog_errors("the catalog"):
            if self.glue:
                return self.glue.locations(names)
        found = {name: self.load(name) for name in names}
        return {name: each.found["metadata_location"] for name, each in found.items() if each}

    def has(self, name: TableName) -> bool:
        """Whether the catalog has the table. For a missing table this takes a quarter of the time of `load`, else as long."""
        with catalog_errors(f"table {name}"):
            return bool(self._catalog.tableExists(self._identifier(name)))

    def create(
        self,
        name: TableName,
        columns: Json,
        *,
        partition_by: tuple[Transform, ...] = (),
        sort_by: tuple[Transform, ...] = (),
        properties: Mapping[str, str],
        summary: Mapping[str, str],
    ) -> Table:
        """Create the table with a first, empty snapshot, in one catalog commit. If it exists, load it.

        The first snapshot has `summary`, so that a table of calve has a position from the start. S3 Tables refuses such a
        commit: there the table has no snapshot yet, and `glue_jobs.iceberg.staging.begin` gives it one.
        """
        with catalog_errors(f"table {name}"):
            self._create_database(name.database)
            iceberg = self.jvm.org.apache.iceberg
            schema = iceberg.SchemaParser.fromJson(json.dumps(with_ids(columns) | {"schema-id": 0}))
            builder = (
                self._catalog.buildTable(self._identifier(name), schema)
                .withPartitionSpec(partition_spec(iceberg, schema, partition_by))
                .withSortOrder(ordered(iceberg, iceberg.SortOrder.builderFor(schema), sort_by).build())
            )
            if self.service == "rest":  # not each server heeds the location of a namespace
                builder.withLocation(f"{self.files}/{name.database}/{name.table}")
            for key, value in properties.items():
                builder.withProperty(key, value)
            try:
                if self.is_managed:
                    # It expires snapshots, and with them the position, unless the table says for how long they stay.
                    return Table(self, builder.withProperty(*_KEPT_SNAPSHOTS).create(), name)
                transaction = builder.createTransaction()
                first = transaction.newFastAppend()
                for key, value in summary.items():
                    first.set(key, value)
                first.commit()
                transaction.commitTransaction()
            except Py4JJavaError as error:
                if not java_class(error).endswith("AlreadyExistsException"):
                    raise
            return Table(self, self._catalog.loadTable(self._identifier(name)), name)

    def databases(self) -> list[str]:
        with catalog_errors("the catalog"):
            found = self._catalog
            own = (
                each.level(0)
                for each in found.listNamespaces()
                if found.loadNamespaceMetadata(each).get(OWNER_TAG) == self.owner
            )
            return sorted(own)

    def tables(self, database: str) -> list[str]:
        with catalog_errors(f"database {database}"):
            return sorted(str(each.name()) for each in self._catalog.listTables(self._namespace(database)))

    def _namespace(self, database: str) -> Any:
        return self.jvm.org.apache.iceberg.catalog.Namespace.of(self.strings(database))

    def _create_database(self, database: str) -> None:
        """Create the database if it is missing. Its tables are in the warehouse folder of its name."""
        namespace = self._namespace(database)
        if self._catalog.namespaceExists(namespace):
            return
        made = {"location": f"{self.files}/{database}", OWNER_TAG: self.owner}
        try:
            # S3 Tables knows one property of a namespace.
            self._catalog.createNamespace(namespace, {"owner": self.owner} if self.is_managed else made)
        except Py4JJavaError as error:
            if not java_class(error).endswith("AlreadyExistsException"):
                raise

    def _identifier(self, name: TableName) -> Any:
        if (known := self._identifiers.get(name)) is None:
            known = self.jvm.org.apache.iceberg.catalog.TableIdentifier.of(
                self.strings(name.database, name.table)
            )
            self._identifiers[name] = known
        return known

    def strings(self, *values: str) -> Any:
        gateway: Any = self.spark.sparkContext._gateway
        array = gateway.new_array(gateway.jvm.java.lang.String, len(values))
        for index, value in enumerate(values):
            array[index] = value
        return array


_KEPT_SNAPSHOTS = ("history.expire.max-snapshot-age-ms", str(3_650 * 86_400_000))
"""S3 Tables leaves snapshots alone that a table keeps for longer than the service would. calve expires them, and keeps their
digests: https://docs.aws.amazon.com/AmazonS3/latest/userguide/s3-tables-considerations.html
"""


@contextmanager
def catalog_errors(what: str) -> Iterator[None]:
    """Turn Java exceptions of the catalog or object store into `Retryable`, without any secrets in them.

    Raises Fatal: a REST catalog refuses the credentials. The next run reads them again.
    """
    try:
        yield
    except Py4JJavaError as error:
        if any(each.endswith(".NotAuthorizedException") for each in java_classes(error)):
            fix = "check `secret` and `scope` of `lake.catalog` in calve.yaml, then start the job again"
            raise Fatal(f"the catalog refuses the credentials: {java_cause(error)}", fix=fix) from None
        raise Retryable(f"{what}: {java_cause(error)}") from None


def partition_spec(iceberg: Any, schema: Any, transforms: tuple[Transform, ...]) -> Any:
    builder = iceberg.PartitionSpec.builderFor(schema)
    for each in transforms:
        builder = getattr(builder, each.name)(*_arguments(each))
    return builder.build()


def ordered(iceberg: Any, builder: Any, transforms: tuple[Transform, ...]) -> Any:
    """Add fields to a sort order's builder or to a table's update. Nulls are placed as Iceberg does by default."""
    first, last = iceberg.NullOrder.NULLS_FIRST, iceberg.NullOrder.NULLS_LAST
    for each in transforms:
        by = term(iceberg.expressions.Expressions, each)
        sort, nulls = (builder.desc, last) if each.descending else (builder.asc, first)
        builder = sort(by, nulls)
    return builder


def term(expressions: Any, each: Transform) -> Any:
    name = "ref" if each.name == "identity" else each.name
    return getattr(expressions, name)(*_arguments(each))


def _arguments(each: Transform) -> tuple[Any, ...]:
    return (each.column,) if each.argument is None else (each.column, each.argument)
