"""What is deployed, as values: the account says it, and the plan compares it with calve.yaml."""

from __future__ import annotations

from dataclasses import dataclass, field

from calve.config.job import Job, Table
from calve.config.publishing import Export, IcebergRest, Snowflake
from calve.schema.columns import Json


@dataclass(frozen=True, slots=True)
class DeployedJob:
    """A Glue job. `settings` None: the file that it reads is not there, or not readable by this release.

    least: how few workers it scales down to; None: it does not scale.
    """

    worker: str
    workers: int
    schedule: str | None = None
    time_zone: str = "UTC"
    maintenance_window: str | None = None
    conf: dict[str, str] = field(default_factory=dict)
    settings: Job | None = None
    least: int | None = None


@dataclass(frozen=True, slots=True)
class DeployedTable:
    """An Iceberg table that calve keeps. `mode`: as its position says it; `empty`: it has read nothing, so any mode will do.

    fields: `calve.decoding.field_quarantine.fields_in` its properties. topic: what it was made for.
    """

    partition_by: str
    sort_by: str
    format_version: int
    columns: Json
    mode: str | None = None
    empty: bool = False
    fields: frozenset[str] | None = None
    topic: str | None = None


@dataclass(frozen=True, slots=True)
class DeployedTarget:
    """Where tables are published to, and the names of those that are. `settings` None: not readable by this release."""

    settings: IcebergRest | Snowflake | None
    tables: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Deployed:
    """What an account holds of a deployment. `database` is the name of the one that the tables are in.

    targets: by their key below `publish`. cluster, endpoints: whether the deployment has made a cluster, and endpoints in a VPC.
    """

    database: str
    database_exists: bool = False
    jobs: dict[str, DeployedJob] = field(default_factory=dict)
    tables: dict[str, DeployedTable] = field(default_factory=dict)
    exports: dict[str, Export] = field(default_factory=dict)
    targets: dict[str, DeployedTarget] = field(default_factory=dict)
    cluster: bool = False
    endpoints: bool = False

    @property
    def settings(self) -> dict[str, tuple[str, Table]]:
        """The entries of `tables` as jobs were deployed with them, with the names of those jobs."""
        return {
            table.name: (name, table)
            for name, job in self.jobs.items()
            if job.settings
            for table in (*job.settings.tables, *job.settings.patterns)
        }
