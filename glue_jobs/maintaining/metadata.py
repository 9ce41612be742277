"""Small manifests become few, and position deletes are merged: nothing of the rows is touched (ADR 31)."""

from __future__ import annotations

import time
from typing import Any

from py4j.protocol import Py4JJavaError

from calve.errors import Retryable
from calve.maintenance import HOLD, HOLD_S, MANIFEST_BYTES
from calve.position import MAINTENANCE, has_position
from glue_jobs import faults
from glue_jobs.java import elements, java_class
from glue_jobs.lake import Lake, catalog_errors
from glue_jobs.maintaining.carrying import Upkept
from glue_jobs.receipt import Meter
from glue_jobs.staging import Conflict

REFUSED = (".ValidationException", ".CommitFailedException")


def rewrite_manifests(lake: Lake, upkept: Upkept) -> int:
    """Merge the manifests of data files that are small; how many went. It never hinders a round: Iceberg appends beside it.

    Raises:
        Retryable: as `Upkept.commit`.
    """
    upkept.refresh()
    table, meter = upkept.table, Meter(lake)
    head, small = table.java.currentSnapshot(), table.jvm.java.util.ArrayList()
    for each in elements(head.dataManifests(table.java.io())) if head is not None else ():
        if int(each.length()) < MANIFEST_BYTES // 2:
            small.add(each)
    if len(small) < 2:
        return 0
    # Guava's, since Iceberg asks in threads of its own, from which py4j calls nothing back.
    guava = table.jvm.com.google.common.base

    def update() -> Any:
        made = table.java.rewriteManifests().clusterBy(guava.Functions.constant(""))
        return made.rewriteIf(getattr(guava.Predicates, "in")(small))

    try:
        upkept.commit("manifests", update, meter.of_work(table))
    except Conflict:
        return 0
    faults.point("metadata.committed", table.name.table)
    return len(small)


def rewrite_deletes(lake: Lake, upkept: Upkept) -> int:
    """Merge position deletes of format 2, and drop those of files that are gone, by Iceberg's action; how many files went.

    Of format 3 each data file has one vector of deletes at most, and compaction takes that along. The action takes no validator:
    nobody is forgotten while it is at work, and the commit behind it says where the table stands.

    Raises:
        Retryable: the catalog or the object store failed, or a person is being forgotten.
    """
    table = upkept.table
    current = table.java.operations().current()
    if int(current.formatVersion()) > 2 or not table.total("delete-files"):
        return 0
    meter = Meter(lake)
    table.set_properties({HOLD: str(time.time() + HOLD_S)})
    try:
        upkept.refresh()
        if upkept.is_forgetting:
            raise Retryable(f"table {table.name}: a person is being forgotten")
        actions = lake.jvm.org.apache.iceberg.spark.actions.SparkActions.get(lake.spark._jsparkSession)
        action = actions.rewritePositionDeletes(table.java).snapshotProperty(MAINTENANCE, "deletes")
        with catalog_errors(f"table {table.name}, deletes"):
            try:
                gone = int(action.execute().rewrittenDeleteFilesCount())
            except Py4JJavaError as error:
                if not java_class(error).endswith(REFUSED):
                    raise
                gone = 0  # a round has written to the same files
    finally:
        table.refresh()
        table.set_properties({}, remove=[HOLD])
        table.refresh()
    head = next(table.ancestors(), None)
    if head is not None and not has_position(head.summary):
        upkept.commit("deletes", table.java.newAppend, meter.of_work(table, read=gone))
    return gone
