"""The tables elsewhere: what an Iceberg REST catalog and the stand-in for Snowflake show, each read by DuckDB."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from calve.errors import CalveError
from cli import duck, lake
from cli.embedded import aws
from cli.embedded.layout import CHECKOUT, Layout
from cli.run.demo.checks import Count
from lambdas.publish_states import PublishStates, Target
from lambdas.snowflake.sql import name as quoted
from lambdas.snowflake.sql_api import system_status

if TYPE_CHECKING:
    from pathlib import Path

    from pyiceberg.table import Table

    from calve.config.job import Job
    from cli.console import Console
    from cli.embedded.elsewhere import Elsewhere
    from cli.embedded.stack import Stack
    from lambdas.publish_states import PublishState

PATIENCE_S = 60.0
READER = "DuckDB"
NAMES = {Target.ICEBERG_REST: "Iceberg REST", Target.SNOWFLAKE: "Snowflake"}


def configuration(stack: Stack, elsewhere: Elsewhere) -> Path:
    """The calve.yaml that ships, and whom it is published to here."""
    file = Layout(stack.root).demo / "calve.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    text = (CHECKOUT / "calve.yaml").read_text()
    file.write_text(f"{text}\npublish: {json.dumps(elsewhere.publish)}\n")
    return file


def count(
    stack: Stack, job: Job, states: str, tables: list[Table], elsewhere: Elsewhere, console: Console
) -> list[Count]:
    """Wait until both have every table, show how far each is, and count its rows there; `states`: the deployment's table."""
    rows = PublishStates(states, aws.client("dynamodb", stack.aws_endpoint))
    lines, counts = [], []
    with duck.connect(job.lake) as connection:
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
    """What DuckDB reads: the table of the REST catalog, or the metadata file that Snowflake names."""
    database, name = table.name()
    if target is Target.ICEBERG_REST:
        return f"rest.{duck.identifier(database)}.{duck.identifier(name)}"
    full = quoted(database.upper(), database.upper(), name.upper())
    shown = system_status(elsewhere.session, "SYSTEM$GET_ICEBERG_TABLE_INFORMATION", full)
    return f"iceberg_scan({duck.literal(str(shown['metadataLocation']))})"


def _synced(states: PublishStates, target: Target, table: Table) -> PublishState:
    """The state of a table that is there as it is here; of one that stays behind, once patience is over: its rows will tell.

    Raises:
        CalveError: it is not there at all.
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
