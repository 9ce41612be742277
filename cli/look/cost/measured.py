"""What tables cost so far: by the costs that their commits recorded, and by the Glue runs of their job."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from calve.config.job import Job
from calve.settings.entries.deploy import UNSCALED
from cli.account import Account
from cli.config import surveyed, with_tables
from cli.kafka import cluster_database
from cli.lake import Snapshot, Tables, ancestors, aws_errors, open_catalog
from cli.look.cost.model import Rates, dpus
from lambdas.aws import tolerating

VCPUS_PER_DPU = 4
FIGURES = ("s3_puts", "s3_gets", "catalog_calls", "bytes_written", "cpu_s")
MILLION = 1e6
HOUR_S, DAY_S = 3600, 86_400


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


@dataclass(frozen=True, slots=True)
class Daily:
    """US dollars a day for the CPU and the S3 requests of a table's commits since a moment; idle workers are not in it."""

    usd: float
    since: str


def daily(history: Iterable[Snapshot], rates: Rates, now: datetime) -> Daily | None:
    costs = commit_costs("", history)
    if costs is None:
        return None
    [found] = measured([costs], [], rates, now)
    days = max((now - costs.since).total_seconds(), HOUR_S) / DAY_S
    return Daily(found.usd / days, costs.since.isoformat(timespec="seconds"))


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
