"""All stacks of a deployment, each after the stacks that it needs."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import Acknowledgment, App, CfnParameter, Stack, Tags, Validations

from calve.config.deployment import Deployment
from stacks.base.bundling import Runtime
from stacks.base.rotation import KeysStack
from stacks.jobs.ingest import IngestStack
from stacks.jobs.maintenance import MaintenanceStack
from stacks.monitoring.monitoring import MonitoringStack
from stacks.publishing.exports import ExportsStack
from stacks.publishing.publish import PublishStack
from stacks.stateful.kafka import KafkaStack
from stacks.stateful.lake import LakeStack


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
    stack = LakeStack(app, f"{name}-lake", deployment=deployment, runtime=runtime, delete_data=delete_data)
    for section in missing:
        _parameter_without_value(stack, section)
    lake = stack.lake
    brokers = None
    if deployment.msk or deployment.network:
        kafka = KafkaStack(
            app, f"{name}-kafka", deployment=deployment, runtime=runtime, delete_data=delete_data
        )
        brokers = kafka.brokers
    ingest = IngestStack(
        app, f"{name}-ingest", deployment=deployment, lake=lake, runtime=runtime, brokers=brokers
    )
    maintenance = MaintenanceStack(
        app, f"{name}-maintenance", deployment=deployment, lake=lake, ingest=ingest
    )
    keys = None
    if deployment.rotations:
        keys = KeysStack(app, f"{name}-keys", deployment=deployment, runtime=runtime, brokers=brokers)
    exports = None
    if deployment.exports:
        exports = ExportsStack(app, f"{name}-exports", deployment=deployment, lake=lake, runtime=runtime)
    publish = None
    if deployment.publish:
        publish = PublishStack(
            app,
            f"{name}-publish",
            deployment=deployment,
            publish=deployment.publish,
            lake=lake,
            runtime=runtime,
        )
    MonitoringStack(
        app,
        f"{name}-monitoring",
        deployment=deployment,
        ingest=ingest,
        maintenance=maintenance,
        exports=exports,
        publish=publish,
        keys=keys,
    )
    Tags.of(app).add("calve:deployment", name)


def _parameter_without_value(stack: Stack, section: str) -> None:
    CfnParameter(
        stack,
        f"MissingInConfiguration{section.capitalize()}",
        description=f"Name it in calve.yaml: {section}",
    )
    unused = Acknowledgment(id="CloudFormation-Validate::W2001", reason="it is there to end a deploy")
    Validations.of(stack).acknowledge(unused)
