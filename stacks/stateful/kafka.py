"""The Kafka cluster and the network of the jobs, if the deployment makes or needs them. Stateful."""

from __future__ import annotations

from collections.abc import Mapping

from aws_cdk import CfnOutput, Duration, Fn, RemovalPolicies, Stack, aws_ec2, aws_glue, aws_msk
from constructs import Construct

from calve.config.deployment import UNKNOWN_SERVERS, Deployment, Network
from calve.config.job import S3Tables
from stacks.base.function import Brokers, Function, Site, custom_resource
from stacks.base.roles import acknowledge, allow

ENDPOINTS = {
    "Events": aws_ec2.InterfaceVpcEndpointAwsService.EVENTBRIDGE,
    "Glue": aws_ec2.InterfaceVpcEndpointAwsService.GLUE,
    "Logs": aws_ec2.InterfaceVpcEndpointAwsService.CLOUDWATCH_LOGS,
    "Metrics": aws_ec2.InterfaceVpcEndpointAwsService.CLOUDWATCH_MONITORING,
    "Secrets": aws_ec2.InterfaceVpcEndpointAwsService.SECRETS_MANAGER,
}
"""The services that a job calls, besides S3. AWS bills each endpoint per hour and zone."""


class JobNetwork(Construct):
    """Subnets and security groups of the jobs. Glue puts its workers into the first zone."""

    def __init__(self, scope: Construct, id: str, *, network: Network | None, s3_tables: bool) -> None:
        super().__init__(scope, id)
        if network is None or network.vpc_id is None:
            of_tables = {"S3Tables": aws_ec2.InterfaceVpcEndpointAwsService.S3_TABLES} if s3_tables else {}
            self._make(ENDPOINTS | of_tables)
            return
        vpc = aws_ec2.Vpc.from_vpc_attributes(
            self, "Vpc", vpc_id=network.vpc_id, availability_zones=list(network.availability_zones)
        )
        self.subnets = network.subnets
        self.zone = network.availability_zones[0]
        self.security_groups: tuple[str, ...] = network.security_groups or (
            self._group(vpc).security_group_id,
        )

    def _make(self, endpoints: Mapping[str, aws_ec2.InterfaceVpcEndpointAwsService]) -> None:
        vpc = aws_ec2.Vpc(
            self,
            "Vpc",
            max_azs=2,
            nat_gateways=0,
            restrict_default_security_group=False,  # it would need a function of the CDK; nothing uses that group
            subnet_configuration=[
                aws_ec2.SubnetConfiguration(name="jobs", subnet_type=aws_ec2.SubnetType.PRIVATE_ISOLATED)
            ],
            gateway_endpoints={
                "S3": aws_ec2.GatewayVpcEndpointOptions(service=aws_ec2.GatewayVpcEndpointAwsService.S3)
            },
        )
        closed = "its subnets have no way in or out but AWS's own endpoints and the brokers"
        acknowledge(vpc, {"VPC7": closed})
        group = self._group(vpc)
        for name, service in endpoints.items():
            vpc.add_interface_endpoint(name, service=service, security_groups=[group], open=False)
        self.subnets = tuple(subnet.subnet_id for subnet in vpc.isolated_subnets)
        self.zone = vpc.isolated_subnets[0].availability_zone
        self.security_groups = (group.security_group_id,)

    def _group(self, vpc: aws_ec2.IVpc) -> aws_ec2.SecurityGroup:
        """A group whose members reach each other on every port, as Glue requires of its workers."""
        group = aws_ec2.SecurityGroup(
            self, "Group", vpc=vpc, description="Jobs, brokers and endpoints", allow_all_outbound=False
        )
        group.add_ingress_rule(group, aws_ec2.Port.all_tcp(), "each other")
        group.add_egress_rule(group, aws_ec2.Port.all_tcp(), "each other")
        group.add_egress_rule(aws_ec2.Peer.any_ipv4(), aws_ec2.Port.tcp(443), "S3, by its gateway")
        return group


class KafkaStack(Stack):
    """An MSK Serverless cluster if configured, and the connection that puts jobs into its network.

    A made cluster holds topics that exist nowhere else. Unless `delete_data` was deployed, a destroy keeps it and its network.
    CloudFormation cannot adopt it: to deploy again, name both in calve.yaml.
    """

    def __init__(self, scope: Construct, id: str, site: Site) -> None:
        super().__init__(scope, id, description="calve: Kafka and the jobs' network (stateful)")
        deployment = site.deployment
        made = deployment.msk is not None and deployment.msk.arn is None
        s3_tables = isinstance(deployment.lake.catalog, S3Tables)
        network = JobNetwork(self, "Network", network=deployment.network, s3_tables=s3_tables)
        connection = self._connection(deployment.name, network)
        cluster_arn = self._cluster(deployment, network)
        unknown = any(job.settings.kafka.bootstrap_servers == UNKNOWN_SERVERS for job in deployment.jobs)
        servers = self._servers(site, cluster_arn) if cluster_arn and unknown else None
        path = None
        if deployment.msk:
            given = deployment.msk.arn
            path = given.partition(":cluster/")[2] if given else f"{deployment.name}/*"
        self.brokers = Brokers(
            cluster_arn=cluster_arn,
            cluster_path=path,
            servers=servers,
            connection=connection,
            zone=network.zone,
            subnets=network.subnets,
            security_groups=network.security_groups,
        )
        if servers:
            CfnOutput(self, "Servers", value=servers)
        if made:
            CfnOutput(self, "ClusterArn", value=str(cluster_arn))
            CfnOutput(self, "Subnets", value=Fn.join(",", list(network.subnets)))
            CfnOutput(self, "SecurityGroups", value=Fn.join(",", list(network.security_groups)))
        if made and not site.delete_data:
            for kept in (self.node.find_child("Cluster"), network):
                RemovalPolicies.of(kept).retain()

    def _connection(self, name: str, network: JobNetwork) -> str:
        types = aws_glue.CfnConnection
        types(
            self,
            "Connection",
            catalog_id=self.account,
            connection_input=types.ConnectionInputProperty(
                name=name,
                connection_type="NETWORK",
                physical_connection_requirements=types.PhysicalConnectionRequirementsProperty(
                    availability_zone=network.zone,
                    subnet_id=network.subnets[0],
                    security_group_id_list=list(network.security_groups),
                ),
            ),
        )
        return name

    def _cluster(self, deployment: Deployment, network: JobNetwork) -> str | None:
        if deployment.msk is None:
            return None
        if deployment.msk.arn:
            return deployment.msk.arn
        types = aws_msk.CfnServerlessCluster
        place = types.VpcConfigProperty(
            subnet_ids=list(network.subnets), security_groups=list(network.security_groups)
        )
        cluster = types(
            self,
            "Cluster",
            cluster_name=deployment.name,
            client_authentication=types.ClientAuthenticationProperty(
                sasl=types.SaslProperty(iam=types.IamProperty(enabled=True))
            ),
            vpc_configs=[place],
        )
        return cluster.attr_arn

    def _servers(self, site: Site, cluster_arn: str) -> str:
        finding = [allow(["kafka:GetBootstrapBrokers"], [cluster_arn])]
        function = Function(self, "Brokers", site, code="job_control", handler="brokers", statements=finding)
        properties = {"ClusterArn": cluster_arn}
        limit = Duration.minutes(2)
        resource = custom_resource(self, "BootstrapServers", "BootstrapServers", function, properties, limit)
        return resource.get_att_string("Servers")
