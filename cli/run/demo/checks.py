"""The demo's checks: every figure of a table, by readers that share no code with the engine, and by verify.

Published tables, in an Iceberg REST catalog and the stand-in for Snowflake, are read by DuckDB.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from calve.config.job import Job, Lake
from calve.errors import CalveError, Fatal
from calve.names import SYSTEM_COLUMN, TableName
from cli import lake
from cli.console import Console
from cli.embedded import aws
from cli.embedded.elsewhere import Elsewhere
from cli.embedded.layout import CHECKOUT, Layout
from cli.embedded.stack import Stack
from cli.look.query.answer import connect, identifier, literal
from cli.run.datagen.plan import Fates
from cli.verify.command import show
from cli.verify.findings import Verification
from cli.verify.topic import Sources
from cli.verify.verification import verify
from lambdas.publish_states import PublishState, PublishStates, Target
from lambdas.snowflake.sql import name as quoted
from lambdas.snowflake.sql_api import system_status

Spans = dict[int, tuple[int, int]]
"""Offsets [from, to) by partition."""

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
PATIENCE_S = 60.0
READER = "DuckDB"
NAMES = {Target.ICEBERG_REST: "Iceberg REST", Target.SNOWFLAKE: "Snowflake"}


@dataclass(frozen=True, slots=True)
class Found:
    """The figures of a reader: `total` rows in the table; the rest concern some offsets only.

    `repeated`: rows whose values, without `_kafka`, are those of another row.
    """

    total: int
    rows: int
    repeated: int
    dead_letters: Mapping[str, int]


def by_pyiceberg(table: Table, dead_letters: Table | None, spans: Spans) -> Found:
    """Read a table and its dead letters with PyIceberg."""
    rows = table.scan().to_arrow()
    origin = rows[SYSTEM_COLUMN]
    within = _within(pc.struct_field(origin, "partition"), pc.struct_field(origin, "offset"), spans)
    values = rows.filter(within).drop_columns([SYSTEM_COLUMN])
    distinct = values.group_by(values.column_names).aggregate([]).num_rows
    return Found(rows.num_rows, values.num_rows, values.num_rows - distinct, _reasons(dead_letters, spans))


def _reasons(dead_letters: Table | None, spans: Spans) -> dict[str, int]:
    if dead_letters is None:
        return {}
    rows = dead_letters.scan(selected_fields=("partition", "offset", "reason")).to_arrow()
    reasons = rows.filter(_within(rows["partition"], rows["offset"], spans))["reason"]
    return {each["values"]: each["counts"] for each in reasons.value_counts().to_pylist()}


def _within(partition: Any, offset: Any, spans: Spans) -> Any:
    masks = [
        pc.and_(pc.equal(partition, p), pc.and_(pc.greater_equal(offset, start), pc.less(offset, to)))
        for p, (start, to) in spans.items()
    ]
    return reduce(pc.or_, masks)


def by_duckdb(table: Table, dead_letters: Table | None, spans: Spans, place: Lake) -> Found:
    """Read a table and its dead letters with DuckDB, from their metadata files in the emulator's S3."""
    with connect(place) as connection:
        connection.execute("CREATE TABLE span (part INTEGER, first BIGINT, past BIGINT)")
        bounds = [[p, start, to] for p, (start, to) in spans.items()]
        connection.executemany("INSERT INTO span VALUES (?, ?, ?)", bounds)
        counted = connection.execute(ROWS, [table.metadata_location] * 2).fetchall()[0]
        location = [dead_letters.metadata_location] if dead_letters else []
        reasons = connection.execute(REASONS, location).fetchall() if dead_letters else []
    total, rows, distinct = counted
    return Found(total, rows, rows - distinct, dict(reasons))


@dataclass(frozen=True, slots=True)
class Count:
    """One figure of a table, as expected and by each reader."""

    table: str
    figure: str
    expected: int
    found: Mapping[str, int]

    @property
    def state(self) -> str:
        return "differs" if self.differs else "exact"

    @property
    def differs(self) -> str | None:
        """The result in a sentence if a reader finds another figure than expected."""
        others = [
            f"{reader} finds {figure:,}" for reader, figure in self.found.items() if figure != self.expected
        ]
        return (
            f"{self.table}, {self.figure}: expected {self.expected:,}, {', '.join(others)}"
            if others
            else None
        )


