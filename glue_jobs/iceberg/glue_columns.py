"""Keeps Glue's column list of a table equal to the table's schema.

Iceberg's catalog keeps the names of earlier schemas in the list and restores them at every commit
(https://github.com/apache/iceberg/issues/16877). Readers that trust the list fail on them.
"""

from __future__ import annotations

import json
from threading import Lock
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from calve.names import TableName
from glue_jobs.process.java import Packages, catalog_settings, elements

CURRENT = "iceberg.field.current"


class GlueColumns:
    """Fixes the lists of all tables of a session, with one Glue client. Thread-safe."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._jvm = Packages(spark._jvm)
        self._made: Any = None
        self._lock = Lock()
        self._earlier_names: dict[tuple[str, int, int], bool] = {}

    def level(self, table: Any, name: TableName) -> None:
        """Remove from Glue's list every column that the current schema lacks.

        It requires the version of the entry that it read, so it undoes no commit.
        If the entry has changed, its writer has written the list again. It is fixed after this table's next commit.
        """
        if not self._has_earlier_names(table):
            return
        model = self._jvm.software.amazon.awssdk.services.glue.model
        try:
            request = model.GetTableRequest.builder().databaseName(name.database).name(name.table).build()
            client = self._client()
            found = client.getTable(request).table()
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

    def _client(self) -> Any:
        """A client with the catalog's settings, created on first use."""
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
