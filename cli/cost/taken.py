"""Where the measured cost comes from: the tables of each job, and Glue's list of its runs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from cli.account import Account
from cli.cost.measured import Measured, Receipts, Run, measured, receipts, run_of
from cli.kafka import cluster_database
from cli.lake import ancestors, aws_errors, load, open_catalog
from cli.topics import surveyed, with_tables

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from calve.job import Job
    from cli.cost.rates import Rates


def taken(jobs: Iterable[Job], rates: Rates) -> list[Measured]:
    """What the tables of the jobs have cost since the oldest receipt that each has.

    Raises:
        Fatal, Retryable: the lake, or Glue, refuses these credentials or does not answer.
    """
    now = datetime.now(UTC)
    return [each for job in jobs for each in measured(list(_receipts(job)), _runs(job, now), rates, now)]


def _receipts(job: Job) -> Iterator[Receipts]:
    catalog, database = open_catalog(job.lake), cluster_database(job)
    job = with_tables(job, surveyed(job, catalog, database or job.lake.database, ()))
    for table in job.tables:
        name = job.table_name(table, database)
        found = load(catalog, name)
        if found is not None and (each := receipts(str(name), ancestors(found))):
            yield each


def _runs(job: Job, now: datetime) -> list[Run]:
    name = f"{job.name}-{job.job}"
    glue = Account(job.lake.region, job.lake.endpoint).client("glue")
    with aws_errors(f"runs of job {name}"):
        try:
            pages = glue.get_paginator("get_job_runs").paginate(JobName=name)
            return [run_of(each, now) for page in pages for each in page["JobRuns"]]
        except ClientError as error:
            if error.response["Error"]["Code"] == "EntityNotFoundException":
                return []
            raise
