"""A function: code, role, log group and common settings; and the EventBridge rules that invoke it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aws_cdk import Aws, Duration, RemovalPolicy, aws_events, aws_iam, aws_lambda, aws_logs
from constructs import Construct

from stacks.base.bundling import Runtime, function_code
from stacks.base.roles import Statement, acknowledge, allow, arn, service_role

METRICS_NAMESPACE = "calve"
LOG_STREAMS = "the streams of one log group"
INTERFACES = "Lambda makes the network interfaces of a function, and names them"


@dataclass(frozen=True, slots=True)
class Place:
    """The subnets and security groups of a function."""

    subnets: tuple[str, ...]
    security_groups: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Brokers:
    """An MSK cluster, and the network of its clients.

    Attributes:
        cluster_arn: MSK's ARN; None if the cluster does not use IAM.
        cluster_path: name and id of the cluster, as in the ARNs of its topics and groups.
        servers: bootstrap servers that only a deploy knows; None if the configuration has them.
        connection: the Glue connection that puts jobs into the network.
    """

    cluster_arn: str | None = None
    cluster_path: str | None = None
    servers: str | None = None
    connection: str | None = None
    zone: str | None = None
    subnets: tuple[str, ...] = ()
    security_groups: tuple[str, ...] = ()


def interface_statements(place: Place) -> list[Statement]:
    """What Lambda needs for a function in a VPC."""
    interfaces = arn("ec2", "network-interface/*")
    places = [
        *(arn("ec2", f"subnet/{each}") for each in place.subnets),
        *(arn("ec2", f"security-group/{each}") for each in place.security_groups),
    ]
    return [
        allow(
            ["ec2:DescribeNetworkInterfaces", "ec2:DescribeSubnets"],
            ["*"],
            because="EC2's Describe actions know no resources",
        ),
        allow(["ec2:CreateNetworkInterface"], [*places, interfaces], because=INTERFACES),
        allow(["ec2:DeleteNetworkInterface"], [interfaces], because=INTERFACES),
    ]


class Function(Construct):
    """One folder of `lambdas/` as a function. `statements`: all rights besides writing its log."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        code: str,
        runtime: Runtime,
        deployment: str,
        statements: Sequence[Statement],
        handler: str = "handler.handle",
        name: str | None = None,
        environment: Mapping[str, str] | None = None,
        memory_mb: int = 256,
        timeout: Duration | None = None,
        place: Place | None = None,
    ) -> None:
        super().__init__(scope, id)
        self.log_group = aws_logs.LogGroup(
            self, "Log", retention=aws_logs.RetentionDays.THREE_MONTHS, removal_policy=RemovalPolicy.DESTROY
        )
        self.role = service_role(
            self,
            "Role",
            service="lambda.amazonaws.com",
            statements=[
                *statements,
                *(interface_statements(place) if place else []),
                allow(
                    ["logs:CreateLogStream", "logs:PutLogEvents"],
                    [_streams(self.log_group)],
                    because=LOG_STREAMS,
                ),
                allow(
                    ["xray:PutTraceSegments", "xray:PutTelemetryRecords"],
                    ["*"],
                    because="X-Ray's writing actions know no resources",
                ),
            ],
        )
        self.function = aws_lambda.Function(
            self,
            "Function",
            runtime=runtime.lambda_runtime,
            architecture=runtime.lambda_architecture,
            code=function_code(self, code, runtime),
            handler=f"lambdas.{code}.{handler}",
            function_name=name,
            role=aws_iam.Role.from_role_arn(self, "OwnRole", self.role.role_arn, mutable=False),
            log_group=self.log_group,
            memory_size=memory_mb,
            timeout=timeout or Duration.seconds(30),
            tracing=aws_lambda.Tracing.ACTIVE,
            environment={
                "POWERTOOLS_SERVICE_NAME": code,
                "POWERTOOLS_METRICS_NAMESPACE": METRICS_NAMESPACE,
                "CALVE_NAME": deployment,
                **(environment or {}),
            },
        )
        self.function.node.add_dependency(self.role)
        if place:
            resource = self.function.node.default_child
            assert isinstance(resource, aws_lambda.CfnFunction)  # noqa: S101 for the type checker: it is the function itself
            resource.vpc_config = aws_lambda.CfnFunction.VpcConfigProperty(
                subnet_ids=list(place.subnets), security_group_ids=list(place.security_groups)
            )
        acknowledge(
            self.function,
            {"L1": "Python 3.13 is what the Glue job runs, so the core has one version to hold on"},
        )


def _streams(group: aws_logs.LogGroup) -> str:
    return arn("logs", f"log-group:{group.log_group_name}:*")


def invoke(
    scope: Construct,
    id: str,
    function: Function,
    *,
    pattern: Mapping[str, Any] | None = None,
    schedule: str | None = None,
    description: str | None = None,
) -> aws_events.CfnRule:
    """A rule by event pattern or schedule, with the permission to invoke the function."""
    arn = function.function.function_arn
    rule = aws_events.CfnRule(
        scope,
        id,
        description=description,
        event_pattern=pattern,
        schedule_expression=schedule,
        targets=[aws_events.CfnRule.TargetProperty(arn=arn, id=function.node.id)],
    )
    aws_lambda.CfnPermission(
        scope,
        f"{id}Permission",
        action="lambda:InvokeFunction",
        function_name=arn,
        principal="events.amazonaws.com",
        source_arn=rule.attr_arn,
        source_account=Aws.ACCOUNT_ID,
    )
    return rule
