"""Glue's list of a table's columns, level with the table's schema.

Iceberg's catalog leaves the names of earlier schemas in the list and puts them back at every commit
(https://github.com/apache/iceberg/issues/16877). Readers that take the list for the truth fail on them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from py4j.protocol import Py4JJavaError

from calve.names import TableName

CURRENT = "iceberg.field.current"


def has_earlier_names(jvm: Any, table: Any) -> bool:
    """True where an earlier schema of a Java table has a column whose name no column has now."""
    schemas = list(table.schemas().values())
    if len(schemas) < 2:
        return False
    current = _names(jvm, table.schema())
    return any(not _names(jvm, each) <= current for each in schemas)


def _names(jvm: Any, schema: Any) -> set[str]:
    return {each["name"] for each in json.loads(jvm.org.apache.iceberg.SchemaParser.toJson(schema))["fields"]}


def level(jvm: Any, glue: Callable[[], Any], table: Any, name: TableName) -> None:
    """Leave in Glue's list what the table's current schema has.

    Compares before it swaps: the version of the entry that was read is required, so no commit of anybody is undone. Where the
    entry has changed, whoever changed it has written the list anew; it is levelled after this table's next commit.
    """
    model = jvm.software.amazon.awssdk.services.glue.model
    try:
        request = model.GetTableRequest.builder().databaseName(name.database).name(name.table).build()
        client = glue()
        found = client.getTable(request).table()
        if found.parameters().get("metadata_location") != table.operations().current().metadataFileLocation():
            return
        columns = jvm.java.util.ArrayList()
        for each in found.storageDescriptor().columns():
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


def _input(model: Any, found: Any, columns: Any) -> Any:
    """The entry as it is, with these columns."""
    descriptor = found.storageDescriptor().toBuilder().columns(columns).build()
    builder = model.TableInput.builder().name(found.name()).storageDescriptor(descriptor)
    for part in ("description", "owner", "retention", "tableType", "parameters"):
        value = getattr(found, part)()
        if value is not None:
            builder = getattr(builder, part)(value)
    return builder.build()
