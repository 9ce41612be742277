"""The deployed parts of calve.yaml: cluster, network, jobs, alerts, and key rotation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

from pydantic import Field

from calve.names import MSK_PREFIX, of_msk
from calve.settings import fields
from calve.settings.fields import Section
from calve.settings.problems import Problem
from calve.settings.schedules import CONTINUOUS

KEYS_TO_RETAIN = 2


class RotateSection(Section):
    """How the keys in a secret are changed, by a function that AWS Secrets Manager invokes; see docs/keys.md."""

    after_days: int = Field(default=30, ge=1, le=1000)
    """Days from one change to the next. Default: `30`"""
    admin_secret: fields.Secret | None = None
    """Secret of who may change them: with `sasl_scram` a user that may alter the cluster, with Confluent Cloud a Cloud API key.
    Default: nobody, as MSK reads the passwords of its users out of their secrets"""
    keys_to_retain: int | None = Field(default=None, ge=2, le=10)
    """Confluent Cloud: how many of the newest API keys stay valid, the one in use among them. Default: `2`"""


def rotation_problems(
    rotate: RotateSection | None, secrets: Mapping[str, str | None], *, cloud: bool
) -> Iterator[Problem]:
    """Invalid combinations of a rotation. `secrets`: that it changes, by key; `cloud`: they hold Confluent Cloud keys."""
    if rotate is None:
        return
    in_aws = "use aws:SECRET_ID: AWS Secrets Manager changes it"
    for key, reference in secrets.items():
        if reference and not reference.startswith("aws:"):
            yield Problem((key,), "cannot be changed where it is", in_aws)
    admin = ("rotate", "admin_secret")
    if rotate.admin_secret is None:
        msk = not cloud and all(of_msk(each) for each in secrets.values() if each)
        if not msk:
            who = "a Cloud API key" if cloud else "a user that may alter users and ACLs"
            reason = (
                "is missing" if cloud else f"is missing: only secrets of MSK, {MSK_PREFIX}..., do without one"
            )
            yield Problem(admin, reason, f"add `admin_secret: aws:SECRET_ID`, with {who}")
    elif not rotate.admin_secret.startswith("aws:"):
        yield Problem(admin, "cannot be read by the function", "use aws:SECRET_ID")
    if not cloud and rotate.keys_to_retain is not None:
        yield Problem(
            ("rotate", "keys_to_retain"), "has no use with sasl_scram: two users take turns", "remove it"
        )


UNSCALED = "G.025X"


class MskSection(Section):
    """A cluster of Amazon MSK: one that the stack makes, or an existing one. Exactly one key."""

    create: Literal["serverless"] | None = None
    """`serverless`: the stack makes an MSK Serverless cluster; its only `auth` is `msk_iam`"""
    cluster: fields.ClusterArn | None = None
    """ARN of an existing cluster; `bootstrap_servers` stands beside it"""


class NetworkSection(Section):
    """Where the jobs reach the brokers; an existing VPC is described in full, so that a synth asks nobody. Empty
    (`network: {}`): in a VPC that the stack makes. Absent: the same where the stack makes the cluster, else in none.
    """

    vpc: fields.Vpc | None = None
    """Id of an existing VPC; it is used as it is. Default: the stack makes one"""
    availability_zones: list[fields.Text] = Field(default_factory=list)
    """Availability zone of each subnet; needed with `vpc`"""
    subnets: list[fields.Subnet] = Field(default_factory=list)
    """Private subnets of the jobs, in the order of `availability_zones`; needed with `vpc`"""
    security_groups: list[fields.SecurityGroup] = Field(default_factory=list)
    """Security groups that the brokers admit. Default: the stack makes one"""

    def problems(self) -> Iterator[Problem]:
        if self.vpc is None:
            for key in ("availability_zones", "subnets", "security_groups"):
                if getattr(self, key):
                    yield Problem((key,), "has no use without `vpc`", "add `vpc: vpc-...`")
            return
        for key in ("availability_zones", "subnets"):
            if not getattr(self, key):
                yield Problem((key,), "is missing: an existing VPC is described in full", f"add `{key}:`")
        count = len(self.availability_zones)
        if self.subnets and count not in (0, len(self.subnets)):
            reason = f"has {count} entries for {len(self.subnets)} subnets"
            yield Problem(("availability_zones",), reason, "name one for each subnet")


class WorkersSection(Section):
    """How many workers a job has; Glue scales between the two."""

    min: int = Field(default=2, ge=2)
    """Workers at least; one of them is the driver. Default: `2`"""
    max: int | None = Field(default=None, ge=2)
    """Workers at most. Default: `4`, or `min` where that is more; with `G.025X` always `min`"""

    def problems(self) -> Iterator[Problem]:
        if self.max is not None and self.max < self.min:
            reason = f"{self.max} is less than `min`, which is {self.min}"
            yield Problem(("max",), reason, "make it at least as many")


class JobSection(Section):
    """One ingest job; its key is its name. Absent: one job, `main`, writes all tables."""

    worker: fields.Worker = "G.1X"
    """Glue worker: `G.025X` (a quarter of a DPU, does not scale), `G.1X`, `G.2X`, `G.4X`, `G.8X`, `G.12X`, `G.16X`, or with more
    memory `R.1X`, `R.2X`, `R.4X`, `R.8X`. Default: `G.1X`"""
    workers: WorkersSection = WorkersSection()
    """See `jobs.<name>.workers`"""
    run: fields.Run = CONTINUOUS
    """`continuous`; or `schedule(rate(6 hours))`, `schedule(cron(0 */6 * * ? *))`: at these times it starts, reads what has
    arrived, and ends. Default: `continuous`"""
    time_zone: fields.TimeZone | None = None
    """With a schedule: time zone of its `cron`, such as `Europe/Vilnius`. Default: `UTC`"""
    maintenance_window: fields.MaintenanceWindow | None = None
    """With `continuous`: day and hour, in GMT, at which Glue may restart the job once a week. Default: `Sun:3`"""
    conf: fields.SparkConf = Field(default_factory=dict)
    """Spark settings, such as `{spark.sql.shuffle.partitions: 64}`; those that calve makes itself are refused"""

    def problems(self) -> Iterator[Problem]:
        if self.worker == UNSCALED and self.workers.max not in (None, self.workers.min):
            reason = f"{self.workers.max} differs from `min`, and {UNSCALED} does not scale"
            yield Problem(("workers", "max"), reason, "remove it, or use a larger worker")
        if self.run == CONTINUOUS and self.time_zone is not None:
            yield Problem(("time_zone",), "has no use with continuous", "remove it, or use a schedule")
        if self.run != CONTINUOUS and self.maintenance_window is not None:
            reason = "has no use with a schedule: each run ends by itself"
            yield Problem(("maintenance_window",), reason, "remove it, or use `run: continuous`")


class AlertsSection(Section):
    """Who hears of trouble, and from when on it is trouble."""

    emails: fields.Emails = Field(default_factory=list)
    """Addresses; AWS asks each of them once to confirm. Default: none"""
    freshness: fields.Duration | None = None
    """Age of a table's records when they become visible, from which on they are late. Default: twice the table's `freshness`, at
    least `1m`; of a scheduled job none. In Snowflake `15m`"""
    lag: int | None = Field(default=None, ge=1)
    """Records that wait in a topic, from which on there is an alarm. Default: `1000000`"""
    restarts: int | None = Field(default=None, ge=0)
    """Failures of a job in a row after which it is not started again. Default: `5`"""
