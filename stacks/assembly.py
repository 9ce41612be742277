"""All stacks of a deployment, each after the stacks that it needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from aws_cdk import Acknowledgment, App, CfnParameter, Tags, Validations

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


def build(
    app: App,
    deployment: Deployment,
    *,
    runtime: Runtime,
    delete_data: bool = False,
    missing: Sequence[str] = (),
) -> None:
    """Add the deployment's stacks to the app.

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
    if deployment.msk or deployment.network:
        site = replace(site, brokers=KafkaStack(app, f"{name}-kafka", site).brokers)
    ingest = IngestStack(app, f"{name}-ingest", site)
    maintenance = MaintenanceStack(app, f"{name}-maintenance", site, ingest)
    keys = KeysStack(app, f"{name}-keys", site) if deployment.rotations else None
    exports = ExportsStack(app, f"{name}-exports", site) if deployment.exports else None
    publish = PublishStack(app, f"{name}-publish", site, deployment.publish) if deployment.publish else None
    MonitoringStack(app, f"{name}-monitoring", deployment, ingest, maintenance, exports, publish, keys)
    Tags.of(app).add("calve:deployment", name)
