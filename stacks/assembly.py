"""All stacks of a deployment, each after the stacks that it needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from aws_cdk import Acknowledgment, App, CfnParameter, DefaultStackSynthesizer, Stack, Tags, Validations

from calve.config.deployment import Deployment
from stacks.base.bundling import Runtime
from stacks.base.function import Site
from stacks.base.rotation import KeysStack
from stacks.jobs.ingest import IngestStack
from stacks.jobs.maintenance import MaintenanceStack
from stacks.monitoring.monitoring import MonitoringStack
from stacks.publishing.exports import ExportsStack
from stacks.publishing.publish import PublishStack
from stacks.stateful.kafka import KafkaStack
from stacks.stateful.lake import LakeStack, names_of_lake
from stacks.stateful.operators import PARTS


def build(
    app: App,
    deployment: Deployment,
    *,
    runtime: Runtime,
    delete_data: bool = False,
    missing: Sequence[str] = (),
) -> None:
    """Add the deployment's stacks to the app, without resources where calve.yaml has no use for them.

    `missing`: sections that calve.yaml lacks. Each becomes a parameter without a value, so a deploy fails at once.
    """
    name = deployment.name
    site = Site(deployment, runtime, names_of_lake(deployment), delete_data=delete_data)
    lake = LakeStack(app, f"{name}-lake", site)
    for section in missing:
        says = f"Name it in calve.yaml: {section}"
        CfnParameter(lake, f"MissingInConfiguration{section.capitalize()}", description=says)
        unused = Acknowledgment(id="CloudFormation-Validate::W2001", reason="it is there to end a deploy")
        Validations.of(lake).acknowledge(unused)
    site = replace(site, lake=lake.lake)
    kafka = KafkaStack(app, f"{name}-kafka", site) if deployment.msk or deployment.network else None
    if kafka:
        site = replace(site, brokers=kafka.brokers)
    ingest = IngestStack(app, f"{name}-ingest", site)
    maintenance = MaintenanceStack(app, f"{name}-maintenance", site, ingest)
    keys = KeysStack(app, f"{name}-keys", site) if deployment.rotations else None
    exports = ExportsStack(app, f"{name}-exports", site) if deployment.exports else None
    publish = PublishStack(app, f"{name}-publish", site, deployment.publish) if deployment.publish else None
    monitoring = MonitoringStack(
        app, f"{name}-monitoring", deployment, ingest, maintenance, exports, publish, keys
    )
    for each in (ingest, maintenance, exports, publish):
        if each:
            each.add_dependency(lake)  # its function grants, and no reference says so
    stacks = (lake, kafka, ingest, maintenance, keys, exports, publish, monitoring)
    _leave_out(app, name, [each for each in stacks if each])
    Tags.of(app).add("calve:deployment", name)


def _leave_out(app: App, name: str, stacks: Sequence[Stack]) -> None:
    """Add the other stacks without resources. `cdk deploy` deletes such a stack, after those that may still import from it."""
    for part in PARTS:
        if all(each.stack_name != f"{name}-{part}" for each in stacks):
            # Without the rule, so that nothing differs where there is no such stack.
            plain = DefaultStackSynthesizer(generate_bootstrap_version_rule=False)
            empty = Stack(app, f"{name}-{part}", synthesizer=plain)
            meant = Acknowledgment(
                id="CloudFormation-Validate::F0001", reason="calve.yaml leaves this stack out"
            )
            Validations.of(empty).acknowledge(meant)
            for each in stacks:
                empty.add_dependency(each)
