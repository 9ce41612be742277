"""`calve maintain`: the maintenance job's own script, run here as a process of its own."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.config import DEFAULT_CONFIG, ConfigOption, EnvOption, TablesArgument, load_jobs, spark_settings
from cli.console import Console
from cli.ingest import follow_script, only

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
