"""Delete files below a table that no snapshot names, in the second run that finds them (ADR 31).

Iceberg's action lists them. It looks only below the table's folder, and only at files older than `AGE_S`.
Uncommitted files of a job are younger. The first run notes its findings in a file beside the table's metadata.
The next run deletes the noted files that are still unnamed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

from calve.config.maintenance import ORPHANS_NOTE
from glue_jobs.iceberg.catalog import Lake, Table, catalog_errors
from glue_jobs.iceberg.purge import delete
from glue_jobs.iceberg.rewriting import CarriedCommit
from glue_jobs.process import faults
from glue_jobs.process.java import elements, read_json, write_text

AGE_S = 3 * 86_400.0
MOST = 100_000
"""The most files that a run notes and the next run deletes."""


def sweep(lake: Lake, upkept: CarriedCommit, *, age_s: float = AGE_S) -> dict[str, int]:
    """Delete the files that the last run found and nothing names. Note the others for the next run.

    Returns the number of unnamed files `found` that the next run may delete, and of those `deleted`.

    Raises Retryable: the object store failed; some files may be gone.
    """
    table = upkept.table
    upkept.refresh()  # the action takes files newer than its metadata for orphans
    noted, found = set(_read(table).get("files", ())), _orphans(lake, table, age_s)
    gone = sorted(noted & found)
    upkept.refresh()
    if upkept.is_forgetting:
        return {"found": 0, "deleted": 0}
    delete(table, gone)
    faults.point("orphans.deleted", table.name.table)
    left = sorted(found - noted)[:MOST]
    _note(table, left)
    faults.point("orphans.noted", table.name.table)
    return {"found": len(left), "deleted": len(gone)}


def looked_at(table: Table) -> float | None:
    """When a run last looked for orphans, in epoch seconds; None if never. Raises Retryable: the object store failed."""
    return _read(table).get("at")


def _orphans(lake: Lake, table: Table, age_s: float) -> set[str]:
    actions = lake.jvm.org.apache.iceberg.spark.actions.SparkActions.get(lake.spark._jsparkSession)
    action = actions.deleteOrphanFiles(table.java).usePrefixListing(True)  # noqa: FBT003 Java knows no names
    action = action.olderThan(int((time.time() - age_s) * 1000))
    with catalog_errors(f"table {table.name}, orphans"):
        # Iceberg passes each file to a delete function. This one only collects the paths.
        result = action.deleteWith(lake.jvm.java.util.stream.Stream.builder()).execute()
    return {str(each) for each in elements(result.orphanFileLocations())} - {_place(table)}


def _place(table: Table) -> str:
    return f"{str(table.java.location()).rstrip('/')}/metadata/{ORPHANS_NOTE}"


def _read(table: Table) -> dict[str, Any]:
    """The note of the last run; empty if there is none."""
    io, place = table.java.io(), _place(table)
    with catalog_errors(f"table {table.name}, orphans"):
        return dict(read_json(io, place)) if io.newInputFile(place).exists() else {}


def _note(table: Table, files: Sequence[str]) -> None:
    said = json.dumps({"at": int(time.time()), "files": list(files)})
    with catalog_errors(f"table {table.name}, orphans"):
        write_text(table.java.io(), _place(table), said)
