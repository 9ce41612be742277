"""The programs that are measured: each drains a topic into a new table, whose rows are counted before its figure counts."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from bench.cpu import Run, run
from calve.job import Job
from cli.embedded.layout import Layout
from cli.embedded.stack import Stack
from cli.lake import open_catalog, rows
from cli.spark import spark_environment


def ingest(job: Job, stack: Stack, folder: Path, *, records: int) -> Run:
    """`calve ingest --drain` of the job's one table."""
    settings = folder / f"{job.tables[0].name}.json"
    settings.write_text(job.to_json())
    command = [sys.executable, "-m", "glue_jobs.ingest", "--settings-file", str(settings), "--drain"]
    return measured(command, job, stack, job.tables[0].name, records=records)


def measured(command: Sequence[str], job: Job, stack: Stack, table: str, *, records: int) -> Run:
    """Run a command that fills a table.

    Raises:
        RuntimeError: the command failed, or the table has another number of rows.
    """
    log = Layout(stack.root).logs / f"bench-{table}.log"
    result = run(command, environment=spark_environment(stack.root, stack), log=log)
    held = rows(open_catalog(job.lake).load_table((job.lake.database, table)))
    if held != records:
        raise RuntimeError(f"{table} holds {held:,} rows, the topic {records:,} records")
    return result


def figures(program: str, result: Run, records: int) -> dict[str, object]:
    return {
        "program": program,
        "cpu s / M records": result.cpu_s / records * 1e6,
        "cpu s": result.cpu_s,
        "wall s": result.wall_s,
        "other cpu s": result.other_cpu_s,
    }
