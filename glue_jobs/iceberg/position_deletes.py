"""Position deletes without a commit: Spark deletes from a private copy of the table's metadata (ADR 16).

The copy is in an in-memory Iceberg catalog and uses the table's own files. Its commit adds ordinary delete files.
`glue_jobs.iceberg.staging` publishes them together with the rows.
The in-memory catalog has no setting for its FileIO. Only this module works around that; `tests/integration/modes/test_deletes.py`
is its contract.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from calve.config.spark_conf import COPIES
from calve.errors import Suspended
from calve.names import quote, quote_path
from glue_jobs.iceberg.catalog import Table
from glue_jobs.iceberg.exposure import require_own_paths
from glue_jobs.iceberg.staging import Deletes
from glue_jobs.process.java import elements, strings

NAMESPACE = "staged"
DELETED = "spark.merge-into.num-target-rows-deleted"
FOR_COPIES = {
    "write.merge.mode": "merge-on-read",
    "write.delete.granularity": "file",
    "write.metadata.delete-after-commit.enabled": "false",
    "read.split.adaptive-size.enabled": "false",
}
"""Properties of a copy. It must not clean up: the metadata files it knows belong to the table."""


def stage_deletes(table: Table, keys: DataFrame, columns: Sequence[str], stage_id: str) -> Deletes | None:
    """Write deletes for main's rows whose `columns` match one of the `keys`, as of its last refresh; None if there are none.

    `keys` has one column for each of `columns`, in their order. Keys are unique and not null.
    Raises Suspended: `ledger_imbalance`: Spark's count differs from the rows that the files delete.
    """
    head = table.java.currentSnapshot()
    if head is None or strings(table.jvm, head.summary()).get("total-data-files") == "0":
        return None
    with _copy_of(table, stage_id) as copy:
        name = ".".join(quote(part) for part in (COPIES, NAMESPACE, stage_id))
        held = [F.col(f"{quote(stage_id)}.{quote_path(path)}") for path in columns]
        pairs = zip(held, keys.columns, strict=True)
        same = reduce(Column.__and__, (column == F.col(quote(key)) for column, key in pairs))
        keys.mergeInto(name, same).whenMatched().delete().merge()
        copy.refresh()
        return _harvested(table, copy, int(head.snapshotId()))


def _harvested(table: Table, copy: Any, base: int) -> Deletes | None:
    """The delete files that the copy's newest snapshot added to the table's snapshot `base`."""
    snapshot, io = copy.currentSnapshot(), table.java.io()
    if int(snapshot.snapshotId()) == base:
        return None
    files, replaced = (
        tuple(elements(each)) for each in (snapshot.addedDeleteFiles(io), snapshot.removedDeleteFiles(io))
    )
    rows = sum(each.recordCount() for each in files) - sum(each.recordCount() for each in replaced)
    counted = int(strings(table.jvm, snapshot.summary()).get(DELETED, "0"))
    if rows != counted:
        text = f"{rows} rows are deleted by the round's files, {counted} were counted where they were read"
        raise Suspended("ledger_imbalance", f"the round does not balance and was not published: {text}")
    util = table.iceberg.util.ContentFileUtil
    touched = tuple(str(util.referencedDataFileLocation(each)) for each in files)
    return Deletes(base, files, replaced, touched, rows) if files else None


_PREPARING = threading.Lock()


@contextmanager
def _copy_of(table: Table, name: str) -> Iterator[Any]:
    """A separate table with the metadata of `table` and the properties `FOR_COPIES`, in the in-memory catalog.

    Then it is dropped, and its metadata deleted. After a crash its files are orphans.
    """
    require_own_paths(table)
    iceberg, io = table.iceberg, table.java.io()
    catalog = table.lake.spark._jsparkSession.sessionState().catalogManager().catalog(COPIES).icebergCatalog()
    with _PREPARING:
        _prepare(table, catalog)
    builder = iceberg.TableMetadata.buildFrom(table.java.operations().current())
    metadata = builder.setProperties(FOR_COPIES).discardChanges().build()
    base = f"{table.java.location()}/metadata/{name}.metadata.json"
    iceberg.TableMetadataParser.write(metadata, io.newOutputFile(base))
    identifier = iceberg.catalog.TableIdentifier.of(table.lake.strings(NAMESPACE, name))
    copy = catalog.registerTable(identifier, base)
    try:
        yield copy
    finally:
        snapshot, io = copy.currentSnapshot(), copy.io()
        last = str(copy.operations().current().metadataFileLocation())
        catalog.dropTable(identifier, False)  # noqa: FBT003 do not purge
        for path in {base, last}:
            io.deleteFile(path)
        if last != base:
            for each in elements(snapshot.allManifests(io)):
                if int(each.snapshotId()) == int(snapshot.snapshotId()):
                    io.deleteFile(each.path())
            io.deleteFile(snapshot.manifestListLocation())


def _prepare(table: Table, catalog: Any) -> None:
    """Give the catalog a FileIO like the table's, by reflection, because it has no setting for one."""
    namespace = table.iceberg.catalog.Namespace.of(table.lake.strings(NAMESPACE))
    if catalog.namespaceExists(namespace):
        return
    io, load = table.java.io(), table.iceberg.CatalogUtil.loadFileIO
    like = load(io.getClass().getName(), io.properties(), table.lake.spark._jsc.hadoopConfiguration())
    field = catalog.getClass().getDeclaredField("io")
    field.setAccessible(True)
    field.set(catalog, like)
    catalog.createNamespace(namespace)
