"""What a table holds, read by DuckDB: a figure counts only once it is what the topic holds, and what other systems made."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import cast

from pyiceberg.types import MapType, NestedField, StructType

from bench.topics import Topic
from calve.config.job import Lake
from cli.lake import open_catalog
from cli.look.query.answer import connect, identifier, literal


@dataclass(frozen=True, slots=True)
class Table:
    """Its size, and a checksum of each column: sums of the hashes of the values, whatever the order of the rows."""

    rows: int
    places: int
    sums: dict[str, int] = field(repr=False)
    files: int
    bytes: int
    commits: int


def read(lake: Lake, name: str, kafka: Collection[str] | None = None) -> Table:
    """Read all of a table. `kafka`: the fields of `_kafka` that are summed; all of them where it is None."""
    table = open_catalog(lake).load_table((lake.database, name))
    head = table.current_snapshot()
    if head is None:
        return Table(0, 0, {}, 0, 0, 0)
    totals = head.summary.additional_properties if head.summary else {}
    fields = [each for each in table.schema().fields if each.name != "_kafka"]
    inner = [each.name for each in cast("StructType", table.schema().find_type("_kafka")).fields]
    summed = {each.name: _value(each) for each in fields}
    summed |= {
        f"_kafka.{each}": f"_kafka.{identifier(each)}" for each in inner if kafka is None or each in kafka
    }
    sums = ", ".join(f"sum(hash({sql})::hugeint)" for sql in summed.values())
    scan = f"iceberg_scan({literal(table.metadata_location)})"
    with connect(lake) as connection:
        found = connection.execute(
            f"SELECT count(*), count(DISTINCT (_kafka.partition, _kafka.offset)), {sums} FROM {scan}"  # noqa: S608 quoted
        ).fetchone()
    assert found is not None
    return Table(
        found[0],
        found[1],
        dict(zip(summed, map(int, found[2:]), strict=True)),
        int(totals.get("total-data-files", 0)),
        int(totals.get("total-files-size", 0)),
        len(table.snapshots()),
    )


def problem(found: Table, topic: Topic, others: Table | None) -> str | None:
    """Why a table is not what it should be: the records of the topic, each once, and the values that another system has read."""
    if found.rows != topic.count or found.places != topic.count:
        return f"it holds {found.rows:,} rows of {found.places:,} records, the topic {topic.count:,}"
    if others is None:
        return None
    both = found.sums.keys() & others.sums.keys()
    if different := sorted(each for each in both if found.sums[each] != others.sums[each]):
        return f"its columns {', '.join(different)} hold other values"
    return None


def _value(column: NestedField) -> str:
    """A column as it is compared: the entries of a map have no order."""
    name = identifier(column.name)
    return f"list_sort(map_entries({name}))" if isinstance(column.field_type, MapType) else name
