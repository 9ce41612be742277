"""The shape of `publish.iceberg_rest`."""

from typing import Self

from pydantic import model_validator

from calve.publishing import CatalogBootstrap, CatalogUpdate, IcebergRest
from calve.settings import fields
from calve.settings.problems import InvalidParts, Problem
from calve.settings.section import Section

MANAGEMENT = "/api/management/v1"
OF_POLARIS = "/api/catalog"


class BootstrapSection(Section):
    """A deploy makes the catalog at a server of Polaris or Snowflake Open Catalog: an EXTERNAL catalog, a principal whose
    credentials are kept in Secrets Manager, a role for it, one in the catalog with `CATALOG_MANAGE_CONTENT`, and the grants.
    The end of the deployment removes exactly these.
    """

    secret: fields.Secret
    """`client_id` and `client_secret` of an administrator; see Secrets"""
    scope: fields.Text = "PRINCIPAL_ROLE:ALL"
    """The administrator's scope. Default: `PRINCIPAL_ROLE:ALL`"""
    management_uri: fields.Url | None = None
    """Address of the management API. Default: `/api/management/v1` where `uri` ends in `/api/catalog`"""
    role_arn: fields.RoleArn | None = None
    """IAM role by which Polaris reads the lake. Default: Polaris reads it with what its server has"""
    external_id: fields.Text | None = None
    """External id of that role's trust. Default: none"""


class IcebergRestSection(Section):
    """An Iceberg REST catalog that is kept equal to Glue; see docs/iceberg_rest.md."""

    uri: fields.Url
    """Address of the catalog, without `/v1`: `https://host/api/catalog` of Polaris,
    `https://ACCOUNT.snowflakecomputing.com/polaris/api/catalog` of Snowflake Open Catalog"""
    warehouse: fields.Text | None = None
    """Name of the catalog at that server. Default: the server's only one"""
    namespace: fields.Namespace | None = None
    """Namespace of the tables there. Default: the Glue database, which is the cluster id with `lake.namespace: cluster_id`"""
    secret: fields.Secret | None = None
    """`client_id` and `client_secret` of OAuth; see Secrets. Default: no authentication"""
    scope: fields.Text | None = None
    """Scope to ask for, such as `PRINCIPAL_ROLE:ALL` or `catalog`. Default: none"""
    token_url: fields.Url | None = None
    """Token endpoint. Default: the catalog's own, `/v1/oauth/tokens` below `uri`"""
    update: CatalogUpdate | None = None
    """How a table there is moved to newer metadata: `register` (with `overwrite`, as Iceberg's specification has it), or
    `notifications` (the EXTERNAL catalogs of Polaris and Snowflake Open Catalog). Default: `notifications` with `bootstrap`,
    else `register`"""
    bootstrap: BootstrapSection | None = None
    """See `publish.iceberg_rest.bootstrap`. Default: the catalog is there"""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        problems = []
        if self.bootstrap is None:
            problems += [
                Problem((key,), "has no use without `secret`", "add `secret: aws:SECRET_ID`")
                for key in ("scope", "token_url")
                if getattr(self, key) and not self.secret
            ]
        else:
            if self.secret:
                fix = "remove it; the administrator's is `bootstrap.secret`"
                problems.append(Problem(("secret",), "is made by `bootstrap`", fix))
            if self.warehouse is None:
                fix = "add `warehouse: NAME`"
                problems.append(Problem(("warehouse",), "is missing: the catalog gets a name", fix))
            if self.management_uri is None:
                reason = f"is missing: `uri` does not end in {OF_POLARIS}"
                fix = "add `management_uri: https://host/api/management/v1`"
                problems.append(Problem(("bootstrap", "management_uri"), reason, fix))
        if problems:
            raise InvalidParts(problems)
        return self

    @property
    def management_uri(self) -> str | None:
        """Where Polaris' management API is."""
        if self.bootstrap and self.bootstrap.management_uri:
            return self.bootstrap.management_uri
        if self.uri.endswith(OF_POLARIS):
            return self.uri.removesuffix(OF_POLARIS) + MANAGEMENT
        return None

    def resolved(self) -> IcebergRest:
        """What it stands for."""
        made = None
        if self.bootstrap:
            options = self.bootstrap.model_dump() | {"management_uri": self.management_uri}
            made = CatalogBootstrap(**options)
        update = self.update or ("notifications" if made else "register")
        return IcebergRest(**self.model_dump() | {"update": update, "bootstrap": made})
