"""`calve ingest` and `calve maintain`: the Glue jobs' own scripts, run here as processes of their own."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from calve.config.job import Job
from cli.config import DEFAULT_CONFIG, ConfigOption, EnvOption, TablesArgument, load_jobs, spark_settings
from cli.console import Console
from cli.embedded.layout import Layout, project_root
from cli.embedded.stack import current
from cli.look.condition import reported_by
from cli.run.job_process import Program, follow
from cli.spark import spark_environment


def ingest(
    tables: TablesArgument = None,
    *,
    config: ConfigOption = DEFAULT_CONFIG,
    env: EnvOption = None,
    drain: Annotated[bool, typer.Option("--drain", help="Stop at the topics' ends as they are now.")] = False,
    memory: Annotated[str, typer.Option(help="Heap of the Spark driver.")] = "2g",
) -> None:
    """Run the job of this folder without a deploy.

    Without --drain it runs until Ctrl-C, which lets the rounds under way finish; a second Ctrl-C does not. No record is lost
    or doubled by either. At the end each table is listed with its rows, dead letters and state. Exits with 1 where a table
    is suspended or failed.

    Example:
      calve ingest stock_trades --drain
    """
    console, conf = Console(), spark_settings(config, env)
    jobs = [only(job, tables) for job in load_jobs(config, env, tables=tables or (), writes=True)]
    codes = [
        run(job, console, drain=drain, memory=memory, conf=conf) for job in jobs if job.tables or job.patterns
    ]
    if any(codes):
        raise typer.Exit(1)


def only(job: Job, tables: list[str] | None) -> Job:
    """The job with only these tables; None stands for all."""
    if not tables:
        return job
    return replace(job, tables=tuple(each for each in job.tables if each.name in tables), patterns=())


def run(
    job: Job, console: Console, *, drain: bool, memory: str, conf: Mapping[str, Mapping[str, str]]
) -> int:
    """Run the job until it ends, as `follow`; return its exit code."""
    arguments, title = ["--drain"] if drain else [], f"ingesting {what(job)}"
    return follow_script(
        "ingest", job, arguments, console, title=title, drains=drain, memory=memory, conf=conf
    )


def what(job: Job) -> str:
    """The topics and tables for a sentence; with patterns their number is not known."""
    if job.patterns:
        return f"for job {job.job}"
    return job.tables[0].name if len(job.tables) == 1 else f"{len(job.tables)} tables"


def follow_script(
    script: str,
    job: Job,
    arguments: Sequence[str],
    console: Console,
    *,
    title: str,
    drains: bool,
    memory: str,
    conf: Mapping[str, Mapping[str, str]],
) -> int:
    """Run a script of `glue_jobs` here, as `follow`; return its exit code.

    conf: Spark settings of each job, as Glue passes them.
    """
    root = project_root()
    with tempfile.NamedTemporaryFile("w", suffix=".json") as settings:
        settings.write(job.to_json())
        settings.flush()
        program = Program(
            [sys.executable, "-m", f"glue_jobs.{script}", "--settings-file", settings.name, *arguments],
            spark_environment(root, current(root), memory=memory, more=conf.get(job.job)),
            Path.cwd(),
            Layout(root).logs / f"{script}.log",
            drains=drains,
            said=partial(reported_by, job) if script == "ingest" else None,
        )
        return follow(program, console, title=title)


KINDS = ("compact", "deletes", "manifests", "orphans", "rows", "dead_letters", "snapshots")


def maintain(
    tables: TablesArgument = None,
    *,
    config: ConfigOption = DEFAULT_CONFIG,
    env: EnvOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what the tables need, and do nothing.")
    ] = False,
    kind: Annotated[
        str | None,
        typer.Option("--only", help=f"Do this alone, due or not: {', '.join(KINDS)}.", show_default=False),
    ] = None,
    memory: Annotated[str, typer.Option(help="Heap of the Spark driver.")] = "2g",
) -> None:
    """Merge files, delete what is old and what nothing names, where due.

    It may run beside the job that keeps the tables. Deployed, it runs every six hours.

    Examples:
      calve maintain --dry-run
      calve maintain stock_trades --only compact
    """
    if kind is not None and kind not in KINDS:
        raise typer.BadParameter(f"use one of {', '.join(KINDS)}", param_hint="--only")
    console, conf = Console(), spark_settings(config, env)
    arguments = [*(["--dry-run"] if dry_run else []), *(["--only", kind] if kind else [])]
    for job in load_jobs(config, env, tables=tables or ()):
        chosen = only(job, tables)
        if (chosen.tables or chosen.patterns) and follow_script(
            "maintain",
            chosen,
            arguments,
            console,
            title="maintaining the tables",
            drains=True,
            memory=memory,
            conf=conf,
        ):
            raise typer.Exit(1)
