"""Manifests and position deletes are written anew by Iceberg's own actions, behind which the position is said again (ADR 31).

The actions take no validator: what they commit says only that it is maintenance, and where the table stands is found below it,
until the commit that follows says it.
"""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JJavaError

from calve.maintenance import Kind
from calve.position import MAINTENANCE, has_position
from glue_jobs import faults
from glue_jobs.java_errors import java_class
from glue_jobs.lake import Lake, catalog_errors
from glue_jobs.maintaining.carrying import Upkept

REFUSED = (".ValidationException", ".CommitFailedException")


def rewrite_manifests(lake: Lake, upkept: Upkept) -> int:
    """Merge small manifests into few, sorted by partition; how many came. It never hinders a round: Iceberg appends beside it.

    Raises:
        Retryable: the catalog or the object store failed.
    """
    result = _executed(upkept, "manifests", _actions(lake).rewriteManifests(upkept.table.java))
    return 0 if result is None else sum(1 for _ in result.addedManifests())


def rewrite_deletes(lake: Lake, upkept: Upkept) -> int:
    """Merge position deletes of format 2, and drop those of files that are gone; how many files of them went.

    Of format 3 each data file has one vector of deletes at most, and compaction takes that along.

    Raises:
        Retryable: as `rewrite_manifests`.
    """
    if int(upkept.table.java.operations().current().formatVersion()) > 2:
        return 0
    result = _executed(upkept, "deletes", _actions(lake).rewritePositionDeletes(upkept.table.java))
    return 0 if result is None else int(result.rewrittenDeleteFilesCount())


def _executed(upkept: Upkept, kind: Kind, action: Any) -> Any:
    """What came of an action; None: others wrote to the same files meanwhile, and nothing was done."""
    table = upkept.table
    try:
        with catalog_errors(f"table {table.name}, {kind}"):
            try:
                result = action.snapshotProperty(MAINTENANCE, kind).execute()
            except Py4JJavaError as error:
                if java_class(error).endswith(REFUSED):
                    return None
                raise
    finally:
        table.refresh()
    table.committed()
    faults.point("metadata.committed", table.name.table)
    restate(upkept, kind)
    return result


def restate(upkept: Upkept, kind: Kind) -> None:
    """Let main's head say where the table stands, if it does not."""
    head = next(upkept.table.ancestors(), None)
    if head is not None and not has_position(head.summary):
        upkept.commit(kind, upkept.table.java.newAppend)


def _actions(lake: Lake) -> Any:
    return lake.jvm.org.apache.iceberg.spark.actions.SparkActions.get(lake.spark._jsparkSession)
