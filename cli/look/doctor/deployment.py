"""What a deployment needs: its configuration, the account, and the systems that its jobs use."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from botocore.config import Config

from calve.config.deployment import UNKNOWN_SERVERS, Deployment
from calve.config.job import Job, Kafka, Registry
from calve.errors import CalveError, ConfigError, Fatal, Retryable
from cli.account import Account, outputs
from cli.config import embedded_stack, found, load_target
from cli.look.doctor.account import jobs, of_release, quotas, roles, seen_from_aws
from cli.profile import is_named
from lambdas.doctor import lake
from lambdas.doctor.checks import LIMIT_S, lake_probes, probes
from lambdas.doctor.finding import Finding, Probe, examine, of_error

if TYPE_CHECKING:
    from pathlib import Path

    from cli.embedded.stack import Stack

NO_KAFKA, NO_REGISTRY = Kafka("kafka.invalid:9092"), Registry("https://registry.invalid")
"""Stand in for the embedded stack where that does not run."""
REMOTE_LIMIT_S = 140.0
DEPLOY_FIRST = "deploy it: calve plan, then npx cdk deploy --all; into the embedded stack: calve deploy"
PATIENT = Config(connect_timeout=5, read_timeout=130, retries={"total_max_attempts": 1})
"""The function waits for what does not answer."""


@dataclass(frozen=True, slots=True)
class Stacks:
    """What the deployed stacks say of themselves. servers: of a cluster that they have made."""

    warehouse: str
    release: str | None
    doctor: str | None
    servers: str | None


def of_deployment(config: Path, env: str | None, *, remote: bool) -> list[Finding]:
    """All that is found; what everything else rests on ends it where it fails."""
    if not found(config).exists():
        return [Finding("configuration", "absent", f"there is no {config}", "calve init")]
    try:
        deployment, embedded = _loaded(config, env)
    except CalveError as error:
        return [of_error("configuration", error)]
    first = deployment.jobs[0].settings
    if first.kafka.bootstrap_servers == NO_KAFKA.bootstrap_servers or first.registry == NO_REGISTRY:
        told = "it leaves Kafka or the registry to the embedded stack, which is not up"
        return [Finding("configuration", "absent", told, "calve up, or name them in calve.yaml")]
    tables = sum(len(job.settings.tables) for job in deployment.jobs)
    told = f"{deployment.name}: {', '.join(job.settings.job for job in deployment.jobs)} of {tables} tables"
    return [Finding("configuration", "ok", told), *of_account(deployment, embedded, remote=remote)]


def _loaded(config: Path, env: str | None) -> tuple[Deployment, Stack | None]:
    from calve.settings import StackDefaults, load_deployment

    if embedded_stack() or is_named():
        return load_target(config, env)
    return load_deployment(found(config), env, StackDefaults(NO_KAFKA, NO_REGISTRY)), None


def of_account(deployment: Deployment, embedded: Stack | None, *, remote: bool) -> list[Finding]:
    """What is found in the account of a deployment, and in the systems that its jobs use."""
    try:
        account = Account.of(embedded, deployment.region)
    except ConfigError as error:
        return [of_error("aws account", error)]
    own: dict[str, Probe] = {"clock": partial(lake.clock, account.client("sts").get_caller_identity)}
    try:
        number = account.id()
    except ConfigError as error:
        return [of_error("aws account", error)]
    except CalveError as error:  # a clock that is wrong may be why
        return [of_error("aws account", error), *examine(own, limit_s=LIMIT_S)]
    stacks = _stacks(deployment, account)
    own["quotas"] = partial(quotas, deployment, account)
    settings = [_here(job.settings, account, stacks) for job in deployment.jobs]
    shared = probes(settings, account.client)
    if settings[0].kafka.bootstrap_servers == UNKNOWN_SERVERS:
        shared["kafka"] = partial(Finding, "kafka", "absent", "a deploy makes the cluster", DEPLOY_FIRST)
    far: list[Finding] = []
    if isinstance(stacks, Stacks):
        database = deployment.lake.database if deployment.lake.namespace == "database" else None
        shared |= lake_probes(settings, account.client, stacks.warehouse, database)
        own["release"] = partial(of_release, stacks.release)
        own["jobs"] = partial(jobs, deployment, account)
        own["roles"] = partial(roles, deployment, account, stacks.warehouse)
        if remote:
            far = examine({"doctor": partial(seen_from_aws, account, stacks.doctor)}, limit_s=REMOTE_LIMIT_S)
    return [
        Finding("aws account", "ok", f"{number}, {account.region}"),
        *([stacks] if isinstance(stacks, Finding) else []),
        *examine(own, limit_s=LIMIT_S),
        *second_to(far, examine(shared, limit_s=LIMIT_S)),
        *far,
    ]


def second_to(far: list[Finding], here: list[Finding]) -> list[Finding]:
    """What is seen from here: where the jobs' own view was had, too, the faults of this one are warnings."""
    if all(each.seen_from == "here" for each in far):
        return here
    return [replace(each, state="warn") if each.state == "fail" else each for each in here]


def _stacks(deployment: Deployment, account: Account) -> Stacks | Finding:
    try:
        warehouse = outputs(account, f"{deployment.name}-lake", fix=DEPLOY_FIRST)["Warehouse"]
        ingest = outputs(account, f"{deployment.name}-ingest", fix=DEPLOY_FIRST)
        made = outputs(account, f"{deployment.name}-kafka", fix=DEPLOY_FIRST) if deployment.msk else {}
    except (Retryable, Fatal) as error:
        return of_error("deployment", error)
    except CalveError as error:
        return Finding("deployment", "absent", error.message, error.fix or "")
    return Stacks(warehouse, ingest.get("Release"), ingest.get("DoctorFunction"), made.get("Servers"))


def _here(job: Job, account: Account, stacks: Stacks | Finding) -> Job:
    """A job's settings with what only the account, or a deploy, knows."""
    made = stacks.servers if isinstance(stacks, Stacks) else None
    servers = made or job.kafka.bootstrap_servers
    return replace(
        job,
        lake=replace(job.lake, region=account.region),
        kafka=replace(job.kafka, bootstrap_servers=servers),
    )
