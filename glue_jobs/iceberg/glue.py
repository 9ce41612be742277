"""Requests to Glue's API beside those of Iceberg's catalog: a table's column list, and where the metadata of many tables is."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from threading import Lock
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from calve.names import TableName
from glue_jobs.process.java import catalog_settings, elements, java_class

CURRENT = "iceberg.field.current"
LISTED_FROM = 20
"""So many tables are asked for in one listing, even if the database has many more."""


class Glue:
    """One client for all tables of a session, with the catalog's settings. Thread-safe."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._jvm: Any = spark._jvm
        self._made: Any = None
        self._lock = Lock()
        self._earlier_names: dict[tuple[str, int, int], bool] = {}

    def level_columns(self, table: Any, name: TableName) -> None:
        """Remove from Glue's list every column that the current schema lacks.

        Iceberg's catalog keeps the names of earlier schemas in the list and restores them at every commit
        (https://github.com/apache/iceberg/issues/16877). Readers that trust the list fail on them.
        It requires the version of the entry that it read, so it undoes no commit.
        If the entry has changed, its writer has written the list again. It is fixed after this table's next commit.
        """
        if not self._has_earlier_names(table):
            return
        model, client = self._model, self._client
        try:
            found = client.getTable(self._request(name)).table()
            location = table.operations().current().metadataFileLocation()
            if found.parameters().get("metadata_location") != location:
                return
            listed = list(elements(found.storageDescriptor().columns()))
            columns = [each for each in listed if each.parameters().get(CURRENT) != "false"]
            if len(columns) == len(listed):
                return
            client.updateTable(
                model.UpdateTableRequest.builder()
                .databaseName(name.database)
                .tableInput(_input(model, found, columns))
                .versionId(found.versionId())
                .skipArchive(True)  # noqa: FBT003 a Java method
                .build()
            )
        except Py4JJavaError:
            return

    def locations(self, names: Collection[TableName]) -> dict[TableName, str]:
        """The metadata file of each table, as Glue names it now. Missing tables are left out. Raises Py4JJavaError.

        If many tables of a database are asked for, all its tables are listed, 100 in a request.
        """
        asked: defaultdict[str, set[str]] = defaultdict(set)
        for each in names:
            asked[each.database].add(each.table)
        found = {}
        for database, tables in asked.items():
            entries = self._listed(database) if len(tables) >= LISTED_FROM else self._single(database, tables)
            for each in entries:
                if (table := str(each.name())) in tables:
                    location = each.parameters().get("metadata_location")
                    found[TableName(database, table)] = str(location)
        return found

    def _listed(self, database: str) -> Iterator[Any]:
        request = self._model.GetTablesRequest.builder().databaseName(database).build()
        pages = self._client.getTablesPaginator(request).iterator()
        while pages.hasNext():
            yield from elements(pages.next().tableList())

    def _single(self, database: str, tables: Iterable[str]) -> Iterator[Any]:
        for each in tables:
            try:
                yield self._client.getTable(self._request(TableName(database, each))).table()
            except Py4JJavaError as error:
                if not java_class(error).endswith("EntityNotFoundException"):
                    raise

    def _has_earlier_names(self, table: Any) -> bool:
        """True if an earlier schema has a column name that no current column has. Cached, because every commit asks."""
        schemas = table.schemas()
        key = (str(table.uuid()), int(table.schema().schemaId()), int(schemas.size()))
        if key not in self._earlier_names:
            current = self._names(table.schema())
            self._earlier_names[key] = any(not self._names(each) <= current for each in schemas.values())
        return self._earlier_names[key]

    def _names(self, schema: Any) -> set[str]:
        text = self._jvm.org.apache.iceberg.SchemaParser.toJson(schema)
        return {each["name"] for each in json.loads(text)["fields"]}

    def _request(self, name: TableName) -> Any:
        return self._model.GetTableRequest.builder().databaseName(name.database).name(name.table).build()

    @property
    def _model(self) -> Any:
        return self._jvm.software.amazon.awssdk.services.glue.model

    @property
    def _client(self) -> Any:
        """Created on first use."""
        with self._lock:
            if self._made is None:
                factories = self._jvm.org.apache.iceberg.aws.AwsClientFactories
                self._made = getattr(factories, "from")(catalog_settings(self._spark)).glue()
        return self._made


def _input(model: Any, found: Any, columns: Any) -> Any:
    descriptor = found.storageDescriptor().toBuilder().columns(columns).build()
    builder = model.TableInput.builder().name(found.name()).storageDescriptor(descriptor)
    for part in ("description", "owner", "retention", "tableType", "parameters"):
        value = getattr(found, part)()
        if value is not None:
            builder = getattr(builder, part)(value)
    return builder.build()
