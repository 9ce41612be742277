"""What a configuration costs in a month: formulas over a deployment, a load and the rates."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from calve.settings.deploying import UNSCALED
from calve.settings.schedules import firings_per_day

if TYPE_CHECKING:
    from collections.abc import Iterator

    from calve.deployment import Deployment, JobDeployment
    from cli.cost.rates import Rates

HOURS = 730
DAYS = HOURS / 24
SECONDS = HOURS * 3600
MB, GB, GIB = 1e6, 1e9, 2**30

VCPU_MB_S = 5.0  # a cautious reading of bench/RESULTS.md: 130,000 small records a CPU second
START_S = 120.0
OBJECTS_PER_COMMIT = 10
COMPRESSION = 4.0
ENDPOINTS = 4
ZONES = 2
TABLE_ALARMS, TABLE_METRICS = 4, 3
JOB_ALARMS, EXPORTS_ALARMS = 2, 3
EXPORT_GB_S = 2 * 60


@dataclass(frozen=True, slots=True)
class Load:
    """What arrives: MB/s of each topic, its partitions, and how long tables keep it."""

    topic_mb_s: float = 1.0
    partitions: int = 6
    kept_months: float = 1.0
    schedule: str = "rate(6 hours)"


@dataclass(frozen=True, slots=True)
class Line:
    """One part of the bill, in dollars a month. `basis` is the formula with its figures, `rates` are those it uses."""

    part: str
    continuous: float
    scheduled: float
    basis: str
    rates: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Bill:
    """All parts, and what the load asks of a job that it cannot do."""

    lines: list[Line] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def continuous(self) -> float:
        return sum(line.continuous for line in self.lines)

    @property
    def scheduled(self) -> float:
        return sum(line.scheduled for line in self.lines)


def bill(deployment: Deployment, load: Load, rates: Rates) -> Bill:
    """The bill of a month of 730 hours, with every job always running and with every job by its schedule."""
    lines, warnings = [], []
    for job in deployment.jobs:
        line, told = _job(job, load, rates)
        lines.append(line)
        warnings += told
    lines += [
        *_objects(deployment, load, rates),
        *_kafka(deployment, load, rates),
        *_around(deployment, rates),
    ]
    return Bill(lines, warnings)


def assumptions(load: Load) -> list[str]:
    """What the figures rest on besides the rates."""
    return [
        f"{load.topic_mb_s:g} MB/s arrive in each topic, evenly (--topic-rate)",
        f"a vCPU ingests {VCPU_MB_S:g} MB/s; one worker of each job is the driver and ingests nothing",
        "always: the workers that this takes, within `workers`",
        f"scheduled: all of `workers.max`, {START_S:g} s to start; {load.schedule} where a job has no schedule",
        f"tables take 1/{COMPRESSION:g} of the topics' bytes; months kept: {load.kept_months:g} (--kept-months)",
        f"a commit writes {OBJECTS_PER_COMMIT} objects; a month has {HOURS} hours",
        "left out: compaction, readers, data transfer, logs, taxes, free tiers, a cluster that exists",
    ]


def dpus(worker: str) -> float:
    """DPUs of one worker; of an R worker, M-DPUs."""
    return 0.25 if worker == UNSCALED else float(worker[2:-1])


def vcpus(worker: str) -> float:
    return 2.0 if worker == UNSCALED else 4 * dpus(worker)


def _job(job: JobDeployment, load: Load, rates: Rates) -> tuple[Line, list[str]]:
    name, most = job.settings.job, job.workers.max
    priced = "glue_memory_dpu_hour" if job.worker.startswith("R.") else "glue_dpu_hour"
    rate = rates[priced]
    mb_s = load.topic_mb_s * len(_topics(job))
    each = vcpus(job.worker) * VCPU_MB_S
    needed = 1 + math.ceil(mb_s / each)
    always = min(max(needed, job.workers.min), most)
    runs = firings_per_day(job.schedule or load.schedule) * DAYS
    run_s = START_S + mb_s * SECONDS / runs / ((most - 1) * each)
    hours = runs * run_s / 3600
    warnings = []
    if needed > most:
        warnings.append(f"job {name}: {mb_s:g} MB/s need {needed} workers, and `workers.max` is {most}")
    elif hours > HOURS:
        warnings.append(f"job {name}: by its schedule a run begins before the one before it has ended")
    line = Line(
        f"Glue job {name}",
        always * dpus(job.worker) * HOURS * rate,
        most * dpus(job.worker) * min(hours, HOURS) * rate,
        f"{always} x {job.worker} x {HOURS} h, or {most} x {min(hours, HOURS):,.0f} h, x {rate:g}",
        (priced,),
    )
    return line, warnings


def _objects(deployment: Deployment, load: Load, rates: Rates) -> Iterator[Line]:
    always = by_schedule = 0.0
    for job in deployment.jobs:
        runs = firings_per_day(job.schedule or load.schedule) * DAYS
        for table in job.settings.tables:
            full = load.topic_mb_s * MB * SECONDS / table.flush_bytes
            always += max(SECONDS / table.freshness_s, full) if load.topic_mb_s else 0
            by_schedule += max(runs, full) if load.topic_mb_s else 0
    puts = [commits * OBJECTS_PER_COMMIT for commits in (always, by_schedule)]
    basis = f"{puts[0]:,.0f} or {puts[1]:,.0f} PUT"
    yield Line("S3 requests", puts[0] * rates["s3_put"], puts[1] * rates["s3_put"], basis, ("s3_put",))
    tables = sum(len(job.settings.tables) for job in deployment.jobs)
    stored = load.topic_mb_s * MB * SECONDS * tables / COMPRESSION * load.kept_months / GB
    yield _both("S3 storage", stored * rates["s3_gb_month"], f"{stored:,.0f} GB", "s3_gb_month")


def _kafka(deployment: Deployment, load: Load, rates: Rates) -> Iterator[Line]:
    """What the stack makes itself; a cluster that exists already costs what it costs."""
    topics = {topic for job in deployment.jobs for topic in _topics(job)}
    tables = sum(len(job.settings.tables) for job in deployment.jobs)
    if deployment.msk and deployment.msk.arn is None:
        partitions = load.partitions * len(topics)
        gib_in, gib_out = (load.topic_mb_s * MB * SECONDS * count / GIB for count in (len(topics), tables))
        usd = HOURS * (rates["msk_cluster_hour"] + partitions * rates["msk_partition_hour"])
        usd += gib_in * rates["msk_gib_in"] + gib_out * rates["msk_gib_out"]
        basis = f"cluster, {partitions} partitions, {gib_in:,.0f} GiB in, {gib_out:,.0f} GiB out"
        used = ("msk_cluster_hour", "msk_partition_hour", "msk_gib_in", "msk_gib_out")
        yield _both("MSK Serverless", usd, basis, *used)
    if deployment.network and deployment.network.vpc_id is None:
        usd = ENDPOINTS * ZONES * HOURS * rates["endpoint_hour"]
        basis = f"{ENDPOINTS} endpoints x {ZONES} zones x {HOURS} h"
        yield _both("VPC endpoints", usd, basis, "endpoint_hour")


def _around(deployment: Deployment, rates: Rates) -> Iterator[Line]:
    if deployment.lake.bucket is None and deployment.lake.kms_key is None:
        yield _both("KMS key", rates["kms_key_month"], "1 key", "kms_key_month")
    tables = sum(len(job.settings.tables) for job in deployment.jobs)
    watched = sum(job.schedule is None for job in deployment.jobs)
    alarms = TABLE_ALARMS * tables + JOB_ALARMS * len(deployment.jobs) + watched
    alarms += EXPORTS_ALARMS + len(deployment.exports) if deployment.exports else 0
    metrics = TABLE_METRICS * tables
    usd = alarms * rates["alarm_month"] + metrics * rates["metric_month"] + rates["dashboard_month"]
    basis = f"{alarms} alarms, {metrics} metrics, 1 dashboard"
    yield _both("Monitoring", usd, basis, "alarm_month", "metric_month", "dashboard_month")
    if deployment.exports:
        runs = sum(firings_per_day(export.schedule) for export in deployment.exports) * DAYS
        usd = rates["secret_month"] + runs * EXPORT_GB_S * rates["lambda_gb_second"]
        basis = f"1 secret, {runs:,.0f} runs of {EXPORT_GB_S} GB-s"
        yield _both("Exports", usd, basis, "secret_month", "lambda_gb_second")


def _both(part: str, usd: float, basis: str, *used: str) -> Line:
    return Line(part, usd, usd, basis, used)


def _topics(job: JobDeployment) -> list[str]:
    """One entry for each table: a topic that feeds two tables is read twice."""
    return [table.topic for table in job.settings.tables]
