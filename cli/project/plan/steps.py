"""What the steps of tables make of their records, by Spark itself; nothing is read but schemas."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace

from pyspark.sql import SparkSession

from calve.config.job import Job
from calve.errors import CalveError
from calve.schema.columns import Json
from glue_jobs.engines.choice import reasons_foreseen
from glue_jobs.iceberg.catalog import Lake
from glue_jobs.ingest import openers_of
from glue_jobs.kafka.cluster import Cluster


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What steps make of records. columns: the data columns, or why the steps cannot be run. by_rows: why the rows are not
    made by the columnar engine.
    """

    columns: Json | CalveError
    by_rows: tuple[str, ...] = ()


def made_by_steps(spark: SparkSession, job: Job) -> dict[str, Foreseen]:
    """What the steps of each table that has some make now.

    Raises:
        CalveError: the cluster does not answer, or its secret cannot be read.
    """
    # What is announced is asked of the columns that the table has in the end: `cli.project.plan.checks` does.
    tables = tuple(replace(each, announce=None) for each in job.tables if each.steps)
    if not tables:
        return {}
    found: dict[str, Foreseen] = {}
    with closing(Cluster(job.kafka)) as cluster:
        for opener in openers_of(replace(job, tables=tables), Lake(spark, job.name), cluster):
            try:
                plan = opener.foresee()
                found[opener.config.name] = Foreseen(plan.row_plan.made, reasons_foreseen(plan))
            except CalveError as problem:
                found[opener.config.name] = Foreseen(problem)
    return found
