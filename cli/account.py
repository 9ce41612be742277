"""The AWS account that a command works on: the operator's, or the emulator of the embedded stack."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import boto3
from botocore.config import Config

from calve.errors import CalveError, ConfigError
from cli.config import default_region
from cli.embedded import aws as emulator
from cli.embedded.stack import Stack
from cli.lake import aws_errors
from lambdas.aws import tolerating

CONFIG = Config(connect_timeout=5, read_timeout=30, retries={"total_max_attempts": 3})


@dataclass(frozen=True, slots=True)
class Account:
    """One account in one region; `endpoint` is the emulator's."""

    region: str
    endpoint: str | None = None

    @classmethod
    def of(cls, embedded: Stack | None, region: str | None) -> Account:
        """The emulator's account if there is one, else the account of the environment. `region` goes before the environment's."""
        if embedded:
            return cls(embedded.region, embedded.aws_endpoint)
        found = region or default_region()
        if found is None:
            raise ConfigError(
                "no AWS region is named",
                fix="set `lake.region` in calve.yaml or AWS_REGION, or name a --profile that has one",
            )
        return cls(found)

    def client(self, service: str, config: Config = CONFIG) -> Any:
        keys: dict[str, str] = {}
        if self.endpoint:
            keys = {
                "endpoint_url": self.endpoint,
                "aws_access_key_id": emulator.ACCESS_KEY,
                "aws_secret_access_key": emulator.SECRET_KEY,
            }
        return boto3.client(service, region_name=self.region, config=config, **keys)

    def id(self) -> str:
        """The account's number.

        Raises:
            ConfigError: there are no credentials.
        """
        with aws_errors("the AWS account"):
            return str(self.client("sts").get_caller_identity()["Account"])


class NotDeployed(CalveError):
    """A stack that the account does not have."""


def outputs(account: Account, stack: str, *, fix: str) -> dict[str, str]:
    """The outputs of a deployed stack, by key.

    Raises:
        NotDeployed: `fix` says how it would be.
    """
    with aws_errors(f"the stack {stack}"), tolerating("ValidationError"):
        [found] = account.client("cloudformation").describe_stacks(StackName=stack)["Stacks"]
        return {each["OutputKey"]: each["OutputValue"] for each in found.get("Outputs", [])}
    raise NotDeployed(f"the stack {stack} is not deployed in {account.region}", fix=fix)


def stacks(account: Account) -> list[str]:
    """The names of all stacks, in alphabetical order."""
    pages = account.client("cloudformation").get_paginator("describe_stacks")
    with aws_errors(f"the stacks of {account.region}"):
        return sorted(each["StackName"] for page in pages.paginate() for each in page["Stacks"])


@dataclass(frozen=True, slots=True)
class Resource:
    """type: CloudFormation's, such as `AWS::Lambda::Function`. logical: id in the template. id: name in its service."""

    type: str
    logical: str
    id: str


def resources(account: Account, stack: str) -> Iterator[Resource]:
    """The resources of a stack; empty if it is not deployed."""
    pages = account.client("cloudformation").get_paginator("list_stack_resources")
    with aws_errors(f"the stack {stack}"), tolerating("ValidationError"):
        for page in pages.paginate(StackName=stack):
            for each in page["StackResourceSummaries"]:
                id = each.get("PhysicalResourceId", "")
                yield Resource(each["ResourceType"], each["LogicalResourceId"], id)
