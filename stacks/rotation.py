"""A secret whose keys are changed by a function, at an interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aws_cdk import Aws, Duration, aws_lambda
from aws_cdk import aws_secretsmanager as secrets
from constructs import Construct

from stacks.bundling import Runtime
from stacks.function import Function, Place
from stacks.roles import Statement, allow


def rotating(secret: str) -> Statement:
    """What `lambdas.rotation` does with its secret, which has this ARN."""
    return allow(
        [
            *("secretsmanager:DescribeSecret", "secretsmanager:GetSecretValue"),
            *("secretsmanager:PutSecretValue", "secretsmanager:UpdateSecretVersionStage"),
        ],
        [secret],
    )


class Rotation(Construct):
    """The handler `rotate` of a folder of `lambdas/`, invoked by Secrets Manager and by nobody else.

    secret: ARN; `name`: of a secret that is no resource of the deployment's, whose ARN is a pattern.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        secret: str,
        name: str | None = None,
        days: int,
        code: str,
        runtime: Runtime,
        deployment: str,
        environment: Mapping[str, str],
        statements: Sequence[Statement] = (),
        timeout: Duration | None = None,
        place: Place | None = None,
    ) -> None:
        super().__init__(scope, id)
        self.function = Function(
            self,
            "Keys",
            code=code,
            handler="handler.rotate",
            runtime=runtime,
            deployment=deployment,
            environment=environment,
            statements=[rotating(secret), *statements],
            timeout=timeout,
            place=place,
        )
        permission = aws_lambda.CfnPermission(
            self,
            "Rotate",
            action="lambda:InvokeFunction",
            function_name=self.function.function.function_arn,
            principal="secretsmanager.amazonaws.com",
            source_account=Aws.ACCOUNT_ID,
            source_arn=secret,
        )
        schedule = secrets.CfnRotationSchedule(
            self,
            "Schedule",
            secret_id=name or secret,
            rotation_lambda_arn=self.function.function.function_arn,
            rotation_rules=secrets.CfnRotationSchedule.RotationRulesProperty(automatically_after_days=days),
            rotate_immediately_on_update=False,
        )
        schedule.add_resource_dependency(permission)
        schedule.node.add_dependency(self.function)
