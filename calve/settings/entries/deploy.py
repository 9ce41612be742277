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
    admin_secret: fields.Secret | None = None
    keys_to_retain: int | None = Field(default=None, ge=2, le=10)


def rotation_problems(
    rotate: RotateSection | None, secrets: Mapping[str, str | None], *, cloud: bool
) -> Iterator[Problem]:
    """Invalid combinations of a rotation. `secrets`: that it changes, by key; `cloud`: they hold Confluent Cloud keys."""
    if rotate is None:
        return
    in_aws = "use aws:SECRET_ID: AWS Secrets Manager rotates it"
    for key, reference in secrets.items():
        if reference and not reference.startswith("aws:"):
            yield Problem((key,), "cannot be rotated there", in_aws)
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
MOST_PARTS = 16
"""Of one job: their stacks still fit a template (tests/synth/test_limits.py)."""


class MskSection(Section):
    """A cluster of Amazon MSK: one that the stack makes, or an existing one. Exactly one key."""

    create: Literal["serverless"] | None = None
    cluster: fields.ClusterArn | None = None


class NetworkSection(Section):
    """Where the jobs reach the brokers. Empty (`network: {}`): in a VPC that the stack makes."""

    vpc: fields.Vpc | None = None
    availability_zones: list[fields.Text] = Field(default_factory=list)
    subnets: list[fields.Subnet] = Field(default_factory=list)
    security_groups: list[fields.SecurityGroup] = Field(default_factory=list)

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
    max: int | None = Field(default=None, ge=2)

    def problems(self) -> Iterator[Problem]:
        if self.max is not None and self.max < self.min:
            reason = f"{self.max} is less than `min`, which is {self.min}"
            yield Problem(("max",), reason, "make it at least as many")


class JobSection(Section):
    """One ingest job; its key is its name. Absent: one job, `main`, writes all tables."""

    count: int = Field(default=1, ge=1, le=MOST_PARTS)
    worker: fields.Worker = "G.1X"
    workers: WorkersSection = WorkersSection()
    run: fields.Run = CONTINUOUS
    time_zone: fields.TimeZone | None = None
    maintenance_window: fields.MaintenanceWindow | None = None
    conf: fields.SparkConf = Field(default_factory=dict)

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
    """Who gets alarms, and their thresholds."""

    emails: fields.Emails = Field(default_factory=list)
    freshness: fields.Duration | None = None
    lag: int | None = Field(default=None, ge=1)
    restarts: int | None = Field(default=None, ge=0)
