"""The demo's checks: every figure of a table, by readers that share no code with the engine, and by verify.

Published tables, in an Iceberg REST catalog and the stand-in for Snowflake, are read by DuckDB.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product

import duckdb
from duckdb import DuckDBPyConnection
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from calve.config.job import Job, Lake
from calve.errors import CalveError, Fatal
from calve.names import TableName
from cli import lake
from cli.console import Console
from cli.embedded import aws
from cli.embedded.elsewhere import Elsewhere
from cli.embedded.stack import Stack
from cli.look.query.answer import connect, identifier, literal
from cli.progress import LineProgress
from cli.run import jobs
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

FIGURES = """
WITH kept AS (
    SELECT held.* EXCLUDE (_kafka)
    FROM held JOIN span ON _kafka.partition = part AND _kafka.offset >= first AND _kafka.offset < past
)
SELECT
    (SELECT count(*) FROM held),
    (SELECT count(*) FROM kept),
    (SELECT count(*) FROM (SELECT DISTINCT * FROM kept))
"""
REASONS = """
SELECT reason, count(*)
FROM letters JOIN span ON letters.partition = part AND letters.offset >= first AND letters.offset < past
GROUP BY reason
"""
PATIENCE_S = 60.0
QUIET = LineProgress(lambda _: None)
PYICEBERG, DUCKDB, VERIFY = "PyIceberg", "DuckDB", "verify"
NAMES = {Target.ICEBERG_REST: "Iceberg REST", Target.SNOWFLAKE: "Snowflake"}
READERS = (VERIFY, PYICEBERG, DUCKDB, *NAMES.values())


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
    """Read a table and its dead letters with PyIceberg; DuckDB only adds up."""
    with duckdb.connect() as connection:
        connection.register("held", table.scan().to_arrow())
        if dead_letters:
            letters = dead_letters.scan(selected_fields=("partition", "offset", "reason")).to_arrow()
            connection.register("letters", letters)
        return _found(connection, spans, dead_letters)


def by_duckdb(table: Table, dead_letters: Table | None, spans: Spans, place: Lake) -> Found:
    """Read a table and its dead letters with DuckDB, from their metadata files in the emulator's S3."""
    with connect(place) as connection:
        for view, each in (("held", table), ("letters", dead_letters)):
            if each:
                source = f"iceberg_scan({literal(each.metadata_location)})"
                connection.execute(f"CREATE VIEW {view} AS SELECT * FROM {source}")  # noqa: S608  quoted
        return _found(connection, spans, dead_letters)


def _found(connection: DuckDBPyConnection, spans: Spans, dead_letters: Table | None) -> Found:
    connection.execute("CREATE TABLE span (part INTEGER, first BIGINT, past BIGINT)")
    bounds = [[p, start, to] for p, (start, to) in spans.items()]
    connection.executemany("INSERT INTO span VALUES (?, ?, ?)", bounds)
    [(total, rows, distinct)] = connection.execute(FIGURES).fetchall()
    reasons = connection.execute(REASONS).fetchall() if dead_letters else []
    return Found(total, rows, rows - distinct, dict(reasons))


@dataclass(frozen=True, slots=True)
class Count:
    """One figure of a table, as expected and by each reader."""

    table: str
    figure: str
    expected: int
    found: Mapping[str, int]

    @property
    def differs(self) -> str | None:
        """A sentence if a reader finds another figure than expected."""
        wrong = [f"{name} finds {found:,}" for name, found in self.found.items() if found != self.expected]
        what = f"{self.table}, {self.figure}: expected {self.expected:,}"
        return f"{what}, {', '.join(wrong)}" if wrong else None

    def line(self, readers: Iterable[str]) -> dict[str, object]:
        """For people; a reader without a figure does not know it."""
        figures = {name: self.found.get(name) for name in readers}
        state = "differs" if self.differs else "exact"
        return {
            "table": self.table,
            "figure": self.figure,
            "expected": self.expected,
            **figures,
            "state": state,
        }


