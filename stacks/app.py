"""The CDK app: what `calve.yaml` describes, as CloudFormation stacks.

Context: `config` (calve.yaml), `env` (an overlay such as calve.prod.yaml), `lambda_python`, `lambda_architecture` (arm64, x86_64,
or host for an emulator), `delete_data`; `kafka` and `registry` for a calve.yaml without these sections. Account and region are
those of the CLI's profile, at deploy.
"""

from __future__ import annotations

import sys
from pathlib import Path

from aws_cdk import App

from calve.config.job import Kafka, Registry
from calve.errors import CalveError, ConfigError
from calve.settings import load_deployment
from calve.settings.resolving import StackDefaults
from stacks.assembly import build
from stacks.base.bundling import Runtime
from stacks.stateful.lake_storage import delete_data_requested

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


if __name__ == "__main__":
    sys.exit(main())
