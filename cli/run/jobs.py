"""`calve ingest`, `calve maintain` and `calve run-job`: the scripts of jobs on local Spark, as processes of their own.

`ingest` and `maintain` run the job of this folder, `run-job` a job as it is deployed in the emulator's Glue.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

import typer

from calve.config.job import Job
from calve.errors import ConfigError, Fatal
from calve.settings import load_spark_settings
from cli.conditions import reported_by
from cli.config import TablesArgument, Where, found, load_jobs
from cli.console import Console
from cli.embedded import aws
from cli.embedded.layout import Layout, project_root
from cli.embedded.stack import Stack, current
from cli.run.job_process import Program, follow
from cli.spark import parse_conf, spark_environment
from stacks.jobs.jars import jar_folder, pinned

DrainOption = Annotated[bool, typer.Option("--drain", help="Stop at the topics' ends as they are now.")]
MemoryOption = Annotated[str, typer.Option(help="Heap of the Spark driver.")]
KINDS = ("compact", "deletes", "manifests", "orphans", "rows", "dead_letters", "snapshots")


def ingest(
    tables: TablesArgument = None,
    *,
    where: Where,
    drain: DrainOption = False,
    memory: MemoryOption = "2g",
) -> None:
    """Run the job of this folder without a deploy.

    Without --drain it runs until Ctrl-C, which lets the rounds under way finish; a second Ctrl-C does not. No record is lost
    or doubled by either. At the end each table is listed with its rows, dead letters and state. Exits with 1 where a table
    is suspended or failed.

    Example:
      calve ingest stock_trades --drain
    """
    jobs = _chosen(where, tables, writes=True)
    conf = load_spark_settings(found(where.config), where.env)
    arguments = ["--drain"] if drain else []
    codes = [run("ingest", job, arguments, Console(), memory=memory, conf=conf) for job in jobs]
    if any(codes):
        raise typer.Exit(1)


def _chosen(where: Where, tables: list[str] | None, *, writes: bool = False) -> list[Job]:
    loaded = load_jobs(where.config, where.env, tables=tables or (), writes=writes)
    return [job for each in loaded if (job := only(each, tables)).tables or job.patterns]


def only(job: Job, tables: list[str] | None) -> Job:
    """The job with only these tables; None: all of them."""
    if not tables:
        return job
    return replace(job, tables=tuple(each for each in job.tables if each.name in tables), patterns=())


def what(job: Job) -> str:
    """The topics and tables for a sentence; with patterns their number is not known."""
    if job.patterns:
        return f"for job {job.job}"
    return job.tables[0].name if len(job.tables) == 1 else f"{len(job.tables)} tables"


def run(
    script: Literal["ingest", "maintain"],
    job: Job,
    arguments: Sequence[str],
    console: Console,
    *,
    memory: str,
    conf: Mapping[str, Mapping[str, str]],
) -> int:
    """Run a script of `glue_jobs` here, as `follow`; return its exit code.

    conf: Spark settings of each entry of `jobs`, as Glue passes them.
    """
    root, ingests = project_root(), script == "ingest"
    if ingests and job.lake.endpoint:
        aws.make_bucket(urlsplit(job.lake.warehouse).netloc, job.name, job.lake.endpoint)
    with tempfile.NamedTemporaryFile("w", suffix=".json") as settings:
        settings.write(job.to_json())
        settings.flush()
        program = Program(
            [sys.executable, "-m", f"glue_jobs.{script}", "--settings-file", settings.name, *arguments],
            spark_environment(current(root), memory=memory, more=conf.get(job.of)),
            Path.cwd(),
            Layout(root).logs / f"{script}.log",
            drains=not ingests or "--drain" in arguments,
            said=partial(reported_by, job) if ingests else None,
        )
        return follow(
            program, console, title=f"ingesting {what(job)}" if ingests else "maintaining the tables"
        )


def maintain(
    tables: TablesArgument = None,
    *,
    where: Where,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what the tables need, and do nothing.")
    ] = False,
    kind: Annotated[
        str | None, typer.Option("--only", help=f"Do this alone, due or not: {', '.join(KINDS)}.")
    ] = None,
    memory: MemoryOption = "2g",
) -> None:
    """Merge small files, and delete old and unused ones, where due.

    It may run beside the job that keeps the tables. Deployed, it runs every six hours.

    Examples:
      calve maintain --dry-run
      calve maintain stock_trades --only compact
    """
    if kind is not None and kind not in KINDS:
        raise typer.BadParameter(f"use one of {', '.join(KINDS)}", param_hint="--only")
    conf = load_spark_settings(found(where.config), where.env)
    arguments = [*(["--dry-run"] if dry_run else []), *(["--only", kind] if kind else [])]
    for job in _chosen(where, tables):
        if run("maintain", job, arguments, Console(), memory=memory, conf=conf):
            raise typer.Exit(1)


CONF, PY_FILES, FILES, JARS = "--conf", "--extra-py-files", "--extra-files", "--extra-jars"


def run_job(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the Glue job, such as trading-main.")],
    *,
    drain: DrainOption = False,
    memory: MemoryOption = "2g",
) -> None:
    """Run a deployed job on local Spark.

    Script, files, arguments and settings are those that Glue would start, fetched from the emulator. `calve deploy` comes
    first. Without --drain it runs until Ctrl-C, or until a deploy hands over to another generation.

    Example:
      calve run-job trading-main --drain
    """
    stack = current(project_root())
    if stack is None:
        raise Fatal("the embedded stack is not up", fix="calve up, then: calve deploy")
    if run_deployed(stack, name, Console(), drain=drain, memory=memory) != 0:
        raise typer.Exit(1)


def run_deployed(
    stack: Stack,
    name: str,
    console: Console,
    *,
    drain: bool,
    memory: str = "2g",
    quick: bool = False,
    expected: int | None = None,
) -> int:
    """Run the deployed job until it ends, as `follow`; return its exit code."""
    definition = Definition.deployed(aws.client("glue", stack.aws_endpoint), name)
    with tempfile.TemporaryDirectory(prefix="calve-job-") as folder:
        program = prepared(definition, stack, Path(folder), drain=drain, memory=memory, quick=quick)
        return follow(program, console, title=f"running {name}", expected=expected)


@dataclass(frozen=True, slots=True)
class Definition:
    """A job's definition in Glue."""

    name: str
    role: str
    script: str
    arguments: Mapping[str, str]

    @classmethod
    def deployed(cls, glue: Any, name: str) -> Self:
        jobs = {each["Name"]: each for each in glue.get_jobs()["Jobs"]}
        if name not in jobs:
            known = ", ".join(sorted(jobs))
            raise ConfigError(
                f'no job "{name}" is deployed', fix=f"use one of {known}" if known else "calve deploy"
            )
        job = jobs[name]
        return cls(name, job["Role"], job["Command"]["ScriptLocation"], job["DefaultArguments"])

    def files(self, argument: str) -> list[str]:
        return [uri for uri in self.arguments.get(argument, "").split(",") if uri]

    def script_arguments(self, given: Mapping[str, str]) -> list[str]:
        """The script's arguments, as on Glue: its own, and some of Glue's."""
        own = {
            key: value for key, value in self.arguments.items() if key not in (CONF, PY_FILES, FILES, JARS)
        }
        host = {"--JOB_NAME": self.name, "--JOB_RUN_ID": f"jr_{uuid.uuid4().hex}"}
        return [word for pair in (host | own | dict(given)).items() for word in pair]


