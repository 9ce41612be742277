"""`calve cost`: what a month and a day of a configuration cost, and what tables cost so far.

The latter by the costs that commits recorded, and by the Glue runs of their job.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from calve.config.job import Job, Kafka, Registry
from calve.settings import load_deployment
from calve.settings.entries.deploy import UNSCALED
from calve.settings.problems import Invalid
from calve.settings.resolving import StackDefaults
from calve.settings.schedules import expression
from cli.account import Account
from cli.config import Common, found, load_jobs, surveyed, with_tables
from cli.console import Branch
from cli.kafka import cluster_database
from cli.lake import Snapshot, Tables, ancestors, aws_errors, open_catalog
from cli.look.cost.model import Load, Rate, Rates, assumptions, bill, dpus, rates, totals
from lambdas.aws import tolerating

RateOption = Annotated[float, typer.Option("--topic-rate", min=0, help="MB/s that arrive in each topic.")]
PartitionsOption = Annotated[int, typer.Option("--partitions", min=1, help="Partitions of each topic.")]
KeptOption = Annotated[float, typer.Option("--kept-months", min=0, help="Months that tables keep.")]
MeasuredOption = Annotated[
    bool, typer.Option("--measured", help="Show, too, what the commits of the tables have taken so far.")
]
ScheduleOption = Annotated[
    str, typer.Option("--schedule", help="When a job that has no schedule would run if it had one.")
]


def cost(
    topic_rate: RateOption = 1.0,
    partitions: PartitionsOption = 6,
    kept_months: KeptOption = 1.0,
    schedule: ScheduleOption = "rate(6 hours)",
    *,
    given: Common,
    measured: MeasuredOption = False,
) -> None:
    """Estimate what the configuration costs in AWS, with jobs that always run and with jobs that run by a schedule.

    Without --measured no request goes to AWS. Each rate, with source and date, is in cli/look/cost/rates.json.

    Example:
      calve cost --topic-rate 2.5 --kept-months 12
    """
    anywhere = StackDefaults(Kafka("anywhere:9092"), Registry("https://anywhere"))
    deployment = load_deployment(found(given.config), given.env, anywhere)
    try:
        load = Load(topic_rate, partitions, kept_months, expression(schedule))
    except Invalid as invalid:
        (problem,) = invalid.problems
        raise typer.BadParameter(f"{problem.reason}. {problem.fix}", param_hint="--schedule") from None
    known = rates()
    total, idle = bill(deployment, load, known), bill(deployment, replace(load, topic_mb_s=0.0), known)
    console = given.console
    ways = totals(total, idle)
    console.table("cost", ways, title=f"{deployment.name} in {known.region}, US dollars")
    for warning in total.warnings:
        console.event("too little", reason=warning)
    console.heading("Parts, US dollars a month")
    parts = [
        {"part": line.part, "always": line.continuous, "scheduled": line.scheduled, "how": line.basis}
        for line in total.lines
    ]
    console.table("part", parts, title="")
    tables: list[dict[str, Any]] = []
    if measured:
        tables = [each.document for each in measured_costs(load_jobs(given.config, given.env), known)]
        console.heading("Measured, by the commits that the tables still know")
        console.table("measured", tables, title="")
    console.heading("Assumptions")
    for each in assumptions(load):
        console.say(f"  {each}")
    used = {name: known.by_name[name] for line in total.lines for name in line.rates}
    console.heading("Rates, by source and date")
    console.tree("rate", _by_source(known.region, used.values()))
    console.document(
        {
            "region": known.region,
            "load": asdict(load),
            "lines": [asdict(line) for line in total.lines],
            "totals": ways,
            "measured": tables,
            "warnings": total.warnings,
            "assumptions": assumptions(load),
            "rates": {name: asdict(rate) for name, rate in used.items()},
        }
    )


def _by_source(region: str, used: Iterable[Rate]) -> Branch:
    """The rates as a tree, each below the source that it was read in."""
    sources: dict[str, list[Branch]] = {}
    for rate in used:
        usd = f"{rate.usd:.10f}".rstrip("0").rstrip(".")
        sources.setdefault(f"{rate.source}, {rate.date}", []).append(Branch(usd, note=rate.per))
    return Branch(
        f"US dollars in {region}", below=[Branch(source, below=rates) for source, rates in sources.items()]
    )


VCPUS_PER_DPU = 4
FIGURES = ("s3_puts", "s3_gets", "catalog_calls", "bytes_written", "cpu_s")
MILLION = 1e6


@dataclass(frozen=True, slots=True)
class CommitCosts:
    """The sum of a table's recorded commits from `since` on; `records`: those that were read."""

    table: str
    since: datetime
    commits: int
    records: int
    s3_puts: int
    s3_gets: int
    catalog_calls: int
    bytes_written: int
    cpu_s: float

    def load(self, now: datetime) -> float:
        """CPU seconds per second."""
        return self.cpu_s / max(1.0, (now - self.since).total_seconds())


