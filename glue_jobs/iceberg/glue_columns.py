"""Glue's list of a table's columns, level with the table's schema.

Iceberg's catalog leaves the names of earlier schemas in the list and puts them back at every commit
(https://github.com/apache/iceberg/issues/16877). Readers that take the list for the truth fail on them.
"""

from __future__ import annotations

import json
from threading import Lock
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from calve.config.spark_conf import CATALOG
from calve.names import TableName
from glue_jobs.process.java import Packages, elements

CURRENT = "iceberg.field.current"


class GlueColumns:
    """Levels the lists of all tables of a session, with one client of Glue; safe to share between threads."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._jvm = Packages(spark._jvm)
        self._made: Any = None
        self._lock = Lock()
        self._earlier_names: dict[tuple[str, int, int], bool] = {}

    def level(self, table: Any, name: TableName) -> None:
        """Leave in Glue's list what the current schema of a Java table has.

        Compares before it swaps: the version of the entry that was read is required, so no commit of anybody is undone. Where
        the entry has changed, whoever changed it has written the list anew; it is levelled after this table's next commit.
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
            columns = self._jvm.java.util.ArrayList()
            for each in elements(found.storageDescriptor().columns()):
                if each.parameters().get(CURRENT) != "false":
                    columns.add(each)
            if len(columns) == len(found.storageDescriptor().columns()):
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
        """True where an earlier schema has a column whose name no column has now. Asked at every commit, so kept."""
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
        """A client with the catalog's own settings, made when it is first needed."""
        with self._lock:
            if self._made is None:
                prefix = f"spark.sql.catalog.{CATALOG}."
                settings = self._jvm.java.util.HashMap()
                for key, value in self._spark.sparkContext.getConf().getAll():
                    if key.startswith(prefix):
                        settings.put(key.removeprefix(prefix), value)
                factories = self._jvm.org.apache.iceberg.aws.AwsClientFactories
                self._made = getattr(factories, "from")(settings).glue()
        return self._made


def _input(model: Any, found: Any, columns: Any) -> Any:
    """The entry as it is, with these columns."""
    descriptor = found.storageDescriptor().toBuilder().columns(columns).build()
    builder = model.TableInput.builder().name(found.name()).storageDescriptor(descriptor)
    for part in ("description", "owner", "retention", "tableType", "parameters"):
        value = getattr(found, part)()
        if value is not None:
            builder = getattr(builder, part)(value)
    return builder.build()
