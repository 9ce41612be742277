"""The driver's end of what tasks write: how an Iceberg table wants its files, and these as data files of it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from glue_jobs.engines.columnar.layouts import Layout, layout
from glue_jobs.engines.columnar.parquet import Written
from glue_jobs.engines.columnar.storage import Storage
from glue_jobs.iceberg.catalog import Table, catalog_errors
from glue_jobs.iceberg.exposure import require_own_paths


def layout_of(table: Table, storage: Storage) -> Layout:
    """As the table is known here.

    Raises:
        Unsupported: the table wants something that is not done here.
    """
    iceberg, java = table.jvm.org.apache.iceberg, table.java
    spec = json.loads(iceberg.PartitionSpecParser.toJson(java.spec()))
    order = json.loads(iceberg.SortOrderParser.toJson(java.sortOrder()))
    return layout(table.schema, spec, order, table.properties, storage)


def location_of(table: Table, name: str) -> str:
    """Where a task's files begin: a name, where the table's location provider puts it.

    Raises:
        Suspended: `foreign_path`.
    """
    require_own_paths(table)
    return str(table.java.locationProvider().newDataLocation(name))


def data_files(table: Table, wanted: Layout, written: Iterable[Written]) -> tuple[Any, ...]:
    """Data files with the metrics that Iceberg itself reads off their footers, as the table's properties want them.

    Each of py4j's calls costs more than what it does, so none is made that says what Iceberg takes for granted.
    """
    iceberg = table.jvm.org.apache.iceberg
    footer_of, metrics_of = iceberg.inmemory.InMemoryInputFile, iceberg.parquet.ParquetUtil.fileMetrics
    builder, value, types = iceberg.DataFiles.builder, iceberg.SingleValueParser.fromJson, iceberg.types.Types
    config = iceberg.MetricsConfig.forTable(table.java)
    spec = table.java.specs().get(wanted.spec_id)
    tuples = spec.partitionType()
    longs = types.ListType.ofRequired(1, types.LongType.get())
    counts = types.MapType.ofRequired(1, 2, types.IntegerType.get(), types.LongType.get())
    found = []
    for each in written:
        metrics = metrics_of(footer_of(each.footer), config)
        if each.nans:
            held = {"keys": list(each.nans), "values": list(each.nans.values())}
            metrics.nanValueCounts().putAll(value(counts, json.dumps(held)))
        file = builder(spec).withPath(each.path).withFileSizeInBytes(each.size).withMetrics(metrics)
        if len(each.splits) > 1:
            file = file.withSplitOffsets(value(longs, json.dumps(each.splits)))
        if each.partition is not None:
            file = file.withPartition(value(tuples, each.partition))
        if wanted.order:
            file = file.withSortOrderId(wanted.order_id)
        found.append(file.build())
    return tuple(found)


def sweep(table: Table, location: str) -> None:
    """Delete whatever the attempts of a task have written whose files begin with `location`.

    Raises:
        Retryable: the object store does not answer.
    """
    with catalog_errors(f"table {table.name}"):
        table.java.io().deletePrefix(location)