@dataclass(frozen=True, slots=True)
class Run:
    """A run of a Glue job; `dpu_hours` of all its workers, including the driver and idle ones."""

    began: datetime
    ended: datetime
    dpu_hours: float
    memory: bool

    def share_since(self, moment: datetime) -> float:
        """Its DPU-hours from a moment on, spread evenly over the run."""
        whole = (self.ended - self.began).total_seconds()
        part = (self.ended - max(self.began, moment)).total_seconds()
        return self.dpu_hours * max(0.0, part) / whole if whole else 0.0


@dataclass(frozen=True, slots=True)
class Measured(CommitCosts):
    """The cost of a table since its oldest recorded commit, in US dollars, and per million records.

    `dpu_hours`: its share of the job's runs by CPU (`by` is `runs`); without known runs, of its CPU seconds (`cpu`), as if no
    worker were ever idle.
    """

    dpu_hours: float
    by: str
    usd: float
    usd_per_million: float | None

    @property
    def document(self) -> dict[str, Any]:
        rounded = {"since": self.since.isoformat(timespec="seconds"), "cpu_s": round(self.cpu_s, 1)}
        return asdict(self) | rounded


def measured_costs(jobs: Sequence[Job], rates: Rates) -> Iterator[Measured]:
    now = datetime.now(UTC)
    tables, database = Tables(open_catalog(jobs[0].lake)), cluster_database(jobs[0])
    of_patterns = surveyed(jobs, tables, database or jobs[0].lake.database, ())
    for job in (with_tables(each, of_patterns) for each in jobs):
        costs = []
        for name in (job.table_name(table, database) for table in job.tables):
            found = tables.read(name)
            if found is not None and (each := commit_costs(str(name), ancestors(found))):
                costs.append(each)
        glue, deployed = Account(job.lake.region, job.lake.endpoint).client("glue"), f"{job.name}-{job.job}"
        runs: list[Run] = []
        with aws_errors(f"runs of job {deployed}"), tolerating("EntityNotFoundException"):
            pages = glue.get_paginator("get_job_runs").paginate(JobName=deployed)
            runs = [run_of(each, now) for page in pages for each in page["JobRuns"]]
        yield from measured(costs, runs, rates, now)


def commit_costs(table: str, history: Iterable[Snapshot]) -> CommitCosts | None:
    """The sum of the commits in a history; None if it has none with a cost, as commits of earlier releases."""
    found = [each for each in history if "cpu_s" in each.metrics]
    if not found:
        return None
    figures = {name: sum(each.metrics[name] for each in found) for name in FIGURES}
    records = sum(each.ledger.consumed for each in found if each.ledger)
    return CommitCosts(table, min(each.at for each in found), len(found), records, **figures)


def measured(
    tables: Sequence[CommitCosts], runs: Sequence[Run], rates: Rates, now: datetime
) -> list[Measured]:
    """The cost of the tables of one job; `runs`: those that Glue still has."""
    whole = sum(each.load(now) for each in tables)
    found = []
    for each in tables:
        if runs:
            share = each.load(now) / whole if whole else 1 / len(tables)
            hours = share * sum(run.share_since(each.since) for run in runs)
        else:
            hours = each.cpu_s / 3600 / VCPUS_PER_DPU
        memory = any(run.memory for run in runs)
        usd = hours * rates["glue_memory_dpu_hour" if memory else "glue_dpu_hour"]
        usd += each.s3_puts * rates["s3_put"] + each.s3_gets * rates["s3_get"]
        found.append(
            Measured(
                **asdict(each),
                dpu_hours=round(hours, 4),
                by="runs" if runs else "cpu",
                usd=round(usd, 6),
                usd_per_million=round(usd / each.records * MILLION, 6) if each.records else None,
            )
        )
    return found


def run_of(glue: Mapping[str, Any], now: datetime) -> Run:
    """A run in Glue's answer; a run that goes on counts until now."""
    began = glue["StartedOn"].astimezone(UTC)
    ended = glue["CompletedOn"].astimezone(UTC) if "CompletedOn" in glue else now
    worker = glue.get("WorkerType", UNSCALED)
    seconds = glue.get("ExecutionTime") or (ended - began).total_seconds()
    taken = glue.get("DPUSeconds") or seconds * glue.get("NumberOfWorkers", 1) * dpus(worker)
    return Run(began, ended, taken / 3600, worker.startswith("R."))
