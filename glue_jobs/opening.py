"""The targets of a job: all share its cluster, its catalog, its writer and the registry's cache."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

from calve.announcement import Speaker
from calve.job import Job, Table
from calve.names import TableName, database_for_cluster
from calve.position import TOPIC
from calve.registry import Registry, open_registry
from glue_jobs.announcing import Announcer
from glue_jobs.kafka.cluster import Cluster
from glue_jobs.lake import Lake
from glue_jobs.outbox import Outbox
from glue_jobs.steps.tokens import MaskingKeys
from glue_jobs.target import Target


@dataclass(slots=True)
class Opening:
    """Makes targets, at the start of a job and while it runs; `outbox`: where they announce, if the job does."""

    job: Job
    lake: Lake
    cluster: Cluster
    output: Cluster
    outbox: Outbox | None = None
    writer: str = field(default_factory=lambda: uuid.uuid4().hex)
    _database: str = field(init=False)
    _registry: Registry | None = field(init=False)
    _masking: MaskingKeys | None = field(init=False)
    _cores: int = field(init=False)

    def __post_init__(self) -> None:
        job = self.job
        per_cluster = job.lake.namespace == "cluster_id"
        self._database = job.database(database_for_cluster(self.cluster.id) if per_cluster else None)
        registered = any(each.registered for each in (*job.tables, *job.patterns))
        self._registry = open_registry(job.registry) if registered else None
        self._masking = MaskingKeys(self.lake.spark, job.masking) if job.masking else None
        self._cores = self.lake.spark.sparkContext.defaultParallelism

    def target(self, table: Table) -> Target:
        name = TableName(self._database, table.name)
        return Target(
            table=table,
            name=name,
            writer=self.writer,
            cores=self._cores,
            lake=self.lake,
            cluster=self.cluster,
            output=self.output,
            registry=self._registry,
            announcer=Announcer(Speaker(self.job.name, self.job.job, name), table.topic, self.outbox),
            masking=self._masking,
        )

    def topic_of(self, table: str) -> str | None:
        """The topic that a table of the lake was made for; None where there is no such table.

        Raises:
            Retryable: the catalog does not answer.
        """
        found = self.lake.load(TableName(self._database, table))
        return None if found is None else found.properties.get(TOPIC)
