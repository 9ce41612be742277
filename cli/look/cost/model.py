"""The monthly cost of a configuration: formulas over a deployment, a load and the rates."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from calve.config.deployment import Deployment, JobDeployment
from calve.config.job import S3Tables, Table
from calve.outputs.metrics import MOST_TABLES
from calve.settings.entries.deploy import UNSCALED
from calve.settings.schedules import firings_per_day


@dataclass(frozen=True, slots=True)
class Rate:
    """One price. `date`: that of the source, or of the look-up if the source has none."""

    usd: float
    per: str
    source: str
    date: str


@dataclass(frozen=True, slots=True)
class Rates:
    """The rates of one region."""

    region: str
    by_name: dict[str, Rate]

    def __getitem__(self, name: str) -> float:
        return self.by_name[name].usd


def rates() -> Rates:
    raw = json.loads(Path(__file__).with_name("rates.json").read_text(encoding="utf-8"))
    return Rates(raw["region"], {name: Rate(**each) for name, each in raw["rates"].items()})


HOURS = 730
DAYS = HOURS / 24
SECONDS = HOURS * 3600
MB, GB, GIB = 1e6, 1e9, 2**30

# Of the row engine, with the start of the JVM, and the key and value of such a record: never less than docs/benchmarks.md has.
CPU_S_PER_MILLION, RECORD_BYTES = 11.17, 45
VCPU_MB_S = RECORD_BYTES / CPU_S_PER_MILLION
START_S = 120.0
OBJECTS_PER_COMMIT = 10
COMPRESSION = 4.0
KAFKA_DAYS, KAFKA_PARTITION_GIB = 7, 250
ENDPOINTS = 5
ZONES = 2
DEPLOYMENT_ALARMS = 3  # starts of jobs and of maintenance that were dropped, and those that failed
JOB_ALARMS, CONTINUOUS_ALARMS, EXPORTS_ALARMS, LINK_ALARMS = 8, 3, 3, 2
JOB_METRICS, TABLE_METRICS = 6, 3  # without those that only trouble writes
CATALOG_ALARMS, DELTA_ALARMS, LINEAGE_ALARMS, SNOWFLAKE_ALARMS = 3, 3, 3, 6
EXPORT_GB_S = 2 * 60
MAINTENANCE, MAINTENANCE_WORKERS = "rate(6 hours)", 2


WAYS = {"configured": "as configured", "continuous": "every job always", "scheduled": "every job scheduled"}
"""The ways to run the jobs: the amount of each line, and its name."""


@dataclass(frozen=True, slots=True)
class Load:
    """The arriving data: MB/s per topic, its partitions, and the months that tables keep it."""

    topic_mb_s: float = 1.0
    partitions: int = 6
    kept_months: float = 1.0
    schedule: str = "rate(6 hours)"


@dataclass(frozen=True, slots=True)
class Line:
    """One part of the bill, in US dollars a month. `basis`: the formula with its figures; `rates`: those it uses."""

    part: str
    configured: float
    continuous: float
    scheduled: float
    basis: str
    rates: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Bill:
    """All parts, and warnings where a job cannot carry the load."""

    lines: list[Line] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def total(self, way: str) -> float:
        """The sum for one of `WAYS`."""
        return float(sum(getattr(line, way) for line in self.lines))


def bill(deployment: Deployment, load: Load, rates: Rates) -> Bill:
    """The bill of a month: jobs as configured, every job always running, every job by a schedule."""
    priced = [_job(job, load, rates) for job in deployment.jobs]
    unknown = [
        f"{each.name}: which topics match is not known here, so it counts as one table"
        for job in deployment.jobs
        for each in job.settings.patterns
    ]
    # The maintenance jobs cost their starts: they have little to do beside a job that always runs.
    runs = len(deployment.jobs) * firings_per_day(MAINTENANCE) * DAYS
    hours = runs * MAINTENANCE_WORKERS * START_S / 3600
    basis = f"{runs:,.0f} runs of {MAINTENANCE_WORKERS} x G.1X, {START_S:g} s each"
    lines = [
        *(line for line, _ in priced),
        _both("Maintenance", hours * rates["glue_dpu_hour"], basis, "glue_dpu_hour"),
        *_objects(deployment, load, rates),
        *_kafka(deployment, load, rates),
        *_around(deployment, rates),
    ]
    return Bill(lines, [*(each for _, warnings in priced for each in warnings), *unknown])


def totals(total: Bill, idle: Bill) -> list[dict[str, Any]]:
    """The bills for each way to run the jobs. idle: the bill without a load."""
    found = []
    for way, jobs in WAYS.items():
        month, idle_month = total.total(way), idle.total(way)
        day, idle_day = month / DAYS, idle_month / DAYS
        found.append(
            {"jobs": jobs, "month": month, "day": day, "idle_month": idle_month, "idle_day": idle_day}
        )
    return found


def assumptions(load: Load) -> list[str]:
    return [
        "idle: while no data arrives",
        f"each topic: {load.topic_mb_s:g} MB/s, evenly (--topic-rate); {load.partitions} partitions (--partitions)",
        f"a vCPU ingests {VCPU_MB_S:.1f} MB/s: {RECORD_BYTES}-byte records, measured (docs/cost.md)",
        "one worker of each job is the driver and ingests nothing",
        "always: the workers that this takes, within `workers`",
        f"scheduled: all of `workers.max`, {START_S:g} s to start a run",
        f"a job without a schedule would have {load.schedule} (--schedule)",
        f"a commit writes {OBJECTS_PER_COMMIT} objects; a month has {HOURS} hours",
        f"tables take 1/{COMPRESSION:g} of the topics' bytes; months kept: {load.kept_months:g} (--kept-months)",
        "left out: a cluster that exists, files rewritten, readers, logs, data transfer",
        "left out: requests to KMS and the Glue catalog, taxes, free tiers",
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
    mb_s = load.topic_mb_s * len(_tables(job))
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
    continuous = always * dpus(job.worker) * HOURS * rate
    scheduled = most * dpus(job.worker) * min(hours, HOURS) * rate
    configured = scheduled if job.schedule else continuous
    basis = f"{always} x {job.worker} x {HOURS} h, or {most} x {min(hours, HOURS):,.0f} h"
    return Line(f"Glue job {name}", configured, continuous, scheduled, basis, (priced,)), warnings


def _objects(deployment: Deployment, load: Load, rates: Rates) -> Iterator[Line]:
    configured = continuous = scheduled = 0.0
    for job in deployment.jobs if load.topic_mb_s else ():
        runs = firings_per_day(job.schedule or load.schedule) * DAYS
        for table in _tables(job):
            full = load.topic_mb_s * MB * SECONDS / table.flush_bytes
            always, by_schedule = max(SECONDS / table.freshness_s, full), max(runs, full)
            continuous += always * OBJECTS_PER_COMMIT
            scheduled += by_schedule * OBJECTS_PER_COMMIT
            configured += (by_schedule if job.schedule else always) * OBJECTS_PER_COMMIT
    basis = f"{continuous:,.0f} or {scheduled:,.0f} PUT"
    put = rates["s3_put"]
    yield Line("S3 requests", configured * put, continuous * put, scheduled * put, basis, ("s3_put",))
    tables = sum(len(_tables(job)) for job in deployment.jobs)
    stored = load.topic_mb_s * MB * SECONDS * tables / COMPRESSION * load.kept_months / GB
    yield _both("S3 storage", stored * rates["s3_gb_month"], f"{stored:,.0f} GB", "s3_gb_month")


def _kafka(deployment: Deployment, load: Load, rates: Rates) -> Iterator[Line]:
    """The cost of a cluster that the stack makes; an existing cluster is not counted."""
    fed = [table.topic for job in deployment.jobs for table in _tables(job)]
    topics, tables = set(fed), len(fed)  # a topic that feeds two tables is read twice
    if deployment.msk and deployment.msk.arn is None:
        partitions = load.partitions * len(topics)
        gib_in, gib_out = (load.topic_mb_s * MB * SECONDS * count / GIB for count in (len(topics), tables))
        kept = min(gib_in * KAFKA_DAYS / DAYS, KAFKA_PARTITION_GIB * partitions)
        usd = HOURS * (rates["msk_cluster_hour"] + partitions * rates["msk_partition_hour"])
        usd += gib_in * rates["msk_gib_in"] + gib_out * rates["msk_gib_out"] + kept * rates["msk_gib_month"]
        basis = f"{partitions} partitions, {gib_in:,.0f} GiB in, {gib_out:,.0f} out, {kept:,.0f} kept"
        used = ("msk_cluster_hour", "msk_partition_hour", "msk_gib_in", "msk_gib_out", "msk_gib_month")
        yield _both("MSK Serverless", usd, basis, *used)
    vpc = deployment.network.vpc_id if deployment.network else None
    if vpc is None and (deployment.network or deployment.msk):
        endpoints = ENDPOINTS + isinstance(deployment.lake.catalog, S3Tables)
        usd = endpoints * ZONES * HOURS * rates["endpoint_hour"]
        basis = f"{endpoints} endpoints x {ZONES} zones x {HOURS} h"
        yield _both("VPC endpoints", usd, basis, "endpoint_hour")


def _around(deployment: Deployment, rates: Rates) -> Iterator[Line]:
    if deployment.lake.bucket is None and deployment.lake.kms_key is None:
        yield _both("KMS key", rates["kms_key_month"], "1 key", "kms_key_month")
    counted = [len(_tables(job)) for job in deployment.jobs if len(job.settings.tables) <= MOST_TABLES]
    alarms, metrics = _alarms(deployment), JOB_METRICS * len(deployment.jobs) + TABLE_METRICS * sum(counted)
    usd = alarms * rates["alarm_month"] + metrics * rates["metric_month"] + rates["dashboard_month"]
    basis = f"{alarms} alarms, {metrics} metrics, 1 dashboard"
    yield _both("Monitoring", usd, basis, "alarm_month", "metric_month", "dashboard_month")
    if deployment.exports:
        runs = sum(firings_per_day(export.schedule) for export in deployment.exports) * DAYS
        secrets = int(deployment.public_links)
        usd = secrets * rates["secret_month"] + runs * EXPORT_GB_S * rates["lambda_gb_second"]
        basis = f"{'1 secret, ' * secrets}{runs:,.0f} runs of {EXPORT_GB_S} GB-s"
        yield _both("Exports", usd, basis, *["secret_month"] * secrets, "lambda_gb_second")
    publish = deployment.publish
    if publish and publish.iceberg_rest and publish.iceberg_rest.bootstrap:
        yield _both("Catalog", rates["secret_month"], "1 secret", "secret_month")
    if publish and publish.snowflake:
        yield _both("Snowflake's key", rates["secret_month"], "1 secret", "secret_month")


def _alarms(deployment: Deployment) -> int:
    count = DEPLOYMENT_ALARMS + len(deployment.rotations)
    count += any(job.schedule is None for job in deployment.jobs)  # on the watchdog
    for job in deployment.jobs:
        count += JOB_ALARMS + deployment.alerts.on_late_tables(job) + bool(job.settings.patterns)
        count += job.reports_expectations
        count += 0 if job.schedule else CONTINUOUS_ALARMS
    if deployment.exports:
        by_ses = any(each.channel == "ses" for each in deployment.exports)
        by_sns = sum(each.channel == "sns" for each in deployment.exports)
        count += EXPORTS_ALARMS + LINK_ALARMS * deployment.public_links
        count += len(deployment.exports) + by_ses + by_sns
    if publish := deployment.publish:
        count += CATALOG_ALARMS if publish.iceberg_rest else 0
        count += DELTA_ALARMS if publish.delta else 0
        count += LINEAGE_ALARMS if publish.openlineage else 0
        count += SNOWFLAKE_ALARMS if publish.snowflake else 0
    return count


def _both(part: str, usd: float, basis: str, *used: str) -> Line:
    return Line(part, usd, usd, usd, basis, used)


def _tables(job: JobDeployment) -> tuple[Table, ...]:
    return (*job.settings.tables, *job.settings.patterns)
