"""Rotation of secrets: a function changes a secret at an interval; and the rotations of Kafka's and the registry's secrets.

Stateless: the secrets belong to the user.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from aws_cdk import Aws, Duration, Stack, aws_lambda
from aws_cdk import aws_secretsmanager as secrets
from constructs import Construct

from calve.config.deployment import KeyRotation
from calve.config.job import Job, Registry
from calve.errors import ConfigError
from stacks.base.function import SHORT, Function, Site
from stacks.base.roles import Statement, allow, msk_key, secret_arn, secret_id


def rotating(secret: str) -> Statement:
    """What `lambdas.rotation` needs for the secret with this ARN."""
    actions = ("DescribeSecret", "GetSecretValue", "PutSecretValue", "UpdateSecretVersionStage")
    return allow([f"secretsmanager:{action}" for action in actions], [secret])


class Rotation(Construct):
    """The handler `rotate` of a folder of `lambdas/`. Only Secrets Manager invokes it.

    secret: ARN. name: of a secret outside the deployment, whose ARN is a pattern.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        site: Site,
        *,
        secret: str,
        name: str | None = None,
        days: int,
        code: str,
        environment: Mapping[str, str],
        statements: Sequence[Statement] = (),
        timeout: Duration = SHORT,
        in_network: bool = False,
    ) -> None:
        super().__init__(scope, id)
        self.function = Function(
            self,
            "Keys",
            site,
            code=code,
            handler="rotate",
            environment=environment,
            statements=[rotating(secret), *statements],
            timeout=timeout,
            in_network=in_network,
        )
        permission = aws_lambda.CfnPermission(
            self,
            "Rotate",
            action="lambda:InvokeFunction",
            function_name=self.function.arn,
            principal="secretsmanager.amazonaws.com",
            source_account=Aws.ACCOUNT_ID,
            source_arn=secret,
        )
        schedule = secrets.CfnRotationSchedule(
            self,
            "Schedule",
            secret_id=name or secret,
            rotation_lambda_arn=self.function.arn,
            rotation_rules=secrets.CfnRotationSchedule.RotationRulesProperty(automatically_after_days=days),
            rotate_immediately_on_update=False,
        )
        schedule.add_resource_dependency(permission)
        schedule.node.add_dependency(self.function)


CLOUD = "https://api.confluent.cloud"
TIMEOUT = Duration.minutes(10)
LONGEST_AUTHORITIES = 3_000
"""In bytes. Lambda allows 4 kB of environment variables in total."""


class KeysStack(Stack):
    """One rotation for each secret with `rotate`.

    Functions for SCRAM users are in the jobs' network. Functions for Confluent Cloud use the internet.

    rotations: by the system that the keys open.
    """

    def __init__(self, scope: Construct, id: str, site: Site) -> None:
        super().__init__(scope, id, description="calve: keys that rotate")
        settings = site.deployment.jobs[0].settings
        self.rotations: dict[str, Rotation] = {}
        for each in site.deployment.rotations:
            cloud = each.keys_to_retain is not None
            rights = msk_key("kms:Decrypt", "kms:GenerateDataKey")
            if each.admin:
                rights = allow(["secretsmanager:GetSecretValue"], [str(secret_arn(each.admin))])
            self.rotations[each.of] = Rotation(
                self,
                each.of.title(),
                site,
                secret=str(secret_arn(each.secret)),
                name=secret_id(each.secret),
                days=each.after_days,
                code="keys.cloud" if cloud else "keys.kafka",
                environment=_environment(each, settings),
                statements=[rights],
                timeout=TIMEOUT,
                in_network=not cloud,
            )


def _environment(rotation: KeyRotation, job: Job) -> dict[str, str]:
    found = {"SECRET": secret_id(rotation.secret)}
    if rotation.admin:
        found["ADMIN_SECRET"] = secret_id(rotation.admin)
    if rotation.keys_to_retain is not None:
        found |= {"KEYS_TO_RETAIN": str(rotation.keys_to_retain), "CLOUD": CLOUD}
    if rotation.of == "registry":
        return found | ({"REGISTRY": job.registry.url} if isinstance(job.registry, Registry) else {})
    kafka = replace(job.kafka, ca_file=None, secret=rotation.secret, emit_secret=None)
    found["KAFKA"] = json.dumps(asdict(kafka))
    if job.kafka.ca_file:
        found["KAFKA_AUTHORITIES"] = _authorities(job.kafka.ca_file)
    return found


def _authorities(file: str) -> str:
    text = Path(file).read_text(encoding="ascii")
    if len(text) > LONGEST_AUTHORITIES:
        raise ConfigError(
            f"kafka.auth.ca_file {file} has {len(text)} bytes, and a function that rotates keys takes {LONGEST_AUTHORITIES}",
            fix="leave the authorities in it that sign the brokers' certificates",
        )
    return text
