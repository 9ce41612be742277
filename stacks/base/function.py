"""A function: code, role, log group and common settings; and the EventBridge rules that invoke it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aws_cdk import Aws, CustomResource, Duration, RemovalPolicy, aws_events, aws_iam, aws_lambda, aws_logs
from constructs import Construct

from calve.config.deployment import Deployment
from stacks.base.bundling import Runtime, function_code
from stacks.base.roles import Lake, Statement, acknowledge, allow, arn, service_role

METRICS_NAMESPACE = "calve"
SHORT = Duration.seconds(30)
LOGGING = ("logs:CreateLogStream", "logs:PutLogEvents")
TRACING = ("xray:PutTraceSegments", "xray:PutTelemetryRecords")
INTERFACES = "Lambda makes the network interfaces of a function, and names them"


@dataclass(frozen=True, slots=True)
class Brokers:
    """An MSK cluster, and the network of its clients.

    cluster_arn: MSK's ARN; None if the cluster does not use IAM. cluster_path: name and id of the cluster, as in the ARNs of
    its topics and groups. servers: bootstrap servers that only a deploy knows; None if the configuration has them. connection:
    the Glue connection that puts jobs into the network.
    """

    cluster_arn: str | None = None
    cluster_path: str | None = None
    servers: str | None = None
    connection: str | None = None
    zone: str | None = None
    subnets: tuple[str, ...] = ()
    security_groups: tuple[str, ...] = ()

    @property
    def places(self) -> list[str]:
        """The ARNs of subnets and security groups."""
        subnets = [arn("ec2", f"subnet/{each}") for each in self.subnets]
        return subnets + [arn("ec2", f"security-group/{each}") for each in self.security_groups]


@dataclass(frozen=True, slots=True)
class Site:
    """What the stacks of a deployment share. `delete_data`: a destroy deletes the data too."""

    deployment: Deployment
    runtime: Runtime
    lake: Lake
    brokers: Brokers = field(default_factory=Brokers)
    delete_data: bool = False


def interface_statements(brokers: Brokers) -> list[Statement]:
    """What Lambda needs for a function in a VPC."""
    interfaces = arn("ec2", "network-interface/*")
    describing = ["ec2:DescribeNetworkInterfaces", "ec2:DescribeSubnets"]
    return [
        allow(describing, ["*"], because="EC2's Describe actions know no resources"),
        allow(["ec2:CreateNetworkInterface"], [*brokers.places, interfaces], because=INTERFACES),
        allow(["ec2:DeleteNetworkInterface"], [interfaces], because=INTERFACES),
    ]


class Function(Construct):
    """A module of `lambdas/` as a function. `statements`: all rights besides writing its log.

    code: the module; `FOLDER` is `FOLDER.handler`. handler: its function.
    in_network: it runs in the jobs' network, if the deployment has one.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        site: Site,
        *,
        code: str,
        statements: Sequence[Statement],
        handler: str = "handle",
        name: str | None = None,
        environment: Mapping[str, str] | None = None,
        memory_mb: int = 256,
        timeout: Duration = SHORT,
        in_network: bool = False,
    ) -> None:
        super().__init__(scope, id)
        module = code if "." in code else f"{code}.handler"
        placed = in_network and bool(site.brokers.subnets)
        self.log_group = aws_logs.LogGroup(
            self, "Log", retention=aws_logs.RetentionDays.THREE_MONTHS, removal_policy=RemovalPolicy.DESTROY
        )
        log_streams = arn("logs", f"log-group:{self.log_group.log_group_name}:*")
        rights = [
            *statements,
            *(interface_statements(site.brokers) if placed else []),
            allow(LOGGING, [log_streams], because="the streams of one log group"),
            allow(TRACING, ["*"], because="X-Ray's writing actions know no resources"),
        ]
        self.role = service_role(self, "Role", service="lambda.amazonaws.com", statements=rights)
        self.function = aws_lambda.Function(
            self,
            "Function",
            runtime=site.runtime.lambda_runtime,
            architecture=site.runtime.lambda_architecture,
            code=function_code(self, code.partition(".")[0], site.runtime),
            handler=f"lambdas.{module}.{handler}",
            function_name=name,
            role=aws_iam.Role.from_role_arn(self, "OwnRole", self.role.role_arn, mutable=False),
            log_group=self.log_group,
            memory_size=memory_mb,
            timeout=timeout,
            tracing=aws_lambda.Tracing.ACTIVE,
            environment={
                "POWERTOOLS_SERVICE_NAME": code.replace(".", "_"),
                "POWERTOOLS_METRICS_NAMESPACE": METRICS_NAMESPACE,
                "CALVE_NAME": site.deployment.name,
                **(environment or {}),
            },
        )
        self.arn = self.function.function_arn
        self.function.node.add_dependency(self.role)
        if placed:
            resource = self.function.node.default_child
            assert isinstance(resource, aws_lambda.CfnFunction)  # noqa: S101 for the type checker: it is the function itself
            resource.vpc_config = aws_lambda.CfnFunction.VpcConfigProperty(
                subnet_ids=list(site.brokers.subnets), security_group_ids=list(site.brokers.security_groups)
            )
        version = "Python 3.13 is what the Glue job runs, so the core has one version to hold on"
        acknowledge(self.function, {"L1": version})


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
    rule = aws_events.CfnRule(
        scope,
        id,
        description=description,
        event_pattern=pattern,
        schedule_expression=schedule,
        targets=[aws_events.CfnRule.TargetProperty(arn=function.arn, id=function.node.id)],
    )
    aws_lambda.CfnPermission(
        scope,
        f"{id}Permission",
        action="lambda:InvokeFunction",
        function_name=function.arn,
        principal="events.amazonaws.com",
        source_arn=rule.attr_arn,
        source_account=Aws.ACCOUNT_ID,
    )
    return rule


def custom_resource(
    scope: Construct, id: str, kind: str, function: Function, properties: Mapping[str, Any], timeout: Duration
) -> CustomResource:
    """A custom resource `Custom::Calve<kind>` that the function answers. `timeout`: of its answer."""
    resource = CustomResource(
        scope,
        id,
        resource_type=f"Custom::Calve{kind}",
        service_token=function.arn,
        service_timeout=timeout,
        properties=properties,
    )
    resource.node.add_dependency(function)
    return resource
