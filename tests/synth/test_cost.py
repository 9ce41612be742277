"""`calve cost` counts what the stacks make."""

import re

import pytest

from calve.outputs.metrics import FRESHNESS, HEARD, LAG, ROWS, SILENT
from cli.look.cost.model import ENDPOINTS, JOB_METRICS, TABLE_METRICS, ZONES, Load, bill, rates
from stacks.monitoring.job_metrics import OF_JOB, OF_TABLES, ROUND
from tests.synth.deployments import IMPORTED, MADE, MSK, S3_TABLES_HOME, SHOP


@pytest.fixture
def made(synthesized):
    """Counts the resources of a type in all stacks of a deployment."""

    def count(deployment, kind, **properties):
        return sum(
            properties.items() <= each.items()
            for stack in synthesized.templates
            if stack.startswith(f"{deployment.name}-")
            for each in synthesized.find(stack, kind).values()
        )

    return count


@pytest.mark.parametrize(
    "deployment", [MADE, MSK, IMPORTED, SHOP, S3_TABLES_HOME], ids=lambda each: each.name
)
def test_every_resource_with_a_price_of_its_own_is_counted(made, deployment):
    basis = {line.part: line.basis for line in bill(deployment, Load(), rates()).lines}
    alarms, _, dashboards = map(int, re.findall(r"\d+", basis["Monitoring"]))
    assert alarms == made(deployment, "AWS::CloudWatch::Alarm")
    assert dashboards == made(deployment, "AWS::CloudWatch::Dashboard")
    imported = made(deployment, "Custom::CalveLake", KeyAlias="")
    assert ("KMS key" in basis) == made(deployment, "Custom::CalveLake") - imported
    secrets = sum("secret" in basis.get(each, "") for each in ("Exports", "Catalog", "Snowflake's key"))
    assert secrets == made(deployment, "AWS::SecretsManager::Secret")
    assert ("MSK Serverless" in basis) == made(deployment, "AWS::MSK::ServerlessCluster")
    endpoints = made(deployment, "AWS::EC2::VPCEndpoint", VpcEndpointType="Interface")
    own = deployment is S3_TABLES_HOME  # an endpoint of S3 Tables
    assert ("VPC endpoints" in basis) * (ENDPOINTS + own) == endpoints
    assert not endpoints or basis["VPC endpoints"].startswith(f"{endpoints} ")


def test_an_endpoint_stands_in_as_many_zones_as_are_paid(synthesized):
    for each in synthesized.find("streams-kafka", "AWS::EC2::VPCEndpoint").values():
        assert each["VpcEndpointType"] == "Gateway" or len(each["SubnetIds"]) == ZONES


def test_what_runs_well_has_as_many_metrics_as_are_paid():
    of_rounds = {each.metric for each in OF_JOB if each.pattern == ROUND}
    assert {*OF_TABLES} == {each for each in OF_JOB if each.metric in (FRESHNESS, LAG, ROWS)}
    assert len(OF_TABLES) == TABLE_METRICS
    assert len(of_rounds | {SILENT, HEARD}) == JOB_METRICS
