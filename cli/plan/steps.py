"""What the steps of tables make of their records, by Spark itself; nothing is read but schemas."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from calve.errors import CalveError
from glue_jobs.ingest import open_targets
from glue_jobs.kafka import Cluster
from glue_jobs.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from calve.columns import Json
    from calve.job import Job


def made_by_steps(spark: SparkSession, job: Job) -> Mapping[str, Json | CalveError]:
    """The data columns that rows of each table with steps have now, or why its steps cannot be run.

    Raises:
        CalveError: the cluster does not answer, or its secret cannot be read.
    """
    tables = tuple(each for each in job.tables if each.steps)
    if not tables:
        return {}
    found: dict[str, Json | CalveError] = {}
    with closing(Cluster(spark, job.kafka)) as cluster:
        for target in open_targets(replace(job, tables=tables), Lake(spark, job.name), cluster):
            try:
                target.foresee()
                found[target.table.name] = target.shaping.made
            except CalveError as problem:
                found[target.table.name] = problem
    return found
