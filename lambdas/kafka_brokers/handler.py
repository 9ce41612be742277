"""The custom resource with a cluster's bootstrap servers, as the attribute `Servers`. It creates nothing."""

from __future__ import annotations

import boto3
from aws_lambda_powertools import Logger, Tracer
from aws_lambda_powertools.utilities.data_classes import CloudFormationCustomResourceEvent

from calve.errors import ConfigError
from lambdas.custom_resource import handler_of

logger = Logger(service="kafka_brokers")
tracer = Tracer(service="kafka_brokers")
IAM = "BootstrapBrokerStringSaslIam"


def _act(request: CloudFormationCustomResourceEvent, time_left_s: float) -> dict[str, str]:
    if request.request_type == "Delete":
        return {}
    cluster = request.resource_properties["ClusterArn"]
    servers = boto3.client("kafka").get_bootstrap_brokers(ClusterArn=cluster).get(IAM)
    if not servers:
        raise ConfigError(
            f"the cluster {cluster} has no IAM listener", fix="switch IAM access control on in MSK"
        )
    return {"Servers": str(servers)}


handle = handler_of(
    _act,
    identify=lambda properties: str(properties["ClusterArn"]),
    logger=logger,
    tracer=tracer,
    failed="brokers.not_found",
)
