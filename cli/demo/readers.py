"""The same tables through readers that share no code with the engine: PyIceberg and DuckDB."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from calve.names import SYSTEM_COLUMN
from cli.duck import connect

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyiceberg.table import Table

    from calve.job import Lake

Spans = dict[int, tuple[int, int]]
"""Offsets [from, to) by partition."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a reader sees: `total` rows in the table; the rest are figures of some offsets only.

    `repeated` counts rows whose values, without `_kafka`, are those of another row.
    """

    total: int
    rows: int
    repeated: int
    dead_letters: Mapping[str, int]


def by_pyiceberg(table: Table, letters: Table | None, spans: Spans) -> Found:
    """Read a table and its dead letters with PyIceberg."""
    rows = table.scan().to_arrow()
    origin = rows[SYSTEM_COLUMN]
    within = _within(pc.struct_field(origin, "partition"), pc.struct_field(origin, "offset"), spans)
    values = rows.filter(within).drop_columns([SYSTEM_COLUMN])
    distinct = values.group_by(values.column_names).aggregate([]).num_rows
    return Found(rows.num_rows, values.num_rows, values.num_rows - distinct, _reasons(letters, spans))


def _reasons(letters: Table | None, spans: Spans) -> dict[str, int]:
    if letters is None:
        return {}
    rows = letters.scan(selected_fields=("partition", "offset", "reason")).to_arrow()
    reasons = rows.filter(_within(rows["partition"], rows["offset"], spans))["reason"]
    return {each["values"]: each["counts"] for each in reasons.value_counts().to_pylist()}


def _within(partition: Any, offset: Any, spans: Spans) -> Any:
    masks = [
        pc.and_(pc.equal(partition, p), pc.and_(pc.greater_equal(offset, start), pc.less(offset, to)))
        for p, (start, to) in spans.items()
    ]
    return reduce(pc.or_, masks)


def by_duckdb(table: Table, letters: Table | None, spans: Spans, lake: Lake) -> Found:
    """Read a table and its dead letters with DuckDB, from their metadata files in the emulator's S3."""
    with connect(lake) as connection:
        connection.execute("CREATE TABLE span (part INTEGER, first BIGINT, past BIGINT)")
        bounds = [[p, start, to] for p, (start, to) in spans.items()]
        connection.executemany("INSERT INTO span VALUES (?, ?, ?)", bounds)
        counted = connection.execute(ROWS, [table.metadata_location] * 2).fetchall()[0]
        location = [letters.metadata_location] if letters else []
        reasons = connection.execute(REASONS, location).fetchall() if letters else []
    total, rows, distinct = counted
    return Found(total, rows, rows - distinct, dict(reasons))


ROWS = """
WITH kept AS (
    SELECT rows.* EXCLUDE (_kafka)
    FROM iceberg_scan(?) AS rows JOIN span ON _kafka.partition = part AND _kafka.offset >= first AND _kafka.offset < past
)
SELECT
    (SELECT count(*) FROM iceberg_scan(?)),
    (SELECT count(*) FROM kept),
    (SELECT count(*) FROM (SELECT DISTINCT * FROM kept))
"""
REASONS = """
SELECT reason, count(*)
FROM iceberg_scan(?) AS letters
JOIN span ON letters.partition = part AND letters.offset >= first AND letters.offset < past
GROUP BY reason
"""
