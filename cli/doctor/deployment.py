"""What a deployment needs: its configuration, the account, and the systems that its jobs use."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from calve.errors import CalveError
from calve.job import Kafka, Registry
from cli.account import Account, outputs
from cli.config import found, load_target
from cli.doctor.account import jobs, quotas, roles
from cli.doctor.remote import seen_from_aws
from lambdas.doctor import lake
from lambdas.doctor.checks import LIMIT_S, lake_probes, probes
from lambdas.doctor.finding import Finding, examine, of_error

if TYPE_CHECKING:
    from pathlib import Path

    from calve.deployment import Deployment
    from cli.embedded.stack import Stack
    from lambdas.doctor.finding import Probe

NO_KAFKA, NO_REGISTRY = Kafka("kafka.invalid:9092"), Registry("https://registry.invalid")
"""Stand in for the embedded stack where that does not run."""
REMOTE_LIMIT_S = 140.0
DEPLOY = "deploy it: calve plan, then npx cdk deploy --all; into the embedded stack: calve deploy"


@dataclass(frozen=True, slots=True)
class Stacks:
    """What the deployed stacks say of themselves."""

    warehouse: str
    doctor: str | None


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
    told = f"{deployment.name}: {len(deployment.jobs)} jobs, {tables} tables"
    return [Finding("configuration", "ok", told), *_of_account(deployment, embedded, remote=remote)]


def _loaded(config: Path, env: str | None) -> tuple[Deployment, Stack | None]:
    from calve.settings import StackDefaults, load_deployment
    from cli.embedded.layout import project_root
    from cli.embedded.stack import current

    if current(project_root()):
        return load_target(config, env)
    return load_deployment(found(config), env, StackDefaults(NO_KAFKA, NO_REGISTRY)), None


def _of_account(deployment: Deployment, embedded: Stack | None, *, remote: bool) -> list[Finding]:
    settings = [job.settings for job in deployment.jobs]
    try:
        account = Account.of(embedded, deployment.region)
        number = account.id()
    except CalveError as error:
        return [of_error("aws account", error)]
    checks: dict[str, Probe] = {"clock": partial(lake.clock, account.client("sts").get_caller_identity)}
    stacks = _stacks(deployment, account)
    if isinstance(stacks, Stacks):
        database = deployment.lake.database if deployment.lake.namespace == "database" else None
        checks |= lake_probes(settings, account.client, stacks.warehouse, database)
        checks["jobs"] = partial(jobs, deployment, account)
        checks["roles"] = partial(roles, deployment, account, stacks.warehouse)
    checks |= probes(settings, account.client)
    checks["quotas"] = partial(quotas, deployment, account)
    found = [Finding("aws account", "ok", f"{number}, {account.region}"), *examine(checks, limit_s=LIMIT_S)]
    if isinstance(stacks, Finding):
        return [*found, stacks]
    if remote:
        found += examine({"doctor": partial(seen_from_aws, account, stacks.doctor)}, limit_s=REMOTE_LIMIT_S)
    return found


def _stacks(deployment: Deployment, account: Account) -> Stacks | Finding:
    try:
        warehouse = outputs(account, f"{deployment.name}-lake", fix=DEPLOY)["Warehouse"]
        ingest = outputs(account, f"{deployment.name}-ingest", fix=DEPLOY)
    except CalveError as error:
        return Finding("deployment", "absent", error.message, error.fix or "")
    return Stacks(warehouse, ingest.get("DoctorFunction"))
