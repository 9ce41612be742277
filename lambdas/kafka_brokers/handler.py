"""The custom resource of a cluster's bootstrap servers. It creates nothing, so a delete does nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import boto3
from aws_lambda_powertools import Logger, Tracer
from aws_lambda_powertools.utilities.data_classes import CloudFormationCustomResourceEvent
from aws_lambda_powertools.utilities.typing import LambdaContext

from calve.errors import ConfigError
from lambdas.custom_resource import serve

logger = Logger(service="kafka_brokers")
tracer = Tracer(service="kafka_brokers")


@tracer.capture_lambda_handler(capture_response=False)
def handle(event: Mapping[str, Any], context: LambdaContext) -> None:
    """Answer with the attribute `Servers`."""
    if reason := serve(event, context, _act, identify=lambda properties: str(properties["ClusterArn"])):
        logger.error("brokers.not_found", extra={"reason": reason})


def _act(request: CloudFormationCustomResourceEvent, *, time_left_s: float) -> dict[str, str]:
    if request.request_type == "Delete":
        return {}
    return {"Servers": iam_servers(request.resource_properties["ClusterArn"], boto3.client("kafka"))}


def iam_servers(cluster: str, kafka: Any) -> str:
    """The bootstrap servers for IAM.

    Raises:
        ConfigError: the cluster does not support IAM.
    """
    servers = kafka.get_bootstrap_brokers(ClusterArn=cluster).get("BootstrapBrokerStringSaslIam")
    if not servers:
        raise ConfigError(
            f"the cluster {cluster} has no IAM listener", fix="switch IAM access control on in MSK"
        )
    return str(servers)