def proof(
    table: str, records: int, rows: int, dead_letters: int, proved: Verification, counts: Iterable[Count]
) -> dict[str, object]:
    """One line for a table: what was produced, and whether each reader finds exactly that. published: in both targets."""
    line: dict[str, object] = {"table": table, "records": records, "rows": rows, "letters": dead_letters}
    line[VERIFY] = "proved" if proved.complete and not proved.findings else "differs"
    own = [each for each in counts if each.table == table]
    for name, readers in {PYICEBERG: [PYICEBERG], DUCKDB: [DUCKDB], "published": NAMES.values()}.items():
        same = [
            each.found[reader] == each.expected for reader in readers for each in own if reader in each.found
        ]
        line[name] = ("exact" if all(same) else "differs") if same else None
    return line


def counts_of(
    table: str, fates: Fates, found: Mapping[str, Found], *, total: Mapping[str, int]
) -> list[Count]:
    """Every figure of a table. `total`: its rows by other readers; the first of them is believed."""
    readers, dead = list(found), fates.dead_lettered
    reasons = sorted(set(dead).union(*(each.dead_letters for each in found.values())))
    rows = [
        ("applied", fates.applied, [each.rows for each in found.values()]),
        ("duplicates", fates.duplicates, [each.repeated for each in found.values()]),
        *(
            (why, dead.get(why, 0), [each.dead_letters.get(why, 0) for each in found.values()])
            for why in reasons
        ),
    ]
    counts = [Count(table, name, n, dict(zip(readers, each, strict=True))) for name, n, each in rows]
    in_all = {name: each.total for name, each in found.items()} | dict(total)
    return [*counts, Count(table, "rows in all", next(iter(total.values())), in_all)]


def ingested(stack: Stack, name: str, console: Console, expected: int) -> None:
    """Run a deployed job until its topics' ends."""
    if jobs.run_deployed(stack, name, console, drain=True, quick=True, expected=expected):
        raise CalveError("the job left a table suspended or failed", fix="read .calve/demo/demo.log")


def opened(catalog: Catalog, name: TableName) -> Table:
    found = lake.load(catalog, name)
    if found is None:
        raise Fatal(f"the job ended well, but there is no table {name}")
    return found


def verified(catalog: Catalog, job: Job, console: Console) -> dict[str, Verification]:
    """The result of `calve verify` by table name; also shown."""
    found = {}
    for table in job.tables:
        sources = Sources.of(catalog, job, table)
        found[table.name] = verify(job.table_name(table), sources, QUIET)
        show(console, found[table.name], digests=False)
    return found


def unproved(found: Mapping[str, Verification]) -> list[str]:
    """A sentence for each table with a fault, and for each that is not fully proved."""
    wrong = [f"{name}: verify found faults" for name, each in found.items() if each.findings]
    return wrong + [f"{name}: not all of it is proved" for name, each in found.items() if not each.complete]


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
        for table, (target, where) in product(tables, NAMES.items()):
            database, name = table.name()
            state = _synced(rows, target, table)
            if target is Target.ICEBERG_REST:
                source = f"rest.{identifier(database)}.{identifier(name)}"
            else:
                full = quoted(database.upper(), database.upper(), name.upper())
                shown = system_status(elsewhere.session, "SYSTEM$GET_ICEBERG_TABLE_INFORMATION", full)
                source = f"iceberg_scan({literal(str(shown['metadataLocation']))})"
            [(found,)] = connection.execute(f"SELECT count(*) FROM {source}").fetchall()  # noqa: S608  quoted
            counts.append(Count(name, "rows", lake.rows(table), {where: found}))
            line = {
                "table": state.table,
                "in": where,
                "state": state.state,
                "snapshot": state.snapshot_id,
                "lag s": None if state.lag_s is None else round(state.lag_s, 1),
                "rows": found,
            }
            lines.append(line)
    console.table("published", lines, title="")
    return counts


def _synced(states: PublishStates, target: Target, table: Table) -> PublishState:
    """The state of a table once it is level with the lake, or after the patience: its rows will tell."""
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
