"""What a month costs as it is deployed, and as it is configured, by the model of `calve cost`."""

from __future__ import annotations

from dataclasses import dataclass, replace

from calve.config.deployment import Deployment, JobDeployment, Msk, Network, Workers
from calve.config.publishing import IcebergRest, Publish, Snowflake
from cli.look.cost.model import Load, Rates, bill
from cli.project.plan.deployed import Deployed


@dataclass(frozen=True, slots=True)
class Part:
    """US dollars a month."""

    part: str
    before: float
    after: float


@dataclass(frozen=True, slots=True)
class Bills:
    """US dollars a month; `parts` are those that differ. unknown: deployed jobs without readable settings, which add nothing."""

    before: float
    after: float
    parts: tuple[Part, ...]
    unknown: tuple[str, ...] = ()


def bills(deployment: Deployment, deployed: Deployed, load: Load, rates: Rates) -> Bills:
    """Before and after a deploy, at the same load."""
    there = as_deployed(deployment, deployed)
    before = _parts(there, load, rates) if there.jobs else {}
    after = _parts(deployment, load, rates)
    parts = (Part(name, before.get(name, 0.0), after.get(name, 0.0)) for name in {**after, **before})
    return Bills(
        sum(before.values()),
        sum(after.values()),
        tuple(each for each in parts if each.before != each.after),
        tuple(name for name, job in deployed.jobs.items() if job.settings is None),
    )


def as_deployed(deployment: Deployment, deployed: Deployed) -> Deployment:
    """What is deployed in the form of what is configured; the lake, whose parts never change, is that of the configuration."""
    jobs = tuple(
        JobDeployment(
            job.settings,
            job.worker,
            Workers(job.workers if job.least is None else job.least, job.workers),
            job.schedule,
        )
        for job in deployed.jobs.values()
        if job.settings
    )
    return replace(
        deployment,
        jobs=jobs,
        msk=Msk() if deployed.cluster else None,
        network=Network() if deployed.endpoints else None,
        exports=tuple(deployed.exports.values()),
        publish=_publish(deployed),
    )


def _publish(deployed: Deployed) -> Publish | None:
    settings = [each.settings for each in deployed.targets.values()]
    rest = next((each for each in settings if isinstance(each, IcebergRest)), None)
    snowflake = next((each for each in settings if isinstance(each, Snowflake)), None)
    return Publish((), iceberg_rest=rest, snowflake=snowflake) if settings else None


def _parts(deployment: Deployment, load: Load, rates: Rates) -> dict[str, float]:
    return {line.part: line.configured for line in bill(deployment, load, rates).lines}
