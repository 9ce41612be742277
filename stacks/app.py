"""The CDK app: what `calve.yaml` describes, as CloudFormation stacks.

Context: `config` (calve.yaml), `env` (an overlay such as calve.prod.yaml), `lambda_python`, `lambda_architecture` (arm64, x86_64,
or host for an emulator), `delete_data`; `kafka` and `registry` for a calve.yaml without these sections. Account and region are
those of the CLI's profile, at deploy.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from aws_cdk import Acknowledgment, App, CfnParameter, DefaultStackSynthesizer, Stack, Tags, Validations

from calve.config.deployment import Deployment
from calve.config.job import Kafka, Registry
from calve.errors import CalveError, ConfigError
from calve.settings import load_deployment
from calve.settings.resolving import StackDefaults
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
from stacks.stateful.lake_storage import delete_data_requested
from stacks.stateful.operators import PARTS

NOWHERE = StackDefaults(Kafka("kafka.invalid:9092"), Registry("https://registry.invalid"))
"""Placeholders for sections that calve.yaml lacks: the templates can be read, but not deployed."""


def supplied(kafka: str | None, registry: str | None) -> StackDefaults:
    """Kafka and registry in the place of sections that calve.yaml lacks."""
    return StackDefaults(
        Kafka(kafka) if kafka else NOWHERE.kafka, Registry(registry) if registry else NOWHERE.registry
    )


FLAGS = {
    "@aws-cdk/core:newStyleStackSynthesis": True,
    "@aws-cdk/core:defaultCrossStackReferences": "strong",
}
"""Behaviour of the CDK that the stacks rely on."""


def main() -> int:
    """Synthesize. If the configuration is invalid: exit code 2, with all errors on standard error."""
    app = App(context=FLAGS)

    def context(key: str) -> str | None:
        value = app.node.try_get_context(key)
        return None if value is None else str(value)

    try:
        config = Path(context("config") or "calve.yaml")
        deployment = load_deployment(config, context("env"), supplied(context("kafka"), context("registry")))
        runtime = Runtime.read(context("lambda_python"), context("lambda_architecture"))
        delete_data = delete_data_requested(context("delete_data"), deployment.name)
        settings = deployment.jobs[0].settings
        named = {"kafka": settings.kafka != NOWHERE.kafka, "registry": settings.registry != NOWHERE.registry}
        missing = [section for section, given in named.items() if not given]
        build(app, deployment, runtime=runtime, delete_data=delete_data, missing=missing)
    except CalveError as error:
        sys.stderr.write(f"{error}\n")
        return 2 if isinstance(error, ConfigError) else 1
    app.synth()
    if missing:
        sys.stderr.write(
            f"{config} names no {' and no '.join(missing)}: these templates can be read, but a deploy would fail\n"
        )
    return 0


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


if __name__ == "__main__":
    sys.exit(main())
