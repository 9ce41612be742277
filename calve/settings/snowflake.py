"""The shape of `publish.snowflake`, and what it stands for."""

from typing import Literal, Self

from pydantic import Field, model_validator

from calve.publishing import (
    SNOWFLAKE_REFRESH_S,
    SNOWFLAKE_ROTATION_DAYS,
    OpenCatalog,
    Snowflake,
    SnowflakeCatalog,
    SnowflakeTables,
    Warehouse,
)
from calve.settings import fields
from calve.settings.problems import InvalidParts, Problem
from calve.settings.section import Section


class WarehouseSection(Section):
    """A warehouse for those who query. Absent: none is made."""

    name: fields.SnowflakeName | None = None
    """Its name. Default: from the deployment's"""
    size: Literal["xsmall", "small", "medium", "large", "xlarge"] = "xsmall"
    """`xsmall`, `small`, `medium`, `large` or `xlarge`. Default: `xsmall`"""
    auto_suspend: fields.Duration = Field(default=60.0, ge=30, le=86_400)
    """How long it waits for a query until it stops, and costs nothing. Default: `60s`"""


class OpenCatalogSection(Section):
    """The account of Snowflake Open Catalog that holds the tables; `publish.iceberg_rest` brings them there."""

    uri: fields.Url
    """Its REST address, such as `https://ORG-ACCOUNT.snowflakecomputing.com/polaris/api/catalog`"""
    warehouse: fields.Text
    """Name of the catalog"""
    secret: fields.Secret
    """`client_id` and `client_secret` of a connection; see Secrets"""


class SnowflakeSection(Section):
    """An account of Snowflake that reads the tables; see docs/snowflake.md. Names are folded to capitals, as Snowflake does."""

    account: fields.SnowflakeAccount
    """Account identifier, such as `myorg-myaccount`"""
    url: fields.Url | None = None
    """Address of its SQL API, where it has another, as with PrivateLink. Default: `https://ACCOUNT.snowflakecomputing.com`"""
    user: fields.SnowflakeName
    """User that makes the objects"""
    secret: fields.Secret
    """`private_key` of that user, in PEM; see Secrets"""
    admin_role: fields.SnowflakeName = "ACCOUNTADMIN"
    """Role in which it makes them. Default: `ACCOUNTADMIN`"""
    database: fields.SnowflakeName | None = None
    """Database of the tables. Default: from the deployment's name"""
    schema_: fields.SnowflakeName | None = Field(default=None, alias="schema")
    """Schema of the tables. Default: from `lake.database`"""
    warehouse: WarehouseSection | None = None
    """See `publish.snowflake.warehouse`. Default: none is made"""
    reader_role: fields.SnowflakeName | None = None
    """Role that may query the tables; grant it to people. Default: `CALVE_NAME_READER`"""
    publisher_role: fields.SnowflakeName | None = None
    """Role of the service user. Default: `CALVE_NAME_PUBLISHER`"""
    service_user: fields.SnowflakeName | None = None
    """User that keeps the tables current. Default: `CALVE_NAME`"""
    catalog: SnowflakeCatalog = "glue_rest"
    """Where Snowflake finds the tables: `glue_rest`, `glue` (the classic integration) or `open_catalog`. Default: `glue_rest`"""
    open_catalog: OpenCatalogSection | None = None
    """See `publish.snowflake.open_catalog`"""
    tables: SnowflakeTables = "iceberg"
    """`iceberg`: a table for each; `linked_database`: a read-only database that follows the catalog. Default: `iceberg`"""
    refresh_interval: fields.Duration = Field(default=float(SNOWFLAKE_REFRESH_S), ge=30, le=86_400)
    """How often Snowflake itself looks for changes. Default: `60s`"""
    iam_user_arn: fields.IamUserArn | None = None
    """Snowflake's IAM user, for trust that no function may change. Default: the deployment asks Snowflake"""
    rotate_after_days: int = Field(default=SNOWFLAKE_ROTATION_DAYS, ge=1, le=365)
    """Days after which the service user gets a new key. Default: `30`"""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        problems = []
        is_open = self.catalog == "open_catalog"
        if is_open and self.open_catalog is None:
            problems.append(Problem(("open_catalog",), "is missing: the catalog is there", "name it"))
        if self.open_catalog and not is_open:
            fix = "remove it, or use `catalog: open_catalog`"
            problems.append(Problem(("open_catalog",), f"has no use with {self.catalog}", fix))
        if self.catalog == "glue" and self.iam_user_arn:
            reason = "needs `glue_rest`: with `glue`, Snowflake makes an id that nobody knows before"
            problems.append(Problem(("iam_user_arn",), reason, "remove it, or use `catalog: glue_rest`"))
        if self.tables == "linked_database":
            if self.catalog == "glue":
                reason = "needs a REST catalog"
                problems.append(Problem(("tables",), reason, "use `catalog: glue_rest`"))
            if self.schema_:
                reason = "has no use with a linked database, which has the catalog's own"
                problems.append(Problem(("schema",), reason, "remove it"))
        if problems:
            raise InvalidParts(problems)
        return self


def resolved(section: SnowflakeSection, deployment: str, lake_database: str) -> Snowflake:
    """The account as the functions and the stacks see it."""
    own = f"calve_{deployment}"

    def named(given: str | None, default: str) -> str:
        return (given or default.replace("-", "_")).upper()

    warehouse, catalog = section.warehouse, section.open_catalog
    return Snowflake(
        account=section.account,
        url=section.url or f"https://{section.account.lower().replace('_', '-')}.snowflakecomputing.com",
        user=section.user.upper(),
        secret=section.secret,
        admin_role=section.admin_role.upper(),
        database=named(section.database, deployment),
        schema=named(section.schema_, lake_database),
        warehouse=Warehouse(named(warehouse.name, own), warehouse.size.upper(), int(warehouse.auto_suspend))
        if warehouse
        else None,
        reader=named(section.reader_role, f"{own}_reader"),
        publisher=named(section.publisher_role, f"{own}_publisher"),
        service_user=named(section.service_user, own),
        volume=named(None, f"{own}_volume"),
        integration=named(None, f"{own}_catalog"),
        catalog=section.catalog,
        open_catalog=OpenCatalog(catalog.uri, catalog.warehouse, catalog.secret) if catalog else None,
        tables=section.tables,
        refresh_s=int(section.refresh_interval),
        iam_user_arn=section.iam_user_arn,
        rotate_after_days=section.rotate_after_days,
    )
