"""Where jobs stand to reach the brokers: a VPC without a way to the internet, or an existing one, which is only used."""

from __future__ import annotations

from aws_cdk import aws_ec2
from constructs import Construct

from calve.deployment import Network
from stacks.findings import acknowledge

ENDPOINTS = {
    "Events": aws_ec2.InterfaceVpcEndpointAwsService.EVENTBRIDGE,
    "Glue": aws_ec2.InterfaceVpcEndpointAwsService.GLUE,
    "Logs": aws_ec2.InterfaceVpcEndpointAwsService.CLOUDWATCH_LOGS,
    "Metrics": aws_ec2.InterfaceVpcEndpointAwsService.CLOUDWATCH_MONITORING,
    "Secrets": aws_ec2.InterfaceVpcEndpointAwsService.SECRETS_MANAGER,
}
"""What a job calls, besides S3; each costs by the hour in every zone."""


class JobNetwork(Construct):
    """Subnets and security groups of the jobs; the first of each zone list is where Glue puts its workers."""

    def __init__(self, scope: Construct, id: str, *, network: Network | None) -> None:
        super().__init__(scope, id)
        if network is None or network.vpc_id is None:
            self._make()
        else:
            self._use(network)

    def _make(self) -> None:
        vpc = aws_ec2.Vpc(
            self,
            "Vpc",
            max_azs=2,
            nat_gateways=0,
            restrict_default_security_group=False,  # it would need a function of the CDK's own; nothing stands in that group
            subnet_configuration=[
                aws_ec2.SubnetConfiguration(name="jobs", subnet_type=aws_ec2.SubnetType.PRIVATE_ISOLATED)
            ],
            gateway_endpoints={
                "S3": aws_ec2.GatewayVpcEndpointOptions(service=aws_ec2.GatewayVpcEndpointAwsService.S3)
            },
        )
        acknowledge(
            vpc, {"VPC7": "its subnets have no way in or out but AWS's own endpoints and the brokers"}
        )
        group = self._group(vpc)
        for name, service in ENDPOINTS.items():
            vpc.add_interface_endpoint(name, service=service, security_groups=[group], open=False)
        self.subnets = tuple(subnet.subnet_id for subnet in vpc.isolated_subnets)
        self.zone = vpc.isolated_subnets[0].availability_zone
        self.security_groups: tuple[str, ...] = (group.security_group_id,)

    def _use(self, network: Network) -> None:
        vpc = aws_ec2.Vpc.from_vpc_attributes(
            self, "Vpc", vpc_id=str(network.vpc_id), availability_zones=list(network.availability_zones)
        )
        self.subnets = network.subnets
        self.zone = network.availability_zones[0]
        self.security_groups = network.security_groups or (self._group(vpc).security_group_id,)

    def _group(self, vpc: aws_ec2.IVpc) -> aws_ec2.SecurityGroup:
        """A group whose members reach each other on every port, as Glue demands of its workers."""
        group = aws_ec2.SecurityGroup(
            self, "Group", vpc=vpc, description="Jobs, brokers and endpoints", allow_all_outbound=False
        )
        group.add_ingress_rule(group, aws_ec2.Port.all_tcp(), "each other")
        group.add_egress_rule(group, aws_ec2.Port.all_tcp(), "each other")
        group.add_egress_rule(aws_ec2.Peer.any_ipv4(), aws_ec2.Port.tcp(443), "S3, by its gateway")
        return group
