"""The steps `route` and `lookup`: a table's own records of a shared topic, and columns of another table as of a round."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from calve.config.steps import LOOKED_UP, Lookup, Route, Step, Value
from calve.errors import CalveError
from calve.names import TableName
from cli import lake
from cli.verify.columns import BYTES, TEXTS, places_of
from cli.verify.formats.fields import LEFT_OUT, Outcome

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

NO_ROUTE = "no_route"
KINDS: dict[type, Any] = {str: pa.large_string(), int: pa.int64(), bool: pa.bool_()}
MISSING = "lookup_missing"
PLACE, OTHER = "calve:place", "calve:other"
MOST_DIGITS = 38

Others = Callable[[Lookup], pa.Table]
"""The columns that a step needs of its table."""


class OtherTables:
    """Tables for lookups. database: of names without one."""

    def __init__(self, catalog: Catalog, database: str, steps: Iterable[Step]) -> None:
        self._catalog, self._database = catalog, database
        self._names = [each.full_name(database) for each in steps if isinstance(each, Lookup)]
        self._table, self._rows = cache(self._load), cache(self._scan)

    @cached_property
    def newest(self) -> Mapping[str, str]:
        """The newest snapshots of the tables, as a round notes them."""
        heads = {name: self._table(name).current_snapshot() for name in self._names}
        return {f"{LOOKED_UP}{name}": str(head.snapshot_id) if head else "" for name, head in heads.items()}

    def of(self, read_with: Mapping[str, str]) -> Others | None:
        """The tables as of the snapshots that a round noted; None if it noted none, or one has expired."""
        snapshots = {name: read_with.get(f"{LOOKED_UP}{name}") for name in self._names}
        for name, snapshot in snapshots.items():
            if snapshot is None or (snapshot and self._table(name).snapshot_by_id(int(snapshot)) is None):
                return None

        def rows(step: Lookup) -> pa.Table:
            columns = tuple(dict.fromkeys((*step.on.values(), *step.columns.values())))
            name = step.full_name(self._database)
            return self._rows(name, snapshots[name] or "", columns)

        return rows

    def _scan(self, name: str, snapshot: str, columns: tuple[str, ...]) -> pa.Table:
        of = int(snapshot) if snapshot else None
        scan = self._table(name).scan(selected_fields=columns, case_sensitive=False, snapshot_id=of)
        return scan.to_arrow() if snapshot else scan.to_arrow().slice(0, 0)

    def _load(self, name: str) -> Table:
        found = lake.load(self._catalog, TableName(*name.split(".")))
        if found is None:
            raise CalveError(
                f"there is no table {name}, in which a step looks up",
                fix="verify in the catalog that has this table",
            )
        return found


def looked_up(rows: pa.RecordBatch, step: Lookup, other: pa.Table, *, tombstones: bool) -> Outcome:
    """The rows with columns of the other table's row with the same key, null without one."""
    keys = [f"{OTHER}{n}" for n in range(len(step.on))]
    pairs = [(value_at(rows, path), _column(other, name)) for path, name in step.on.items()]
    kinds = [_common(our.type, their.type) for our, their in pairs]
    ours, theirs = ([pair[n].cast(kind) for pair, kind in zip(pairs, kinds, strict=True)] for n in (0, 1))
    left = pa.table([*ours, pa.array(range(rows.num_rows), pa.int64())], names=[*keys, PLACE])
    right = pa.table([*theirs, pa.array(range(other.num_rows), pa.int64())], names=[*keys, OTHER])
    found = left.join(right, keys, join_type="left outer").sort_by(PLACE)[OTHER].combine_chunks()
    made = rows
    for new, name in step.columns.items():
        made = made.append_column(new, _column(other, name).take(found))
    if step.missing == "null" or tombstones:
        return made, {}
    missing = found.is_null()
    return made.filter(pc.invert(missing)), dict.fromkeys(
        places_of(rows).filter(missing).to_pylist(), MISSING
    )


def _column(table: pa.Table, name: str) -> Any:
    names = [each.lower() for each in table.schema.names]
    return table.column(names.index(name.lower())).combine_chunks()


def _common(ours: Any, theirs: Any) -> Any:
    """A type of both sides of a key that keeps every digit."""
    if pa.types.is_decimal(ours):
        return pa.decimal128(MOST_DIGITS, max(ours.scale, theirs.scale))
    if pa.types.is_integer(ours):
        return pa.int64()
    if ours in TEXTS:
        return pa.large_string()
    if pa.types.is_fixed_size_binary(ours) or ours in BYTES:
        return pa.large_binary()
    return theirs


def routed(rows: pa.RecordBatch, step: Route, *, tombstones: bool) -> Outcome:
    """The rows of the table's own records, and all tombstones."""
    if tombstones:
        return rows, {}
    value, places = value_at(rows, step.column), places_of(rows)
    own, named = _is_one(value, step.values), _is_one(value, step.named)
    stays = pc.invert(named) if step.others == "keep" else own
    gone = pc.invert(stays)
    lost = dict.fromkeys(places.filter(gone).to_pylist(), LEFT_OUT)
    if step.others == "reject":
        lost |= dict.fromkeys(places.filter(pc.and_not(gone, named)).to_pylist(), NO_ROUTE)
    return rows.filter(stays), lost


def value_at(rows: pa.RecordBatch, path: str) -> Any:
    """The values at a path of structs, with names in any case."""
    found: Any = rows.to_struct_array()
    for name in path.split("."):
        names = [each.name.lower() for each in found.type]
        found = found.flatten()[names.index(name.lower())]
    return found


def _is_one(value: Any, values: Sequence[Value]) -> Any:
    """Never null: a null value is none of them."""
    kind = KINDS[type(values[0])] if values else value.type
    return pc.is_in(value.cast(kind), pa.array(values, kind))
