"""The resolved configuration of a deployment, for the stacks and for `plan` and `cost`.

`calve.settings.load_deployment` makes these values; nothing here validates. Values that only a deploy knows (the name of a made
bucket, the brokers of a made cluster) are placeholders in `JobDeployment.settings`; the job gets them as `--warehouse` and
`--bootstrap-servers`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from calve.config.job import Catalog, Job
from calve.config.publishing import Export, Publish

UNKNOWN_WAREHOUSE = "s3://made-by-the-stack"
UNKNOWN_SERVERS = "made-by-the-stack:9098"


@dataclass(frozen=True, slots=True)
class Workers:
    """The minimum and maximum number of a job's Glue workers."""

    min: int = 2
    max: int = 4


@dataclass(frozen=True, slots=True)
class JobDeployment:
    """One Glue job. `schedule` None: it runs continuously; else an EventBridge expression at which it starts, drains and ends.

    `maintenance_window`: `Ddd:H`, in GMT: when Glue may restart a continuous job.
    """

    settings: Job
    worker: str = "G.1X"
    workers: Workers = Workers()
    schedule: str | None = None
    time_zone: str = "UTC"
    maintenance_window: str = "Sun:3"
    conf: dict[str, str] = field(default_factory=dict)

    @property
    def reports_expectations(self) -> bool:
        """Whether a table's job may report that too few records meet an expectation."""
        return any(each.reports_expectations for each in (*self.settings.tables, *self.settings.patterns))


@dataclass(frozen=True, slots=True)
class Msk:
    """An MSK cluster. `arn` None: the stack makes a serverless one."""

    arn: str | None = None


@dataclass(frozen=True, slots=True)
class Network:
    """The network of the jobs, complete, so that synth does not call AWS. `vpc_id` None: the stack makes a VPC if needed."""

    vpc_id: str | None = None
    availability_zones: tuple[str, ...] = ()
    subnets: tuple[str, ...] = ()
    security_groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class KeyRotation:
    """A secret in AWS, `aws:SECRET_ID`, that a function rotates.

    of: the system that the keys open. admin: the secret of a user that may change them; None: MSK reads the secret itself.
    keys_to_retain: of Confluent Cloud; None: a SCRAM user's secret.
    """

    of: Literal["kafka", "emit", "registry"]
    secret: str
    after_days: int = 30
    admin: str | None = None
    keys_to_retain: int | None = None


@dataclass(frozen=True, slots=True)
class LakeDeployment:
    """Bucket, key and database. Named ones exist already: they are imported and never deleted."""

    database: str
    import_database: bool = False
    bucket: str | None = None
    prefix: str | None = None
    kms_key: str | None = None
    namespace: str = "database"
    cluster_ids: tuple[str, ...] = ()
    catalog: Catalog | None = None


TOLERANCE = 2.0
"""The multiple of its freshness target from which on a table is late."""
PUBLISHED_LATE_S = 900.0


@dataclass(frozen=True, slots=True)
class Alerts:
    """Recipients and thresholds of alarms. freshness_s None: the tables' freshness targets decide."""

    emails: tuple[str, ...] = ()
    freshness_s: float | None = None
    lag_records: int = 1_000_000
    restarts: int = 5

    def on_late_tables(self, job: JobDeployment) -> bool:
        """Of a scheduled job the schedule decides how old records are."""
        return self.freshness_s is not None or job.schedule is None

    @property
    def published_late_s(self) -> float:
        """The time after a commit when a published table counts as late."""
        return PUBLISHED_LATE_S if self.freshness_s is None else self.freshness_s


@dataclass(frozen=True, slots=True)
class Deployment:
    """All that `cdk deploy` deploys. `network` None: no VPC. `publish` None: tables are only in Glue."""

    name: str
    jobs: tuple[JobDeployment, ...]
    lake: LakeDeployment
    msk: Msk | None = None
    network: Network | None = None
    exports: tuple[Export, ...] = ()
    alerts: Alerts = Alerts()
    publish: Publish | None = None
    region: str | None = None
    rotations: tuple[KeyRotation, ...] = ()

    @property
    def public_links(self) -> bool:
        """Whether an export has a public link, so that links, their keys and the public function are needed."""
        return any(each.link_kind == "public" for each in self.exports)
