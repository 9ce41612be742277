import boto3
import pytest
from moto import mock_aws

from tests.unit.lambdas.job_control.world import World


@pytest.fixture(scope="session")
def session() -> boto3.Session:
    """One for all tests: reading the models of the services takes longer than any test."""
    return boto3.Session("testing", "testing", region_name="us-east-1")


@pytest.fixture
def world(session, monkeypatch):
    with mock_aws():
        monkeypatch.setattr(boto3, "DEFAULT_SESSION", session)  # moto begins by clearing it
        made = World(session)
        yield made
        made.close()