def counts_of(
    table: str, fates: Fates, found: Mapping[str, Found], *, total: Mapping[str, int]
) -> list[Count]:
    """Every figure of a table. `total`: its rows by other readers; the first of them is believed."""

    def count(name: str, expected: int, figures: Mapping[str, int]) -> Count:
        return Count(table, name, expected, figures)

    counts = [
        count("applied", fates.applied, {name: each.rows for name, each in found.items()}),
        count("duplicates", fates.duplicates, {name: each.repeated for name, each in found.items()}),
    ]
    reasons = set(fates.dead_lettered).union(*(each.dead_letters for each in found.values()))
    for reason in sorted(reasons):
        figures = {name: each.dead_letters.get(reason, 0) for name, each in found.items()}
        counts.append(count(reason, fates.dead_lettered.get(reason, 0), figures))
    totals = {name: each.total for name, each in found.items()} | dict(total)
    return [*counts, count("rows in all", next(iter(total.values())), totals)]


def opened(catalog: Catalog, name: TableName) -> Table:
    """A table of a job that has run.

    Raises:
        Fatal: it does not exist.
    """
    found = lake.load(catalog, name)
    if found is None:
        raise Fatal(f"the job ended well, but there is no table {name}")
    return found


def verified(catalog: Catalog, job: Job, console: Console) -> dict[str, Verification]:
    """The result of `calve verify` by table name; also shown."""
    found = {}
    for table in job.tables:
        sources = Sources.of(catalog, job, table)
        found[table.name] = verify(job.table_name(table), sources, console.progress())
        show(console, found[table.name], digests=False)
    return found


def unproved(found: Mapping[str, Verification]) -> list[str]:
    """A sentence for each table with a fault, and for each that is not fully proved."""
    wrong = [f"{name}: verify found what is listed above" for name, each in found.items() if each.findings]
    return wrong + [f"{name}: not all of it is proved" for name, each in found.items() if not each.complete]


def published_configuration(stack: Stack, elsewhere: Elsewhere) -> Path:
    """The shipped calve.yaml, with these targets."""
    file = Layout(stack.root).demo / "calve.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    text = (CHECKOUT / "calve.yaml").read_text()
    file.write_text(f"{text}\npublish: {json.dumps(elsewhere.publish)}\n")
    return file


def count_published(
    stack: Stack, job: Job, states: str, tables: list[Table], elsewhere: Elsewhere, console: Console
) -> list[Count]:
    """Wait until both targets have every table, show their states, and count rows; `states`: the deployment's table of states."""
    rows = PublishStates(states, aws.client("dynamodb", stack.aws_endpoint))
    lines, counts = [], []
    with connect(job.lake) as connection:
        connection.execute(
            f"ATTACH '' AS rest (TYPE iceberg, ENDPOINT '{elsewhere.catalog}', AUTHORIZATION_TYPE 'none',"
            " ACCESS_DELEGATION_MODE 'none')"
        )
        for table in tables:
            for target, where in NAMES.items():
                state = _synced(rows, target, table)
                source = _source(target, table, elsewhere)
                [(found,)] = connection.execute(f"SELECT count(*) FROM {source}").fetchall()  # noqa: S608  quoted
                expected = lake.rows(table)
                counts.append(Count(table.name()[-1], f"rows in {where}", expected, {READER: found}))
                lines.append(_line(state, found))
    console.table("published", lines, title="")
    return counts


def _source(target: Target, table: Table, elsewhere: Elsewhere) -> str:
    database, name = table.name()
    if target is Target.ICEBERG_REST:
        return f"rest.{identifier(database)}.{identifier(name)}"
    full = quoted(database.upper(), database.upper(), name.upper())
    shown = system_status(elsewhere.session, "SYSTEM$GET_ICEBERG_TABLE_INFORMATION", full)
    return f"iceberg_scan({literal(str(shown['metadataLocation']))})"


def _synced(states: PublishStates, target: Target, table: Table) -> PublishState:
    """The state of a table once it is level with the lake, or after the patience: its rows will tell.

    Raises:
        CalveError: the table is missing.
    """
    name, newest = ".".join(table.name()), table.current_snapshot()
    until = time.monotonic() + PATIENCE_S
    while True:
        state = states.find(target, name)
        there = state is not None and state.snapshot_id is not None
        if state and there and newest and state.snapshot_id == str(newest.snapshot_id):
            return state
        if time.monotonic() > until:
            if state and there:
                return state
            said = f"{state.state}: {state.reason}" if state else "nobody has looked"
            raise CalveError(f"{name} is not in {NAMES[target]} after {PATIENCE_S:.0f} s ({said})")
        time.sleep(0.5)


def _line(state: PublishState, rows: int) -> dict[str, object]:
    return {
        "table": state.table,
        "in": NAMES[state.target],
        "state": state.state,
        "snapshot": state.snapshot_id,
        "lag s": None if state.lag_s is None else round(state.lag_s, 1),
        "rows": rows,
    }
