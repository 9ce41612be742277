"""What a table's metadata shows of its rows, and that no row lies among it: operators read files below `metadata/` (ADR 39)."""

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
"""Properties by which Iceberg puts a table's files elsewhere than into its `data` and `metadata`."""
COUNTED = "write.metadata.metrics.column."
METADATA = "metadata"
RECEIVED = (f"{SYSTEM_COLUMN}.key", f"{SYSTEM_COLUMN}.headers")
OF_LETTERS = ("key", "value", "headers")
"""What rows, and dead letters, hold of a record as it was received."""


def require_own_paths(table: Table) -> None:
    """Refuse a table whose files would lie elsewhere than where it was made.

    Raises:
        Suspended: `foreign_path`.
    """
    if moving := sorted(MOVING & table.properties.keys()):
        named = ", ".join(f"'{each}'" for each in moving)
        raise Suspended(
            "foreign_path",
            f"table {table.name} has the property {named}, which moves its files to where other people may read them",
            fix=f"remove it: ALTER TABLE {table.name} UNSET TBLPROPERTIES ({named})",
        )
    location = str(table.java.location()).rstrip("/")
    *folders, last = location.split("/")
    if METADATA in folders or (last == METADATA and table.name.table != METADATA):
        raise Suspended(
            "foreign_path",
            f"table {table.name} lies in {location}, among metadata, which other people may read",
            fix="give the table back the location that it was made with",
        )


def without_bounds(columns: Json, hidden: Iterable[str]) -> dict[str, str]:
    """The properties by which no file's smallest and greatest value of these columns gets into manifests; counts still do.

    columns: of a table. hidden: paths of fields; what is in them is hidden, too.
    """
    covered = tuple(hidden)
    found = {name: path for name, path in leaf_names(columns) if any(_is_in(path, each) for each in covered)}
    return {f"{COUNTED}{name}": "counts" for name in found}


def hidden_columns(table: job.Table, tags: Mapping[str, Sequence[str]], columns: Json) -> set[str]:
    """What a table's metadata must not show: keys and headers as received, and whatever is made of fields that it masks.

    A measure or a step `sql` hides which fields a column is made of: such a table that masks has no bounds at all.
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
    """Give the table the properties of `without_bounds` that it lacks; files that are there keep what was written of them.

    Raises:
        Retryable: the catalog does not answer.
    """
    if not wanted.items() <= table.properties.items():
        table.set_properties(wanted)


def _is_in(path: str, field: str) -> bool:
    return path == field or path.startswith(f"{field}.")