def prepared(
    definition: Definition, stack: Stack, folder: Path, *, drain: bool, memory: str, quick: bool
) -> Program:
    """Download the definition's files into the script's working directory, and return how to start it.

    As on Glue, the job's role does both.
    """
    role = aws.acting_as(definition.role, "glue.amazonaws.com", stack.aws_endpoint)
    s3 = aws.client("s3", stack.aws_endpoint, *role.values())
    (script,) = _fetch(s3, [definition.script], folder)
    _fetch(s3, definition.files(FILES), folder)
    packages = _fetch(s3, definition.files(PY_FILES), Layout(stack.root).job_code)
    jars = _fetch(s3, definition.files(JARS), folder)
    known = {hashlib.sha256(each.read_bytes()).hexdigest() for each in jars}
    # Glue has these by itself.
    ours = [jar for jar in pinned() if jar.class_path == "spark" and jar.sha256 not in known]
    jars += [jar_folder() / jar.file for jar in ours]
    conf = parse_conf(definition.arguments.get(CONF, ""))
    environment = spark_environment(stack, memory=memory, quick=quick, jars=jars, conf=conf)
    said = None  # a maintenance job reports nothing
    if "--control" in definition.arguments:
        job = Job.from_json((folder / definition.arguments["--settings-file"]).read_text())
        warehouse = definition.arguments["--warehouse"]
        lake = replace(job.lake, warehouse=warehouse, region=stack.region, endpoint=stack.aws_endpoint)
        said = partial(reported_by, replace(job, lake=lake))
    return Program(
        [sys.executable, str(script), *definition.script_arguments({"--drain": "true"} if drain else {})],
        # Before what is installed: calve itself is, on this machine, and must come from the deployed archive.
        environment | role | {"PYTHONPATH": os.pathsep.join(map(str, packages))},
        folder,
        Layout(stack.root).logs / f"{definition.name}.log",
        drains=drain or definition.arguments.get("--drain") == "true",
        said=said,
    )


def _fetch(s3: Any, uris: Sequence[str], folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    found = []
    for uri in uris:
        bucket, _, key = uri.removeprefix("s3://").partition("/")
        found.append(folder / Path(key).name)
        if not found[-1].exists():
            s3.download_file(bucket, key, str(found[-1]))
    return found
