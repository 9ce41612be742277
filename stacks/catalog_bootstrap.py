"""A catalog of Polaris is made by a deploy, and removed with its stack."""

from __future__ import annotations

import json

from aws_cdk import CustomResource, Duration, RemovalPolicy
from aws_cdk import aws_secretsmanager as secrets
from constructs import Construct

from calve.deployment import Deployment
from calve.publishing import IcebergRest
from stacks.arns import secret_arn
from stacks.bundling import Runtime
from stacks.findings import acknowledge
from stacks.function import Function
from stacks.lake import LakeStack
from stacks.roles import allow

TIMEOUT = Duration.minutes(5)


class CatalogBootstrap(Construct):
    """The custom resource, and the secret that it fills: the credentials of the principal that it makes."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        deployment: Deployment,
        catalog: IcebergRest,
        lake: LakeStack,
        runtime: Runtime,
    ) -> None:
        super().__init__(scope, id)
        self.credentials = secrets.CfnSecret(
            self,
            "Credentials",
            description=f"The principal of {deployment.name} at {catalog.uri}",
            # Only so that there is a version: the function writes the credentials in its place.
            generate_secret_string=secrets.CfnSecret.GenerateSecretStringProperty(exclude_punctuation=True),
        )
        self.credentials.apply_removal_policy(RemovalPolicy.DESTROY)
        acknowledge(self.credentials, {"SMG4": "Polaris rotates a principal's credentials only for itself"})
        bootstrap = catalog.bootstrap
        administrator = secret_arn(bootstrap.secret) if bootstrap else None
        function = Function(
            self,
            "Function",
            code="catalog_sync",
            handler="bootstrap.handle",
            runtime=runtime,
            deployment=deployment.name,
            timeout=TIMEOUT,
            statements=[
                allow(
                    ["secretsmanager:GetSecretValue", "secretsmanager:PutSecretValue"],
                    [self.credentials.ref],
                ),
                *([allow(["secretsmanager:GetSecretValue"], [administrator])] if administrator else []),
            ],
        )
        names = {
            "deployment": deployment.name,
            "catalog": catalog.warehouse,
            "location": lake.warehouse,
            "role_arn": bootstrap and bootstrap.role_arn,
            "external_id": bootstrap and bootstrap.external_id,
        }
        self.made = CustomResource(
            self,
            "Made",
            resource_type="Custom::CalvePolarisCatalog",
            service_token=function.function.function_arn,
            service_timeout=TIMEOUT,
            properties={
                "Catalog": catalog.to_json(),
                "Names": json.dumps(names),
                "Secret": self.credentials.ref,
            },
        )
        self.made.node.add_dependency(function)
