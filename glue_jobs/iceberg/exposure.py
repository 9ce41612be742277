"""Keep row values out of a table's metadata: operators may read files below `metadata/` (ADR 39)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from calve.config import job
from calve.config.steps import Flatten, Lookup, Mask, Sql, masked_columns
from calve.errors import Suspended
from calve.names import SYSTEM_COLUMN
from calve.schema.columns import Json, leaf_names
from glue_jobs.iceberg.catalog import Table

MOVING = frozenset(
    {
        *("write.data.path", "write.metadata.path", "write.object-storage.path"),
        *("write.folder-storage.path", "write.location-provider.impl"),
    }
)
"""Properties that move a table's files out of its `data` and `metadata` folders."""
COUNTED = "write.metadata.metrics.column."
METADATA = "metadata"
RECEIVED = (f"{SYSTEM_COLUMN}.key", f"{SYSTEM_COLUMN}.headers")
OF_DEAD_LETTERS = ("key", "value", "headers")
"""The received data of a record, in rows and in dead letters."""


def require_own_paths(table: Table) -> None:
    """Refuse a table whose files would be outside its original location. Raises Suspended: `foreign_path`."""
    if moving := sorted(MOVING & table.properties.keys()):
        named = ", ".join(f"'{each}'" for each in moving)
        raise Suspended(
            "foreign_path",
            f"table {table.name} has the property {named}, which moves its files to a place that other people may read",
            fix=f"remove it: ALTER TABLE {table.name} UNSET TBLPROPERTIES ({named})",
        )
    location = str(table.java.location()).rstrip("/")
    *folders, last = location.split("/")
    if METADATA in folders or (last == METADATA and table.name.table != METADATA):
        raise Suspended(
            "foreign_path",
            f"table {table.name} is in {location}, a folder of metadata that other people may read",
            fix="set the table's location to the original one",
        )


def without_bounds(columns: Json, hidden: Iterable[str]) -> dict[str, str]:
    """Properties that keep the minimum and maximum of these columns out of manifests. Counts stay.

    columns: of a table. hidden: paths of fields, which include their nested fields.
    """
    covered = tuple(hidden)
    below = tuple(f"{each}." for each in covered)
    leaves = leaf_names(columns)
    return {
        f"{COUNTED}{name}": "counts" for name, path in leaves if path in covered or path.startswith(below)
    }


def hidden_columns(table: job.Table, tags: Mapping[str, Sequence[str]], columns: Json) -> set[str]:
    """Columns to hide from metadata: received keys and headers, and every column made from a masked field.

    Measures and `sql` steps do not show which fields a column comes from. A masking table with them has no bounds at all.
    """
    steps = table.steps
    if not any(isinstance(each, Mask) for each in steps):
        return {*RECEIVED}
    if table.aggregate is not None or any(isinstance(each, Sql) for each in steps):
        return {*RECEIVED, *(each["name"] for each in columns["fields"] if each["name"] != SYSTEM_COLUMN)}
    looked_up = {name for each in steps if isinstance(each, Lookup) for name in each.columns}
    masked = masked_columns(steps, tags)
    of_maps = {
        f"{name}{each.separator}{key}"
        for each in steps
        if isinstance(each, Flatten)
        for path, keys in each.maps.items()
        for name in {path, path.replace(".", each.separator)} & masked
        for key in keys
    }
    return {*RECEIVED, *masked, *of_maps, *looked_up}


def cover(table: Table, wanted: Mapping[str, str]) -> None:
    """Set the missing properties of `without_bounds`. Existing files keep their statistics.

    Raises Retryable: the catalog does not answer.
    """
    if not wanted.items() <= table.properties.items():
        table.set_properties(wanted)
