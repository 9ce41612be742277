"""The resolved configuration of a whole deployment: what the stacks are built from, and `plan` and `cost` work on.

`calve.settings.load_deployment` makes these values; nothing here checks or guesses. What only a deploy knows (the name
of a bucket that the stack makes, the brokers of a cluster that it makes) stands as a placeholder in
`JobDeployment.settings`, and the deployed job is told by `--warehouse` and `--bootstrap-servers`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from calve.config.job import Job, Table
from calve.config.publishing import Export, Publish

UNKNOWN_WAREHOUSE = "s3://made-by-the-stack"
UNKNOWN_SERVERS = "made-by-the-stack:9098"


@dataclass(frozen=True, slots=True)
class Workers:
    """How many Glue workers a job has; it scales between the two."""

    min: int = 2
    max: int = 4


@dataclass(frozen=True, slots=True)
class JobDeployment:
    """One Glue job. `schedule` None: it runs always; else an EventBridge expression at which it starts, drains and ends.

    `maintenance_window` is `Ddd:H`, in GMT: when Glue may restart a job that runs always.
    """

    settings: Job
    worker: str = "G.1X"
    workers: Workers = Workers()
    schedule: str | None = None
    time_zone: str = "UTC"
    maintenance_window: str = "Sun:3"
    conf: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Msk:
    """An MSK cluster. `arn` None: the stack makes a serverless one."""

    arn: str | None = None


@dataclass(frozen=True, slots=True)
class Network:
    """Where jobs reach the brokers. `vpc_id` None: the stack makes a VPC, if anything needs one.

    An existing VPC is described in full, so that synth need not ask AWS.
    """

    vpc_id: str | None = None
    availability_zones: tuple[str, ...] = ()
    subnets: tuple[str, ...] = ()
    security_groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class KeyRotation:
    """A secret in AWS, `aws:SECRET_ID`, whose keys a function changes.

    of: who uses them. admin: the secret of who may change them; None: MSK reads what is in the secret.
    keys_to_retain: of Confluent Cloud; None: it is a SCRAM user's.
    """

    of: Literal["kafka", "emit", "registry"]
    secret: str
    after_days: int = 30
    admin: str | None = None
    keys_to_retain: int | None = None


@dataclass(frozen=True, slots=True)
class LakeDeployment:
    """Bucket, key and database. Those that are named exist already: they are imported and never deleted."""

    database: str
    import_database: bool = False
    bucket: str | None = None
    prefix: str | None = None
    kms_key: str | None = None
    namespace: str = "database"


TOLERANCE = 2.0
LEAST_LATE_S = 60.0
PUBLISHED_LATE_S = 900.0


@dataclass(frozen=True, slots=True)
class Alerts:
    """Who hears of trouble, and from when on it is one. freshness_s None: what the tables promise decides."""

    emails: tuple[str, ...] = ()
    freshness_s: float | None = None
    lag_records: int = 1_000_000
    restarts: int = 5

    def late_after_s(self, job: JobDeployment, tables: Sequence[Table]) -> float | None:
        """Age of records from which on these tables of the job are late. None: a scheduled job's are as old as its schedule."""
        if self.freshness_s is not None or job.schedule:
            return self.freshness_s
        return max(LEAST_LATE_S, TOLERANCE * max(table.freshness_s for table in tables))

    @property
    def published_late_s(self) -> float:
        """Time after a commit from which on a table is late elsewhere."""
        return PUBLISHED_LATE_S if self.freshness_s is None else self.freshness_s


@dataclass(frozen=True, slots=True)
class Deployment:
    """Everything that `cdk deploy` deploys. `network` None: nothing runs inside a VPC; `publish` None: the tables
    are in Glue alone.
    """

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
